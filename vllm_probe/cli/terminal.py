"""What the global options chose, and the two streams: documents on stdout, everything else on stderr."""

import os
import sys
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vllm_probe.cli.streams import fold, tell, write
from vllm_probe.core.errors import BadUsage, ReplayRefused

if TYPE_CHECKING:
    from rich.console import RenderableType

    from vllm_probe.core.progress import Progress
    from vllm_probe.core.system import Host


class Terminal:
    """The user's side of a command.

    Attributes:
        replay: recording that stands for this machine, or null.
    """

    def __init__(self, replay: Path | None) -> None:
        self.replay = replay

    @cached_property
    def host(self) -> "Host":
        """This machine, or the recording of `--replay`.

        Raises:
            BadUsage: a `VLLM_PROBE_*` variable has a value that means nothing.
        """
        from vllm_probe import api

        host = api.open_host(self.replay)
        for path in filter(None, (host.env("VLLM_PROBE_CAPABILITY_PATH") or "").split(os.pathsep)):
            if not Path(path).exists():
                message = f"VLLM_PROBE_CAPABILITY_PATH names {path}, which does not exist"
                raise BadUsage(message, hint=f"give files or folders, with {os.pathsep} between them")
        return host

    def refuse_replay(self, command: str) -> None:
        """Raises `ReplayRefused` when `--replay` was given to a command that needs the real machine."""
        if self.replay:
            raise ReplayRefused(f"{command} runs on this machine only", hint="leave out --replay")

    def emit(
        self,
        document: Any,
        *,
        as_json: bool,
        renderer: str,
        output: Path | None = None,
        shown: Any = None,
    ) -> None:
        """Saves `document` to `output`, then prints it: the same text, or what `render/<renderer>.py` makes of it.

        `shown` is rendered in its place, where something of it was said already.
        """
        from vllm_probe.core.codec import dumps

        text = dumps(document) if as_json or output else ""
        if output:
            from vllm_probe.core.files import write_private

            write_private(output, text)
        if as_json:
            write(text)
        else:
            self.show(import_module(f"vllm_probe.cli.render.{renderer}").render(shown or document))

    def show(self, *parts: "RenderableType") -> None:
        """Prints `parts` on stdout, in colour on a terminal and plain in a pipe."""
        from vllm_probe.cli.render.console import as_text

        write(as_text(*parts))

    def say(self, line: str) -> None:
        """Prints lines on stderr, folded on a terminal."""
        tell(f"{fold(line)}\n")

    def progress(self, title: str) -> AbstractContextManager["Progress"]:
        """A `Progress`: a bar where stderr is a terminal, else a line for each step with `--log-level info`."""
        from vllm_probe.cli.render.progress import bar, logged

        return bar(title) if sys.stderr.isatty() else logged(title)
