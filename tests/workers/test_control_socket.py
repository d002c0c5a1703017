"""The control socket: orders and answers, limits, names that are too long, stale or taken."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from warren.base.errors import Damage, DiskFailure, Gone, Locked, Misuse, OutOfRoom, Refused, WarrenError
from warren.base.threads import Background
from warren.workers.control_socket import (
    ANSWER_BYTES_MAX,
    REQUEST_BYTES_MAX,
    ControlServer,
    Handler,
    NotListening,
    call,
)
from warren.workers.process import Message

ENOUGH = 60.0  # seconds: only something broken takes so long


def raising(error: Exception) -> Handler:
    def handler(request: Message) -> Message:
        raise error

    return handler


@contextmanager
def serving(path: Path, patience_seconds: float = ENOUGH, **handlers: Handler) -> Iterator[str]:
    known = {"echo": lambda request: {"heard": request}, **handlers}
    server = ControlServer(str(path), known, patience_seconds=patience_seconds)
    try:
        yield str(path)
    finally:
        server.close()


def raw(path: str, line: bytes) -> Any:
    """The answer to bytes as they are."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(ENOUGH)
        connection.connect(path)
        connection.sendall(line)
        return json.loads(connection.makefile("rb").readline())


def test_rf_12_an_order_is_answered_over_a_socket_that_only_the_owner_may_use(tmp_path: Path) -> None:
    """RF-12: the extra channel between the two processes."""
    with serving(tmp_path / "s") as path:
        assert call(path, {"command": "echo", "what": "ä"}, ENOUGH) == {
            "status": "ok",
            "heard": {"command": "echo", "what": "ä"},
        }
        mode = os.stat(path).st_mode
        assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    assert not os.path.exists(path), "the name goes with the server"


@pytest.mark.parametrize(
    "error",
    [
        Refused("no", "try later"),
        Gone("gone"),
        Locked("held"),
        Misuse("wrong"),
        OutOfRoom("full", "make room"),
        DiskFailure("broken"),
    ],
)
def test_an_error_of_the_handler_is_raised_at_the_other_side_as_what_it_was(tmp_path: Path, error: WarrenError) -> None:
    with serving(tmp_path / "s", fail=raising(error)) as path:
        with pytest.raises(type(error)) as raised:
            call(path, {"command": "fail"}, ENOUGH)
        assert (type(raised.value), raised.value.what, raised.value.hint) == (type(error), error.what, error.hint)
        answer = raw(path, b'{"command": "fail"}\n')
        assert (answer["status"], answer["error"], answer["hint"]) == ("failed", error.what, error.hint)


def test_damage_and_faults_keep_their_families(tmp_path: Path) -> None:
    with serving(tmp_path / "s", damage=raising(Damage("bad block", "f", 7)), fault=raising(KeyError("x"))) as path:
        with pytest.raises(Damage, match=r"bad block \(f at byte 7\)"):
            call(path, {"command": "damage"}, ENOUGH)
        with pytest.raises(DiskFailure, match="fault failed: KeyError"):
            call(path, {"command": "fault"}, ENOUGH)
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok", "and it continues"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"persist\n", "one line of JSON"),
        (b"\xff\xfe\n", "one line of JSON"),
        (b"[" * 60_000 + b"\n", "one line of JSON"),
        (b"[1]\n", "a JSON object, not list"),
        (b"{}\n", "there is no command None"),
        (b'{"command": ["x"]}\n', "there is no command"),
        (b'{"command": "dance"}\n', "there is no command 'dance' here"),
        (b"x" * (REQUEST_BYTES_MAX + 1), f"more than {REQUEST_BYTES_MAX} bytes"),
    ],
)
def test_what_is_no_request_is_answered_with_what_is_wrong(tmp_path: Path, line: bytes, error: str) -> None:
    with serving(tmp_path / "s") as path:
        answer = raw(path, line)
        assert answer["status"] == "failed" and error in answer["error"]
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok"


def test_the_largest_request_and_the_largest_answer_pass_and_larger_ones_do_not(tmp_path: Path) -> None:
    sizes = {"fits": ANSWER_BYTES_MAX - 40, "too large": ANSWER_BYTES_MAX}
    with serving(tmp_path / "s", fill=lambda request: {"x": "x" * sizes[request["how"]]}) as path:
        assert len(call(path, {"command": "fill", "how": "fits"}, ENOUGH)["x"]) == sizes["fits"]
        with pytest.raises(Refused, match="an answer of"):
            call(path, {"command": "fill", "how": "too large"}, ENOUGH)
        bare = len(json.dumps({"command": "echo", "x": ""})) + 1
        echoed = call(path, {"command": "echo", "x": "x" * (REQUEST_BYTES_MAX - bare)}, ENOUGH)["heard"]
        assert len(echoed["x"]) == REQUEST_BYTES_MAX - bare
        with pytest.raises(Misuse, match="a request of"):
            call(path, {"command": "echo", "x": "x" * (REQUEST_BYTES_MAX - bare + 1)}, ENOUGH)


