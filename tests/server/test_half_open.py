"""Which half-open connection is dropped when there are too many, against a plain model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from warren.server.half_open import HalfOpenConnections

MOST = 8


def check(half_open: HalfOpenConnections[int]) -> None:
    """The invariants."""
    counts = {address: len(each) for address, each in half_open._by_address.items()}
    assert all(counts.values())
    rows = {address: count for count, row in half_open._by_count.items() for address in row}
    assert rows == counts
    assert half_open._highest == max(counts.values(), default=0)
    assert sum(counts.values()) == len(half_open) <= MOST


def test_the_address_with_the_most_loses_its_oldest() -> None:
    half_open: HalfOpenConnections[str] = HalfOpenConnections(4)
    for name in ("a1", "a2", "a3", "b1"):
        assert half_open.add(name, name[0]) is None
    assert half_open.add("c1", "c") == "a1"
    assert half_open.add("a4", "a") == "a2"
    half_open.remove("a3")
    assert half_open.add("d1", "d") is None
    assert half_open.add("e1", "e") == "b1"
    assert list(half_open) == ["c1", "a4", "d1", "e1"]


def test_connections_of_one_network_count_together() -> None:
    half_open: HalfOpenConnections[int] = HalfOpenConnections(3)
    for number in range(3):
        half_open.add(number, f"2001:db8::{number + 1}")
    assert half_open.add(7, "192.0.2.1") == 0
    assert half_open.add(8, "2001:db8::9") == 1


ACTIONS = st.lists(st.tuples(st.sampled_from(["add", "remove"]), st.integers(0, 5)), max_size=60)


@given(ACTIONS)
def test_it_does_what_a_plain_list_does(actions: list[tuple[str, int]]) -> None:
    half_open: HalfOpenConnections[int] = HalfOpenConnections(MOST)
    plain: list[tuple[int, str]] = []
    for number, (what, which) in enumerate(actions):
        if what == "add":
            plain.append((number, f"peer{which}"))
            dropped = half_open.add(number, f"peer{which}")
            if dropped is not None:
                peers = [peer for _, peer in plain]
                peer = dict(plain)[dropped]
                assert len(plain) > MOST
                assert peers.count(peer) == max(map(peers.count, peers))
                assert dropped == next(each for each, of in plain if of == peer)
                plain.remove((dropped, peer))
        elif which < len(plain):
            half_open.remove(plain.pop(which)[0])
        check(half_open)
        assert list(half_open) == [each for each, _ in plain]
