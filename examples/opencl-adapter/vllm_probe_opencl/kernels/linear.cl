// y[m, n] = x[m, k] * weight[n, k]^T + bias[n]. The weight is packed once: panels of COLUMNS columns, row after row of
// k, so that both kernels read it in order; missing columns and rows are zero.
#define COLUMNS 32
#define ROWS 8
#define DEPTH 16
#define WIDE 8

kernel void pack(global const stored *restrict weight, global stored *restrict packed, int n, int k, int padded_k) {
    int at = get_global_id(0), column = get_global_id(1), source = column % COLUMNS + column / COLUMNS * COLUMNS;
    ulong target = ((ulong)(column / COLUMNS) * padded_k + at) * COLUMNS + column % COLUMNS;
    STORE(source < n && at < k ? LOAD(weight, (ulong)source * k + at) : 0, packed, target);
}

// A tile of ROWS x COLUMNS in the vector registers of each work-item: what a CPU wants.
kernel GROUP void vector_tile(global const stored *restrict x, global const stored *restrict packed,
                              global const result *restrict bias, global result *restrict y, int m, int n, int k,
                              int padded_k) {
    int row = get_global_id(0) * ROWS, column = get_global_id(1) * COLUMNS;
    if (row >= m) return;
    global const stored *panel = packed + (ulong)column * padded_k;
    global const stored *line[ROWS];
    exact16 left[ROWS], right[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        line[r] = x + (ulong)min(row + r, m - 1) * k;
        left[r] = right[r] = 0;
    }
    for (int i = 0; i < k; i++) {
        exact16 a = LOAD16(panel, 2 * i), b = LOAD16(panel, 2 * i + 1);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            exact16 value = (exact16)LOAD(line[r], i);
            left[r] = MULTIPLY_ADD(value, a, left[r]);
            right[r] = MULTIPLY_ADD(value, b, right[r]);
        }
    }
    exact tile[COLUMNS];
    for (int r = 0; r < min(ROWS, m - row); r++) {
        vstore16(left[r], 0, tile);
        vstore16(right[r], 1, tile);
        for (int c = 0; c < min(COLUMNS, n - column); c++)
            STORE(tile[c] + (bias ? LOAD(bias, column + c) : 0), y + (ulong)(row + r) * n, column + c);
    }
}

// A tile of ROWS x WIDE for each lane, with x in local memory for the whole group: what a GPU wants.
kernel GROUP void local_tile(global const stored *restrict x, global const stored *restrict packed,
                             global const result *restrict bias, global result *restrict y, int m, int n, int k,
                             int padded_k) {
    local exact tile[ROWS][DEPTH];
    int row = get_group_id(1) * ROWS, column = get_global_id(0) * WIDE, inside = min(column, (n - 1) / WIDE * WIDE);
    global const stored *lane = packed + (ulong)(inside / COLUMNS) * COLUMNS * padded_k + inside % COLUMNS;
    exact8 sum[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; r++) sum[r] = 0;
    for (int begin = 0; begin < padded_k; begin += DEPTH) {
        for (int i = get_local_id(0); i < ROWS * DEPTH; i += get_local_size(0)) {
            int r = min(row + i / DEPTH, m - 1), at = begin + i % DEPTH;
            tile[i / DEPTH][i % DEPTH] = at < k ? LOAD(x, (ulong)r * k + at) : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
        for (int i = 0; i < DEPTH; i++) {
            exact8 value = LOAD8(lane + (ulong)(begin + i) * COLUMNS, 0);
#pragma unroll
            for (int r = 0; r < ROWS; r++) sum[r] = MULTIPLY_ADD((exact8)tile[r][i], value, sum[r]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    exact line[WIDE];
    for (int r = 0; r < min(ROWS, m - row); r++) {
        vstore8(sum[r], 0, line);
        for (int c = 0; c < min(WIDE, n - column); c++)
            STORE(line[c] + (bias ? LOAD(bias, column + c) : 0), y + (ulong)(row + r) * n, column + c);
    }
}
