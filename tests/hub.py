"""A hub of a few routes on this machine, for tests that download from a real server.

https://huggingface.co/docs/hub/api, and the headers that huggingface_hub reads of a file: `X-Repo-Commit`, `ETag`,
`Content-Length`.
"""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_INFO = re.compile(r"/api/models/([^/]+/[^/?]+)(?:/revision/[^?]+)?(?:\?.*)?")
_FILE = re.compile(rf"/([^/]+/[^/]+)/resolve/(?:{COMMIT}|main)/(.+)")
_ELSEWHERE = re.compile(r"/elsewhere/([^/]+/[^/]+)/(.+)")


@dataclass
class LocalHub:
    """What the server holds, and what it was asked for.

    Attributes:
        repositories: files by path, by repository.
        refusals: status, error code and message instead of an answer, by repository, or by repository and file.
        asked: method, path and headers of each request.
        breaks_at: byte of a file after which the connection is closed, once, by file name.
        ignores_ranges: answers with whole files.
        elsewhere: weights are on another server, to which a redirect leads.
        raw: body of every answer about a repository instead of what it holds.
    """

    repositories: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    refusals: dict[str, tuple[int, str, str]] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    breaks_at: dict[str, int] = field(default_factory=dict)
    ignores_ranges: bool = False
    elsewhere: bool = False
    raw: bytes | None = None
    url: str = ""
    sent_bytes: int = 0

    def put(self, repository: str, folder: Path) -> None:
        """Holds every file below `folder`."""
        files = (path for path in folder.rglob("*") if path.is_file())
        self.repositories[repository] = {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}

    def fetched(self) -> list[str]:
        """Names of the files that were asked for by GET, in order."""
        found = (_FILE.fullmatch(path) for method, path, _ in self.asked if method == "GET")
        return [match[2] for match in found if match]


@contextmanager
def local_hub() -> Iterator[LocalHub]:
    """A hub that listens on a free port of this machine until the block ends."""
    hub = LocalHub()
    server = _Server(hub)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: LocalHub) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def _hub(self) -> LocalHub:
        assert isinstance(self.server, _Server)
        return self.server.hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass

    def _answer(self) -> None:
        self._hub.asked.append((self.command, self.path, {name.lower(): text for name, text in self.headers.items()}))
        info, file = _INFO.fullmatch(self.path), _FILE.fullmatch(self.path) or _ELSEWHERE.fullmatch(self.path)
        repository = (info or file or {1: ""})[1]
        refused = self._hub.refusals.get(repository) or self._hub.refusals.get(
            f"{repository}/{file[2]}" if file else ""
        )
        if refused:
            status, code, message = refused
            self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": message})
        elif repository not in self._hub.repositories:
            self._send(401, b"", {"X-Error-Code": "RepoNotFound"})
        elif info:
            self._send(200, self._hub.raw or _info(repository, self._hub.repositories[repository]), {})
        else:
            self._file(self._hub.repositories[repository].get(file[2] if file else ""), file[2] if file else "")

    def _file(self, content: bytes | None, name: str) -> None:
        if content is None:
            self._send(404, b"", {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        headers = {"ETag": f'"{hashlib.sha256(content).hexdigest()}"', "X-Repo-Commit": COMMIT}
        if self._hub.elsewhere and name.endswith(".safetensors") and not _ELSEWHERE.fullmatch(self.path):
            linked = {"X-Linked-ETag": headers["ETag"], "X-Linked-Size": str(len(content))}
            where = self._hub.url.replace("127.0.0.1", "localhost")
            path = self.path.replace(f"/resolve/{COMMIT}", "")
            self._send(302, b"", headers | linked | {"Location": f"{where}/elsewhere{path}"})
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if asked is None or self._hub.ignores_ranges:
            self._send(200, content, headers, self._hub.breaks_at.pop(name, None) if self.command == "GET" else None)
            return
        begin, end = int(asked[1]), int(asked[2] or len(content) - 1)
        end = min(end, len(content) - 1)
        headers["Content-Range"] = f"bytes {begin}-{end}/{len(content)}"
        self._send(206, content[begin : end + 1], headers)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], breaks_at: int | None = None) -> None:
        self.send_response(status)
        for name, text in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command == "HEAD":
            return
        try:
            self.wfile.write(body[:breaks_at])
        except OSError:  # the client has what it wanted
            self.close_connection = True
            return
        self._hub.sent_bytes += len(body[:breaks_at])
        self.close_connection = self.close_connection or breaks_at is not None


def _info(repository: str, files: Mapping[str, bytes]) -> bytes:
    siblings = [{"rfilename": name, "size": len(content), "blobId": "0"} for name, content in files.items()]
    return json.dumps({"_id": "1", "id": repository, "sha": COMMIT, "siblings": siblings}).encode()
