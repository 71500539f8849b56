"""What huggingface_hub raises and shows, in this tool's terms."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from vllm_probe.core.errors import HubRefused, HubUnreachable, UnknownModel, UnwritableOutput
from vllm_probe.core.progress import Progress

NETWORK = "check the network, the proxy and HF_ENDPOINT"
_MIB = 1 << 20
_DENIED = (401, 403)


@contextmanager
def translated(hub: str, repository: str, folder: Path) -> Iterator[None]:
    """Turns what huggingface_hub raises about `repository` on `hub` into our errors; neither names a token.

    Raises:
        UnknownModel: the hub has no such repository, or shows it to others only: it answers the same.
        HubRefused: a gated or disabled repository, or a token that the hub does not take.
        UnwritableOutput: `folder` cannot be written.
        HubUnreachable: everything else that a network can do.
    """
    from huggingface_hub import errors

    transport: type[Exception] = errors.HfHubHTTPError.__bases__[0]  # of httpx, under one name or another
    try:
        yield
    except errors.GatedRepoError as error:
        hint = f"ask for access on {hub}/{repository}, then set HF_TOKEN to a token that may read it"
        raise HubRefused(f"{repository} is gated on {hub}", hint=hint) from error
    except (errors.RepositoryNotFoundError, errors.HFValidationError) as error:
        hint = "if it is private, set HF_TOKEN to a token that may read it"
        raise UnknownModel(f"{hub} has no model {repository[:200]!r}", hint=hint) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        if status in _DENIED:
            hint = "set HF_TOKEN to a valid token that may read it"
            raise HubRefused(f"{hub} refuses {repository} with status {status}", hint=hint) from error
        raise HubUnreachable(f"{hub} answers with status {status}", hint="try again later, or " + NETWORK) from error
    except (transport, OSError, RuntimeError, errors.XetDownloadError) as error:
        if isinstance(error, OSError) and error.errno and not isinstance(error, ConnectionError):
            message = f"cannot write {folder}: {error.strerror}"
            raise UnwritableOutput(message, hint="free space there, or set HF_HOME to a folder that has it") from error
        cause = error.__cause__ or error
        raise HubUnreachable(f"{hub} cannot be reached: {_brief(cause)}", hint=NETWORK) from error


def _brief(error: BaseException) -> str:
    """One line about `error`."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def counting(progress: Progress, label: str, done: int, total: int) -> Any:
    """A class for `tqdm_class` that tells `progress` the MiB of `total` bytes, `done` of which came before.

    https://huggingface.co/docs/huggingface_hub/package_reference/file_download, `tqdm_class`: it may mimic tqdm.
    """

    class Counter:
        def __init__(self, *, initial: int = 0, **_options: object) -> None:
            self._received = initial

        def update(self, count: int = 1) -> None:
            self._received += count
            progress(label, (done + self._received) // _MIB, -(-total // _MIB))

        def update_transfer(self, count: int) -> None:
            """The same bytes again, as the network counts them."""

        def set_postfix_str(self, text: str, **_options: object) -> None:
            pass

        set_transfer_postfix_str = set_postfix_str

        def close(self) -> None:
            pass

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_error: object) -> None:
            pass

    return Counter
