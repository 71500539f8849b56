"""Run by vLLM's interpreter: what its own parser makes of `vllm serve --config` with each of the files given.

Prints a JSON object, file to `{"error": text}` or to the values of the options.
"""

import contextlib
import io
import json
import sys

from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.cli.serve import cmd_init
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parsed(path: str) -> dict[str, str]:
    parser = FlexibleArgumentParser(description="vLLM CLI")
    subparsers = parser.add_subparsers(required=False, dest="subparser")
    commands = {command.name: command for command in cmd_init()}
    for command in commands.values():
        command.subparser_init(subparsers)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = parser.parse_args(["serve", "--config", path])
        commands["serve"].validate(arguments)
        engine = AsyncEngineArgs.from_cli_args(arguments)
    except (SystemExit, Exception) as error:  # noqa: BLE001 - whatever it says is the answer
        return {"error": f"{error!r} {said.getvalue()[-2000:]}"}
    return {name: repr(value) for name, value in {**vars(arguments), **vars(engine)}.items()}


sys.stdout.write(json.dumps({path: parsed(path) for path in sys.argv[1:]}) + "\n")
