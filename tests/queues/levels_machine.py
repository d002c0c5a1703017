"""A machine that does to a backing queue what can be done to it, in any order, and to a plain model as well."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.queues.backing_stage import BackingStage, contents_of, flags_of, one, tags_of
from tests.queues.levels_model import Entry, LevelsModel
from warren.base.messages import Publication

CONTENTS = st.lists(st.binary(max_size=12), max_size=4)
COUNTS = st.integers(0, 7)
BYTES = st.none() | st.integers(12, 30)  # the first fits: whether an empty one may go with one that does not is open
CHOICE = st.integers(0, 1 << 16)  # one bit for each pending message


class LevelsMachine(RuleBasedStateMachine):
    levels = 1

    def __init__(self) -> None:
        super().__init__()
        self.model = LevelsModel(self.levels)
        self.pending: dict[int, Entry] = {}  # by tag
        self.stage = self.make()

    def make(self) -> BackingStage:
        raise NotImplementedError

    @rule(contents=CONTENTS, priority=st.integers(0, 5), is_persistent=st.booleans())
    def publish(self, contents: list[bytes], priority: int, is_persistent: bool) -> None:
        batch = self.stage.begin()
        self.stage.queue.publish(Publication(contents, is_persistent, priority=priority), batch)
        batch.end()
        self.stage.after()
        self.model.publish(contents, priority, is_persistent)

    @rule(count=COUNTS, bytes_max=BYTES)
    def fetch(self, count: int, bytes_max: int | None) -> None:
        expected = self.model.fetch(count, bytes_max)
        fetched = self.stage.get(count, bytes_max)
        assert contents_of(fetched) == [entry.content for entry, _ in expected]
        assert flags_of(fetched) == [is_delivered for _, is_delivered in expected]
        tags = tags_of(fetched)
        assert not set(tags) & set(self.pending)
        self.pending |= {tag: entry for tag, (entry, _) in zip(tags, expected, strict=True)}

    @precondition(lambda self: self.pending)
    @rule(chosen=CHOICE)
    def ack(self, chosen: int) -> None:
        entries = self._take(chosen)
        assert self.stage.ack(*map(one, entries)) == len(entries)
        self.model.remove(list(entries.values()))

    @precondition(lambda self: self.pending)
    @rule(chosen=CHOICE)
    def requeue(self, chosen: int) -> None:
        entries = self._take(chosen)
        assert self.stage.requeue(*map(one, entries)) == len(entries)
        for entry in entries.values():
            entry.is_pending = False

    @rule(count=COUNTS)
    def drop(self, count: int) -> None:
        assert self.stage.drop(count) == self.model.drop(count)

    @rule()
    def purge(self) -> None:
        assert self.stage.purge() == self.model.drop(1 << 20)

    @invariant()
    def it_equals_the_model(self) -> None:
        queue, ready = self.stage.queue, self.model.ready()
        assert self.stage.browsed() == [entry.content for entry in ready]
        assert (len(queue), queue.ready_bytes) == (len(ready), sum(len(entry.content) for entry in ready))
        assert queue.pending_count == len(self.pending) == len(self.model.pending())
        head = queue.head()
        assert (head is None) == (not ready)
        assert head is None or head.run.size_of(head.start, head.start + 1) == len(ready[0].content)
        slices = queue.read_pending([one(tag) for tag in self.pending])
        assert [c for slice_ in slices for c in slice_.contents or []] == [e.content for e in self.pending.values()]

    def _take(self, chosen: int) -> dict[int, Entry]:
        tags = [tag for number, tag in enumerate(self.pending) if chosen >> number % 16 & 1]
        return {tag: self.pending.pop(tag) for tag in tags}
