"""The routing follows the changes of the catalog in their order, and every ticket is released."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from tests.catalog.catalog_stage import CatalogStage
from warren.base.errors import Refused
from warren.base.threads import SystemThreads
from warren.catalog import vhosts
from warren.catalog.catalog import Catalog, CatalogChange, ChangeOrder, CombinedOrder, FunctionChange
from warren.catalog.rows import RowWriter


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    stage = CatalogStage()
    yield stage.begin()
    stage.stop()


@pytest.fixture
def order() -> ChangeOrder:
    return ChangeOrder(SystemThreads().condition())


class NoteChange(CatalogChange):
    """Declares a vhost, and notes its name when the routing is updated."""

    def __init__(self, name: str, notes: list[str], start: Callable[[], None] = lambda: None) -> None:
        self._name = name
        self._notes = notes
        self._start = start

    def write(self, writer: RowWriter) -> None:
        vhosts.declare(writer, self._name)
        self._notes.append(f"{self._name} written")

    def start(self) -> None:
        self._start()

    def update_routing(self) -> None:
        self._notes.append(self._name)


class RefusedChange(NoteChange):
    def write(self, writer: RowWriter) -> None:
        raise Refused("no")


class BadUpdate(NoteChange):
    def update_routing(self) -> None:
        raise Refused("a mistake of ours")


class BadDrop(NoteChange):
    def on_logged(self) -> None:
        raise ValueError("not expected")


def test_the_routing_is_updated_in_the_order_of_the_changes(catalog: Catalog, order: ChangeOrder) -> None:
    """The first change is delayed in `start`; the second one, already durable, waits for it."""
    notes: list[str] = []
    has_started, may_continue = threading.Event(), threading.Event()

    def start() -> None:
        has_started.set()
        assert may_continue.wait(30)

    changes = [NoteChange("one", notes, start), NoteChange("two", notes)]
    threads = [threading.Thread(target=catalog.apply, args=(each, order), daemon=True) for each in changes]
    threads[0].start()
    assert has_started.wait(30)
    threads[1].start()
    while "two written" not in notes:
        threads[1].join(0.001)
    may_continue.set()
    for thread in threads:
        thread.join(30)
    assert notes == ["one written", "two written", "one", "two"]


def test_a_refused_change_has_no_effect_and_no_ticket(catalog: Catalog, order: ChangeOrder) -> None:
    notes: list[str] = []
    with pytest.raises(Refused, match="no"):
        catalog.apply(RefusedChange("refused", notes), order)
    catalog.apply(NoteChange("next", notes), order)
    assert notes == ["next written", "next"]


def test_a_change_that_fails_after_it_has_its_ticket_releases_it(
    catalog: Catalog, order: ChangeOrder, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []

    def failing(epoch: object) -> None:
        raise OSError("the disk")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "settle", failing)
        with pytest.raises(OSError, match="the disk"):
            catalog.apply(NoteChange("failed", notes), order)
    assert not order._tickets
    catalog.apply(NoteChange("next", notes), order)
    assert notes == ["failed written", "next written", "next"]


@pytest.mark.parametrize("is_before_durable", [False, True])
def test_a_durable_change_reaches_the_routing_and_releases_its_ticket_when_an_effect_raises(
    catalog: Catalog, order: ChangeOrder, is_before_durable: bool
) -> None:
    notes: list[str] = []

    def fail() -> None:
        raise ValueError("not expected")

    change = BadDrop("one", notes) if is_before_durable else NoteChange("one", notes, fail)
    with pytest.raises(ValueError, match="not expected"):
        catalog.apply(change, order)
    assert not order._tickets
    catalog.apply(NoteChange("two", notes), order)
    assert notes == ["one written", "one", "two written", "two"]


def test_an_error_in_the_routing_releases_the_ticket(catalog: Catalog, order: ChangeOrder) -> None:
    notes: list[str] = []
    with pytest.raises(Refused, match="of ours"):
        catalog.apply(BadUpdate("one", notes), order)
    lookup = FunctionChange(lambda writer: 2)
    catalog.apply(lookup, order)
    assert lookup.result == 2


# -- a change of several routings ------------------------------------------------------------------------------------


class CombinedChange(NoteChange):
    """Has a part in each of two orders."""

    def __init__(self, name: str, notes: list[str], combined: CombinedOrder, *parts: tuple[ChangeOrder, CatalogChange]):
        super().__init__(name, notes)
        self._combined = combined
        self._parts = parts

    def write(self, writer: RowWriter) -> None:
        super().write(writer)
        for order, part in self._parts:
            self._combined.join(order, part)


def two_orders() -> tuple[ChangeOrder, ChangeOrder]:
    return ChangeOrder(SystemThreads().condition()), ChangeOrder(SystemThreads().condition())


def test_a_change_of_two_routings_follows_earlier_changes_in_both(catalog: Catalog) -> None:
    """An earlier change of the second order is delayed: the first routing is updated meanwhile, the second one later;
    a later change of the second order waits for both."""
    notes: list[str] = []
    first, second = two_orders()
    has_started, may_continue = threading.Event(), threading.Event()

    def start() -> None:
        has_started.set()
        assert may_continue.wait(30)

    combined = CombinedOrder()
    parts = (first, NoteChange("in first", notes)), (second, NoteChange("in second", notes))
    both = CombinedChange("both", notes, combined, *parts)
    jobs = [(NoteChange("earlier", notes, start), second), (both, combined), (NoteChange("later", notes), second)]
    threads = [threading.Thread(target=catalog.apply, args=job, daemon=True) for job in jobs]
    threads[0].start()
    assert has_started.wait(30)
    for thread, expected in zip(threads[1:], ("in first", "later written"), strict=True):
        thread.start()
        while expected not in notes:
            thread.join(0.001)
    may_continue.set()
    for thread in threads:
        thread.join(30)
    assert notes == ["earlier written", "both written", "in first", "later written", "earlier", "in second", "later"]


def test_all_routings_are_updated_when_one_of_them_fails(catalog: Catalog) -> None:
    notes: list[str] = []
    first, second = two_orders()
    combined = CombinedOrder()
    parts = (first, BadUpdate("bad", notes)), (second, NoteChange("good", notes))
    with pytest.raises(Refused, match="a mistake of ours"):
        catalog.apply(CombinedChange("both", notes, combined, *parts), combined)
    assert notes == ["both written", "good"]
    assert not first._tickets
    assert not second._tickets


def test_a_change_of_two_routings_that_the_log_refuses_releases_its_tickets(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    first, second = two_orders()
    combined = CombinedOrder()
    parts = (first, NoteChange("a", notes)), (second, NoteChange("b", notes))

    def failing(epoch: object) -> None:
        raise OSError("the disk")

    monkeypatch.setattr(catalog, "settle", failing)
    with pytest.raises(OSError, match="the disk"):
        catalog.apply(CombinedChange("both", notes, combined, *parts), combined)
    assert notes == ["both written"]
    assert not first._tickets
    assert not second._tickets
