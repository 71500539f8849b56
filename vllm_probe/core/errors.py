"""Every expected failure, with its code, its exit code and what the user can do.

ProbeError
├── AnswerIsNo (1)          does-not-fit, not-valid, device-busy, slower, log-differs
├── InputError (2)          bad-usage, unreadable-file, invalid-json, schema-violation, unsupported-version,
│                           unknown-model, ambiguous-model, invalid-model, unknown-name, unwritable-output,
│                           port-in-use, replay-refused
├── Unavailable (3)         device-not-found, device-unavailable, device-hung, command-missing, library-unavailable,
│                           library-timeout, missing-extra, weights-unavailable, hub-unreachable, hub-refused,
│                           no-descriptor, no-image, unsupported-model, plugin-refused, recording-incomplete
├── Interrupted (130)       interrupted
└── Bug (101)               internal-error, adapter-out-of-order
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from vllm_probe.core.capability import Capability


class ProbeError(Exception):
    """Stops the command with one `error:` and one `hint:` line.

    Attributes:
        code: kebab-case name, stable across releases and listed in docs/reference/errors.md.
        exit_code: process exit code of the command that fails with it.
        hint: what the user can do about it, one line.
    """

    code: ClassVar[str] = ""
    exit_code: ClassVar[int] = 101

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


class AnswerIsNo(ProbeError):
    """The question was understood and the answer is no."""

    exit_code = 1


class DoesNotFit(AnswerIsNo):
    """The model cannot boot on this device, with the bytes it needs in the message."""

    code = "does-not-fit"


class NotValid(AnswerIsNo):
    """`capability validate` read the document, and it violates the schema or contradicts itself."""

    code = "not-valid"


class DeviceBusy(AnswerIsNo):
    """The device did not become free within the busy timeout."""

    code = "device-busy"


class Slower(AnswerIsNo):
    """A measured value is slower than in the document that it was compared with, or cannot be measured any more."""

    code = "slower"


class LogDiffers(AnswerIsNo):
    """A start-up log compared with `negotiate --check` is not as predicted."""

    code = "log-differs"


class InputError(ProbeError):
    """What the user gave cannot be used."""

    exit_code = 2


class BadUsage(InputError):
    """An option or environment variable has a value that means nothing."""

    code = "bad-usage"


class UnreadableFile(InputError):
    """A named file or folder is absent, unreadable or too large."""

    code = "unreadable-file"


class InvalidJson(InputError):
    """The text is not JSON."""

    code = "invalid-json"


class SchemaViolation(InputError):
    """The JSON does not have the shape of its document.

    Attributes:
        pointer: RFC 6901 JSON pointer to the first offending value.
    """

    code = "schema-violation"

    def __init__(self, message: str, *, pointer: str, hint: str = "") -> None:
        shown = pointer or "(top level)"
        super().__init__(f"{shown}: {message}", hint=hint or "compare it with `vllm-probe schema NAME`")
        self.pointer = pointer


class UnsupportedVersion(InputError):
    """The document's major schema version is newer than this release."""

    code = "unsupported-version"


class UnknownModel(InputError):
    """No path, cache, package or catalogue entry has this name."""

    code = "unknown-model"


class AmbiguousModel(InputError):
    """The name stands for several models.

    Attributes:
        candidates: their names.
    """

    code = "ambiguous-model"

    def __init__(self, message: str, *, candidates: tuple[str, ...], hint: str) -> None:
        super().__init__(message, hint=hint)
        self.candidates = candidates


class InvalidModel(InputError):
    """Model files are damaged, hostile or contradict themselves."""

    code = "invalid-model"


class UnknownName(InputError):
    """A schema, descriptor, measurement or plug-in name that does not exist."""

    code = "unknown-name"


class UnwritableOutput(InputError):
    """The output cannot be written there."""

    code = "unwritable-output"


class PortInUse(InputError):
    """Another process listens on the address."""

    code = "port-in-use"


class ReplayRefused(InputError):
    """The command needs the real machine and `--replay` was given."""

    code = "replay-refused"


class Unavailable(ProbeError):
    """Something outside that the command needs is not there."""

    exit_code = 3


class DeviceNotFound(Unavailable):
    """No device has this address, vendor or type."""

    code = "device-not-found"


class DeviceUnavailable(Unavailable):
    """The device is there and cannot be used."""

    code = "device-unavailable"
    measured: tuple["Capability", ...] = ()
    """Documents of the other devices, where all were to be measured."""


class DeviceHung(DeviceUnavailable):
    """A call into the device does not return; the thread that made it is lost."""

    code = "device-hung"


class CommandMissing(Unavailable):
    """A program is not on PATH."""

    code = "command-missing"


class LibraryUnavailable(Unavailable):
    """A native library is absent, cannot be loaded, or a call in it failed."""

    code = "library-unavailable"


class LibraryTimeout(LibraryUnavailable):
    """A call in a native library did not return."""

    code = "library-timeout"


class MissingExtra(Unavailable):
    """The command needs an optional dependency that is not installed."""

    code = "missing-extra"


class WeightsUnavailable(Unavailable):
    """The model is known and its weights are not on this machine."""

    code = "weights-unavailable"


class HubUnreachable(Unavailable):
    """The model hub does not answer, or not as a hub does."""

    code = "hub-unreachable"


class HubRefused(Unavailable):
    """The model hub keeps this repository for those whom it knows and has let in."""

    code = "hub-refused"


class NoDescriptor(Unavailable):
    """No capability document for the device was found and none can be measured here."""

    code = "no-descriptor"


class NoImage(Unavailable):
    """No container image is known that has the engine for this vendor's devices."""

    code = "no-image"


class UnsupportedModel(Unavailable):
    """The chosen engine cannot run this architecture."""

    code = "unsupported-model"


class PluginRefused(Unavailable):
    """A vendor plug-in was not registered; the message names it and says why."""

    code = "plugin-refused"


class RecordingIncomplete(Unavailable):
    """A complete recording was asked for something that it does not hold."""

    code = "recording-incomplete"


class Interrupted(ProbeError):
    """The user pressed Ctrl-C."""

    exit_code = 130
    code = "interrupted"


class Bug(ProbeError):
    """Our own mistake, kept with its traceback."""

    exit_code = 101


class InternalError(Bug):
    """An exception that is not in this tree."""

    code = "internal-error"


class AdapterOutOfOrder(Bug):
    """An adapter call came before the one it depends on."""

    code = "adapter-out-of-order"


def all_errors(root: type[ProbeError] = ProbeError) -> Iterator[type[ProbeError]]:
    """Every error class that carries a code, depth first in the order of definition."""
    for child in root.__subclasses__():
        if child.code:
            yield child
        yield from all_errors(child)
