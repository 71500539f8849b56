"""Pipeline stages: which layers a rank holds, and which ends of the model."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The part of a model on one pipeline rank.

    Attributes:
        layers: its transformer layers.
        of: layers of the whole model.
        is_first: it holds the token embedding and the image tower.
        is_last: it holds the output projection and samples.
    """

    layers: int
    of: int
    is_first: bool = True
    is_last: bool = True

    @property
    def share(self) -> float:
        """Share of the layers."""
        return self.layers / self.of


def stages_of(num_layers: int, stages: int) -> tuple[Stage, ...]:
    """The stages that vLLM makes: layers in equal parts, the rest one each from the last stage but one backwards.

    `get_pp_indices` of vllm/distributed/utils.py.
    """
    base, rest = divmod(num_layers, stages)
    counts = [base] * stages
    for index in range(2, rest + 2):
        counts[-index] += 1
    return tuple(
        Stage(layers=count, of=num_layers, is_first=index == 0, is_last=index == stages - 1)
        for index, count in enumerate(counts)
    )
