"""For those who write adapters: the conformance suite, and a package to begin with."""

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_probe.api.looking import judged_devices, open_host
from vllm_probe.core.errors import BadUsage, DeviceNotFound, DeviceUnavailable, PluginRefused, UnknownName
from vllm_probe.core.progress import Progress, silent

if TYPE_CHECKING:
    from vllm_probe.core.system import Host
    from vllm_probe.vendors.conformance import ConformanceReport
    from vllm_probe.vendors.registry import PortableDeviceManager


def check_adapter(
    name: str, host: "Host | None" = None, *, device: str | None = None, progress: Progress = silent
) -> "ConformanceReport":
    """What the conformance suite finds about the adapter of the plug-in `name` on its first usable device.

    Only that plug-in is loaded, `null` as well; `device` names another of its devices.

    Raises:
        UnknownName: no plug-in is called that.
        BadUsage: `VLLM_PROBE_PLUGINS` does not let it load.
        PluginRefused: it breaks the plug-in contract, or its adapter cannot be imported.
        DeviceNotFound, DeviceUnavailable, MissingExtra: there is no device, it cannot be used, or torch is missing.
    """
    from vllm_probe.detect.select import select_device
    from vllm_probe.host.fingerprint import make_stamp
    from vllm_probe.vendors.conformance import ConformanceReport, run_suite

    host = host or open_host()
    manager = _only(name, host)
    devices = judged_devices(manager)
    if not devices:
        causes = "; ".join(finding.cause for finding in manager.probe_devices().findings)
        found = f"the plug-in {name} finds no device here" + (f": {causes}" if causes else "")
        raise DeviceNotFound(found, hint="`vllm-probe detect` lists what is here and which adapter serves it")
    on = select_device(devices, device or name, manager)
    if not on.usable:
        raise DeviceUnavailable(f"{on.id} cannot be used: {on.verdict.reason}", hint="run `vllm-probe doctor`")
    adapter = type(manager.new_adapter(on)).__name__
    with redirect_stdout(sys.stderr):  # what the adapter prints; a document may follow on stdout
        results = run_suite(lambda: manager.new_adapter(on), on, progress=progress)
    passed, failed, skipped = (sum(result.ok is ok for result in results) for ok in (True, False, None))
    return ConformanceReport(
        schema_version="1.0",
        vendor=name,
        adapter=adapter,
        device=on.id,
        passed=passed,
        failed=failed,
        skipped=skipped,
        results=results,
        **make_stamp(host).header(),
    )


def scaffold_adapter(name: str, folder: Path) -> Path:
    """Writes a package with a working adapter called `name` to a new folder in `folder`, and gives its path.

    Raises:
        BadUsage: the name is none, or taken by a plug-in of ours.
        UnwritableOutput: the new folder is there already or cannot be made.
    """
    from vllm_probe.vendors.scaffold import scaffold

    return scaffold(name, folder)


def _only(name: str, host: "Host") -> "PortableDeviceManager":
    """A manager of the one plug-in."""
    from vllm_probe.vendors.plugins import discover_plugins
    from vllm_probe.vendors.registry import PortableDeviceManager

    allowed = host.env("VLLM_PROBE_PLUGINS") or ""
    if allowed.strip() and name not in {word.strip() for word in allowed.split(",")}:
        raise BadUsage(f"VLLM_PROBE_PLUGINS does not let {name} load", hint=f"add {name} to it, or unset it")
    try:
        found = discover_plugins(name)
    except BadUsage as error:
        names = ", ".join(sorted(plugin.name for plugin in discover_plugins(None).plugins))
        hint = f"the plug-ins here are {names}"
        raise UnknownName(f"no vendor plug-in is called {name!r}", hint=hint) from error
    for refused in found.refused:
        raise PluginRefused(f"the plug-in {name} {refused.reason}", hint=f"repair {refused.distribution}")
    return PortableDeviceManager(host, found.plugins, distributions=found.distributions)
