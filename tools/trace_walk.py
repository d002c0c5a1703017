"""Trace walk: which files of `warren` one operation of the broker runs through, in order of first entry, all threads.

    python -m tools.trace_walk                              all operations
    python -m tools.trace_walk --operation publish          one of them; may be repeated
    python -m tools.trace_walk --json                       one JSON object for programs

    publish      publish of a persistent message + confirm, after some of the same kind
    ack          ack of a message + delivery of the next one (prefetch 1), until the ack is written
    declare      queue.declare of a durable queue that does not exist
    read-back    basic.get of two messages whose contents were paged out
    rotation     publish + confirm of a message that fills a log file (1 MiB, stored apart from its queue), + rotation
    reflection   `warren reflection persist` with a message in the log
    start        `warren serve` on the directory of a stopped broker with a queue, from main to "ready" and idle

The broker is `warren serve` in a child process (tools/traced_process.py: pure sources, profiler in every thread), the
client is pika, and orders are commands of `warren`: nothing here depends on a module of the product. Processes that the
broker starts itself are not traced.

    touched     a file in which a function is entered; running a module's body at import does not count
    spine       a touched file from which a function of another touched file is called, directly or through a library:
                what remains are leaves, modules of types, formats and helpers

Work that does not belong to the operation is kept out:
* reflection is paused (`persist` works all the same), heartbeats are off, no other client is connected;
* recording ends when no function has been entered for a while after the reply, before later timers are due;
* callbacks that also run while no client does anything (timers) are recorded separately, and what they call is left
  out. The timer that writes acks shares such a callback; all files it enters are entered elsewhere on the walk;
* an operation runs several times, and a file counts if more than half of the runs enter it. `start` runs once.
"""

from __future__ import annotations

import argparse
import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pika

from tools.traced_process import Entry

ROOT = Path(__file__).parents[1]
RUNS = 5
WARM_UP_RUNS = 3
IDLE_SECONDS = 0.1  # no function entered for so long: the operation is over; acks are written after 0.05 s
IDLE_SECONDS_MAX = 5.0
TIMERS_SECONDS = 2.0
REPLY_SECONDS_MAX = 120.0
BODY = b"x" * 100
FILLER = b"x" * (1 << 20)
FILLERS = 30
PAGING_CONFIG = "vm_memory_high_watermark.absolute = 260MiB\n"  # leaves 20 MiB for messages
SMALL_LOG_FILES = ("--rotate-bytes", "1MiB")

Trace = list[Entry]


@dataclass(frozen=True, slots=True)
class Step:
    """A touched file."""

    file: str
    function: str  # the first one that is entered
    thread: str
    is_spine: bool


@dataclass(frozen=True, slots=True)
class Walk:
    """The files that an operation runs through, in order of first entry."""

    operation: str
    steps: tuple[Step, ...]

    @property
    def files(self) -> list[str]:
        return [step.file for step in self.steps]

    @property
    def spine(self) -> list[str]:
        return [step.file for step in self.steps if step.is_spine]

    def __str__(self) -> str:
        width = max((len(step.file) for step in self.steps), default=0)
        named = max((len(step.function) for step in self.steps), default=0)
        lines = [f"{self.operation}: {len(self.steps)} files touched, {len(self.spine)} in the spine (*)"]
        for number, step in enumerate(self.steps, 1):
            mark = "*" if step.is_spine else " "
            lines.append(f"{number:4} {mark} {step.file:{width}}  {step.function:{named}}  {step.thread}")
        return "\n".join(lines)


def walk_of(operation: str, traces: Sequence[Trace], timers: frozenset[str] = frozenset()) -> Walk:
    """What most of the traces have in common, without the work of timers."""
    own = [[entry for entry in trace if entry.root not in timers] for trace in traces]
    touched = Counter(file for trace in own for file in {entry.file for entry in trace})
    calling = Counter(
        file for trace in own for file in {entry.caller for entry in trace if entry.caller not in ("", entry.file)}
    )
    steps: dict[str, Step] = {}
    for trace in own:
        for entry in trace:
            if entry.file not in steps and touched[entry.file] * 2 > len(own):
                is_spine = calling[entry.file] * 2 > len(own)
                steps[entry.file] = Step(entry.file, entry.function, entry.thread, is_spine)
    return Walk(operation, tuple(steps.values()))


