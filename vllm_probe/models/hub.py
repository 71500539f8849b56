"""A model on the Hugging Face hub: its shape from small files and the first bytes of its weights, and its download.

What a repository holds is chosen by name from what the hub lists: JSON documents, `tokenizer.json` and safetensors.
Code, pickles and everything else are never asked for. huggingface_hub, which takes a third of a second to import, is
imported when a repository is asked for.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from json import JSONDecodeError
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from vllm_probe.core.errors import BadUsage, HubUnreachable, InvalidModel, WeightsUnavailable
from vllm_probe.core.files import MAX_DOCUMENT_BYTES
from vllm_probe.core.model import ModelSpec
from vllm_probe.core.progress import Progress, silent
from vllm_probe.core.system import Host
from vllm_probe.models.cache import cache_folder
from vllm_probe.models.hf import read_folder
from vllm_probe.models.hub_client import NETWORK, counting, translated
from vllm_probe.models.safetensors import LENGTH_BYTES, MAX_HEADER_BYTES, TensorInfo, header_length, parse_header

if TYPE_CHECKING:
    from huggingface_hub import HfApi, ModelInfo

T = TypeVar("T")

ENDPOINT = "https://huggingface.co"
_ANSWER_S = 5.0  # for the first answer, all addresses of the hub and the name look-up together
_REQUEST_S = 10.0  # the default of huggingface_hub
_AT_ONCE = 8
_MIB = 1 << 20
_REPOSITORY = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_MODULE = r"(?:\d{1,3}_\w{1,60}/)?"  # folder of a sentence-transformers module, such as 1_Pooling
_NAMED = "config|hf_quant_config|generation_config|modules|sentence_\\w{1,60}_config|config_sentence_transformers"
_NAMED += "|tokenizer_config"
_DOCUMENT = re.compile(rf"{_MODULE}(?:{_NAMED}|model\.safetensors\.index)\.json")
_TOKENIZER = re.compile(rf"{_MODULE}tokenizer\.json")
_WEIGHTS = re.compile(rf"{_MODULE}model\.safetensors")
_SHARD = re.compile(rf"{_MODULE}[\w.-]{{1,150}}-\d{{5}}-of-\d{{5}}\.safetensors")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Files of a repository that matter here.

    Attributes:
        repository: `organisation/name`, as the hub spells it.
        revision: commit.
        documents: size in bytes of each JSON document, by path.
        tokenizers: the same of tokenizer files.
        weights: the same of the safetensors files that a model is loaded from.
    """

    repository: str
    revision: str
    documents: Mapping[str, int]
    tokenizers: Mapping[str, int]
    weights: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Hub:
    """The hub that an environment names, with its token and its cache.

    Attributes:
        endpoint: where it is.
        cache: its cache on this machine.
        token: whom it takes us for; null for what `hf auth login` stored, if anything.
        answer_s: how long its first answer may take.
    """

    endpoint: str
    cache: Path
    token: str | None = field(default=None, repr=False)
    answer_s: float = _ANSWER_S

    @classmethod
    def of(cls, host: Host) -> "Hub":
        """The hub of `HF_ENDPOINT`, with `HF_TOKEN`, the cache of `HF_HOME` and the patience of `HF_HUB_ETAG_TIMEOUT`.

        Raises:
            BadUsage: `HF_ENDPOINT` is not the address of a web server.
        """
        endpoint = (host.env("HF_ENDPOINT") or ENDPOINT).rstrip("/")
        if not endpoint.startswith(("https://", "http://")):
            raise BadUsage("HF_ENDPOINT is not an address", hint=f"such as {ENDPOINT}, which is the default")
        patience = host.env("HF_HUB_ETAG_TIMEOUT") or ""
        answer_s = float(patience) if patience.isdecimal() else _ANSWER_S
        return cls(endpoint=endpoint, cache=cache_folder(host), token=host.env("HF_TOKEN") or None, answer_s=answer_s)

    @property
    def name(self) -> str:
        """The endpoint, without what may stand in it for a password."""
        return re.sub(r"(?<=//)[^/@]*@", "", self.endpoint)

    def listing(self, repository: str) -> Listing:
        """What `repository` holds; fails within `answer_s` where no hub answers.

        Raises:
            UnknownModel: there is no such repository, or it is hidden from us.
            HubRefused: it is kept for those whom the hub has let in.
            HubUnreachable: the hub does not answer.
        """
        from huggingface_hub import HfApi

        with translated(self.name, repository, self.cache):
            api = HfApi(endpoint=self.endpoint, token=self.token)
            info = _within(self.answer_s, lambda: self._ask(api, repository), self.name)
        if not _REPOSITORY.fullmatch(str(info.id)) or not _COMMIT.fullmatch(str(info.sha)):
            raise HubUnreachable(f"{self.name} does not answer as a hub does", hint="is HF_ENDPOINT a hub?")
        sizes = {entry.rfilename: entry.size or 0 for entry in info.siblings or ()}
        return Listing(
            repository=info.id,
            revision=str(info.sha),
            documents=_chosen(sizes, _DOCUMENT),
            tokenizers=_chosen(sizes, _TOKENIZER),
            weights=_weights(sizes),
        )

    def download(self, repository: str, progress: Progress = silent) -> Path:
        """Folder in the cache with everything that serving `repository` needs; what is there already is not fetched.

        The weights of the model come last, so that an interrupted download does not look like a whole one. A
        connection that breaks is taken up where it broke.

        Args:
            repository: `organisation/name`.
            progress: told MiB of the weights.

        Raises:
            WeightsUnavailable: it has no safetensors.
            UnwritableOutput: the cache cannot be written, or its disk is full.
            UnknownModel, HubRefused, HubUnreachable: as `listing`.
        """
        listing = self.listing(repository)
        require_weights(listing, self.name)
        for name in (*listing.documents, *listing.tokenizers):
            self.fetch(listing, name)
        total, done = sum(listing.weights.values()), 0
        for name in sorted(listing.weights, key=lambda name: ("/" not in name, name)):
            label = f"{name} of {listing.repository}, MiB"
            progress(label, done // _MIB, -(-total // _MIB))
            path = self.fetch(listing, name, counting(progress, label, done, total))
            done += listing.weights[name]
        progress(label, -(-total // _MIB), -(-total // _MIB))
        return path.parents[name.count("/")]

    def fetch(self, listing: Listing, name: str, bar: Any = None, folder: Path | None = None) -> Path:
        """The file `name`, in the cache or in `folder`."""
        from huggingface_hub import hf_hub_download

        with translated(self.name, listing.repository, folder or self.cache):
            path = hf_hub_download(
                listing.repository,
                name,
                revision=listing.revision,
                cache_dir=self.cache,
                local_dir=folder,
                endpoint=self.endpoint,
                token=self.token,
                etag_timeout=_REQUEST_S,
                tqdm_class=bar or counting(silent, name, 0, 1),
            )
        return Path(path)

    def header(self, listing: Listing, name: str) -> dict[str, TensorInfo]:
        """The tensors of the weight file `name`; of the file its header is received, and little more."""
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

        path, rest = Path(listing.repository, name), listing.weights[name] - LENGTH_BYTES
        url = hf_hub_url(listing.repository, name, revision=listing.revision, endpoint=self.endpoint)
        asked = {"Range": f"bytes=0-{LENGTH_BYTES + MAX_HEADER_BYTES - 1}", "Accept-Encoding": "identity"}
        headers = build_hf_headers(token=self.token, headers=asked)
        received, due = bytearray(), LENGTH_BYTES
        with (
            translated(self.name, listing.repository, self.cache),
            get_session().stream("GET", url, headers=headers, timeout=_REQUEST_S) as response,
        ):
            hf_raise_for_status(response)
            for chunk in response.iter_bytes():
                received += chunk
                if len(received) >= LENGTH_BYTES:
                    due = LENGTH_BYTES + header_length(bytes(received[:LENGTH_BYTES]), rest, path)
                if len(received) >= due:
                    break
        header = bytes(received[LENGTH_BYTES:due])
        return parse_header(header, rest - len(header), path)

    def _ask(self, api: "HfApi", repository: str) -> "ModelInfo":
        try:
            return api.model_info(repository, files_metadata=True, timeout=self.answer_s)
        except (AttributeError, KeyError, TypeError, JSONDecodeError) as error:
            message = f"{self.name} does not answer as a hub does"
            raise HubUnreachable(message, hint="is HF_ENDPOINT a hub?") from error


@lru_cache(maxsize=8)
def describe(hub: Hub, repository: str) -> ModelSpec:
    """The model in `repository` by its documents and the headers of its weights; its weight bytes are exact.

    Nothing is kept on this machine. A repository that is asked for twice in one process is read once.

    Raises:
        UnknownModel, HubRefused, HubUnreachable: as `Hub.listing`.
        InvalidModel, InvalidJson, UnsupportedModel: as `hf.read_folder`.
    """
    listing = hub.listing(repository)
    with TemporaryDirectory(prefix="vllm-probe-") as place:
        root = Path(place, listing.repository)
        root.mkdir(parents=True)
        for name, size in listing.documents.items():
            if size > MAX_DOCUMENT_BYTES:
                raise InvalidModel(f"{listing.repository}/{name} has {size} bytes", hint="is this the right model?")
        _at_once(lambda name: hub.fetch(listing, name, folder=root), listing.documents)
        headers = _at_once(lambda name: hub.header(listing, name), listing.weights)
        for name in listing.weights:  # stands for the file on the hub
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).touch()
        spec = read_folder(root, lambda path: headers.get(path.relative_to(root).as_posix(), {}))
    files = "config and safetensors headers" if listing.weights else "config"
    return replace(
        spec,
        repository=listing.repository,
        weights_path=None,
        folder=None,
        source=f"{files} of {listing.repository} at {listing.revision[:12]} on {hub.name}",
    )


def require_weights(listing: Listing, hub: str) -> None:
    """Raises `WeightsUnavailable` for a repository without safetensors."""
    if not any("/" not in name for name in listing.weights) and "modules.json" not in listing.documents:
        raise WeightsUnavailable(
            f"{listing.repository} on {hub} has no safetensors; pickle is not read, because it can run code",
            hint="take a repository or a revision that has model.safetensors, or convert it",
        )


def _chosen(sizes: Mapping[str, int], pattern: re.Pattern[str]) -> dict[str, int]:
    return {name: size for name, size in sorted(sizes.items()) if pattern.fullmatch(name)}


def _weights(sizes: Mapping[str, int]) -> dict[str, int]:
    """`model.safetensors` of the model and of its modules; the shards of a folder that has no such file."""
    whole = _chosen(sizes, _WEIGHTS)
    folders = {name.rpartition("/")[0] for name in whole}
    shards = _chosen(sizes, _SHARD)
    return whole | {name: size for name, size in shards.items() if name.rpartition("/")[0] not in folders}


def _at_once(work: Callable[[str], T], names: Iterable[str]) -> dict[str, T]:
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return dict(zip(names, pool.map(work, names), strict=True))


def _within(seconds: float, ask: Callable[[], T], hub: str) -> T:
    """What `ask` gives, in a thread that is left behind when it takes longer: a name look-up cannot be interrupted."""
    answer: Future[T] = Future()

    def wait() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001 - raised again by the caller
            answer.set_exception(error)

    Thread(target=wait, daemon=True, name="vllm-probe hub").start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        if not answer.done():
            raise HubUnreachable(f"{hub} did not answer within {seconds:g} s", hint=NETWORK) from error
        raise
