"""Serving with real vLLM: the config as its file, its process as our child."""

import logging
import shlex
import signal
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from vllm_probe.api.commands import negotiating
from vllm_probe.api.exporting import exportable
from vllm_probe.api.looking import discover
from vllm_probe.api.planning import planned_device
from vllm_probe.core.errors import CommandMissing, DeviceUnavailable, UnsupportedModel

if TYPE_CHECKING:
    from vllm_probe.core.config import RuntimeConfig
    from vllm_probe.core.device import Device
    from vllm_probe.core.system import Child, Host
    from vllm_probe.detect.engine_pick import Installed

_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
_ABSENT = "vLLM is not installed here, and no `vllm` is on PATH"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRun:
    """What would be run: a program, its arguments before the file of `--config` and after it, that file, variables."""

    program: str
    model: tuple[str, ...]
    text: str
    options: tuple[str, ...]
    env: dict[str, str]

    def argv(self, file: str) -> list[str]:
        """The command line with `file` as the config."""
        return [self.program, "serve", *self.model, "--config", file, *self.options]

    def line(self, file: str) -> str:
        """The same as a shell takes it."""
        return " ".join([*(f"{name}={value}" for name, value in self.env.items()), shlex.join(self.argv(file))])


def _installed_vllm(host: "Host", negotiating_it: str) -> "Installed":
    """The vLLM that would be started; `negotiating_it` is the command that makes the config, for a container of it.

    Raises:
        CommandMissing: there is none.
    """
    from vllm_probe.detect.engine_pick import find_vllm

    found = find_vllm(host)
    if found is None:
        where = "install it as https://docs.vllm.ai says for the device, or run it in a container"
        raise CommandMissing(_ABSENT, hint=f"{where}: {_image(negotiating_it)}")
    return found


def vllm_run(config: "RuntimeConfig", host: "Host", options: tuple[str, ...], *, only_shown: bool = False) -> VllmRun:
    """How the vLLM that is installed here is started with `config` on its device, with `options` behind the config.

    Where none is installed, what is `only_shown` is as for one of the config's version, and that is said. What no
    installation would mend is refused first, the same for both.

    Raises:
        DeviceNotFound: the config's device is not here.
        DoesNotFit, WeightsUnavailable: the config cannot be exported.
        CommandMissing: no vLLM is installed, and it is not `only_shown`.
        DeviceUnavailable: it was built for another vendor's devices.
        UnsupportedModel: its model takes an option that serve has not.
    """
    from vllm_probe.detect.engine_pick import find_vllm
    from vllm_probe.export.container import device_mask
    from vllm_probe.export.options import settings_of
    from vllm_probe.export.vllm import missing_of, model_word, vllm_serve, vllm_yaml

    command = negotiating(config)
    device, config = planned_device(config, discover(host)), exportable(config)
    found = find_vllm(host) if only_shown else _installed_vllm(host, command)
    if found is None:
        _log.warning("%s: this is what one of version %s would be given", _ABSENT, config.engine_version)
    else:
        _check_build(found, device, command)
        config = _in_its_words(config, found)
    if missing := missing_of(config):
        hint = "vllm-probe export vllm --output vllm.yaml, and start that by the command that it says"
        raise UnsupportedModel(f"serve passes no --tokenizer on: {missing}", hint=hint)
    masks = {name: value for name, value in device_mask(config, device).items() if host.env(name) is None}
    return VllmRun(
        program=found.program if found else "vllm",
        model=model_word(config),
        text=vllm_yaml(config, vllm_serve(config, "FILE.yaml")),
        options=options,
        env=settings_of(config).env | masks,
    )


def serve_vllm(run: VllmRun, host: "Host", *, api_key: str | None = None) -> int:
    """Runs vLLM until it ends, passing signals on to it; its exit code, or 128 and the signal that killed it."""
    env = run.env | ({"VLLM_API_KEY": api_key} if api_key else {})
    with TemporaryDirectory(prefix="vllm-probe-") as folder, ExitStack() as until_end:
        file = Path(folder) / "vllm.yaml"
        file.write_text(run.text, encoding="utf-8")
        signals = _Signals(until_end)
        child = host.launch(run.argv(str(file)), env)
        signals.pass_on_to(child)
        code = child.wait() or 0
    return code if code >= 0 else 128 - code


class _Signals:
    """Keeps the signals that come until there is a child to pass them on to."""

    def __init__(self, until_end: ExitStack) -> None:
        self._kept: list[int] = []
        self._child: Child | None = None
        for number in (getattr(signal, name, None) for name in _FORWARDED):
            if number is not None:
                until_end.callback(signal.signal, number, signal.signal(number, self._receive))

    def pass_on_to(self, child: "Child") -> None:
        """Passes on what was kept, and from now on everything."""
        self._child = child
        for number in self._kept:
            child.signal(number)

    def _receive(self, number: int, _frame: object) -> None:
        if self._child:
            self._child.signal(number)
        else:
            self._kept.append(number)


def _in_its_words(config: "RuntimeConfig", found: "Installed") -> "RuntimeConfig":
    """`config` as one of the version that is installed, where that is known."""
    from vllm_probe.export.options import version_of

    if not found.version:
        return config
    if version_of(found.version)[:2] != version_of(config.engine_version)[:2]:
        _log.warning(
            "the config is for vLLM %s, %s is installed: options are written for that one; "
            "negotiate with --engine-version %s for its memory law",
            *(config.engine_version, found.version, found.version.partition("+")[0]),
        )
    return replace(config, engine_version=found.version)


def _image(negotiating_it: str) -> str:
    return f"`{negotiating_it} && vllm-probe export docker`"


def _check_build(found: "Installed", device: "Device", negotiating_it: str) -> None:
    if found.vendor is None:
        _log.warning(
            "nothing beside %s says which vLLM it is: whether it runs on %s is not known", found.program, device.id
        )
    elif found.vendor != device.vendor:
        message = (
            f"vLLM {found.version} at {found.program} is built for {found.vendor}, {device.id} is {device.vendor}'s"
        )
        image = f"run its image ({_image(negotiating_it)})"
        hint = f"install the build for {device.vendor}, {image}, or take --device {found.vendor}"
        raise DeviceUnavailable(message, hint=hint)
