// The number format of a program, chosen by -D FORMAT_<word>: how elements are stored, and what they are computed in.
// fp16 is stored and computed in fp32: loads and stores of halves are core OpenCL, arithmetic on them is an extension.
#if defined(FORMAT_fp16)
typedef half stored;
typedef half result;
#define LOAD(p, i) vload_half(i, p)
#define LOAD8(p, i) vload_half8(i, p)
#define LOAD16(p, i) vload_half16(i, p)
#define STORE(v, p, i) vstore_half_rte(v, i, p)
#define STORE16(v, p, i) vstore_half16_rte(v, i, p)
#elif defined(FORMAT_int8)
typedef char stored;
typedef int result;
#define LOAD(p, i) ((int)(p)[i])
#define LOAD8(p, i) convert_int8(vload8(i, p))
#define LOAD16(p, i) convert_int16(vload16(i, p))
#define STORE(v, p, i) ((p)[i] = v)
#define STORE16(v, p, i) vstore16(v, i, p)
#else
typedef float stored;
typedef float result;
#define LOAD(p, i) ((p)[i])
#define LOAD8(p, i) vload8(i, p)
#define LOAD16(p, i) vload16(i, p)
#define STORE(v, p, i) ((p)[i] = v)
#define STORE16(v, p, i) vstore16(v, i, p)
#endif

#if defined(FORMAT_int8)
typedef int exact;
typedef int8 exact8;
typedef int16 exact16;
#define MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#else
typedef float exact;
typedef float8 exact8;
typedef float16 exact16;
#define MULTIPLY_ADD(a, b, c) fma(a, b, c)
#endif

#if defined(SUB_GROUP)
#define GROUP __attribute__((intel_reqd_sub_group_size(SUB_GROUP)))
#else
#define GROUP
#endif

float sum16(float16 v) {
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    return b.x + b.y + b.z + b.w;
}

// The sum or the largest of what the lanes of a work-group have, for each of them; once in a kernel.
float over_lanes(float value, bool largest, local float *restrict lanes) {
    uint lane = get_local_id(0);
    lanes[lane] = value;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < get_local_size(0); j++)
        if (j != lane) value = largest ? fmax(value, lanes[j]) : value + lanes[j];
    return value;
}
