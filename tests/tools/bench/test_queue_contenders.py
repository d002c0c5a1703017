"""Contenders are measured by one code, which checks what they return: one that cheats ends the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import pytest

from tools.bench.queue.bodies import LARGE_BYTES, SMALL_BYTES, bodies
from tools.bench.queue.contenders import Budget, speeds
from warren.base.errors import Damage


class InMemory:
    """Keeps what it is given, and counts its calls."""

    name, promise, together = "memory", "nothing", 7

    def __init__(self) -> None:
        self.held: deque[bytes] = deque()
        self.calls: list[str] = []

    def put(self, body: bytes) -> None:
        self.calls.append("put")
        self.held.append(body)

    def put_many(self, some: Sequence[bytes]) -> None:
        assert len(some) <= self.together
        self.calls.append("put_many")
        self.held += some

    def get(self) -> bytes | None:
        self.calls.append("get")
        return self.held.popleft() if self.held else None

    def get_many(self, count: int) -> list[bytes]:
        assert count <= self.together
        self.calls.append("get_many")
        return [self.held.popleft() for _ in range(min(count, len(self.held)))]

    def settle(self) -> None:
        self.calls.append("settle")

    def close(self) -> None:
        self.held.clear()


class Hasty(InMemory):
    def put_soon(self, body: bytes) -> None:
        self.calls.append("put_soon")
        self.held.append(body)


@pytest.mark.parametrize("size_bytes", [SMALL_BYTES, LARGE_BYTES])
def test_every_phase_is_done_and_waited_for(size_bytes: int) -> None:
    contender = InMemory()
    measured = speeds(contender, Budget(100, 60.0), size_bytes)
    counts = {call: contender.calls.count(call) for call in set(contender.calls)}
    assert counts == {"put_many": 15, "put": 10, "get_many": 15, "get": 10, "settle": 4}
    assert min(measured.put_many, measured.put, measured.get_many, measured.get) > 0
    assert measured.put_soon == measured.put, "it has no other"
    assert measured.put_best >= measured.put_many and measured.get_best >= measured.get


def test_puts_that_are_not_waited_for_are_a_phase_of_their_own() -> None:
    contender = Hasty()
    speeds(contender, Budget(100, 60.0), SMALL_BYTES)
    assert contender.calls.count("put_soon") == 10 and contender.calls.count("settle") == 5


def test_a_phase_ends_when_its_time_is_over() -> None:
    contender = InMemory()
    measured = speeds(contender, Budget(100, 0.0), SMALL_BYTES)
    assert measured.put_best == measured.get_best == 0, "there was no time for anything"
    assert set(contender.calls) == {"settle"}


class Forgetful(InMemory):
    def put_many(self, some: Sequence[bytes]) -> None:
        super().put_many(some[1:])


class Doubling(InMemory):
    def get_many(self, count: int) -> list[bytes]:
        return super().get_many(count) * 2


class Inventive(InMemory):
    def get(self) -> bytes | None:
        super().get()
        return bytes(SMALL_BYTES)


class Backward(InMemory):
    def get(self) -> bytes | None:
        return self.held.pop()


@pytest.mark.parametrize("kind", [Forgetful, Doubling, Inventive, Backward])
def test_a_contender_that_loses_doubles_invents_or_mixes_up_bodies_ends_the_run(kind: type[InMemory]) -> None:
    with pytest.raises(Damage, match="memory: "):
        speeds(kind(), Budget(100, 60.0), SMALL_BYTES)


def test_what_comes_out_is_compared_byte_by_byte() -> None:
    class Flipping(InMemory):
        def get_many(self, count: int) -> list[bytes]:
            return [body[:-1] + b"?" for body in super().get_many(count)]

    assert bodies(0, 1)[0][-1:] != b"?"
    with pytest.raises(Damage, match="other bodies came out"):
        speeds(Flipping(), Budget(100, 60.0), SMALL_BYTES)
