"""What every document that we write begins with."""

from dataclasses import dataclass, field

from vllm_probe.core.values import JsonValue, Timestamp, Version


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """Header of a written document.

    Attributes:
        schema_version: `MAJOR.MINOR` of the document's schema; readers accept any minor of a known major.
        created_at: UTC time of writing, ISO 8601.
        tool_version: vllm-probe version that wrote it.
        host_fingerprint: digest of the machine's hardware, without personal data.
        unknown: JSON pointer to the reason why the value there is null.
    """

    schema_version: Version
    created_at: Timestamp | None = None
    tool_version: str | None = None
    host_fingerprint: str | None = None
    unknown: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The header values of this run, made once by the caller and given to every document it writes.

    Attributes:
        created_at: UTC time, ISO 8601.
        tool_version: vllm-probe version.
        host_fingerprint: digest of the machine.
    """

    created_at: Timestamp
    tool_version: str
    host_fingerprint: str

    def header(self) -> dict[str, JsonValue]:
        """The keyword arguments that a document's constructor takes from it."""
        return {
            "created_at": self.created_at,
            "tool_version": self.tool_version,
            "host_fingerprint": self.host_fingerprint,
        }
