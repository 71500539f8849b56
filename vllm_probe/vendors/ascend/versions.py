"""Versions of CANN, the driver and the firmware, from the files that their installers leave."""

import re

from vllm_probe.core.system import Host

_DEFAULT = "/usr/local/Ascend"
_VERSION = re.compile(r"(?m)^[Vv]ersion=[\"']?([0-9][\w.+-]{0,63})")
_INSTALLED = re.compile(r"(?m)^Driver_Install_Path_Param=(/\S{1,255})")
_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")


def cann_roots(host: Host) -> tuple[str, ...]:
    """Folders that CANN may be in, those that its set_env.sh names first."""
    named = [value.rstrip("/") for name in _VARIABLES if (value := host.env(name))]
    usual = ("cann", "ascend-toolkit/latest", "nnrt/latest")
    return tuple(dict.fromkeys([*named, *(f"{_DEFAULT}/{folder}" for folder in usual)]))


def read_versions(host: Host) -> dict[str, tuple[str, str]]:
    """`cann`, `driver` and `firmware`, each version with the file that tells it; what is not installed is left out."""
    match = _INSTALLED.search(host.read_text("/etc/ascend_install.info") or "")
    base = match[1].rstrip("/") if match else _DEFAULT
    cann = [
        path
        for root in cann_roots(host)
        for path in (*host.glob(f"{root}/*-linux/ascend_*_install.info"), f"{root}/version.info")
    ]
    files = {"cann": cann, "driver": [f"{base}/driver/version.info"], "firmware": [f"{base}/firmware/version.info"]}
    found = {}
    for name, paths in files.items():
        for path in paths:
            version = parse_version(host.read_text(path) or "")
            if version:
                found[name] = version, path
                break
    return found


def parse_version(text: str) -> str | None:
    """The version in a `version.info` (`Version=`) or `ascend_toolkit_install.info` (`version=`)."""
    match = _VERSION.search(text)
    return match[1] if match else None
