"""What follows from changes follows in their order, however they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.catalog.catalog_stage import CatalogStage
from warren.base.errors import Refused
from warren.base.threads import SystemThreads
from warren.broker.vhost import OrderedChanges
from warren.catalog import vhosts
from warren.catalog.catalog import Catalog
from warren.catalog.rows import Change


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    stage = CatalogStage()
    yield stage.begin()
    stage.stop()


def ordered(catalog: Catalog) -> OrderedChanges:
    return OrderedChanges(catalog, SystemThreads().condition())


def test_what_follows_is_in_the_order_of_the_changes(catalog: Catalog) -> None:
    """The first change is held up on its way; the second one, durable since long, waits for it."""
    changes, order = ordered(catalog), list[str]()
    is_first_in, goes_on = threading.Event(), threading.Event()

    def prepare(_: object) -> None:
        is_first_in.set()
        assert goes_on.wait(30)

    def one() -> None:
        changes.change(lambda change: vhosts.declare(change, "one"), lambda _: order.append("one"), prepare)

    def two() -> None:
        def work(change: Change) -> None:
            vhosts.declare(change, "two")
            order.append("two is done")

        changes.change(work, lambda _: order.append("two"))

    threads = [threading.Thread(target=each, daemon=True) for each in (one, two)]
    threads[0].start()
    assert is_first_in.wait(30)
    threads[1].start()
    while "two is done" not in order:
        threads[1].join(0.001)
    goes_on.set()
    for thread in threads:
        thread.join(30)
    assert order == ["two is done", "one", "two"]


def test_from_what_was_refused_nothing_follows_and_nobody_waits_for_it(catalog: Catalog) -> None:
    changes, order = ordered(catalog), list[str]()

    def refuse(change: Change) -> None:
        raise Refused("no")

    with pytest.raises(Refused, match="no"):
        changes.change(refuse, lambda _: order.append("refused"))
    changes.change(lambda change: None, lambda _: order.append("next"))
    assert order == ["next"]


def test_nobody_waits_for_a_change_that_failed_after_it_had_its_number(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes, order = ordered(catalog), list[str]()

    def failing(epoch: object) -> None:
        raise OSError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "settle", failing)
        with pytest.raises(OSError, match="the disk"):
            changes.change(lambda change: None, lambda _: order.append("failed"))
    changes.change(lambda change: None, lambda _: order.append("next"))
    assert order == ["next"]


def test_a_durable_change_follows_and_its_number_is_released_when_prepare_raises(catalog: Catalog) -> None:
    changes, order = ordered(catalog), list[str]()

    def fail(_: object) -> None:
        raise ValueError("not expected")

    with pytest.raises(ValueError, match="not expected"):
        changes.change(lambda change: vhosts.declare(change, "one"), lambda _: order.append("one"), fail)
    assert not changes._open
    changes.change(lambda change: vhosts.declare(change, "two"), lambda _: order.append("two"))
    assert order == ["one", "two"]


def test_an_error_in_what_follows_does_not_hold_up_the_next(catalog: Catalog) -> None:
    changes = ordered(catalog)

    def fail(_: object) -> None:
        raise Refused("a mistake of ours")

    with pytest.raises(Refused, match="of ours"):
        changes.change(lambda change: 1, fail)
    assert changes.change(lambda change: 2) == 2