def roots_of(trace: Trace) -> frozenset[str]:
    """The callbacks that began while the trace was recorded."""
    return frozenset(entry.root for entry in trace)


class TracedBroker:
    """`warren serve` in a child process whose profiler is switched from here."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        ours, theirs = socket.socketpair()
        ours.settimeout(REPLY_SECONDS_MAX)
        ports = ("--port", "0", "--management-port", "0", "--prometheus-port", "0")
        files = ("--data-dir", str(directory), "--log-file", str(directory.with_suffix(".log")))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tools.traced_process", str(theirs.fileno()), "serve", *files, *ports, *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._control = ours
        self._lines = ours.makefile("rw", encoding="utf-8")
        self._address = self._wait_until_ready()
        self.wait_until_idle()  # queues are recovered in threads of their own
        self.start_trace = self.stop_recording()

    def _wait_until_ready(self) -> tuple[str, int]:
        """Address of the AMQP listener."""
        host, port = "", ""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, _, value = line.strip().partition(" ")
            if name == "amqp":
                host, _, port = value.rpartition(":")
            elif name == "ready":
                return host, int(port)
        self.close()
        log = self.directory.with_suffix(".log")
        raise RuntimeError(f"the broker did not start: {log.read_text() if log.exists() else 'no log'}")

    def connect(self) -> pika.BlockingConnection:
        host, port = self._address
        return pika.BlockingConnection(pika.ConnectionParameters(host=host, port=port, heartbeat=0))

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """What is recorded from here until the broker is idle again; filled at the end."""
        trace: Trace = []
        self.wait_until_idle()
        self._request("start")
        yield trace
        self.wait_until_idle()
        trace += self.stop_recording()

    def record_timers(self) -> frozenset[str]:
        """The callbacks that run although no client does anything."""
        self._request("start")
        time.sleep(TIMERS_SECONDS)
        return roots_of(self.stop_recording())

    def wait_until_idle(self) -> None:
        deadline = time.monotonic() + IDLE_SECONDS_MAX
        while time.monotonic() < deadline:
            missing = IDLE_SECONDS - self._request("idle")["seconds"]
            if missing <= 0:
                return
            time.sleep(missing)

    def stop_recording(self) -> Trace:
        return [Entry(*entry) for entry in self._request("stop")["entries"]]

    def order(self, *words: str) -> None:
        """`warren WORDS DIRECTORY`, in a process of its own."""
        line = [sys.executable, "-m", "warren.cli.main", *words, str(self.directory)]
        subprocess.run(line, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)

    def _request(self, request: str) -> Any:
        self._lines.write(f"{request}\n")
        self._lines.flush()
        return json.loads(self._lines.readline() or '{"entries": []}')

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        with suppress(OSError):
            self._lines.close()
        self._control.close()
        try:
            self._process.wait(REPLY_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


class TracedClient:
    """A pika channel with confirms: returns when the broker has replied."""

    def __init__(self, connection: pika.BlockingConnection) -> None:
        self._connection = connection
        self._channel: Any = connection.channel()
        self._channel.confirm_delivery()
        self._declared = 0

    def declare(self) -> str:
        """A new durable queue; its name."""
        self._declared += 1
        name = f"queue-{self._declared}"
        self._channel.queue_declare(name, durable=True)
        return name

    def publish(self, queue: str, body: bytes = BODY) -> None:
        self._channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2), mandatory=True)

    def get(self, queue: str) -> None:
        method, _, _ = self._channel.basic_get(queue, auto_ack=False)
        assert method is not None, f"{queue} is empty"

    def consume(self, queue: str) -> Iterator[Callable[[], None]]:
        """For each message an ack to send; prefetch 1, so that the next delivery follows the ack."""
        self._channel.basic_qos(prefetch_count=1)
        for method, _, _ in self._channel.consume(queue):
            yield partial(self._channel.basic_ack, method.delivery_tag)


@contextmanager
def served(directory: Path, *options: str) -> Iterator[tuple[TracedBroker, TracedClient]]:
    """A broker whose reflection is paused, and its only client."""
    broker = TracedBroker(directory, *options)
    try:
        broker.order("reflection", "pause")
        connection = broker.connect()
        try:
            yield broker, TracedClient(connection)
        finally:
            connection.close()
    finally:
        broker.close()


def repeat(
    broker: TracedBroker, act: Callable[[], object], prepare: Callable[[], object] = lambda: None
) -> list[Trace]:
    """Traces of `act`, after runs that warm the caches; `prepare` precedes each of them and is not recorded."""
    traces = []
    for run in range(WARM_UP_RUNS + RUNS):
        prepare()
        with broker.recording() as trace:
            act()
        if run >= WARM_UP_RUNS:
            traces.append(trace)
    return traces


def trace_publish(directory: Path) -> Walk:
    with served(directory) as (broker, client):
        queue = client.declare()
        traces = repeat(broker, lambda: client.publish(queue))
        return walk_of("publish", traces, broker.record_timers())


def trace_ack(directory: Path) -> Walk:
    with served(directory) as (broker, client):
        queue = client.declare()
        for _ in range(WARM_UP_RUNS + RUNS + 2):
            client.publish(queue)
        acks = client.consume(queue)
        pending = [next(acks)]

        def ack_and_receive() -> None:
            pending.pop()()
            pending.append(next(acks))

        traces = repeat(broker, ack_and_receive)
        return walk_of("ack", traces, broker.record_timers())


def trace_declare(directory: Path) -> Walk:
    with served(directory) as (broker, client):
        traces = repeat(broker, client.declare)
        return walk_of("declare", traces, broker.record_timers())


def trace_read_back(directory: Path) -> Walk:
    config = directory.with_suffix(".conf")
    config.write_text(PAGING_CONFIG)
    with served(directory, "--config", str(config)) as (broker, client):
        queues = [client.declare() for _ in range(WARM_UP_RUNS + RUNS)]
        for queue in queues:
            client.publish(queue)
            client.publish(queue)
        filled = client.declare()
        for _ in range(FILLERS):
            client.publish(filled, FILLER)
        broker.wait_until_idle()

        def get_two() -> None:
            queue = queues.pop()
            client.get(queue)
            client.get(queue)

        traces = repeat(broker, get_two)
        return walk_of("read-back", traces, broker.record_timers())


def trace_rotation(directory: Path) -> Walk:
    with served(directory, *SMALL_LOG_FILES) as (broker, client):
        queue = client.declare()
        traces = repeat(broker, lambda: client.publish(queue, FILLER))
        return walk_of("rotation", traces, broker.record_timers())


def trace_reflection(directory: Path) -> Walk:
    with served(directory) as (broker, client):
        queue = client.declare()
        traces = repeat(broker, lambda: broker.order("reflection", "persist"), prepare=lambda: client.publish(queue))
        return walk_of("reflection", traces, broker.record_timers())


def trace_start(directory: Path) -> Walk:
    with served(directory) as (stopped, client):
        client.publish(client.declare())
        stopped.order("reflection", "resume")
        stopped.order("reflection", "persist")  # else the start finds more or less of it to do
    broker = TracedBroker(directory)
    try:
        return walk_of("start", [broker.start_trace])
    finally:
        broker.close()


OPERATIONS: dict[str, Callable[[Path], Walk]] = {
    "publish": trace_publish,
    "ack": trace_ack,
    "declare": trace_declare,
    "read-back": trace_read_back,
    "rotation": trace_rotation,
    "reflection": trace_reflection,
    "start": trace_start,
}


def trace(operation: str) -> Walk:
    with tempfile.TemporaryDirectory(prefix="warren-trace-") as directory:
        return OPERATIONS[operation](Path(directory) / "data")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="trace_walk", description="Files of warren that one operation runs through.")
    parser.add_argument("--operation", action="append", choices=OPERATIONS, help="may be repeated; default: all")
    parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON object")
    options = parser.parse_args(arguments)
    walks = [trace(operation) for operation in options.operation or OPERATIONS]
    if options.as_json:
        sys.stdout.write(json.dumps({walk.operation: as_json(walk) for walk in walks}, indent=2) + "\n")
    else:
        sys.stdout.write("\n\n".join(map(str, walks)) + "\n")
    return 0


def as_json(walk: Walk) -> dict[str, Any]:
    return {"touched": len(walk.steps), "spine": len(walk.spine), "steps": [asdict(step) for step in walk.steps]}


if __name__ == "__main__":
    sys.exit(main())
