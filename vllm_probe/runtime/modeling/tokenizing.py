"""From texts and token ids to prompts that the model can run."""

import logging
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, TypedDict, Unpack

from tokenizers import Tokenizer

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.files import read_document
from vllm_probe.core.model import ModelSpec, Pooling
from vllm_probe.runtime.sched.request import RequestError

Input: TypeAlias = str | Sequence[int]
Side: TypeAlias = Literal["left", "right"]

_INPUT_TYPES = {"search_query": "query", "search_document": "document"}
"""`input_type` of Cohere's API to the prompt name that sentence-transformers checkpoints use for it."""

_MAX_TOKENIZER_BYTES = 64 << 20
_CHARS_PER_TOKEN = 64
"""Characters of text that are looked at per token of the model's limit; English has 4 to 5, so that only runs of
blanks or of the same word without end have more. Without a bound one text holds up the tokenizer for seconds."""
_PART_TOKENS = 1024  # some ms
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids ready to run.

    Attributes:
        token_ids: per input.
        num_truncated: inputs that were cut.
        dimensions: width of the vectors that are wanted, null for the model's.
        normalizes: whether they are scaled to unit length, null as the model does.
    """

    token_ids: tuple[Sequence[int], ...]
    num_truncated: int
    dimensions: int | None = None
    normalizes: bool | None = None


class Reading(TypedDict, total=False):
    """How inputs are read, and what is wanted of their vectors.

    Attributes:
        dimensions: width of the vectors, for models that were trained to be cut.
        normalizes: whether they are scaled to unit length; without it as the config or the checkpoint says.
        truncate_prompt_tokens: cut longer inputs to so many tokens; -1 is the model's limit.
        truncation_side: which end loses tokens, `right` without.
        prompt_name: prompt of the checkpoint to put before each text; without it the checkpoint's default, which token
            ids are taken to have.
        add_special_tokens: without it true; else texts have no tokens around them, and token ids stay as they are.
        max_request_tokens: of all inputs together, any number without.
    """

    dimensions: int | None
    normalizes: bool | None
    truncate_prompt_tokens: int | None
    truncation_side: Side | None
    prompt_name: str | None
    add_special_tokens: bool
    max_request_tokens: int


@dataclass(frozen=True, slots=True)
class _Form:
    """A `Reading` that was looked at: text to put before, tokens to cut at, the side, special tokens or none."""

    prefix: str
    limit: int | None
    side: Side
    has_specials: bool


class PromptReader:
    """Tokenizes for one model; safe to use from several threads.

    Attributes:
        reads_text: there is a tokenizer; without one only token ids are understood.
        prompt_names: what `prompt_name` may be.
        least_tokens: shortest that a prompt can be cut to, its special tokens and one more.
    """

    def __init__(self, spec: ModelSpec, max_model_len: int, pooling: Pooling) -> None:
        """Loads tokenizer.json from the model's folder; without one only token ids are understood.

        Raises:
            InvalidModel: the file is not a tokenizer.
        """
        self._spec = spec
        self._max_model_len = max_model_len
        self._tokenizer = _load_tokenizer(Path(spec.folder)) if spec.folder else None
        self.reads_text = self._tokenizer is not None
        self._saw_token_ids = False  # LangChain sends those of another model: its issue 12854
        around: list[int] = self._tokenizer.encode("").ids if self._tokenizer else []
        self._specials = frozenset(around)
        self.least_tokens = len(self._specials) + 1
        meant = (given for given, name in _INPUT_TYPES.items() if name in spec.prompts)
        self.prompt_names = (*spec.prompts, *meant)
        self._terminal = around[-1] if around and pooling == "last" else None

    def read(self, inputs: Sequence[Input], **reading: Unpack[Reading]) -> Generator[int, None, Prompts]:
        """Prompts of `inputs`, in parts of 1024 tokens and more; gives how many there are so far after each.

        With `truncate_prompt_tokens` longer ones are cut.

        A cut keeps the special tokens at both ends, as sentence-transformers does. Where the last token is pooled,
        token ids end with the tokenizer's terminal token like texts: it is appended where it is absent. Of a text with
        more than 64 characters per token of the model's limit only so many are tokenized, from the end that is kept.

        Raises:
            RequestError: no input, an empty or too long one, too many together, ids that the model does not have, an
                unknown prompt.
        """
        if not inputs:
            raise RequestError("input is empty")
        name = reading.get("prompt_name")
        prefix = self._prefix(name)
        if name is not None and prefix:
            _check_texts(inputs)
        form = _Form(
            prefix,
            self._limit(reading.get("truncate_prompt_tokens")),
            reading.get("truncation_side") or "right",
            reading.get("add_special_tokens", True),
        )
        found, total, most = list[tuple[Sequence[int], bool]](), 0, reading.get("max_request_tokens")
        stops_at = _PART_TOKENS
        for index, item in enumerate(inputs):
            found.append(self._read_one(item, form, f"input {index}"))
            total += len(found[-1][0])
            if most is not None and total > most:
                counted = f"the first {index + 1} of {len(inputs)} inputs have {total} tokens"
                raise RequestError(f"{counted}, the limit of a request is {most}: send fewer at a time")
            if total >= stops_at:
                yield total
                stops_at = total + _PART_TOKENS
        return Prompts(
            tuple(ids for ids, _ in found),
            sum(cut for _, cut in found),
            reading.get("dimensions"),
            reading.get("normalizes"),
        )

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of `text`, of any number of tokens.

        Raises:
            RequestError: there is no tokenizer, or more than 64 characters per token of the model's limit.
        """
        tokenizer = self._require_tokenizer("prompt")
        most = _CHARS_PER_TOKEN * self._max_model_len
        if len(text) > most:
            raise RequestError(f"prompt has {len(text)} characters, where {most} are looked at", "prompt")
        _check_unicode(text, "prompt")
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = encoding.ids
        return ids

    def names(self, ids: Sequence[int]) -> list[str]:
        """Each token of `ids` as the vocabulary writes it, empty where it has none."""
        tokenizer = self._require_tokenizer("tokens")
        return [tokenizer.id_to_token(item) or "" for item in ids]

    def detokenize(self, ids: Sequence[int]) -> str:
        """The text of token `ids`, special tokens included.

        Raises:
            RequestError: there is no tokenizer, more than 64 ids per token of the model's limit, or ids that the model
                does not have.
        """
        tokenizer = self._require_tokenizer("tokens")
        most = _CHARS_PER_TOKEN * self._max_model_len
        if len(ids) > most:
            raise RequestError(f"tokens has {len(ids)} ids, where {most} are looked at", "tokens")
        self._check_ids(ids, "tokens", "tokens")
        text: str = tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def _prefix(self, name: str | None) -> str:
        prompts = self._spec.prompts
        if name is None:
            return prompts[self._spec.default_prompt] if self._spec.default_prompt else ""
        if (known := name if name in prompts else _INPUT_TYPES.get(name)) in prompts:
            return prompts[str(known)]
        listed = f"it has {', '.join(sorted(prompts))}" if prompts else "it has none"
        raise RequestError(f"the checkpoint has no prompt {name[:80]!r}: {listed}", "prompt_name")

    def _limit(self, truncate_prompt_tokens: int | None) -> int | None:
        """Tokens to cut at, null when nothing may be cut."""
        if truncate_prompt_tokens is None:
            return None
        if truncate_prompt_tokens == -1:
            return self._max_model_len
        if not self.least_tokens <= truncate_prompt_tokens <= self._max_model_len:
            message = f"truncate_prompt_tokens must be -1 or between {self.least_tokens} and {self._max_model_len}"
            raise RequestError(f"{message}, not {truncate_prompt_tokens}", "truncate_prompt_tokens")
        return truncate_prompt_tokens

    def _read_one(self, item: Input, form: _Form, place: str) -> tuple[Sequence[int], bool]:
        if not item:
            raise RequestError(f"{place} is empty")
        if isinstance(item, str):
            return self._read_text(form.prefix + item, form, place)
        return self._read_ids(item, form, place)

    def _read_ids(self, ids: Sequence[int], form: _Form, place: str) -> tuple[Sequence[int], bool]:
        if not self._saw_token_ids:
            self._saw_token_ids = True
            _log.warning("token ids received: check that they come from this model's tokenizer")
        self._check_ids(ids, place, "input")
        if form.has_specials and self._terminal not in (None, ids[-1]):
            ids = [*ids, self._terminal]
        if not self._is_cut(len(ids), form.limit, place):
            return ids, False
        assert form.limit is not None
        head = 1 if form.has_specials and ids[0] in self._specials else 0
        tail = 1 if form.has_specials and ids[-1] in self._specials else 0
        body, room = ids[head : len(ids) - tail], form.limit - head - tail
        kept = body[len(body) - room :] if form.side == "left" else body[:room]
        return [*ids[:head], *kept, *ids[len(ids) - tail :]], True

    def _read_text(self, text: str, form: _Form, place: str) -> tuple[Sequence[int], bool]:
        tokenizer = self._require_tokenizer("input", ": send token ids")
        most = _CHARS_PER_TOKEN * self._max_model_len
        is_long = len(text) > most
        if is_long and form.limit is None:
            raise self._too_long(f"{place} has {len(text)} characters, where {most} are looked at")
        if is_long:
            text = text[-most:] if form.side == "left" else text[:most]
        _check_unicode(text, place)
        # One text per call: encode_batch releases the GIL and never takes more than one core from the forward pass.
        (encoding,) = tokenizer.encode_batch_fast([text], add_special_tokens=False)
        num_special = tokenizer.num_special_tokens_to_add(False) if form.has_specials else 0
        cut = self._is_cut(len(encoding) + num_special, form.limit, place)
        if cut and form.limit is not None:
            encoding.truncate(form.limit - num_special, direction=form.side)
        ids: list[int] = tokenizer.post_process(encoding).ids if form.has_specials else encoding.ids
        if not ids:
            raise RequestError(f"{place} has no tokens but special ones", "add_special_tokens")
        assert not form.has_specials or self._terminal in (None, ids[-1])
        return ids, cut or is_long

    def _require_tokenizer(self, param: str, way_out: str = "") -> Tokenizer:
        if self._tokenizer is None:
            raise RequestError(f"the model has no tokenizer.json here{way_out}", param)
        return self._tokenizer

    def _check_ids(self, ids: Sequence[int], place: str, param: str) -> None:
        if ids and (min(ids) < 0 or max(ids) >= self._spec.vocab_size):
            raise RequestError(f"{place} has token ids outside 0 to {self._spec.vocab_size - 1}", param)

    def _is_cut(self, num_tokens: int, limit: int | None, place: str) -> bool:
        if limit is None and num_tokens > self._max_model_len:
            raise self._too_long(f"{place} has {num_tokens}")
        return limit is not None and num_tokens > limit

    def _too_long(self, found: str) -> RequestError:
        message = f"This model's maximum context length is {self._max_model_len} tokens, but {found}"
        return RequestError(f"{message}: shorten it or send truncate_prompt_tokens: -1")


def _check_texts(inputs: Sequence[Input]) -> None:
    """Refuses token ids, which no prompt can be put before."""
    for index, item in enumerate(inputs):
        if not isinstance(item, str):
            message = f"input {index} is token ids, which no prompt can be put before: send text"
            raise RequestError(message, "prompt_name")


def _check_unicode(text: str, place: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(f"{place} is not valid Unicode text: {error.reason}", place.partition(" ")[0]) from error


def _load_tokenizer(folder: Path) -> Tokenizer | None:
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    try:
        tokenizer = Tokenizer.from_buffer(read_document(path, _MAX_TOKENIZER_BYTES).encode())
    except ValueError as error:
        raise InvalidModel(f"{path} is not a tokenizer: {error}", hint="download the checkpoint again") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
