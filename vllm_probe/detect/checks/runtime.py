"""How the host's container runtimes are set up for NVIDIA GPUs: CTR-01, 02, 03, 05, 09, 10 and 18."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from errno import EACCES

from vllm_probe.core.device import Device, Finding
from vllm_probe.core.plugin import Check
from vllm_probe.core.rows import matching_line
from vllm_probe.core.system import Host
from vllm_probe.detect.checks import ROWS
from vllm_probe.detect.checks.container import CONTAINERS
from vllm_probe.detect.nodes import Refusal
from vllm_probe.vendors.pci import NVIDIA, accelerators
from vllm_probe.vendors.software import container_kind

DOCKER_INFO = ("docker", "info", "--format", "{{json .}}")
_CONFIG = "/etc/nvidia-container-runtime/config.toml"
_SPECS = ("/etc/cdi/*.yaml", "/etc/cdi/*.json", "/var/run/cdi/*.yaml", "/var/run/cdi/*.json")
_TOOLKIT = ("nvidia-ctk", "nvidia-container-runtime-hook", "nvidia-container-cli")
NO_DEVICE_DRIVER = r'could not select device driver "" with capabilities: \[\[gpu'
_BAD_TOOLKITS = ("1.19.1", "1.20.0")
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class DockerInfo:
    """What `docker info` says of the daemon; an answer that is no JSON object leaves everything empty."""

    runtimes: frozenset[str]
    rootless: bool
    root: str
    system: str


def docker_runtime(host: Host, _devices: tuple[Device, ...], log: str) -> Iterator[Finding]:
    """CTR-01, CTR-02, CTR-03 and CTR-05 on a host with docker and an NVIDIA GPU."""
    if not _has_nvidia(host) or not host.which("docker"):
        return
    info = parse_docker_info(host.run(DOCKER_INFO, _TIMEOUT_S).stdout)
    if info is None:
        if matching_line(log, NO_DEVICE_DRIVER):
            yield _no_runtime(host, parse_docker_info("{}"), "docker info: no answer")
        return
    if "Docker Desktop" in info.system:
        yield ROWS["CTR-05"].finding(None, (f"docker info: {info.system}",))
        return
    said = f"docker info: runtimes {', '.join(sorted(info.runtimes)) or 'none'}, root {info.root or 'unknown'}"
    if "nvidia" in info.runtimes:
        libraries = host.run(("ldconfig", "-p"), _TIMEOUT_S).stdout
        if libraries and "libnvidia-ml.so" not in libraries:
            yield ROWS["CTR-05"].finding(None, (said, "ldconfig -p: no libnvidia-ml.so"))
    elif not any("nvidia.com/" in (host.read_text(path) or "") for path in _spec_paths(host)):
        yield _no_runtime(host, info, said)
    no_cgroups = parse_no_cgroups(host.read_text(_CONFIG) or "")
    if host.exists(_CONFIG) and no_cgroups != info.rootless:
        facts = (f"{_CONFIG}: no-cgroups is {no_cgroups}", f"docker info: rootless is {info.rootless}")
        yield ROWS["CTR-03"].finding(None, facts, wanted=str(info.rootless).lower())


def cdi_specs(host: Host, _devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CTR-09 and CTR-10: CDI specifications that cannot be read, or that name what is gone."""
    if container_kind(host) in CONTAINERS:
        return
    for path in _spec_paths(host):
        if host.open_errno(path) == EACCES:
            yield ROWS["CTR-09"].finding(None, (f"{path}: {Refusal.GROUP}",))
            continue
        text = host.read_text(path) or ""
        gone = [named for named in parse_cdi_paths(text) if not host.exists(named)]
        if gone and "nvidia.com/" in text:
            driver = re.search(r"Module +(\d[\d.]+)", host.read_text("/proc/driver/nvidia/version") or "")
            running = f"/proc/driver/nvidia/version: {driver[1]}" if driver else None
            yield ROWS["CTR-10"].finding(None, (*(f"{path}: {named} does not exist" for named in gone[:3]), running))


def toolkit_version(host: Host, _devices: tuple[Device, ...], _log: str) -> Iterator[Finding]:
    """CTR-18: a toolkit on the list of releases that were reported to break containers."""
    if not _has_nvidia(host) or not host.which("nvidia-ctk"):
        return
    version = re.search(r"version (\d+\.\d+\.\d+)", host.run(("nvidia-ctk", "--version"), _TIMEOUT_S).stdout)
    if version and version[1] in _BAD_TOOLKITS:
        specs = _spec_paths(host)
        double = f"more than one CDI specification: {', '.join(specs)}" if len(specs) > 1 else None
        yield ROWS["CTR-18"].finding(None, (f"nvidia-ctk --version: {version[1]}", double), version=version[1])


def parse_docker_info(text: str) -> DockerInfo | None:
    """The answer of `docker info` in JSON, null when it is not that."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    runtimes, options = value.get("Runtimes"), value.get("SecurityOptions")
    return DockerInfo(
        runtimes=frozenset(runtimes if isinstance(runtimes, dict) else ()),
        rootless="name=rootless" in (options if isinstance(options, list) else ()),
        root=str(value.get("DockerRootDir") or ""),
        system=str(value.get("OperatingSystem") or ""),
    )


def parse_no_cgroups(text: str) -> bool:
    """`no-cgroups` of the toolkit's configuration; a line that is commented out leaves the default, false."""
    match = re.search(r"^\s*no-cgroups\s*=\s*(true|false)\b", text, re.MULTILINE)
    return match is not None and match[1] == "true"


def parse_cdi_paths(text: str) -> tuple[str, ...]:
    """Host paths that a CDI specification names, YAML or JSON: `hostPath`, else the `path` of a node or hook.

    It reads lines, not YAML: the specifications are written by tools, one key a line or in JSON.
    """
    found: list[str] = []
    for item in re.split(r"(?m)^[ \t]*- |\{", text):
        keys = dict(re.findall(r"\b(hostPath|path)[\"']?\s*:\s*[\"']?(/[^\"'\n,}]*[^\"'\n,} ])", item))
        found += [keys[name] for name in ("hostPath", "path") if name in keys][:1]
    return tuple(dict.fromkeys(found))


CHECKS = (
    Check(ids=("CTR-01", "CTR-02", "CTR-03", "CTR-05"), run=docker_runtime),
    Check(ids=("CTR-09", "CTR-10"), run=cdi_specs),
    Check(ids=("CTR-18",), run=toolkit_version),
)


def _has_nvidia(host: Host) -> bool:
    return container_kind(host) not in CONTAINERS and any(f.vendor == NVIDIA for f in accelerators(host))


def _spec_paths(host: Host) -> tuple[str, ...]:
    return tuple(path for pattern in _SPECS for path in host.glob(pattern))


def _no_runtime(host: Host, info: DockerInfo | None, said: str) -> Finding:
    docker, toolkit = host.which("docker") or "", next(filter(None, map(host.which, _TOOLKIT)), None)
    facts = (said, f"{docker}, {toolkit}" if toolkit else f"{docker}, none of {', '.join(_TOOLKIT)}")
    if toolkit and (docker.startswith("/snap/") or host.exists("/snap/bin/docker")):
        return ROWS["CTR-02/snap"].finding(None, facts)
    if toolkit and info and info.rootless:
        return ROWS["CTR-02/rootless"].finding(None, facts)
    return ROWS["CTR-01"].finding(None, facts, severity="latent")
