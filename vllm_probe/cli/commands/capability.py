"""`vllm-probe capability`: descriptors of devices."""

from typing import Annotated

import typer

from vllm_probe.cli.options import AsJson, Device

app = typer.Typer(
    add_completion=False,
    rich_markup_mode="markdown",
    help="Lists, shows, checks, compares and finds capability documents.",
)


@app.command("list")
def list_descriptors(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Lists every descriptor on the search path, in its order, and the devices of this machine that it serves."""
    from vllm_probe import api

    ctx.obj.emit(api.descriptors(ctx.obj.host), as_json=as_json, renderer="descriptors")


@app.command()
def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="File, or name of a descriptor on the search path.")],
    as_json: AsJson = False,
) -> None:
    """Shows what a descriptor says a device can do."""
    from vllm_probe import api
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import named_capability

    host = ctx.obj.host
    _, document = named_capability(name, api.discover(host), host_fingerprint(host))
    ctx.obj.emit(document, as_json=as_json, renderer="capability")


@app.command()
def validate(
    ctx: typer.Context,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="Document of version 1 or 2: its file, or its name on the search path."),
    ],
) -> None:
    """Checks a document against its schema; every violation is listed with its JSON pointer, and the exit code is 1.

    A document of version 2 with measurements must also say how each value was obtained or why there is none.
    Keys that this release does not know are warned of: a later one may have added them, or they are misspelt.
    """
    from vllm_probe import api
    from vllm_probe.cli.streams import write
    from vllm_probe.core.errors import NotValid, SchemaViolation
    from vllm_probe.core.files import read_json
    from vllm_probe.core.provenance import unfounded
    from vllm_probe.core.schema import DOCUMENTS, Violation, unknown_keys, violations
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import decode_capability, named_file

    host = ctx.obj.host
    file = named_file(name, api.discover(host), host_fingerprint(host))
    value = read_json(file)
    found = violations("capability", value)
    try:
        capability = None if found else decode_capability(value, str(file))
    except SchemaViolation as error:  # what no JSON Schema can say, such as a number beyond all floats
        found = (Violation(error.pointer, str(error).removeprefix(f"{file}: {error.pointer}: ")),)
    listed = found or unfounded(value)
    write("".join(f"{each.pointer or '(top level)'}: {each.message}\n" for each in listed))
    count = f"{len(listed)} violation" + "s" * (len(listed) > 1)
    if found or capability is None:
        others = [f", it is a {name} document" for name in sorted(DOCUMENTS) if not violations(name, value)]
        raise NotValid(
            f"{file} is no capability document{''.join(others[:1])}: {count}",
            hint="`vllm-probe schema capability` has the rules",
        )
    if listed:
        hint = "mend the values listed, or what `measurements` and `unknown` say of them"
        raise NotValid(f"{file} contradicts itself or leaves out how values were obtained: {count}", hint=hint)
    if capability.schema_version.startswith("2.") and not capability.measurements:
        ctx.obj.say("warning: /measurements: absent, so no value says how it was obtained")
    for stranger in unknown_keys("capability", value):
        ctx.obj.say(f"warning: {stranger.pointer}: {stranger.message}")
    device = capability.device.name or "any device of that type"
    write(f"{file} is valid: version {capability.schema_version}, {capability.device_type}, {device}\n")


@app.command()
def diff(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="A", help="File, or name of a descriptor on the search path.")],
    new: Annotated[str, typer.Argument(metavar="B", help="The one to compare with it.")],
    as_json: AsJson = False,
) -> None:
    """Shows each value in which two descriptors differ: that of A, that of B, and B over A."""
    from vllm_probe import api
    from vllm_probe.host.fingerprint import host_fingerprint
    from vllm_probe.vendors.descriptors import named_capability
    from vllm_probe.vendors.difference import compare

    host = ctx.obj.host
    manager, fingerprint = api.discover(host), host_fingerprint(host)
    (first, before), (second, after) = (named_capability(name, manager, fingerprint) for name in (old, new))
    found = compare(str(first), before, str(second), after)
    ctx.obj.emit(found, as_json=as_json, renderer="difference")


@app.command()
def path(
    ctx: typer.Context,
    device: Device = None,
) -> None:
    """Shows where descriptors of a device are looked for, what was found there, and which one is used."""
    from vllm_probe import api
    from vllm_probe.cli.render import search
    from vllm_probe.detect.select import select_device
    from vllm_probe.host.fingerprint import host_fingerprint

    host = ctx.obj.host
    manager = api.discover(host)
    on = select_device(api.inventory(host).devices, device, manager)
    ctx.obj.show(search.render(on, api.search(on, manager, host_fingerprint(host))))
