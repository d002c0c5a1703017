"""The message stores against a dict: any publishes, shares, cancels, releases, collections and reopens."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.message_store.store_stage import A, B, C, Failing, StoreStage, content
from warren.base.errors import OutOfRoom
from warren.base.ids import SequenceId
from warren.base.messages import Publication, QueuePlace, Run, sizes_of
from warren.queue_index.history_format import DequeueReason

SIZES = st.lists(st.sampled_from([0, 30, 300, 1000, 1001, 2700]), min_size=1, max_size=5)
PLACES = st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3, unique=True)


@dataclass(slots=True)
class StoredRun:
    run: Run
    contents: list[bytes]
    gone: int = 0


class StoreMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.stage = StoreStage(read_cache_bytes=3000)
        self.stored_runs: dict[tuple[QueuePlace, int], StoredRun] = {}
        self.paged: dict[bytes, list[bytes]] = {}
        self.number = 0

    def contents_of(self, sizes: list[int]) -> list[bytes]:
        self.number += 1
        return [content(self.number * 10 + at, size) for at, size in enumerate(sizes)]

    @rule(sizes=SIZES, places=PLACES)
    def publish(self, sizes: list[int], places: list[QueuePlace]) -> None:
        contents = self.contents_of(sizes)
        for place, run in self.stage.publish(contents, *places).items():
            self.stored_runs[place, run.first] = StoredRun(run, contents)

    @rule(sizes=SIZES, places=PLACES, data=st.data())
    def publish_and_cancel(self, sizes: list[int], places: list[QueuePlace], data: st.DataObject) -> None:
        """Some of the holders go before the end; whatever is left of the others is written for them."""
        contents = self.contents_of(sizes)
        publication, batch = Publication(contents), self.stage.queues.begin()
        for place in places:
            run = self.stage.submit(publication, place, batch)
            if data.draw(st.booleans()):
                batch.dequeue(place, run, (1 << run.count) - 1, [(run.first, run.end)], DequeueReason.ACKED)
            else:
                self.stored_runs[place, run.first] = StoredRun(run, contents)
        self.stage.log.wait(batch.end())

    @rule(sizes=SIZES, places=PLACES)
    def fail_behind_the_store(self, sizes: list[int], places: list[QueuePlace]) -> None:
        """The contents are written, the runs are not; the next ones get their sequence ids."""
        publication, batch = Publication(self.contents_of(sizes)), self.stage.queues.begin()
        before = dict(self.stage.next)
        for place in places:
            self.stage.submit(publication, place, batch)
        batch.join(Failing())
        try:
            batch.end()
        except OutOfRoom:
            self.stage.next = before

    @precondition(lambda self: self.stored_runs)
    @rule(data=st.data())
    def dequeue(self, data: st.DataObject) -> None:
        place, first = data.draw(st.sampled_from(sorted(self.stored_runs, key=lambda key: (key[0].queue, key[1]))))
        stored = self.stored_runs[place, first]
        everything = (1 << stored.run.count) - 1
        stored.gone |= data.draw(st.sampled_from([everything, data.draw(st.integers(1, everything))]))
        self.stage.dequeue(place, stored.run, stored.gone)
        if stored.gone == everything:
            del self.stored_runs[place, first]

    @rule(sizes=SIZES)
    def page_out(self, sizes: list[int]) -> None:
        contents = self.contents_of(sizes)
        self.paged[self.stage.stores.transient.write(contents)] = contents

    @precondition(lambda self: self.paged)
    @rule(data=st.data())
    def remove_paged(self, data: st.DataObject) -> None:
        stored = data.draw(st.sampled_from(sorted(self.paged)))
        del self.paged[stored]
        self.stage.stores.transient.remove(stored)

    @rule()
    def seal(self) -> None:
        self.stage.seal()

    @rule()
    def collect(self) -> None:
        self.stage.collect()
        self.stage.stores.transient_collector.run()

    @rule()
    def purge(self) -> None:
        self.stage.log.purge()

    @rule()
    def reopen(self) -> None:
        self.stage.reopen()
        self.paged = {}
        for place in (A, B, C):
            found = {run.first: (run, gone) for run, gone in self.stage.recovered(place)}
            reported = {SequenceId(first): entry for (of, first), entry in self.stored_runs.items() if of == place}
            assert {first: gone for first, (_, gone) in found.items()} == {
                n: entry.gone for n, entry in reported.items()
            }
            for first, entry in reported.items():
                entry.run = found[first][0]

    @invariant()
    def everything_that_is_alive_is_there(self) -> None:
        for entry in self.stored_runs.values():
            for at in range(entry.run.count):
                if not entry.gone >> at & 1:
                    assert self.stage.contents(entry.run, at, at + 1) == [entry.contents[at]]
        for stored, contents in self.paged.items():
            assert self.stage.stores.transient.read(stored, sizes_of(contents), 0, len(contents)) == contents
        assert self.stage.stores.collector.alarms() == []
        assert self.stage.store.facts()["flying"] == 0

    def teardown(self) -> None:
        """When there are no references, nothing is left."""
        if not hasattr(self, "stage"):
            return
        for (place, _), stored in self.stored_runs.items():
            self.stage.dequeue(place, stored.run)
        self.stage.database.make_durable()
        self.stage.seal()
        while self.stage.collect().released:
            continue
        assert self.stage.files == []
        assert self.stage.store.facts()["entries"] == 0
        assert list(self.stage.database.view_now().range(3)) == []
        self.stage.close()


def test_the_stores_do_what_a_dict_does() -> None:
    """MS-03: a store of contents by key, with reference counts, on append-only files."""
    run_state_machine_as_test(StoreMachine, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))
