// Memory traffic: sums that read every element once, and the triad.

// One partial sum for each work-group, which reads `length` elements (a multiple of 16) of the first `count`.
kernel void sum(global const stored *restrict source, global float *restrict partial, ulong count, ulong length,
                local float *restrict lanes) {
    ulong begin = get_group_id(0) * length, end = min(begin + length, count);
    uint lane = get_local_id(0), width = get_local_size(0);
    exact16 a = 0, b = 0;
    ulong i = begin / 16 + lane;
    for (; i + width < end / 16; i += 2 * width) {
        a += LOAD16(source, i);
        b += LOAD16(source, i + width);
    }
    if (i < end / 16) a += LOAD16(source, i);
    float total = sum16(convert_float16(a) + convert_float16(b));
    if (lane == 0 && begin < end)
        for (ulong j = end / 16 * 16; j < end; j++) total += LOAD(source, j);
    total = over_lanes(total, false, lanes);
    if (lane == 0) partial[get_group_id(0)] = total;
}

#if !defined(FORMAT_int8)
// out = b + scale * c, 16 elements for each work-item; the last one takes what is left.
kernel void triad(global const stored *restrict b, global const stored *restrict c, float scale,
                  global stored *restrict out, ulong count) {
    ulong i = get_global_id(0);
    if (16 * i + 16 <= count)
        STORE16(fma(scale, LOAD16(c, i), LOAD16(b, i)), out, i);
    else
        for (ulong j = 16 * i; j < count; j++) STORE(fma(scale, LOAD(c, j), LOAD(b, j)), out, j);
}
#endif
