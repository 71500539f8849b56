"""`vllm-probe serve`: an OpenAI-compatible server."""

from contextlib import ExitStack
from typing import Annotated, Literal

import typer

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command()
def serve(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG or MODEL",
            help="Runtime config, or model to negotiate one for.",
            show_default="runtime.json",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(metavar="M", help="The same as MODEL.", show_default="none")] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Device id, vendor or device type.", show_default="the config's"),
    ] = None,
    engine: Annotated[
        Literal["bundled", "vllm"] | None, typer.Option(help="Who runs the model.", show_default="the config's")
    ] = None,
    compiles: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile",
            help="Compile rotary positions and RMS norms in the background; a CPU needs g++ for it.",
            show_default="the config's",
        ),
    ] = None,
    load_format: Annotated[
        Literal["auto", "safetensors", "dummy"],
        typer.Option(help="Where weights come from: the checkpoint, or seeded random ones (`dummy`)."),
    ] = "auto",
    on_busy: Annotated[
        Literal["wait", "fallback", "fail"],
        typer.Option(help="When the device is busy: wait for it, take the next usable one, or fail."),
    ] = "wait",
    busy_timeout: Annotated[float, typer.Option(min=0, metavar="S", help="Longest wait in seconds.")] = 60.0,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port to listen on; 0 takes a free one.")
    ] = 8000,
    api_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key that clients must send.", show_default="none", envvar="VLLM_API_KEY"),
    ] = None,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Name that clients give; may be repeated.", show_default="the model's"),
    ] = None,
    reject_token_input: Annotated[
        bool,
        typer.Option(
            "--reject-token-input", help="Take texts only, for clients that send another tokenizer's ids (LangChain)."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would run, and stop.")] = False,
) -> int:
    """Serves a model with its negotiated config, as an OpenAI-compatible server.

    A model that has no config yet is negotiated first, and one made on another machine is negotiated again.
    """
    from vllm_probe import api
    from vllm_probe.cli.streams import write
    from vllm_probe.core.errors import BadUsage

    terminal = ctx.obj
    terminal.refuse_replay("serve")
    if target and model:
        raise BadUsage(f"both {target} and --model {model} are given", hint="give one of them")
    if api_key == "" or (api_key is None and terminal.host.env("VLLM_API_KEY") == ""):
        hint = "give one; without --api-key and VLLM_API_KEY the server asks for none"
        raise BadUsage("empty API key", hint=hint)
    config = api.serving_config(target or model, terminal.host, load_format=load_format, device=device, engine=engine)
    config = api.compiling(config, compiles=compiles)
    if config.engine == "vllm":
        if reject_token_input:
            raise BadUsage("vLLM has no --reject-token-input", hint="leave it out, or take --engine bundled")
        options = _vllm_options(host, port, load_format, served_model_name or [])
        run = api.vllm_run(config, terminal.host, options, only_shown=dry_run)
        if not dry_run and (free := api.admitted(config, terminal.host, on_busy, busy_timeout)) is not config:
            run = api.vllm_run(free, terminal.host, options)
        terminal.say(f"{'would run' if dry_run else 'running'} {run.line('FILE.yaml')}")
        if dry_run:
            write(run.text)
            return 0
        return api.serve_vllm(run, terminal.host, api_key=api_key)
    if dry_run:
        api.rehearse(config, terminal.host, load_format=load_format)
        terminal.emit(config, as_json=False, renderer="config")
        terminal.say(f"would load {config.model} on {config.device} and listen on http://{host}:{port}")
        return 0
    with ExitStack() as until_ready:
        progress = until_ready.enter_context(terminal.progress("load"))

        def announce(url: str, reads_text: bool) -> None:
            until_ready.close()
            asked = '"hello"' if reads_text else "[1, 2, 3]"
            terminal.say(f"ready on {url}; try:\n{_example(url, names, api_key, asked)}")

        from vllm_probe.runtime.server.app import ServerOptions

        names = tuple(served_model_name or ())
        server = ServerOptions(
            host=host,
            port=port,
            api_key=api_key,
            served_model_names=names,
            reject_token_input=reject_token_input,
        )
        return api.serve(
            config,
            server,
            terminal.host,
            load_format=load_format,
            on_busy=on_busy,
            busy_timeout_s=busy_timeout,
            progress=progress,
            on_ready=announce,
        )


def _vllm_options(host: str, port: int, load_format: str, names: list[str]) -> tuple[str, ...]:
    options = ["--host", host, "--port", str(port)]
    options += [] if load_format == "auto" else ["--load-format", load_format]
    return tuple([*options, "--served-model-name", *names] if names else options)


def _example(url: str, names: tuple[str, ...], api_key: str | None, asked: str) -> str:
    key = " -H 'Authorization: Bearer YOUR_KEY'" if api_key else ""
    model = f'"model": "{names[0]}", ' if names else ""
    return f"curl -s {url}/v1/embeddings{key} -H 'Content-Type: application/json' -d '{{{model}\"input\": {asked}}}'"
