"""A container as a `docker run` line and as a Compose file."""

import csv
import io
import shlex
from collections.abc import Iterator
from typing import Any

from vllm_probe.export.container import CONFIG_TARGET, PORT, Container
from vllm_probe.export.text import as_yaml, comment

_PUBLISHED = f"127.0.0.1:{PORT}:{PORT}"


def docker_command(container: Container) -> str:
    """A shell script of one `docker run`, with what a reader should know as comments.

    Groups are looked up on the machine where it runs. Only the home folder and those groups are expanded by the shell.
    """
    words = [
        *_words(container),
        *(["--entrypoint", *map(shlex.quote, container.entrypoint)] if container.entrypoint else []),
        shlex.quote(container.image),
    ]
    lines = ["docker run --rm", *_pairs(words[:-1]), words[-1], *_pairs(list(map(shlex.quote, container.arguments)))]
    return "\n".join(["#!/bin/sh", *map(comment, container.comments), " \\\n  ".join(lines), ""])


def compose_yaml(container: Container) -> str:
    """A Compose file of one service.

    Groups are those of this machine's nodes; a group that it does not show is asked for when Compose runs it.
    """
    access = container.access
    service: dict[str, Any] = {
        "image": container.image,
        "entrypoint": list(container.entrypoint),
        "command": list(container.arguments),
        "environment": {**access.env, **container.env, **dict.fromkeys(container.passes)},
        "ports": [_PUBLISHED],
        "devices": [f"{node}:{node}" for node in access.nodes],
        "group_add": list(dict.fromkeys(map(_compose_group, container.groups.items()))),
        "volumes": list(_volumes(container)),
        "runtime": access.runtime,
        "ipc": "host" if access.shares_ipc else None,
        "shm_size": None if access.shares_ipc else container.shared_memory,
        "security_opt": list(container.security),
        "cap_add": list(container.capabilities),
        "restart": "unless-stopped",
    }
    service = {key: _literal(value) for key, value in service.items() if value}
    return "\n".join([*map(comment, container.comments), as_yaml({"services": {container.name: service}})])


def _words(container: Container) -> Iterator[str]:
    access = container.access
    yield from ("--name", container.name, "--publish", _PUBLISHED)
    yield from () if access.runtime is None else ("--runtime", shlex.quote(access.runtime))
    yield from (word for node in access.nodes for word in ("--device", shlex.quote(node)))
    for gate in container.groups:
        yield from ("--group-add", f'"$(stat -c %g {shlex.quote(gate)})"')
    yield from ("--ipc", "host") if access.shares_ipc else ("--shm-size", container.shared_memory)
    yield from (word for each in container.security for word in ("--security-opt", shlex.quote(each)))
    yield from (word for each in container.capabilities for word in ("--cap-add", shlex.quote(each)))
    yield from ("--volume", f'"$HOME/.cache/huggingface:{container.cache}"')
    for source, target in _mounts(container):
        yield from ("--mount", shlex.quote(_mount(source, target)))
    for name, value in (access.env | container.env).items():
        yield from ("--env", shlex.quote(f"{name}={value}"))
    yield from (word for name in container.passes for word in ("--env", name))


def _pairs(words: list[str]) -> Iterator[str]:
    """Options with their values, one on each line."""
    line: list[str] = []
    for word in words:
        if word.startswith("--") and line:
            yield " ".join(line)
            line = []
        line.append(word)
    if line:
        yield " ".join(line)


def _mounts(container: Container) -> Iterator[tuple[str, str]]:
    yield from ((path, path) for path in (*container.access.mounts, *container.files))
    if container.config_path:
        yield container.config_path, CONFIG_TARGET


def _mount(source: str, target: str) -> str:
    """The value of `--mount`, which is a line of CSV: a path may hold commas and quotes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}", "readonly"])
    return line.getvalue()


def _volumes(container: Container) -> Iterator[Any]:
    yield _Interpolated(f"${{HOME}}/.cache/huggingface:{container.cache}")
    for source, target in _mounts(container):
        yield {"type": "bind", "source": source, "target": target, "read_only": True}


class _Interpolated(str):
    """Text whose variables Compose replaces."""

    __slots__ = ()


def _compose_group(item: tuple[str, str | None]) -> str:
    gate, number = item
    variable = f"GID_{gate.rpartition('/')[2].upper()}"
    return number or _Interpolated(f"${{{variable}:?the group of {gate}, see stat -c %g {gate}}}")


def _literal(value: Any) -> Any:
    """`value` with every `$` that Compose would replace doubled."""
    if isinstance(value, _Interpolated):
        return str(value)
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, list):
        return [_literal(each) for each in value]
    if isinstance(value, dict):
        return {name: _literal(each) for name, each in value.items()}
    return value
