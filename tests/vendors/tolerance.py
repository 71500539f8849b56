"""How far an implementation may be from float32, in one table."""

TOLERANCE = {"fp32": 1e-5, "tf32": 2e-3, "bf16": 1e-2, "fp16": 2e-3, "int8": 0.0}
"""Largest relative error, |y - reference| / |reference| in the Frobenius norm, against float32 on the same operands.

Rounding the result alone costs about 0.4 units of roundoff: 2**-9 for bf16 and 2**-11 for fp16 and tf32 (IEEE 754
binary16; bfloat16 has 8 bits of significand), with room for partial sums kept in the format. fp32 allows for sums
in another order over 16384 terms, 128 * 2**-24. Integer products are exact.
"""
