"""The `input` field of a request, checked by hand: a validator of unions collects an error per item and form."""

MAX_INPUTS = 2048
MAX_REQUEST_TOKENS = 300_000
"""Of all inputs together, with `MAX_INPUTS` a limit of https://platform.openai.com/docs/api-reference/embeddings."""

_WANTED = "input must be a string, strings, token ids or lists of token ids"


def parse_input(value: object) -> list[str] | list[list[int]]:
    """The inputs one by one; a string is one input, and so is a list of numbers.

    It takes one pass, which the first item that is wrong ends; numbers are not compared with a model's limits.

    Raises:
        ValueError: no input, another type, or more than `MAX_INPUTS` (OpenAI's limit).
    """
    match value:
        case str():
            return [value]
        case []:
            raise ValueError("input is empty")
        case [str(), *_] | [list(), *_]:
            pass
        case [*_]:
            return [_token_ids(value, "input")]
        case _:
            raise ValueError(_WANTED)
    if len(value) > MAX_INPUTS:
        raise ValueError(f"{len(value)} inputs, the limit is {MAX_INPUTS}")
    if isinstance(value[0], str):
        texts = [item for item in value if isinstance(item, str)]
        if len(texts) < len(value):
            raise ValueError(f"{_WANTED}, not a mixture")
        return texts
    return [_token_ids(item, f"input {index}") for index, item in enumerate(value)]


def parse_token_ids(value: object) -> list[int]:
    """One list of token ids.

    Raises:
        ValueError: it is something else.
    """
    wanted = "tokens must be a list of token ids"
    if not isinstance(value, list):
        raise ValueError(wanted)  # noqa: TRY004 - a wrong request, as the others
    return _token_ids(value, "tokens", wanted)


def whole(value: object) -> object:
    """`value`, as an integer where JSON wrote an integer as 2.0 (JSON Schema has them equal)."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _token_ids(value: object, place: str, wanted: str = _WANTED) -> list[int]:
    """`value` where it is a list of integers, which booleans are not; integers written as 2.0 are put right in it."""
    if not isinstance(value, list):
        raise ValueError(f"{wanted}, not a mixture")  # noqa: TRY004 - a wrong request, as the others
    for position, item in enumerate(value):
        if type(item) is not int:
            value[position] = number = whole(item)
            if type(number) is not int:
                raise ValueError(f"{wanted}; item {position} of {place} is not a token id")
    return value
