"""Attention on one batch of equal lengths: torch's fused kernel, and stored scores in blocks that a cache holds."""

import torch
from torch.nn import functional

_QUERY_ROWS = 256  # scores that stay in cache: twice as fast on a CPU at 1024 tokens as all rows at once
_SCORES = 1 << 20  # 2 MiB in bf16: on a CPU a third less time at 4000 tokens than with 16 MiB, nothing lost at 128


def fused(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """[batch, heads, tokens, head_dim]; fewer queries than keys are the last ones.

    torch's CPU and CUDA dispatch take their flash kernels. Its `is_causal` aligns the first query with the first key:
    https://docs.pytorch.org/docs/stable/generated/torch.nn.attention.bias.CausalBias.html.
    """
    grouped = {} if q.shape[1] == k.shape[1] else {"enable_gqa": True}
    if causal and q.shape[2] < k.shape[2]:
        mask = _lower_right(q.shape[2], k.shape[2], q.device)
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **grouped)
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, **grouped)


def _lower_right(num_queries: int, num_keys: int, device: torch.device) -> torch.Tensor:
    """What tells accelerators' kernels to align the last query with the last key, and a plain mask on a CPU.

    torch would make that mask of it there, and importing it loads torch's compiler: 0.8 s of a start.
    """
    if device.type == "cpu":
        return torch.ones(num_queries, num_keys, dtype=torch.bool).tril_(num_keys - num_queries)
    from torch.nn.attention.bias import causal_lower_right

    return causal_lower_right(num_queries, num_keys)


def in_blocks(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """[batch, heads, tokens, head_dim]; fewer queries than keys are the last ones.

    The query heads of a key head are rows of one product. Keys and values are made contiguous once: torch copies the
    operands of every product that are not. Holds `_SCORES` scores in the format of `q`, or those of `_QUERY_ROWS`
    queries of one key head where they are more.
    """
    num_queries, num_keys, shared = q.shape[2], k.shape[2], q.shape[1] // k.shape[1]
    queries = q.unflatten(1, (-1, shared)).flatten(0, 1)  # [batch * kv_heads, shared, tokens, head_dim]
    keys, values = k.flatten(0, 1).contiguous(), v.flatten(0, 1).contiguous()
    nothing, scale, out = q.new_zeros(()), q.shape[-1] ** -0.5, torch.empty_like(queries)
    most, offset = min(_QUERY_ROWS, num_queries), num_keys - num_queries
    later = q.new_full((most, most), float("-inf")).triu(1)
    for begin in range(0, num_queries, _QUERY_ROWS):
        end = min(begin + _QUERY_ROWS, num_queries)
        rows, seen = end - begin, offset + end if causal else num_keys
        heads = max(1, _SCORES // (shared * rows * seen))
        for first in range(0, len(queries), heads):
            at = slice(first, first + heads)
            past, kept = _seen(keys[at], seen).transpose(1, 2), _seen(values[at], seen)
            scores = torch.baddbmm(nothing, queries[at, :, begin:end].flatten(1, 2), past, beta=0, alpha=scale)
            if causal:
                scores.unflatten(1, (shared, rows))[..., offset + begin :].add_(later[:rows, :rows])
            out[at, :, begin:end] = torch.bmm(scores.softmax(-1), kept).unflatten(1, (shared, rows))
    return out.view(q.shape)


def _seen(heads: torch.Tensor, count: int) -> torch.Tensor:
    """The first `count` tokens of `heads` [heads, tokens, head_dim]; those of one head in strides that need no copy."""
    return heads[0, :count].unsqueeze(0) if len(heads) == 1 else heads[:, :count]


ATTENTION = {"sdpa": fused, "bmm": in_blocks}
"""Name to an implementation of `HardwareAdapter.attention` on one batch of equal lengths."""
