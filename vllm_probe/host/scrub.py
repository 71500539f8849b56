"""Takes out what names a person, a machine or a secret; the same thing gets the same stand-in everywhere."""

import re
from collections.abc import Iterable
from functools import partial

_SECRET = "<secret>"  # noqa: S105 - the stand-in
_SECRET_VARIABLE = re.compile(r"(?:TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?|KEY|AUTH|DSN)(?:_|$)", re.IGNORECASE)
_SECRETS = re.compile(
    r"(\b[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|KEY)=|--?[\w-]*(?:key|token|password|secret)[= \0]|Bearer |://[^\s/:@]+:)"
    r"[^\s\0@]+|\b(?:hf|gh[opsu]|github_pat|glpat|xox[abp]|sk)[-_][\w-]{16,}|\bAKIA[A-Z0-9]{16}\b|\beyJ[\w-]+\.[\w.-]+"
)
_HOME = re.compile(r"((?:/home|/Users|/media|\b[A-Z]:\\+Users)[/\\]+)[^\s/\\:\"',;<>\0]+", re.IGNORECASE)
_KERNELS = re.compile(r"((?<![\w.-])(?:/(?:sys|proc|dev)/|(?:\.\./)+)(?:[^\s:\"',;<>\0]|:(?=[0-9a-f]))*)")
"""Paths that the kernel names, whose parts are no names of people, though a person may be called Max."""

_AT_HOST = re.compile(r"\b[\w.+-]{2,}@(?!\S*\.service)[A-Za-z][\w-]+(?:\.[\w-]+)*")
_HEX = r"(?<![0-9a-f]){}(?![0-9a-f])"
_IDENTITIES = {
    r"(?:serial(?:[ _-]?(?:number|no))?|(?:unique|hive)[ _-]?id|partuuid)[\"']?\s*[:=> ]\s*[\"']?"
    r"(?P<id>(?=[\w.-]*\d)[\w.-]{4,})": "serial-{}",
    _HEX.format(r"(?P<id>[0-9a-f]{64})"): "0" * 56 + "{:08x}",
    _HEX.format(r"(?P<id>[0-9a-f]{8}([-_]?)(?:[0-9a-f]{4}\2){3}[0-9a-f]{12})"): "00000000-0000-0000-0000-{:012x}",
    r"(?<![0-9a-f:])(?P<id>[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\2){4}[0-9a-f]{2})(?![0-9a-f:])": "02:00:00:00:00:{:02x}",
    r"(?<![\w:])(?P<id>(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|[23f][0-9a-f]{3}(?::[0-9a-f]{1,4})*::[0-9a-f:]*)(?!\w)": (
        "2001:db8::{:x}"  # RFC 3849
    ),
    r"(?:(?:version|driver|firmware|release|build)[\W_]{1,8}|==|-)\d[\d.]+|"
    r"(?<![\w.])(?P<id>(?:\d{1,3}\.){3}\d{1,3})(?![\w.])": "192.0.2.{}",  # RFC 5737
}  # pattern -> stand-in
_RULES = tuple((re.compile(pattern, re.IGNORECASE), stand_in) for pattern, stand_in in _IDENTITIES.items())
_NO_IDENTITY = {"127.0.0.1", "0.0.0.0", "8be4df61-93ca-11d2-aa0d-00e098032b8c"}  # noqa: S104 - the GUID is UEFI's own
_NO_NAMES = re.compile(
    r".{0,2}|root|user|host|localhost|admin|test|nvidia|amd|intel|[cgn]pu|cuda|rocm|xpu|ascend|dev|sys|proc|etc|usr|bin|"
    r"lib\d*|sbin|opt|var|run|tmp|home|mnt|srv|data|boot|block|bus|pci|class|drm|dri|net|self|cgroup|modules|firmware|"
    r"kernel|power|thermal|ubuntu|debian|fedora|linux|docker|python|torch|vllm|render|video|drivers?|devices?|version|"
    r"status|model|name|node|processor|memory|system|worker|jetson",
    re.IGNORECASE,
)
"""Words that name nobody as a user or host, and that texts and paths need."""


class Scrubber:
    """Scrubs the texts of one recording.

    Args:
        homes: home directories.
        users: user names.
        hosts: host names.
        accounts: further names of people, replaced where they are a part of a path: elsewhere Ada may be a chip.
    """

    def __init__(
        self, homes: Iterable[str], users: Iterable[str], hosts: Iterable[str], accounts: Iterable[str] = ()
    ) -> None:
        self._homes = sorted({home.rstrip("/\\") for home in homes} - {"", "/root"}, key=len, reverse=True)
        words = [(name, "", "user") for name in users] + [(name, r"(?:\.[\w-]+)*", "host") for name in hosts]
        self._names = [
            (re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}{tail}(?![A-Za-z0-9])", re.IGNORECASE), stand_in)
            for name, tail, stand_in in words
            if not _NO_NAMES.fullmatch(name)
        ]
        self._names += [
            (re.compile(rf"(?<=[/\\]){re.escape(name)}(?=[/\\\s:\"',;<>\0]|$)"), "user")
            for name in accounts
            if not _NO_NAMES.fullmatch(name)
        ]
        self._seen: dict[tuple[str, str], int] = {}

    def text(self, text: str) -> str:
        """`text` without names, homes, secrets, serial numbers, UUIDs and addresses."""
        text = _SECRETS.sub(lambda match: (match[1] or "") + _SECRET, text)
        for home in self._homes:
            text = re.sub(re.escape(home) + r"(?![\w.-])", "/home/user", text)
        text = _HOME.sub(r"\1user", text)
        text = "".join(part if at % 2 else self._nameless(part) for at, part in enumerate(_KERNELS.split(text)))
        text = _AT_HOST.sub("user@host", text)
        for rule, stand_in in _RULES:
            text = rule.sub(partial(self._stand_in, stand_in), text)
        return text

    def data(self, data: bytes, label: str = "") -> bytes:
        """`data` with its text scrubbed; a `label` such as `serial: ` or `version: ` says what it is."""
        try:
            return self.text(label + data.decode()).removeprefix(label).encode()
        except UnicodeDecodeError:
            return self.text(label + data.decode("latin-1")).removeprefix(label).encode("latin-1")

    def variable(self, name: str, value: str) -> str:
        """`value` of the environment variable `name`."""
        return _SECRET if _SECRET_VARIABLE.search(name) else self.text(value)

    def _nameless(self, text: str) -> str:
        for pattern, stand_in in self._names:
            text = pattern.sub(stand_in, text)
        return text

    def _stand_in(self, stand_in: str, match: re.Match[str]) -> str:
        found = match["id"]
        if found is None or found.startswith(stand_in.partition("{")[0]) or found.lower() in _NO_IDENTITY:
            return match[0]
        number = self._seen.setdefault((stand_in, found.lower()), len(self._seen) + 1)
        begin, end = (position - match.start() for position in match.span("id"))
        return match[0][:begin] + stand_in.format(number) + match[0][end:]
