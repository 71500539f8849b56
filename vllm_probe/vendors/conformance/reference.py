"""What each primitive computes, in double precision and plain Python.

It shares no code with any adapter, torch's included, and an adapter that does without torch is checked without it.
Operands are nested lists, rows first; results are flat, in the order of the points that were asked for.
"""

import math
import operator
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TypeAlias

Row: TypeAlias = Sequence[float]
Matrix: TypeAlias = Sequence[Row]
Heads: TypeAlias = Sequence[Matrix]
"""[tokens][heads][head_dim]."""


def dot(a: Row, b: Row) -> float:
    """The sum of products."""
    if len(a) != len(b):
        raise ValueError(f"{len(a)} and {len(b)} values")
    return float(sum(map(operator.mul, a, b)))


def linear(rows: Matrix, weight: Matrix, bias: Row | None, points: Iterable[tuple[int, int]]) -> list[float]:
    """`rows` [m][k] times `weight` [n][k] transposed plus `bias` [n], at `points` of (row, column)."""
    return [dot(rows[i], weight[j]) + (bias[j] if bias else 0.0) for i, j in points]


def attention(
    query: Heads, key: Heads, value: Heads, lengths: Sequence[int], tokens: Iterable[int], *, causal: bool
) -> list[float]:
    """softmax(q k^T / sqrt(head_dim)) v within each sequence, https://arxiv.org/abs/1706.03762, of query `tokens`.

    Queries that are fewer than the keys are the last tokens.
    """
    bounds = [
        (start, start + length)
        for start, length in zip(accumulate(lengths, initial=0), lengths, strict=False)
        for _ in range(length)
    ]
    shared, scale, before = len(query[0]) // len(key[0]), len(query[0][0]) ** -0.5, len(key) - len(query)
    keys = [*zip(*key, strict=True)]
    columns = [[*zip(*head, strict=True)] for head in zip(*value, strict=True)]
    out: list[float] = []
    for token in tokens:
        begin, end = bounds[before + token]
        seen = slice(begin, before + token + 1 if causal else end)
        for head, q in enumerate(query[token]):
            group = head // shared
            scores = [dot(q, k) * scale for k in keys[group][seen]]
            most = max(scores)
            weights = [math.exp(score - most) for score in scores]
            total = sum(weights)
            out += [dot(weights, column[seen]) / total for column in columns[group]]
    return out


def rms_norm(rows: Matrix, weights: Matrix, epsilon: float) -> list[float]:
    """https://arxiv.org/abs/1910.07467; row i takes weight i, counted round."""
    out: list[float] = []
    for i, row in enumerate(rows):
        root = math.sqrt(dot(row, row) / len(row) + epsilon)
        out += [x / root * w for x, w in zip(row, weights[i % len(weights)], strict=True)]
    return out


def rope(heads: Heads, cosines: Matrix, sines: Matrix) -> list[float]:
    """Halves rotated against each other, https://arxiv.org/abs/2104.09864 in the layout of transformers' models."""
    out: list[float] = []
    for token, cos, sin in zip(heads, cosines, sines, strict=True):
        for head in token:
            first, second = head[: len(cos)], head[len(cos) :]
            out += [a * c - b * s for a, b, c, s in zip(first, second, cos, sin, strict=True)]
            out += [b * c + a * s for a, b, c, s in zip(first, second, cos, sin, strict=True)]
    return out


def scales(rows: Matrix) -> list[float]:
    """Of symmetric int8 rows: the largest magnitude / 127, 1 for a row of zeros."""
    return [max(map(abs, row)) / 127 or 1.0 for row in rows]
