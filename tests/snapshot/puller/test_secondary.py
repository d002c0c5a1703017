"""Reading a store beside its owner. test_store_snapshot_store.py tests the protocol on it as well."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.snapshot.snapshot_store_suite import QUICK_PLACE, SMALL, TIMELINE, apply, held_by, mark, put, remove
from warren.base.errors import Misuse, Refused
from warren.snapshot.puller.secondary import SecondaryStore
from warren.snapshot.rocksdb.store import RocksDbStore
from warren.snapshot.store import NO_VERSION


@pytest.fixture
def directory() -> Iterator[Path]:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        yield Path(place) / "store"


def owner_of(directory: Path) -> RocksDbStore:
    return RocksDbStore.open(str(directory), TIMELINE, SMALL)


def beside(directory: Path) -> SecondaryStore:
    return SecondaryStore.open(str(directory), f"{directory}.secondary", TIMELINE, SMALL)


def test_rf_10_what_the_owner_has_flushed_is_seen_by_the_secondary_and_nothing_else(directory: Path) -> None:
    """RF-10: the puller writes, the main side reads as secondary: whole batches, with their mark."""
    with closing(owner_of(directory)) as owner, closing(beside(directory)) as store:
        assert (store.applied, held_by(store)) == (mark(0, NO_VERSION), [])
        owner.apply([], mark(1), {b"n": b"1"})
        apply(owner, put((2, 1), b"a"), put((2, 2), b"b"))
        assert store.catch_up() == mark(0, NO_VERSION), "what a crash can take back is not shown"
        owner.flush()
        assert store.applied == mark(0, NO_VERSION), "it does not change before `catch_up`"
        assert store.catch_up() == store.applied == mark(2, (2, 2))
        assert [row.key for row in store.range(3)] == [b"a", b"b"]
        assert (store.get(3, b"a"), store.get(3, b"c"), store.counter(b"n")) == ((b"v", (2, 1)), None, b"1")


def test_views_and_ranges_keep_their_moment_though_the_owner_compacts_it_away(directory: Path) -> None:
    """RF-10: files that the owner has removed stay readable for readers that opened them."""
    with closing(owner_of(directory)) as owner:
        rng = random.Random(1)
        for round in range(1, 4):
            apply(owner, *(put((round, n), b"%04d" % n, b"%d." % round + rng.randbytes(300)) for n in range(2000)))
            owner.flush()
        with closing(beside(directory)) as store:
            old, half_read = store.view(), store.range(3)
            assert next(half_read).value.startswith(b"3.")
            apply(owner, *(put((4, n), b"%04d" % n, b"4") for n in range(1999)), remove((4, 1999), b"1999"))
            owner.flush()
            owner.compact()
            assert len({path for path in directory.iterdir() if path.suffix == ".sst"}) == 1
            assert all(row.value.startswith(b"3.") for row in store.range(3)), "before `catch_up`"
            assert store.catch_up() == mark(4, (4, 1999))
            assert [row.value for row in store.range(3)] == [b"4"] * 1999
            assert len([row for row in half_read if row.value.startswith(b"3.")]) == 1999
            assert len([row for row in old.range(3) if row.value.startswith(b"3.")]) == 2000
            assert old.applied == mark(3, (3, 1999)) and old.get(3, b"1999") is not None


def test_it_continues_with_the_next_owner(directory: Path) -> None:
    """RF-10: a puller that was started again writes a new manifest of RocksDB's; the reader beside it follows."""
    owner = owner_of(directory)
    with closing(beside(directory)) as store:
        for life in range(1, 6):
            apply(owner, put((life, 1), b"%d" % life))
            owner.close()
            if life % 2:
                assert store.catch_up() == mark(life, (life, 1)), "also while there is no owner"
            owner = owner_of(directory)
            apply(owner, put((life, 2), b"lost"), remove((life, 3), b"lost"))
            owner.flush()
            assert store.catch_up() == mark(life, (life, 3))
            assert [row.key for row in store.range(3)] == [b"%d" % n for n in range(1, life + 1)]
        owner.close()


def test_it_opens_while_the_owner_works(directory: Path) -> None:
    """A file whose name it has read may go before it is opened: it looks again."""
    with closing(owner_of(directory)) as owner:
        for round in range(1, 30):
            apply(owner, *(put((round, n), b"%04d" % n, b"%d" % round) for n in range(200)))
            owner.flush()
            with closing(beside(directory)) as store:
                assert {row.value for row in store.range(3)} == {b"%d" % round}


def test_what_is_closed_or_is_not_there_says_so(directory: Path) -> None:
    with pytest.raises(Refused, match="beside its owner"):
        beside(directory)
    with closing(owner_of(directory)) as owner:
        apply(owner, *(put((1, n), b"%d" % n) for n in range(9)))
        owner.flush()
        store = beside(directory)
        view, half_read = store.view(), store.range(3)
        next(half_read)
        store.close()
        store.close()
        for read in (store.view, store.catch_up, lambda: view.get(3, b"k"), lambda: store.get(3, b"k")):
            with pytest.raises(Misuse, match="closed"):
                read()
        with pytest.raises(Misuse, match="closed"):
            list(half_read)
