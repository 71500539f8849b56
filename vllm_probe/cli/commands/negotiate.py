"""`vllm-probe negotiate`: a runtime config with a reason for each value."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vllm_probe.cli.options import AsJson, Device

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")

PINS = (
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "block_size",
    "kv_cache_memory_bytes",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "enforce_eager",
)
PINNED = "Pins, named as in vLLM: kept as given, all else is negotiated"


def _load(text: str, default: str | bool = True, least: int | None = None) -> Any:
    metavar = None if least is None else "N"
    return typer.Option(
        help=text, show_default=default, min=least, metavar=metavar, rich_help_panel="What it will serve"
    )


def _pin(text: str, metavar: str = "N") -> Any:
    return typer.Option(help=text, metavar=metavar, show_default=False, rich_help_panel=PINNED)


@app.command()
def negotiate(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL",
            help="Model name, folder with config.json, GGUF or ONNX file.",
            show_default="that of --model",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="M", help="The same as MODEL.", show_default="MODEL")] = None,
    capability: Annotated[
        str | None,
        typer.Option(
            metavar="NAME/FILE",
            help="Capability descriptor to use.",
            show_default="the one that `capability path` shows, else a quick bench",
        ),
    ] = None,
    device: Device = None,
    device_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Device memory, such as 24GiB.", show_default="the descriptor's or device's"),
    ] = None,
    engine: Annotated[
        Literal["bundled", "vllm"] | None, typer.Option(help="Who will run the config.", show_default="bundled")
    ] = None,
    engine_version: Annotated[
        str | None, typer.Option(metavar="V", help="Version whose laws count.", show_default="the newest known")
    ] = None,
    objective: Annotated[
        Literal["throughput", "latency", "memory"] | None, _load("What to optimise.", "throughput")
    ] = None,
    concurrency: Annotated[int | None, _load("Requests at a time.", "32, for latency 1", 1)] = None,
    input_len: Annotated[int | None, _load("Prompt tokens of a request.", "512, or the model's limit", 1)] = None,
    output_len: Annotated[int | None, _load("Generated tokens of a request.", "128, for embeddings 0", 0)] = None,
    measured: Annotated[
        float | None,
        typer.Option(
            metavar="TOKENS_PER_S",
            min=0,
            help="Speed that this config reached under this load: scales the prediction and narrows its bands.",
            show_default="nothing measured",
            rich_help_panel="What it will serve",
        ),
    ] = None,
    dtype: Annotated[str | None, _pin("auto, bfloat16, float16 or float32; also bf16, fp16, fp32.", "FORMAT")] = None,
    quantization: Annotated[str | None, _pin("auto, none, int8, int4, awq, ...", "METHOD")] = None,
    kv_cache_dtype: Annotated[str | None, _pin("auto, bfloat16, float16, fp8, fp8_e5m2, ...", "FORMAT")] = None,
    max_model_len: Annotated[int | None, _pin("Longest input and output in tokens.")] = None,
    block_size: Annotated[int | None, _pin("Tokens in a KV block.")] = None,
    kv_cache_memory_bytes: Annotated[str | None, _pin("Size of the KV cache, such as 4GiB.", "SIZE")] = None,
    max_num_seqs: Annotated[int | None, _pin("Sequences in a step.")] = None,
    max_num_batched_tokens: Annotated[int | None, _pin("Tokens in a step.")] = None,
    gpu_memory_utilization: Annotated[float | None, _pin("Share of the device memory, at most 1.", "SHARE")] = None,
    tensor_parallel_size: Annotated[int | None, _pin("Devices that share each layer.")] = None,
    pipeline_parallel_size: Annotated[int | None, _pin("Devices that share the layers.")] = None,
    enforce_eager: Annotated[
        bool, typer.Option("--enforce-eager", help="Run without compiling.", rich_help_panel=PINNED)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Save the config there.", show_default="runtime.json; none with --json"),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Print how each value was decided, as a tree.")] = False,
    check: Annotated[
        Path | None,
        typer.Option(metavar="LOG", help="Compare a start-up log of vLLM with the prediction.", show_default="no log"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Turns what a device can do into a runtime config for a model, with a reason for each value.

    Exits with 1 when the model cannot boot, with the bytes it needs and what could.

    With --check, what the options leave open is as the log says it. Exits with 1 when a line is not as predicted; what
    the log showed is kept for later predictions of that version and device.
    """
    from vllm_probe import api
    from vllm_probe.cli.hints import changed
    from vllm_probe.core.errors import BadUsage
    from vllm_probe.core.files import require_writable
    from vllm_probe.core.units import parse_size

    if target and model:
        raise BadUsage(f"both {target} and --model {model} are given", hint="give one of them")
    wanted = target or model
    if wanted is None:
        raise BadUsage("no model is given", hint="give its name or folder, as MODEL or with --model")
    if check and engine == "bundled":
        raise BadUsage("--check compares with vLLM, --engine is bundled", hint="leave --engine out, or give vllm")
    saved = output or (None if as_json or check else Path("runtime.json"))
    if saved:
        require_writable(saved)
    given = ctx.params | {"kv_cache_memory_bytes": kv_cache_memory_bytes and parse_size(kv_cache_memory_bytes)}
    again = partial(changed, ctx)
    with _telling_what_is_kept(saved, ctx.obj):
        config = api.negotiate(
            wanted,
            ctx.obj.host,
            capability=capability,
            device=device,
            device_memory_bytes=parse_size(device_memory) if device_memory else None,
            log=check,
            engine=engine or ("vllm" if check else "bundled"),
            engine_version=engine_version,
            objective=objective or "throughput",
            concurrency=concurrency,
            input_len=input_len,
            output_len=output_len,
            measured_tokens_per_s=measured or None,
            pins={name: value for name in PINS if (value := given[name]) is not None and value is not False},
        )
        refused = api.disagreement(config) if check else api.refusal(config, again)
        blocker = None if as_json or check or refused else api.blocker(config, ctx.obj.host)
        if blocker:
            instead = f"; `{again('--engine vllm')}` plans for that" if "--engine vllm" in blocker else ""
            ctx.obj.say(f"warning: {blocker}{instead}")
        ctx.obj.emit(
            config,
            as_json=as_json,
            renderer="check" if check else "explanation" if explain else "config",
            output=None if refused else saved,
            shown=replace(config, warnings=tuple(line for line in config.warnings if line != blocker)),
        )
        if refused:
            raise refused
    if saved and check is None:
        ctx.obj.say(f"saved {saved}; {api.next_step(config, saved, ctx.obj.host, again)}")
    return 0


@contextmanager
def _telling_what_is_kept(saved: Path | None, terminal: Any) -> Iterator[None]:
    """Says which older config a failure leaves in place, since `serve` and `export` would take it."""
    from vllm_probe import api
    from vllm_probe.core.errors import ProbeError

    try:
        yield
    except ProbeError:
        if saved and (kept := api.kept_config(saved)):
            terminal.say(kept)
        raise
