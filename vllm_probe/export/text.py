"""Text of the exported files: comments and YAML, safe whatever a config holds."""

from typing import Any

_BREAKS = frozenset("\x85\u2028\u2029")  # which YAML takes for ends of lines unless they are escaped


def comment(text: str) -> str:
    """`text` as one line of comment."""
    return f"# {' '.join(''.join(c if c.isprintable() else ' ' for c in text).split())}"


def as_yaml(*documents: Any) -> str:
    """YAML in the order of the documents' keys, without anchors; several documents each begin with `---`."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes text of several lines as a block."""

        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - the signature is PyYAML's
            return True

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
        # a block that keeps empty lines at its end has PyYAML end the document behind it
        style = "|" if "\n" in value.strip() and not value.endswith("\n\n") else None
        style = '"' if _BREAKS & set(value) else style
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return str(
        yaml.dump_all(
            documents,
            Dumper=Dumper,
            sort_keys=False,
            width=float("inf"),
            allow_unicode=True,
            explicit_start=len(documents) > 1,
        )
    )
