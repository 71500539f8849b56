"""What the words of a quantization tool say of one linear: the method and the bits of a weight."""

from dataclasses import dataclass

from vllm_probe.models.facts import Facts

MXFP4_BITS = 4 + 8 / 32
_NVFP4_BITS = 4 + 8 / 16
_GROUPED = {"auto_round": "auto-round", "intel/auto-round": "auto-round"}
_GROUPED |= {method: method for method in ("awq", "gptq", "moe_wna16", "inc", "auto-round")}
_FLOATS = {"mx_fp": 32, "nv_fp": 16}
"""AutoRound's floats to how many share a scale of 8 bits."""

_MOST_BITS = 64


@dataclass(frozen=True, slots=True)
class Scheme:
    """How weights are stored.

    Attributes:
        word: method in the words of `ModelSpec`.
        bits: of a weight, scales and zero points included; null when unknown.
    """

    word: str
    bits: float | None = None


def scheme_of(method: str, config: Facts, hidden: int) -> Scheme | None:
    """The scheme of `method` with its bits; a scale for a whole row counts as if rows were `hidden` wide."""
    if method == "none":
        return None
    if method.startswith("modelopt"):
        return algorithm(config.word("quant_algo", default=method), hidden)
    if method in _GROUPED:
        return grouped(_GROUPED[method], config, hidden)
    if method == "torchao":
        return Scheme(method, _torchao(config))
    if method == "quark":
        weight = config.part("global_quant_config").part("weight")
        return quark(weight)
    if method == "bitsandbytes":
        nested = 8 / 64 + 32 / (64 * 256) if config.flag("bnb_4bit_use_double_quant") else 32 / 64
        return Scheme(method, 8 + 32 / hidden if config.flag("load_in_8bit") else 4 + nested)
    if method.endswith("fp8") and method != "mxfp8":
        block = [size for size in config.items("weight_block_size") if type(size) is int and size > 0]
        word = "fbgemm_fp8" if method == "fbgemm_fp8" else "fp8"
        return Scheme(word, 8 + 32 / (block[0] * block[1] if len(block) == 2 else hidden))
    return Scheme(method, {"mxfp4": MXFP4_BITS, "mxfp8": 8 + 8 / 32, "experts_int8": 8.0}.get(method))


def grouped(word: str, config: Facts, hidden: int) -> Scheme:
    """Whole numbers with a 16-bit scale and a zero point for each group of weights, -1 of them for a row; or floats."""
    bits, kind = bits_of(config), config.word("data_type", default="int")
    if shared := next((count for name, count in _FLOATS.items() if kind.startswith(name)), None):
        return Scheme(word, bits + 8 / shared)
    is_row = -1 in (config.values.get("group_size"), config.values.get("q_group_size"))
    group = hidden if is_row else _whole(config, "group_size", "q_group_size", default=128)
    return Scheme(word, bits + (16 + bits) / group)


def _torchao(config: Facts) -> float | None:
    """Bits of a weight by the name of torchao's config, as transformers writes it now and before 4.50.

    Source: quantize_ of https://github.com/pytorch/ao; int4 has a scale and a zero point of 16 bits for a group of 128
    unless it states another.
    """
    kinds = config.part("quant_type")
    stated = kinds.part("default") if "default" in kinds.values else kinds
    word = stated.word("_type", default=config.word("quant_type")).lower().replace("_", "")
    settings = stated.part("_data") if stated.values else config.part("quant_type_kwargs")
    if "int4weightonly" in word or word.startswith("float8dynamicactivationint4"):
        return 4 + 32 / _whole(settings, "group_size", default=128)
    return 8.0 if word.startswith(("int8", "float8")) else None


def algorithm(word: str, hidden: int = 1 << 20) -> Scheme:
    """ModelOpt's name of a format."""
    low = word.lower()
    if low.endswith("nvfp4"):
        return Scheme("nvfp4", _NVFP4_BITS)
    scales = {"fp8_pb_wo": 32 / 128**2, "fp8_per_channel_per_token": 32 / hidden}
    if low in scales:
        return Scheme("fp8", 8 + scales[low])
    return Scheme(low, {"fp8": 8.0, "w8a8": 8.0, "mxfp8": 8 + 8 / 32, "mxfp4": MXFP4_BITS}.get(low))


def quark(weight: Facts) -> Scheme:
    """The `weight` of one of Quark's settings."""
    dtype, group = weight.word("dtype"), _whole(weight, "group_size", default=128)
    whole = {"int4": 4 + 16 / group, "uint4": 4 + 20 / group, "int8": 8.0}
    return Scheme("quark", {"fp8_e4m3": 8.0, "fp4": MXFP4_BITS, "mxfp4": MXFP4_BITS, **whole}.get(dtype))


def integers(group: Facts) -> Scheme:
    """A group of compressed-tensors."""
    weights = group.part("weights")
    bits, kind = weights.values.get("num_bits"), weights.word("type")
    int8 = "w8a8" if group.part("input_activations").values else "w8a16"
    int4 = "w4a8" if group.part("input_activations").values.get("num_bits") == 8 else "w4a16"
    forms = {"float8": "fp8", "int8": int8, "int4": int4, "float4": "nvfp4"}
    word = forms.get(f"{kind}{bits}", "compressed-tensors")
    if type(bits) is not int or not 1 <= bits <= 16:
        return Scheme(word)
    size = weights.values.get("group_size")
    scale = 8 if kind == "float" and bits == 4 else 16
    zero = bits if weights.values.get("symmetric") is False else 0
    return Scheme(word, bits + (scale + zero) / size if type(size) is int and size > 0 else float(bits))


def bits_of(config: Facts) -> int:
    """Bits of a code, 4 where nothing is stated.

    Raises:
        InvalidModel: no whole number from 1 to 64.
    """
    found = config.count("bits", "w_bit", default=4)
    if found > _MOST_BITS:
        raise config.invalid(f"{found} bits a weight")
    return found


def _whole(config: Facts, *names: str, default: int) -> int:
    """The first of `names` that is a whole number over 0."""
    found = (config.values.get(name) for name in names)
    return next((value for value in found if type(value) is int and 0 < value <= 1 << 20), default)
