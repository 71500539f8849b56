"""The `input` field of a request, checked by hand: a validator of unions collects an error per item and form."""

MAX_INPUTS = 2048
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


def _token_ids(value: object, place: str) -> list[int]:
    """`value` where it is a list of integers, which booleans are not."""
    if not isinstance(value, list):
        raise ValueError(f"{_WANTED}, not a mixture")  # noqa: TRY004 - a wrong request, as the others
    for position, item in enumerate(value):
        if type(item) is not int:
            raise ValueError(f"{_WANTED}; item {position} of {place} is not a token id")
    return value
