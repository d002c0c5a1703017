"""An asyncio event loop that is scheduled with the other threads: the server's loop in the simulator.

    loop = SteppedLoop(threads, clock)
    loop.run_until_complete(serve())             in one actor; callbacks, timers and tasks are asyncio's own
    wire = loop.connect(on_data)                 from any actor: the client's end of a simulated socket
    wire.send(b"…") · wire.wait(seconds)         `on_data` is called with data when the server writes it

There is no selector. Where asyncio waits for sockets, the loop waits on a condition of `stepped_threads`, so one seed
is one run. Time is the manual clock: it advances to the next timer when no actor can run. Data of a client arrives in
pieces, as from a network. Data of the server is received at once, in the order in which it is written to all clients,
and before anything else happens: the power may be cut after that.

`SteppedPool` is the server's thread pool, made of actors. An error that escapes a callback ends the loop.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from tools.simulator.observations import Violation
from warren.base.threads import StartedThread, Threads
from warren.testing.fakes import ManualClock

RESOLUTION_SECONDS = 1e-6  # a timer so near is due
ADDRESS = ("127.0.0.1", 5672)
Result = TypeVar("Result")
Factory = Callable[[], asyncio.BaseProtocol]


class SteppedPool(Executor):
    """Each call is an actor of its own."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._running: list[StartedThread] = []

    def submit(self, call: Callable[..., Result], /, *arguments: Any, **named: Any) -> Future[Result]:
        future: Future[Result] = Future()

        def body() -> None:
            try:
                result = call(*arguments, **named)
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._running = [each for each in self._running if each.is_alive()]
        self._running.append(self._threads.start("pool", body))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        for each in self._running:
            each.join()


class SteppedLoop(asyncio.BaseEventLoop):
    def __init__(self, threads: Threads, clock: ManualClock, seed: int = 0) -> None:
        super().__init__()
        self._clock = clock
        self._clock_resolution = RESOLUTION_SECONDS
        self._selector = self
        self._bell = threads.condition()
        self._is_rung = False
        self._threads = threads
        self._rng = random.Random(seed)
        self._factory: Factory | None = None
        self.pool = SteppedPool(threads)
        self.failure: BaseException | None = None  # what a callback let through
        self.set_exception_handler(self._failed)

    # -- the interface of asyncio --------------------------------------------------------------------------------

    def time(self) -> float:
        return self._clock.monotonic_ns() / 1e9

    def select(self, timeout: float | None) -> list[object]:
        """Wait until there is something to do."""
        with self._bell:
            if not self._is_rung and timeout != 0:
                self._bell.wait(timeout)
            self._is_rung = False
        return []

    def _process_events(self, events: list[object]) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        with self._bell:
            self._is_rung = True
            self._bell.notify_all()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        return asyncio.wrap_future(SteppedPool(self._threads).submit(func, *arguments), loop=self)

    async def create_server(self, protocol_factory: Factory, *where: Any, **more: Any) -> Any:
        self._factory = protocol_factory
        return _Listener()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.fail(context.get("exception") or Violation(str(context.get("message"))))

    def fail(self, error: BaseException) -> None:
        self.failure = self.failure or error
        self.stop()

    # -- clients -------------------------------------------------------------------------------------------------

    def connect(self, on_data: Callable[[bytes], None]) -> Wire:
        wire = Wire(self, self._threads, random.Random(self._rng.random()), on_data)
        self.call_soon_threadsafe(self._accept, wire)
        return wire

    def _accept(self, wire: Wire) -> None:
        assert self._factory is not None, "a server listens"
        wire.transport = transport = MemoryTransport(self, wire, self._factory())
        transport.begin()


class _Listener:
    """The part of `asyncio.Server` that the broker uses."""

    def __init__(self) -> None:
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return ADDRESS

    def close(self) -> None:
        """No new connections; the server closes the existing ones and ends."""


class Wire:
    """A client's end."""

    def __init__(
        self, loop: SteppedLoop, threads: Threads, rng: random.Random, on_data: Callable[[bytes], None]
    ) -> None:
        self._loop = loop
        self._bell = threads.condition()
        self._rng = rng
        self._on_data = on_data
        self._is_cut = False
        self.is_over = False
        self.transport: MemoryTransport | None = None

    def send(self, data: bytes) -> None:
        """In one piece or in two."""
        at = self._rng.randrange(len(data)) if self._rng.random() < 0.2 else 0
        for piece in (data[:at], data[at:]):
            if piece:
                self._loop.call_soon_threadsafe(self._arrived, piece)

    def wait(self, is_so: Callable[[], bool], seconds: float) -> bool:
        """Wait until received data fulfils the condition, the server has closed, or the time is over."""
        with self._bell:
            while not is_so() and not self.is_over:
                if not self._bell.wait(seconds):
                    break
            return is_so()

    def hang_up(self) -> None:
        """Close without AMQP messages; nothing more is received."""
        self._is_cut = True
        self._loop.call_soon_threadsafe(self._gone)

    def written(self, data: bytes) -> None:
        if self._is_cut:
            return
        try:
            self._on_data(data)
        except Violation as violation:
            self._loop.fail(violation)
        with self._bell:
            self._bell.notify_all()

    def over(self) -> None:
        with self._bell:
            self.is_over = True
            self._bell.notify_all()

    def _arrived(self, piece: bytes) -> None:
        assert self.transport is not None, "it was accepted"
        self.transport.arrived(piece)

    def _gone(self) -> None:
        assert self.transport is not None, "it was accepted"
        self.transport.abort()


class MemoryTransport(asyncio.Transport):
    """The server's end."""

    def __init__(self, loop: SteppedLoop, wire: Wire, protocol: asyncio.BaseProtocol) -> None:
        super().__init__({"peername": ("127.0.0.1", 40_000), "sockname": ADDRESS})
        assert isinstance(protocol, asyncio.Protocol)
        self._loop = loop
        self._wire = wire
        self._protocol = protocol
        self._waiting: deque[bytes] = deque()
        self._is_paused = self._is_closing = False

    def begin(self) -> None:
        self._protocol.connection_made(self)

    def arrived(self, data: bytes) -> None:
        self._waiting.append(data)
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting and not self._is_paused and not self._is_closing:
            self._protocol.data_received(self._waiting.popleft())

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._wire.written(bytes(data))

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        self._is_paused = False
        self._loop.call_soon(self._pass_on)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Clients read everything at once."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._loop.call_soon(self._lost)

    def abort(self) -> None:
        self.close()

    def _lost(self) -> None:
        self._protocol.connection_lost(None)
        self._wire.over()
