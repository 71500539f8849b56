"""How each value of a runtime config was decided, as a tree."""

from rich.console import Group
from rich.text import Text

from vllm_probe.core.config import RuntimeConfig
from vllm_probe.negotiate.explain import explain


def render(config: RuntimeConfig) -> Group:
    """Lines as long as they are: a terminal wraps them, a pipe or a pager keeps them whole."""
    return Group(Text(explain(config).rstrip("\n"), no_wrap=True, overflow="ignore"))
