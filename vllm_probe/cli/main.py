"""Entry point. What takes time to import is imported within, where Ctrl-C ends as it does in a command."""

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of `vllm-probe` with `arguments`, those of the process by default."""
    try:
        from vllm_probe.cli.ending import run

        return run(arguments)
    except KeyboardInterrupt:
        from vllm_probe.cli.exits import report
        from vllm_probe.cli.streams import open_stderr
        from vllm_probe.core.errors import Interrupted

        open_stderr()
        return report(Interrupted("interrupted", hint="run the same command again; every file is whole, old or new"))
