"""Attention on one batch of equal lengths: torch's fused kernel, and stored scores in blocks that a cache holds."""

import torch
from torch.nn import functional

_QUERY_ROWS = 256  # scores that stay in cache: twice as fast on a CPU at 1024 tokens as all rows at once
_SCORES = 1 << 23


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """[batch, heads, tokens, head_dim]; without a mask torch's CPU and CUDA dispatch take their flash kernels."""
    grouped = {} if q.shape[1] == k.shape[1] else {"enable_gqa": True}
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)


def in_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """[batch, heads, tokens, head_dim]; the query heads of a key head are rows of one product.

    Holds `_SCORES` scores in the format of `q`, or those of `_QUERY_ROWS` queries of one key head where they are more.
    """
    num_tokens, shared, scale = q.shape[2], q.shape[1] // k.shape[1], q.shape[-1] ** -0.5
    queries = q.unflatten(1, (-1, shared)).flatten(0, 1)  # [batch * kv_heads, shared, tokens, head_dim]
    keys, values, out = k.flatten(0, 1), v.flatten(0, 1), torch.empty_like(queries)
    nothing, most = q.new_zeros(()), min(_QUERY_ROWS, num_tokens)
    later = torch.ones(most, most, dtype=torch.bool, device=q.device).triu(1)
    for begin in range(0, num_tokens, _QUERY_ROWS):
        end = min(begin + _QUERY_ROWS, num_tokens)
        rows, seen = end - begin, end if causal else num_tokens
        heads = max(1, _SCORES // (shared * rows * seen))
        for first in range(0, len(queries), heads):
            at = slice(first, first + heads)
            block, past = queries[at, :, begin:end].flatten(1, 2), keys[at, :seen].transpose(1, 2)
            scores = torch.baddbmm(nothing, block, past, beta=0, alpha=scale)
            if causal:
                scores.unflatten(1, (shared, rows))[..., begin:].masked_fill_(later[:rows, :rows], float("-inf"))
            out[at, :, begin:end] = torch.bmm(scores.softmax(-1), values[at, :seen]).unflatten(1, (shared, rows))
    return out.view(q.shape)
