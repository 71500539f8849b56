"""From a bound socket to a drained exit."""

import asyncio
import errno
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from vllm_probe.core.errors import BadUsage, PortInUse
from vllm_probe.runtime.engine import Engine

_CLOSE_TIMEOUT_S = 30  # for clients that read slowly
_ABORT_TIMEOUT_S = 5
_LINGER_S = 0.5
_TICK_S = 0.01
_KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections (httpx 5 s, aiohttp 15 s), so that they close them and not the server, at
the moment when a request is on its way."""


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket bound to the address, so that a taken port is known before a model is loaded.

    Raises:
        PortInUse: another process listens there.
        BadUsage: the address does not exist here or may not be used.
    """
    with ExitStack() as undo:
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = undo.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((address[0], port, *address[2:]))
        except (OSError, OverflowError) as error:
            raise _refusal(error, f"{host}:{port}") from error
        undo.pop_all()
        return listener


def run(
    app: ASGIApp, engine: Engine, listener: socket.socket, drain_timeout_s: float, on_ready: Callable[[str], object]
) -> int:
    """Serves `app` on `listener` until a signal, then drains `engine`; 0, 1 if that took too long, 130 if aborted."""
    host, port = listener.getsockname()[:2]
    try:
        listener.listen()
    except OSError as error:
        raise _refusal(error, f"{host}:{port}") from error
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_TIMEOUT_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config, engine, drain_timeout_s, lambda: on_ready(url))
    asyncio.run(server.serve([listener]))
    return 130 if server.aborted else int(server.expired)


class _Server(uvicorn.Server):
    """A uvicorn server that goes on answering while the engine finishes what it admitted."""

    def __init__(
        self, config: uvicorn.Config, engine: Engine, drain_timeout_s: float, on_ready: Callable[[], object]
    ) -> None:
        super().__init__(config)
        self._engine = engine
        self._drain_timeout_s = drain_timeout_s
        self._on_ready = on_ready
        self._deadline_s: float | None = None
        self._closes = False
        self.expired = False
        self.aborted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuses new connections, answers what comes on open ones for a moment, then closes them.

        A connection that is closed before it is accepted, or with a request on its way, is reset, and its client cannot
        tell what became of the request.
        """
        self._closes = True
        if self.expired or self.aborted:
            self.config.timeout_graceful_shutdown = _ABORT_TIMEOUT_S
        late = [connection for listener in sockets or () for connection in _accept_all(listener)]
        for server in self.servers:
            server.close()
        loop = asyncio.get_running_loop()
        for connection in late:
            await loop.connect_accepted_socket(self._protocol, connection)
        until_s = time.monotonic() + _LINGER_S
        while not self.aborted and time.monotonic() < until_s:
            await asyncio.sleep(_TICK_S)
            if not self.server_state.connections:
                break
        await super().shutdown(sockets)

    def _protocol(self) -> asyncio.Protocol:
        """As uvicorn's own listener makes one for each connection."""
        make: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return make(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """First signal: admit nothing more; second: fail what is not done."""
        if self._deadline_s is None:
            self._deadline_s = time.monotonic() + self._drain_timeout_s
            self._engine.stop_admitting()
        else:
            self.aborted = self.should_exit = True
            self.force_exit = self._closes
            self._engine.abort()

    async def on_tick(self, counter: int) -> bool:
        """Whether to exit: everything admitted is answered, or the time for it is over and the rest fails."""
        if self._deadline_s is None:
            return await super().on_tick(counter)
        state = self._engine.queue_state()
        if state.waiting + state.running == 0:
            return True
        self.expired = time.monotonic() > self._deadline_s
        if self.expired:
            self._engine.abort()
        return self.expired or await super().on_tick(counter)


def _accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Connections that wait on `listener`, which does not block."""
    with suppress(BlockingIOError):
        while True:
            yield listener.accept()[0]


def _refusal(error: OSError | OverflowError, address: str) -> Exception:
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        return PortInUse(f"{address} is in use", hint="give another --port, or stop the process that listens there")
    return BadUsage(f"cannot listen on {address}: {error}", hint="give --host and --port of this machine")
