"""The peer's defects around compaction, by name: a session that is open across it, and a key that comes back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.upkeep_stage import DIRECTORY, Stage, State, of_storage, put, remove, rows, sealed, watch
from warren.base.errors import Damage
from warren.log.compaction.jobs import Job
from warren.log.store import LogStore
from warren.testing.memory_files import ALL, SYNCED, CrashModel

# -- a session open across rotation and online compaction --------------------------------------------------------------


@pytest.mark.parametrize("ends", ["while the job runs", "behind the compaction", "behind a purge", "never"])
@pytest.mark.parametrize("is_crash", [False, True])
def test_a_session_open_across_rotation_and_online_compaction_loses_nothing(ends: str, is_crash: bool) -> None:
    """In the peer its entries went to the rotated file, which the catalog then called compacted."""
    stage = Stage(channel_count=2, rotation_reply_seconds_max=0.0)
    store = stage.open()
    put(store, {b"before": b"1", b"changed": b"1"})
    session = store.begin(channel=1)
    session.put(1, b"changed", b"2")
    session.put(1, b"open", b"2")
    session.remove(1, b"before")
    watched = watch(store, lambda job: ended(store, session.end) if ends == "while the job runs" else None)
    store.compact()
    if ends == "behind the compaction":
        ended(store, session.end)
    store.purge()
    if ends == "behind a purge":
        ended(store, session.end)
    put(store, {b"after": b"3"})
    watched.meanwhile = lambda job: None
    wanted = {b"before": b"1", b"changed": b"1"} if ends == "never" else {b"changed": b"2", b"open": b"2"}
    check(stage, store, is_crash, of_storage(wanted | {b"after": b"3"}))


def ended(store: LogStore, end: Callable[[], object]) -> None:
    end()
    store.wait(store.commit.open_epoch if store._newest_epoch() == store.commit.open_epoch else store.durable)


def check(stage: Stage, store: LogStore, is_crash: bool, wanted: State) -> None:
    """The state is what is wanted: now, behind a restart, and behind another compaction and restart."""
    assert rows(store.refresh()) == wanted
    store.abandon() if is_crash else store.close()
    if is_crash:
        stage.disk = stage.disk.crash(SYNCED, stage.rng)
    with stage.store() as store:
        assert rows(store.snapshot()) == wanted
        store.compact()
        store.purge()
        assert rows(store.refresh()) == wanted
    with stage.store() as store:
        assert rows(store.snapshot()) == wanted


@pytest.mark.parametrize("seed", range(25))
def test_sessions_that_end_at_any_moment_of_a_compaction_lose_nothing(seed: int) -> None:
    """Long sessions on two channels, opened before and ended before, in and behind each of several compactions."""
    stage = Stage(channel_count=2, rotate_bytes=1500)
    wanted: dict[bytes, bytes] = {}

    def body(store: LogStore) -> None:
        threads = store.environment.threads
        seam = threads.condition()

        def write(channel: int) -> None:
            for number in range(6):
                session = store.begin(channel)
                for part in range(3):
                    session.put(1, b"%d %d %d" % (channel, number, part), b"x" * 50)
                    with seam:
                        pass
                session.commit()
                wanted.update({b"%d %d %d" % (channel, number, part): b"x" * 50 for part in range(3)})

        def upkeep() -> None:
            for _ in range(4):
                store.compact()
                store.purge()

        running = [threads.start("zero", lambda: write(0)), threads.start("one", lambda: write(1))]
        for one in [*running, threads.start("upkeep", upkeep)]:
            one.join()

    stage.play(seed, body)
    for model in (ALL, SYNCED):
        with stage.crashed(model, seed).store() as store:
            assert rows(store.snapshot()) == of_storage(wanted)


# -- compact, delete, restart ------------------------------------------------------------------------------------------


def by_remove(store: LogStore) -> None:
    remove(store, b"deleted")


def by_clear(store: LogStore) -> None:
    with store.begin() as session:
        session.clear_storage(1)
        session.put(1, b"kept", b"1")


def by_remove_storage(store: LogStore) -> None:
    with store.begin() as session:
        session.remove_storage(1)
        session.add_storage(1)
        session.put(1, b"kept", b"1")


def by_remove_on_another_channel(store: LogStore) -> None:
    remove(store, b"deleted", channel=1)


@pytest.mark.parametrize("delete", [by_remove, by_clear, by_remove_storage, by_remove_on_another_channel])
@pytest.mark.parametrize(
    "upkeep", ["", "rotate", "compact", "compact purge", "rotate compact", "compact compact purge"]
)
@pytest.mark.parametrize("is_crash", [False, True])
def test_compact_delete_restart_does_not_bring_the_key_back(
    delete: Callable[[LogStore], None], upkeep: str, is_crash: bool
) -> None:
    """In the peer the compacted file was read without the tombstone behind it."""
    stage = Stage(channel_count=2)
    store = stage.open()
    put(store, {b"deleted": b"1", b"kept": b"1"})
    store.compact()
    delete(store)
    for verb in upkeep.split():
        getattr(store, verb)()
    check(stage, store, is_crash, of_storage({b"kept": b"1"}))


@pytest.mark.parametrize("model", [ALL, SYNCED])
def test_a_key_deleted_while_the_job_runs_stays_deleted(model: CrashModel) -> None:
    stage = Stage()
    store = stage.open()
    put(store, {b"deleted": b"1", b"kept": b"1"})

    def delete_meanwhile(job: Job) -> None:
        remove(store, b"deleted")

    watch(store, delete_meanwhile)
    store.compact()
    store.purge()
    store.abandon()
    with stage.crashed(model).store() as store:
        assert rows(store.snapshot()) == of_storage({b"kept": b"1"})
        store.compact()
        assert rows(store.refresh()) == of_storage({b"kept": b"1"})


def test_a_tombstone_is_dropped_only_together_with_what_it_removes() -> None:
    """Behind it nothing older is left: the compacted file that held the key is an input, too."""
    with Stage().store() as store:
        put(store, {b"deleted": b"1"})
        store.compact()
        remove(store, b"deleted")
        watched = watch(store)
        assert store.compact()["entries"] == 0
        assert len(watched.inputs) == 2
        assert all(job.is_bottom for job in watched.jobs)


# -- two values of one version -----------------------------------------------------------------------------------------


def test_two_different_values_of_one_version_are_damage_and_neither_wins() -> None:
    """C-28: in the seed whichever was read later won. Equal versions must mean equal values; a compaction that finds
    otherwise stops, and both values stay where they are."""
    stage = Stage(channel_count=2)
    with stage.store() as store:
        for channel, value in ((0, b"this"), (1, b"that")):
            with store.begin(channel) as session:
                session.put(1, b"key", value, (7, 7))
        with pytest.raises(Damage, match=r"two different entries have the write version 7\.7"):
            store.compact()
        assert len(sealed(store)) == 2 and not store.manifest.state.compacted
        assert stage.disk.list(f"{DIRECTORY}/staging") == []
        store.abandon()


def test_the_same_value_of_one_version_twice_is_no_contradiction() -> None:
    """C-28."""
    with Stage(channel_count=2).store() as store:
        for channel in (0, 1):
            with store.begin(channel) as session:
                session.put(1, b"key", b"same", (7, 7))
        assert store.compact()["entries"] == 1
        assert rows(store.refresh()) == of_storage({b"key": b"same"})
