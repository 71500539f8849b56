"""PortableDeviceManager: owns the vendor plug-ins and runs each of them apart from the others."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from vllm_probe.core import codec
from vllm_probe.core.device import Device, Finding
from vllm_probe.core.errors import DeviceUnavailable, MissingExtra, PluginRefused, RecordingIncomplete
from vllm_probe.core.extras import CPU_TORCH, extra_command
from vllm_probe.core.plugin import Check, ProbeResult, VendorPlugin
from vllm_probe.core.rows import FixText, Row
from vllm_probe.core.system import Host
from vllm_probe.vendors.pci import accelerators
from vllm_probe.vendors.plugins import Raised, RefusedPlugin, apart, discover_plugins

if TYPE_CHECKING:
    from vllm_probe.core.adapter import HardwareAdapter

AdapterFactory: TypeAlias = "Callable[[Host], HardwareAdapter[Any]]"
"""What an adapter name stands for: a `HardwareAdapter` class, constructed with the host."""

_BUS_S = 1.0
_LEAVE_OUT: FixText = (
    "shell",
    "export VLLM_PROBE_PLUGINS=<others>",
    "update <distribution>, or leave it out",
    "devices of <name> are not looked for",
)
ROWS = {
    id_: Row(id_, "degrades", cause=cause, fix=(_LEAVE_OUT,))
    for id_, cause in {
        "PLG-01": "The plug-in <name> of <distribution> <reason>.",
        "PLG-02": "The plug-in <name> of <distribution> cannot be loaded: it <reason>.",
        "PLG-03": "The plug-in <name> of <distribution> <reason>, which would slow every command.",
        "PLG-04": "The plug-in <name> of <distribution> breaks the contract: <reason>.",
        "PLG-05": "The probe of <name> failed: it <reason>.",
        "PLG-06": "The probe of <name> <reason>, so no more is known of its devices than the bus shows.",
        "PLG-07": "The probe of <name> <reason>.",
        "REC-01": "The probe of <name> asked for more than was recorded: <reason>.",
    }.items()
}
"""Our own findings: a plug-in refused for its contract version (01), for raising (02), for importing torch (03) or
for its shape (04); a probe that raised (05), that hung (06), that reports an address
twice (07), or that asks a complete recording for what it does not hold."""


class PortableDeviceManager:
    """The vendor plug-ins of this process and the devices they find on one host.

    Attributes:
        host: the machine that is asked.
        plugins: plug-ins in use, ours first.
        refused: plug-ins that were not registered, with the reason.
        distributions: plug-in name to the installed package that brings it.
    """

    def __init__(
        self,
        host: Host,
        plugins: Iterable[VendorPlugin],
        refused: Iterable[RefusedPlugin] = (),
        distributions: Mapping[str, str] | None = None,
    ) -> None:
        self.host = host
        self.plugins = tuple(plugins)
        self.refused = tuple(refused)
        self.distributions = dict(distributions or {})
        self._adapters: dict[str, AdapterFactory] = {}

    @classmethod
    def discover(cls, host: Host) -> Self:
        """A manager of the built-in and installed plug-ins that `VLLM_PROBE_PLUGINS` allows.

        Raises:
            BadUsage: that variable names a plug-in that does not exist.
        """
        found = discover_plugins(host.env("VLLM_PROBE_PLUGINS"))
        return cls(host, found.plugins, found.refused, found.distributions)

    def findings(self) -> tuple[Finding, ...]:
        """One finding for each refused plug-in."""
        return tuple(
            self._finding(plugin.id, plugin.name, plugin.reason, plugin.evidence, plugin.distribution)
            for plugin in self.refused
        )

    def probe_devices(self, timeout_s: float = 10.0) -> ProbeResult:
        """Every vendor's devices, sorted by id, with what went wrong; vendors are asked at the same time.

        A probe that raises, or that takes longer than `timeout_s`, costs what it would have told of its own devices:
        those that the bus shows are listed, and why no more is known of them. A plug-in that names signs of its devices
        is asked where there is one of them.
        """
        answers: dict[str, ProbeResult] = {}
        asked = self._asked()
        threads = [
            threading.Thread(target=self._ask, args=(plugin, answers), name=f"probe-{plugin.name}", daemon=True)
            for plugin in asked
        ]
        with redirect_stdout(sys.stderr):  # a document may follow on stdout
            for thread in threads:
                thread.start()
            deadline = time.monotonic() + timeout_s
            for thread in threads:
                thread.join(max(deadline - time.monotonic(), 0))
        in_time = dict(answers)
        for plugin in asked:
            if plugin.name not in in_time:
                why = f"did not answer in {timeout_s:g} s"
                in_time[plugin.name] = self._shown(plugin, why, self._finding("PLG-06", plugin.name, why))
        return self._merged({plugin.name: in_time[plugin.name] for plugin in asked})

    def _shown(self, plugin: VendorPlugin, why: str, finding: Finding) -> ProbeResult:
        """What the bus shows of a vendor whose probe told nothing: a driver that hangs may hang this too, for 1 s."""
        from vllm_probe.vendors.layer0 import bus_alone

        found = [ProbeResult()]

        def ask() -> None:
            shown = apart(lambda: bus_alone(self.host, plugin, f"the probe {why}"))
            found[:] = [shown] if isinstance(shown, ProbeResult) else found

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(_BUS_S)
        return replace(found[0], findings=(finding,))

    def plugin_for(self, word: str) -> VendorPlugin | None:
        """The plug-in of a vendor name, else of a device type."""
        by_name = {plugin.name: plugin for plugin in self.plugins}
        return by_name.get(word) or next((plugin for plugin in self.plugins if word in plugin.device_types), None)

    def register_adapter(self, name: str, adapter: AdapterFactory) -> None:
        """Makes `adapter` the one for devices whose `adapter` is `name`, before any plug-in's own."""
        self._adapters[name] = adapter

    def adapter_for(self, device: Device) -> "HardwareAdapter[Any]":
        """The adapter that runs `device`, set to it and not opened.

        Raises:
            DeviceUnavailable: no plug-in has an adapter for it.
            MissingExtra: torch is not installed.
            PluginRefused: the adapter cannot be imported.
        """
        adapter = self.new_adapter(device)
        adapter.set_device(device)
        return adapter

    def new_adapter(self, device: Device) -> "HardwareAdapter[Any]":
        """As `adapter_for`, and not yet set to any device."""
        plugin = self.plugin_for(device.vendor)
        factory = self._adapters.get(device.adapter or device.vendor)
        if factory is None:
            if plugin is None or plugin.adapter is None:
                raise DeviceUnavailable(
                    f"nothing installed here runs {device.id} ({device.vendor})", hint="see `vllm-probe adapter list`"
                )
            factory = _load_adapter(plugin.name, plugin.adapter, device)
        return factory(self.host)

    def checks(self) -> tuple[Check, ...]:
        """The doctor's checks of every plug-in; a plug-in whose checks cannot be imported joins `refused`."""
        found: list[Check] = []
        for plugin in self.plugins:
            checks = apart(partial(_load_checks, plugin))
            if isinstance(checks, Raised):
                self.refused += (
                    RefusedPlugin(
                        name=plugin.name,
                        distribution=self.distributions.get(plugin.name, plugin.name),
                        id="PLG-02",
                        reason=checks.reason,
                        evidence=(checks.traceback,),
                    ),
                )
            else:
                found += checks
        return tuple(found)

    def _asked(self) -> list[VendorPlugin]:
        """The plug-ins of whose devices the bus, a path or the platform shows a sign, and those that name no signs."""
        platform = self.host.platform()
        system = f"{platform.system} {platform.machine}"
        try:
            on_bus = {function.vendor for function in accelerators(self.host)}
            return [
                plugin
                for plugin in self.plugins
                if plugin.signs is None
                or on_bus.intersection(plugin.pci_vendors)
                or any(system == sign or self.host.glob(sign) for sign in plugin.signs)
            ]
        except RecordingIncomplete:  # of an older release: each probe says what it lacks
            return list(self.plugins)

    def _ask(self, plugin: VendorPlugin, answers: dict[str, ProbeResult]) -> None:
        try:
            answer = _checked(_resolve(plugin.probe)(self.host))
        except RecordingIncomplete as error:
            why = "asked for more than was recorded"
            answer = self._shown(plugin, why, self._finding("REC-01", plugin.name, str(error)))
        except BaseException as error:  # noqa: BLE001 - isolation point: a plug-in may raise anything
            raised = Raised.of(error)
            finding = self._finding("PLG-05", plugin.name, raised.reason, (raised.traceback,))
            answer = self._shown(plugin, f"failed: it {raised.reason}", finding)
        answers[plugin.name] = answer

    def _merged(self, answers: dict[str, ProbeResult]) -> ProbeResult:
        """One result of all: the first device at each address, pointers renumbered for the sorted list."""
        found: dict[str, tuple[Device, dict[str, str]]] = {}
        findings: list[Finding] = []
        for name, answer in answers.items():
            findings += answer.findings
            for index, device in enumerate(answer.devices):
                if device.id in found:
                    reason = f"reports {device.id}, which {found[device.id][0].vendor} reports too"
                    findings.append(self._finding("PLG-07", name, reason))
                    continue
                prefix = f"/{index}/"
                gaps = {
                    pointer.removeprefix(prefix): reason
                    for pointer, reason in answer.unknown.items()
                    if pointer.startswith(prefix)
                }
                found[device.id] = self._adapted(name, device, gaps)
        ordered = [found[id_] for id_ in sorted(found)]
        return ProbeResult(
            devices=tuple(device for device, _ in ordered),
            findings=tuple(findings),
            unknown={f"/{i}/{key}": why for i, (_, unknown) in enumerate(ordered) for key, why in unknown.items()},
        )

    def _adapted(self, name: str, device: Device, gaps: dict[str, str]) -> tuple[Device, dict[str, str]]:
        """`device` with the adapter of the plug-in `name`, if that runs devices of this kind."""
        plugin = next(plugin for plugin in self.plugins if plugin.name == name)
        if device.adapter or plugin.adapter is None or device.kind not in plugin.adapter_kinds:
            return device, gaps
        return replace(device, adapter=name), {pointer: why for pointer, why in gaps.items() if pointer != "adapter"}

    def _finding(
        self, row: str, name: str, reason: str, evidence: Iterable[str] = (), distribution: str | None = None
    ) -> Finding:
        distribution = distribution or self.distributions.get(name, name)
        others = ",".join(plugin.name for plugin in self.plugins if plugin.name != name)
        return ROWS[row].finding(None, evidence, name=name, distribution=distribution, reason=reason, others=others)


