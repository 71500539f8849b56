"""What would run a model here, read from the files of installed distributions and never imported."""

import re
from collections.abc import Sequence

from vllm_probe.core.device import Software
from vllm_probe.core.system import Host

_VERSION_FILES = {"torch": "torch/version.py", "vllm": "vllm/_version.py"}
_ASSIGNMENT = re.compile(r"^__version__\s*=\s*(?:\w+\s*=\s*)?['\"]([^'\"\n]{1,80})['\"]", re.MULTILINE)
_KERNEL = re.compile(r"Linux version (\S{1,80})")


def read_software(host: Host) -> Software:
    """Versions of the interpreter, torch, vLLM and the kernel, and the kind of container this process is in."""
    platform = host.platform()
    return Software(
        python=platform.python,
        torch=installed(host, "torch"),
        vllm=installed(host, "vllm"),
        kernel=platform.release or parse_kernel(host.read_text("/proc/version") or ""),
        container=container_kind(host),
    )


def installed(host: Host, name: str, sites: Sequence[str] | None = None) -> str | None:
    """Version of the distribution `name` with its build tag, or null when no site-packages folder holds it.

    `sites` are the folders, those of this interpreter by default.
    """
    for site in host.platform().site_packages if sites is None else sites:
        version = parse_version_file(host.read_text(f"{site}/{_VERSION_FILES[name]}") or "")
        if version:
            return version
        for folder in host.glob(f"{site}/{name}-*.dist-info"):
            return folder.rpartition("/")[2].removeprefix(f"{name}-").removesuffix(".dist-info")
    return None


def container_kind(host: Host) -> str | None:
    """`kubernetes`, `podman`, `docker`, `lxc`, `wsl`, or null on a machine of its own."""
    if host.env("KUBERNETES_SERVICE_HOST"):
        return "kubernetes"
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/.dockerenv"):
        return "docker"
    if host.env("container") == "lxc" or "container=lxc" in (host.read_text("/proc/1/environ") or ""):
        return "lxc"
    return "wsl" if "microsoft" in (host.read_text("/proc/version") or "").lower() else None


def parse_version_file(text: str) -> str | None:
    """The version that `torch/version.py` or a setuptools-scm `_version.py` assigns."""
    match = _ASSIGNMENT.search(text)
    return match[1] if match else None


def parse_kernel(text: str) -> str | None:
    """Release in `/proc/version`."""
    match = _KERNEL.search(text)
    return match[1] if match else None
