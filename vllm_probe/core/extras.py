"""How the package was installed, and so the command that adds one of its extras."""

import json
import shlex
from pathlib import Path
from urllib.parse import urlsplit

NAME = "vllm-probe"
CPU_TORCH = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""The command that brings torch without the libraries of CUDA, several GB, that the one on PyPI has with it."""

WITHOUT_GPU = f"; on a machine without a GPU run `{CPU_TORCH}` first"


def extra_command(extra: str) -> str:
    """The command that installs `extra` from where this package came from: an index, a folder or a URL."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return command_for(extra, distribution(NAME).read_text("direct_url.json"))
    except PackageNotFoundError:  # run from its folder
        root = Path(__file__).parents[2]
        return command_for(extra, json.dumps({"url": root.as_uri(), "dir_info": {"editable": True}}))


def command_for(extra: str, direct_url: str | None) -> str:
    """The same for the text of `direct_url.json`, null for a package of an index.

    https://packaging.python.org/en/latest/specifications/direct-url-data-structure/
    """
    origin = json.loads(direct_url) if direct_url else None
    if origin is None:
        return f"pip install '{NAME}[{extra}]'"
    url = origin["url"]
    if "dir_info" in origin:
        from urllib.request import url2pathname  # the network modules it brings take 20 ms of every start

        folder = url2pathname(urlsplit(url).path)
        editable = "-e " if origin["dir_info"].get("editable") else ""
        return f"pip install {editable}{shlex.quote(f'{folder}[{extra}]')}"
    if "vcs_info" in origin:
        vcs = origin["vcs_info"]
        revision = vcs.get("requested_revision") or vcs["commit_id"]
        url = f"{vcs['vcs']}+{url}@{revision}"
    if origin.get("subdirectory"):
        url = f"{url}#subdirectory={origin['subdirectory']}"
    return f"pip install {shlex.quote(f'{NAME}[{extra}] @ {url}')}"
