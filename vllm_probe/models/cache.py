"""The hub's cache on this machine: where it is, which models it holds, and whether nothing but it may be asked."""

from collections.abc import Iterator
from pathlib import Path

from vllm_probe.core.errors import AmbiguousModel
from vllm_probe.core.files import read_document
from vllm_probe.core.system import Host
from vllm_probe.models.files import mode_of

_TRUE = ("1", "ON", "YES", "TRUE")


def is_offline(host: Host) -> bool:
    """Whether the environment forbids asking the hub.

    https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables
    """
    return any((host.env(name) or "").upper() in _TRUE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))


def cache_folder(host: Host) -> Path:
    """The hub's cache on `host`, there or not."""
    user = host.env("HOME") or host.env("USERPROFILE") or "/"
    home = host.env("HF_HOME") or f"{host.env('XDG_CACHE_HOME') or f'{user}/.cache'}/huggingface"
    return Path(host.env("HF_HUB_CACHE") or f"{home}/hub")


def cached_copies(name: str, host: Host) -> Iterator[tuple[Path, str]]:
    """Folder and repository of the model `name` in the hub's cache: the snapshot that `refs/main` names, if any.

    Snapshots are `models--org--name/snapshots/REVISION`,
    https://huggingface.co/docs/huggingface_hub/guides/manage-cache

    Raises:
        AmbiguousModel: a short name that several repositories have.
    """
    found = {
        repository: snapshots
        for repository, snapshots in _snapshots(host).items()
        if name.lower() in (repository.lower(), repository.rpartition("/")[2].lower())
    }
    if len(found) > 1:
        listed = ", ".join(found)
        raise AmbiguousModel(
            f"{name!r} is cached from several places: {listed}", candidates=tuple(found), hint="name one with its place"
        )
    for repository, snapshots in found.items():
        main = snapshots[0].parents[1] / "refs" / "main"
        revision = read_document(main, 100).strip() if mode_of(main) else ""
        yield next((snapshot for snapshot in snapshots if snapshot.name == revision), snapshots[-1]), repository


def cached_weights(host: Host) -> tuple[str, ...]:
    """Repositories in the hub's cache that have safetensors, sorted."""
    return tuple(
        repository
        for repository, snapshots in _snapshots(host).items()
        if any(mode_of(snapshot / "model.safetensors") for snapshot in snapshots)
    )


def _snapshots(host: Host) -> dict[str, list[Path]]:
    """Snapshots that have a config, by repository."""
    try:
        configs = sorted(cache_folder(host).glob("models--*/snapshots/*/config.json"))
    except OSError:
        return {}
    found: dict[str, list[Path]] = {}
    for config in configs:
        repository = config.parts[-4].removeprefix("models--").replace("--", "/", 1)
        found.setdefault(repository, []).append(config.parent)
    return found
