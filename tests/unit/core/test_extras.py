"""The command that adds an extra, by how the package was installed."""

import json
from importlib import metadata
from typing import Any

import pytest

from vllm_probe.core.extras import command_for, extra_command


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'vllm-probe[runtime]'"),
        ({"url": "file:///src/probe", "dir_info": {"editable": True}}, "pip install -e '/src/probe[runtime]'"),
        ({"url": "file:///src/a%20b", "dir_info": {}}, "pip install '/src/a b[runtime]'"),
        (
            {"url": "https://x.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "abc", "requested_revision": "v1"}},
            "pip install 'vllm-probe[runtime] @ git+https://x.org/p.git@v1'",
        ),
        (
            {"url": "https://x.org/p.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}, "subdirectory": "sub"},
            "pip install 'vllm-probe[runtime] @ git+https://x.org/p.git@abc#subdirectory=sub'",
        ),
        (
            {"url": "file:///wheels/p-1-py3-none-any.whl", "archive_info": {}},
            "pip install 'vllm-probe[runtime] @ file:///wheels/p-1-py3-none-any.whl'",
        ),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(origin: dict[str, Any] | None, command: str) -> None:
    assert command_for("runtime", json.dumps(origin) if origin else None) == command


def test_a_package_that_is_only_on_the_path_is_installed_from_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    assert extra_command("onnx").startswith("pip install -e ")
    assert extra_command("onnx").rstrip("'").endswith("[onnx]")
