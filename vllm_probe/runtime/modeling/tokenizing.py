"""From texts and token ids to prompts that the model can run."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tokenizers import Tokenizer

from vllm_probe.core.errors import InvalidModel
from vllm_probe.core.files import read_document
from vllm_probe.core.model import ModelSpec
from vllm_probe.runtime.sched.request import RequestError

Input: TypeAlias = str | Sequence[int]
_MAX_TOKENIZER_BYTES = 64 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prompts:
    """Token ids ready to run.

    Attributes:
        token_ids: per input.
        num_truncated: inputs that were cut.
    """

    token_ids: tuple[Sequence[int], ...]
    num_truncated: int


class PromptReader:
    """Tokenizes for one model; safe to use from several threads."""

    def __init__(self, spec: ModelSpec, max_model_len: int) -> None:
        """Loads tokenizer.json from the checkpoint; without one only token ids are understood.

        Raises:
            InvalidModel: the file is not a tokenizer.
        """
        self._spec = spec
        self._max_model_len = max_model_len
        self._tokenizer = _load_tokenizer(Path(spec.weights_path or ""))
        self._saw_token_ids = False  # LangChain sends those of another model: its issue 12854
        self._specials = frozenset(self._tokenizer.encode("").ids) if self._tokenizer else frozenset()

    def read(self, inputs: Sequence[Input], truncate_prompt_tokens: int | None = None) -> Prompts:
        """Prompts of `inputs`; with `truncate_prompt_tokens` (-1: the model's limit) longer ones are cut.

        A cut takes tokens from the end and keeps the special tokens around them, as sentence-transformers does.

        Raises:
            RequestError: no input, an empty or too long one, or ids that the model does not have.
        """
        if not inputs:
            raise RequestError("input is empty")
        limit = self._limit(truncate_prompt_tokens)
        found = [self._read_one(item, limit, f"input {index}") for index, item in enumerate(inputs)]
        return Prompts(tuple(ids for ids, _ in found), sum(cut for _, cut in found))

    def _limit(self, truncate_prompt_tokens: int | None) -> int | None:
        """Tokens to cut at, null when nothing may be cut."""
        if truncate_prompt_tokens is None:
            return None
        least = len(self._specials) + 1
        if truncate_prompt_tokens == -1:
            return self._max_model_len
        if not least <= truncate_prompt_tokens <= self._max_model_len:
            message = f"truncate_prompt_tokens must be -1 or between {least} and {self._max_model_len}"
            raise RequestError(f"{message}, not {truncate_prompt_tokens}", "truncate_prompt_tokens")
        return truncate_prompt_tokens

    def _read_one(self, item: Input, limit: int | None, place: str) -> tuple[Sequence[int], bool]:
        if not item:
            raise RequestError(f"{place} is empty")
        if isinstance(item, str):
            return self._read_text(item, limit, place)
        if not self._saw_token_ids:
            self._saw_token_ids = True
            _log.warning("token ids received: check that they come from this model's tokenizer")
        if min(item) < 0 or max(item) >= self._spec.vocab_size:
            raise RequestError(f"{place} has token ids outside 0 to {self._spec.vocab_size - 1}")
        if not self._is_cut(len(item), limit, place):
            return item, False
        assert limit is not None
        tail = list(item[-1:]) if item[-1] in self._specials else []
        return [*item[: limit - len(tail)], *tail], True

    def _read_text(self, text: str, limit: int | None, place: str) -> tuple[Sequence[int], bool]:
        if self._tokenizer is None:
            raise RequestError("this checkpoint has no tokenizer.json; send token ids", "input")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise RequestError(f"{place} is not valid Unicode text: {error.reason}") from error
        # One text per call: encode_batch releases the GIL and never takes more than one core from the forward pass.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)
        num_special = self._tokenizer.num_special_tokens_to_add(False)
        cut = self._is_cut(len(encoding) + num_special, limit, place)
        if cut and limit is not None:
            encoding.truncate(limit - num_special)
        ids: list[int] = self._tokenizer.post_process(encoding).ids
        return ids, cut

    def _is_cut(self, num_tokens: int, limit: int | None, place: str) -> bool:
        if limit is None and num_tokens > self._max_model_len:
            message = (
                f"This model's maximum context length is {self._max_model_len} tokens, but {place} has {num_tokens}"
            )
            raise RequestError(f"{message}: shorten it or send truncate_prompt_tokens: -1")
        return limit is not None and num_tokens > limit


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