def test_a_client_that_sends_nothing_or_does_not_read_is_disconnected(tmp_path: Path) -> None:
    """Also a client that sends a byte now and then: the time limit is for the whole line."""
    large = {"x": "x" * (4 << 20)}
    with serving(tmp_path / "s", 0.2, large=lambda request: large) as path:
        silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(3)]
        for connection in silent:
            connection.connect(path)
        silent[1].sendall(b"{")
        silent[2].sendall(b'{"command": "large"}\n')
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok"
        for connection in silent:
            connection.close()


def test_orders_are_taken_one_at_a_time_and_a_late_answer_is_not_waited_for(tmp_path: Path) -> None:
    begun, may_end = threading.Event(), threading.Event()
    running: list[int] = [0, 0]

    def slow(request: Message) -> Message:
        running[0] += 1
        running[1] = max(running)
        begun.set()
        may_end.wait(ENOUGH)
        running[0] -= 1
        return {}

    with serving(tmp_path / "s", slow=slow) as path:
        with pytest.raises(Refused, match=r"no answer .* within 0.05 seconds"):
            call(path, {"command": "slow"}, 0.05)
        assert begun.wait(ENOUGH)
        others = [threading.Thread(target=call, args=(path, {"command": "slow"}, ENOUGH)) for _ in range(3)]
        for other in others:
            other.start()
        may_end.set()
        for other in others:
            other.join()
        assert running == [0, 1]


def test_a_missing_listener_is_reported(tmp_path: Path) -> None:
    with pytest.raises(NotListening, match="no process listens"):
        call(str(tmp_path / "none"), {"command": "echo"}, 1)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as dead:
        dead.bind(str(tmp_path / "dead"))
    with pytest.raises(NotListening, match="no process listens"):
        call(str(tmp_path / "dead"), {"command": "echo"}, 1)


def test_a_process_that_dies_before_it_answers_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    code = (
        "import os, sys; from warren.workers.control_socket import ControlServer\n"
        f"server = ControlServer({path!r}, {{'die': lambda request: os.kill(os.getpid(), 9)}})\n"
        "os.write(1, b'ready\\n'); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        with pytest.raises(NotListening, match="has ended"):
            call(path, {"command": "die"}, ENOUGH)
        assert process.wait(ENOUGH) == -signal.SIGKILL
    with serving(Path(path)):
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok", "its name was stale, and was replaced"


def test_a_name_with_a_listener_is_not_taken_over(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as path:
        with pytest.raises(Locked, match="another process listens"):
            ControlServer(path, {})
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok"


def test_a_name_that_was_taken_over_stays_when_the_first_server_closes(tmp_path: Path) -> None:
    first = ControlServer(str(tmp_path / "s"), {"who": lambda request: {"me": 1}})
    assert call(first.path, {"command": "who"}, ENOUGH)["me"] == 1
    second = ControlServer(first.path, {"who": lambda request: {"me": 2}}, takes_over=True)
    assert call(first.path, {"command": "who"}, ENOUGH)["me"] == 2
    first.close()
    assert call(first.path, {"command": "who"}, ENOUGH)["me"] == 2
    second.close()
    assert not os.path.exists(first.path)


def test_what_is_not_a_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("mine")
    with pytest.raises(Refused, match="is not a socket"):
        ControlServer(str(tmp_path / "s"), {})
    assert (tmp_path / "s").read_text() == "mine"
    with pytest.raises(Refused, match="cannot listen"):
        ControlServer(str(tmp_path / "nowhere" / "s"), {})


def test_a_path_longer_than_the_system_takes_is_reached_all_the_same(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with serving(deep / "s") as path:
        assert call(path, {"command": "echo"}, ENOUGH)["status"] == "ok"
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
        with pytest.raises(Locked):
            ControlServer(path, {})
    assert not list(deep.iterdir())
    with pytest.raises(Refused, match="too long"):
        ControlServer(str(deep / ("n" * 120)), {})


def ask_nobody(path: str) -> None:
    with pytest.raises(NotListening):
        call(path, {"command": "echo"}, 1)


@pytest.mark.parametrize("make", [lambda path: ControlServer(path, {}).close(), ask_nobody])
def test_nothing_stays_open(tmp_path: Path, make: Callable[[str], None]) -> None:
    make(str(tmp_path / "s"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        make(str(tmp_path / "s"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_answer_that_cannot_be_written_is_an_alarm_and_the_next_order_is_answered(tmp_path: Path) -> None:
    background = Background()
    handlers: dict[str, Handler] = {"bad": lambda request: {"told": object()}, "good": lambda request: {}}
    server = ControlServer(str(tmp_path / "sock"), handlers, background=background)
    try:
        with pytest.raises(NotListening):
            call(server.path, {"command": "bad"}, ENOUGH)
        while not (alarms := background.alarms()):
            continue
        assert "not JSON serializable" in alarms[0]
        assert call(server.path, {"command": "good"}, ENOUGH)["status"] == "ok"
        while background.alarms():
            continue
    finally:
        server.close()