def _checked(answer: object) -> ProbeResult:
    """`answer` when it can stand in a document."""
    if not isinstance(answer, ProbeResult):
        raise TypeError(f"gave {type(answer).__name__}, not a ProbeResult")
    for kind, items in ((Device, answer.devices), (Finding, answer.findings), (str, answer.unknown)):
        for item in items:
            if not isinstance(item, kind):
                raise TypeError(f"gave {type(item).__name__}, not a {kind.__name__}")
    codec.from_json(ProbeResult, json.loads(codec.dumps(answer).encode()))
    return answer


def _load_checks(plugin: VendorPlugin) -> tuple[Check, ...]:
    checks = tuple(_resolve(plugin.checks)) if plugin.checks else ()
    for check in checks:
        if not isinstance(check, Check):
            raise TypeError(f"{plugin.checks} holds {type(check).__name__}, not a Check")
    return checks


def _load_adapter(name: str, adapter: str, device: Device) -> AdapterFactory:
    try:
        with redirect_stdout(sys.stderr):
            factory: AdapterFactory = _resolve(adapter)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name == "torch":
            torch = CPU_TORCH if device.kind == "cpu" else device.details.get("stack", {}).get("install")
            command = " && ".join(filter(None, (torch, extra_command("runtime"))))
            raise MissingExtra(f"the adapter {name} needs torch", hint=f"run `{command}`") from error
        raise PluginRefused(f"the adapter {name}: {error}", hint="install what it needs") from error
    except BaseException as error:  # isolation point: a plug-in may raise anything
        raise PluginRefused(
            f"the adapter {name} raised {type(error).__name__}: {error}", hint="update the plug-in or leave it out"
        ) from error
    return factory


def _resolve(text: str) -> Any:
    """The object that `package.module:object` names."""
    module, _, name = text.partition(":")
    return getattr(import_module(module), name)
