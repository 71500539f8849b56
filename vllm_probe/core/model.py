"""A model as its files describe it, before anything is computed from it."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from vllm_probe.core.values import Bytes, Count, Natural, Rate

Task: TypeAlias = Literal["generate", "embed"]
Pooling: TypeAlias = Literal["mean", "cls", "last"]
AttentionKind: TypeAlias = Literal["full", "sliding", "chunked", "compressed", "linear"]
LinearKind: TypeAlias = Literal["delta", "mamba1", "mamba2", "convolution"]
LinearPart: TypeAlias = Literal["attention", "feed_forward", "experts", "lm_head", "kept"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionGroup:
    """Layers that attend alike.

    Attributes:
        kind: what a token attends to: `full` all tokens before it, `sliding` the last `window`, `chunked` those in its
            chunk of `window`, `compressed` the last `window` and one cache entry for each `compression` tokens before,
            `linear` a state of fixed size.
        num_layers: layers of this kind.
        window: tokens, null where there is no such limit.
        compression: tokens that share a cache entry.
        index_top: cache entries that a sparse-attention indexer lets a token see, null without one.
        num_kv_heads: key/value heads, null for the model's.
        head_dim: width of a query or key head, null for the model's.
        ties_values: values are the projected keys.
        reuses_cache: keys and values are those of an earlier layer.
    """

    kind: AttentionKind
    num_layers: Count
    window: Count | None = None
    compression: Count = 1
    index_top: Count | None = None
    num_kv_heads: Count | None = None
    head_dim: Count | None = None
    ties_values: bool = False
    reuses_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearShape:
    """What stands in for attention in the `linear` layers: a short convolution, and a state of fixed size behind it.

    Attributes:
        num_key_heads: query heads, and as many key heads; groups of a Mamba 2, 0 without any.
        num_value_heads: value heads, each with a state of `key_dim` x `value_dim` numbers; channels of a Mamba 1 and of
            a convolution.
        key_dim: width of a query or key head; numbers in the state of a channel.
        value_dim: width of a value head.
        conv_width: tokens that the convolution over queries, keys and values spans.
        kind: `delta` a gated delta rule, `mamba1` and `mamba2` state spaces, `convolution` no state behind it.
        rank: of the time steps of a Mamba 1, 0 for others.
        state_width: bytes of a number in the state, 0 without one.
    """

    num_key_heads: Natural
    num_value_heads: Count
    key_dim: Count
    value_dim: Count
    conv_width: Count
    kind: LinearKind = "delta"
    rank: Natural = 0
    state_width: Natural = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeShape:
    """Mixture-of-experts feed-forward.

    Attributes:
        num_experts: routed experts.
        num_active: routed experts per token.
        num_shared: shared experts, in widths of a routed one.
        expert_intermediate: width of one expert.
        num_dense_layers: layers with a dense feed-forward, the leading ones where nothing else is known.
    """

    num_experts: Count
    num_active: Count
    num_shared: Natural
    expert_intermediate: Count
    num_dense_layers: Natural


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaShape:
    """Multi-head latent attention.

    Attributes:
        q_rank: rank of the query compression, null without one.
        kv_rank: rank of the key/value compression.
        nope_dim: per-head width without rotation.
        rope_dim: rotated width, shared by all heads.
        v_dim: per-head value width.
        index_heads: heads of the sparse-attention indexer, 0 without one.
        index_dim: width of an indexer head.
        num_indexers: layers that hold their own indexer.
        o_groups: groups of heads in a factored output projection, 0 without one; heads that have one take the latent
            itself as key and value.
        o_rank: rank of that projection in a group.
    """

    q_rank: Count | None
    kv_rank: Count
    nope_dim: Natural
    rope_dim: Natural
    v_dim: Count
    index_heads: Natural = 0
    index_dim: Natural = 0
    num_indexers: Natural = 0
    o_groups: Natural = 0
    o_rank: Natural = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerInputs:
    """What every layer is told of a token beside the stream: a row of a table of its own.

    Attributes:
        vocab_size: rows of each table.
        width: numbers of a row.
    """

    vocab_size: Count
    width: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLinear:
    """Linears of one shape as a graph states them, [tokens, k] x [k, n].

    Attributes:
        name: role in its layer, or the shape.
        k: input width.
        n: output width.
        stored: weights of that shape, 0 when they belong to the token embedding.
        active: how many of them one token passes through.
        part: which quantization methods cover them; `kept` none does.
        bits: stored bits of a weight, without scales.
        nbytes: bytes of all stored ones, scales and zero points included.
    """

    name: str
    k: Count
    n: Count
    stored: Natural
    active: Natural
    part: LinearPart
    bits: Count
    nbytes: Bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """Shape and conventions of one model.

    Attributes:
        name: canonical name.
        architecture: Hugging Face architecture class, such as `BertModel`.
        model_type: Hugging Face model type, such as `bert`.
        is_encoder: bidirectional attention, no KV cache.
        task: what the checkpoint is for.
        num_layers: transformer layers.
        hidden_size: width of the residual stream.
        num_heads: query heads, 0 without attention.
        num_kv_heads: key/value heads, 0 without attention; with latent attention those after decompression, one per
            query head.
        head_dim: width of a query or key head, 0 without attention; with latent attention `nope_dim + rope_dim`.
        intermediate_size: width of the dense feed-forward, 0 without one.
        feed_forward_layers: layers that are a feed-forward and nothing else, where each is that or attention; null
            where all have one behind their attention.
        num_wide_layers: layers whose dense feed-forward is twice as wide.
        is_gated: gate and up projection (SwiGLU) instead of one.
        vocab_size: rows of the token embedding, 0 without one.
        num_positions: rows of a learned position table, 0 with rotary positions.
        position_offset: row of that table for the first token.
        num_token_types: rows of a token-type table.
        max_model_len: longest input in tokens.
        dtype: number format of the checkpoint, vLLM's word.
        ties_embeddings: the output projection is the token embedding, or there is none.
        has_qkv_bias: bias on query, key and value alone.
        has_bias: bias on every linear, query, key and value included, and on the norms of an encoder.
        has_qk_norm: norm on the query and key heads.
        has_output_gate: a gate as wide as the queries on what attention puts out.
        activation: function of the feed-forward, Hugging Face's word.
        norm_eps: epsilon of the norms.
        rope_theta: base of the rotary positions, null without them.
        rope_type: how the rotary positions are scaled, Hugging Face's word, `default` when they are not.
        rope_stretch: rows of the rotary table for each position of `max_model_len`; Gemma 3 scales beyond it.
        eos_token_ids: tokens that end a generation.
        layer_inputs: tables of embeddings for each layer or null.
        moe: mixture of experts or null.
        mla: latent attention or null.
        linear: linear attention of the `linear` layers or null.
        attention_groups: layers by what they attend to; empty when all attend to every token with the model's heads.
        quantization: `none`, `fp8`, `w8a8`, `w4a16`, `awq`, `gptq`, `nvfp4`, `gguf`, or a checkpoint's own word for
            another.
        quantized_parts: method of each part of the checkpoint that differs; parts are `attention`, `feed_forward`,
            `experts` and `lm_head`.
        stored_bits: bits of a stored weight of a part, scales and weights that are left alone included; of the parts
            for which headers or the checkpoint's exceptions say more than its method.
        kv_cache_dtype: number format that the checkpoint has its keys and values kept in, vLLM's word; null where it
            states none.
        pooling: how token states become one vector, null for generators.
        projections: widths of the linears behind pooling.
        normalizes: whether vectors are scaled to unit length.
        score_tokens: of a generator that serves as a reranker, the tokens against and for a match; empty for others.
        is_matryoshka: the first dimensions of a vector are a vector, https://arxiv.org/abs/2205.13147.
        vision_parameters: parameters of the towers for images and sound and of what joins them to the text model.
        weight_bytes: exact bytes of the checkpoint's loaded tensors, null when no headers were read.
        num_parameters: exact count from headers, null when none were read or the weights are packed.
        weights_path: folder with the weight files, or the GGUF file; null for a catalogue shape.
        folder: folder with the config and the tokenizer, null for a catalogue shape.
        repository: `organisation/name` on the Hugging Face hub, null when unknown.
        linears: every linear as a graph states it; empty where they follow from the shape.
        needs: what has to be obtained to run the model, for a file that no engine runs; null for others.
        unknown: name of an attribute to why no file states it and what stands for it here.
        source: where the facts come from.
        understood: how the name that was asked for was read, null where it is the model's own.
        prompts: named prompt prefixes of the checkpoint.
        default_prompt: name of the prompt that stands before a text for which none is named, null for none.
    """

    name: str
    architecture: str
    model_type: str
    is_encoder: bool
    task: Task
    num_layers: Count
    hidden_size: Count
    num_heads: Natural
    num_kv_heads: Natural
    head_dim: Natural
    intermediate_size: Natural
    feed_forward_layers: tuple[Natural, ...] | None = None
    num_wide_layers: Natural = 0
    is_gated: bool
    vocab_size: Natural
    num_positions: Natural = 0
    position_offset: Natural = 0
    num_token_types: Natural = 0
    max_model_len: Count
    dtype: str
    ties_embeddings: bool
    has_qkv_bias: bool = False
    has_bias: bool = False
    has_qk_norm: bool = False
    has_output_gate: bool = False
    activation: str = "silu"
    norm_eps: Rate = 1e-6
    rope_theta: Rate | None = None
    rope_type: str = "default"
    rope_stretch: Rate = 1.0
    eos_token_ids: tuple[Natural, ...] = ()
    layer_inputs: LayerInputs | None = None
    moe: MoeShape | None = None
    mla: MlaShape | None = None
    linear: LinearShape | None = None
    attention_groups: tuple[AttentionGroup, ...] = ()
    quantization: str = "none"
    quantized_parts: dict[str, str] = field(default_factory=dict)
    stored_bits: dict[str, Rate] = field(default_factory=dict)
    kv_cache_dtype: str | None = None
    pooling: Pooling | None = None
    projections: tuple[Count, ...] = ()
    normalizes: bool = False
    score_tokens: tuple[str, ...] = ()
    is_matryoshka: bool = False
    vision_parameters: Natural = 0
    weight_bytes: Bytes | None = None
    num_parameters: Count | None = None
    weights_path: str | None = None
    folder: str | None = None
    repository: str | None = None
    linears: tuple[StatedLinear, ...] = ()
    needs: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    source: str
    understood: str | None = None
    prompts: dict[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
