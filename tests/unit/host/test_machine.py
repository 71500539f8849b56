import mmap
import platform
from collections.abc import Iterator
from typing import Any

import pytest

from vllm_probe.host.machine import mapped

RETURN = b"\xc3"


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    mapped.cache_clear()
    yield
    mapped.cache_clear()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="x86-64 code")
def test_code_is_mapped_once() -> None:
    function = mapped(RETURN)
    if function is None:
        pytest.skip("executable memory is refused here")
    assert mapped(RETURN) is function
    function()


def test_where_executable_memory_is_refused_there_is_no_function(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> Any:
        raise PermissionError(13, "denied by the security policy")

    monkeypatch.setattr(mmap, "mmap", refuse)
    assert mapped(RETURN) is None


def test_on_other_processors_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert mapped(RETURN) is None
