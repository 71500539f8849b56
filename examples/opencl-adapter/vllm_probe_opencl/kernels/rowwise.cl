// Operations on rows: a work-group for each, whose lanes take turns.

// Rounded to the format before the weight, of which row r takes the r-th of `num_weights`, again and again.
kernel void rms_norm(global const stored *restrict rows, global const stored *restrict weight, global stored *out,
                     int n, int num_weights, float epsilon, local float *restrict lanes) {
    ulong row = get_group_id(0);
    rows += row * n;
    out += row * n;
    weight += row % num_weights * n;
    int lane = get_local_id(0), width = get_local_size(0), tail = n / 16 * 16;
    float16 squares = 0;
    for (int i = lane; i < n / 16; i += width) {
        float16 x = LOAD16(rows, i);
        squares = fma(x, x, squares);
    }
    float sum = sum16(squares);
    for (int i = tail + lane; i < n; i += width) sum = fma(LOAD(rows, i), LOAD(rows, i), sum);
    float scale = rsqrt(over_lanes(sum, false, lanes) / n + epsilon);
    for (int i = lane; i < n; i += width) {
        STORE(LOAD(rows, i) * scale, out, i);
        STORE(LOAD(out, i) * LOAD(weight, i), out, i);
    }
}

// A row is a head of a token; its halves turn against each other by the angles of the token.
kernel void rope(global const stored *restrict heads, global const stored *restrict cosines,
                 global const stored *restrict sines, global stored *restrict out, int half_dim, int num_heads) {
    ulong row = get_group_id(0), angles = row / num_heads * half_dim;
    for (int i = get_local_id(0); i < half_dim; i += get_local_size(0)) {
        float first = LOAD(heads, 2 * row * half_dim + i), second = LOAD(heads, (2 * row + 1) * half_dim + i);
        float c = LOAD(cosines, angles + i), s = LOAD(sines, angles + i);
        STORE(first * c - second * s, out, 2 * row * half_dim + i);
        STORE(second * c + first * s, out, (2 * row + 1) * half_dim + i);
    }
}

// int8 over a scale for each row: its largest magnitude / 127, 1 for a row of zeros.
kernel void quantize(global const stored *restrict rows, global char *restrict out, global float *restrict scales,
                     int n, local float *restrict lanes) {
    ulong row = get_group_id(0);
    float largest = 0;
    for (int i = get_local_id(0); i < n; i += get_local_size(0)) largest = fmax(largest, fabs(LOAD(rows, row * n + i)));
    largest = over_lanes(largest, true, lanes);
    float scale = largest > 0 ? largest / 127 : 1;
    if (get_local_id(0) == 0) scales[row] = scale;
    for (int i = get_local_id(0); i < n; i += get_local_size(0))
        out[row * n + i] = convert_char_sat_rte(LOAD(rows, row * n + i) / scale);
}
