"""What a start-up log showed beyond the memory law, kept for later predictions of that version and device."""

import re
from dataclasses import dataclass

from vllm_probe.core.values import Count


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Memory that an engine used beside weights and KV cache over what the law says, on one rank.

    Attributes:
        schema_version: of this document.
        engine_version: version that logged it.
        device: name of the device, else its architecture or type.
        ranks: tensor-parallel ranks of that start.
        residual_bytes: bytes, negative where it used less.
        model: model of that start.
        created_at: when it was compared.
        log: name of the log.
    """

    schema_version: str = "1.0"
    engine_version: str
    device: str
    ranks: Count
    residual_bytes: int
    model: str
    created_at: str
    log: str

    @property
    def sentence(self) -> str:
        """The correction, as a warning says it."""
        return (
            f"the memory law of vLLM {self.engine_version} is corrected by {self.residual_bytes / (1 << 30):+.2f} GiB, "
            f"which {self.log} showed on {self.device} for {self.model} ({self.created_at})"
        )


def residual_name(engine_version: str, device: str, ranks: int) -> str:
    """File name of the residual of a version on so many devices of that name."""
    word = re.sub(r"[^a-z0-9]+", "-", device.lower()).strip("-")[:80]
    return f"vllm-{re.sub(r'[^0-9a-z.]+', '-', engine_version.lower())[:40]}-{word}-tp{ranks}.json"
