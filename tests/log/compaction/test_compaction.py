"""Compaction: fewer bytes, the same state; targets by membership, one edit, and a power cut at every step of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.upkeep_stage import (
    DIRECTORY,
    Stage,
    State,
    names,
    numbers,
    of_storage,
    put,
    remove,
    rows,
    sealed,
    watch,
)
from tools.simulator.corruption import flip_bit
from warren.base.errors import Damage, OutOfRoom, Refused, WarrenError
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, TimelineId
from warren.durability.epoch_file import read_witness
from warren.files.protocol import join
from warren.log.compaction.compaction import Compaction, CompactionCatalog, check_current, epoch_of, snapshot_inputs
from warren.log.compaction.jobs import Job, OutputFile
from warren.log.file_record import FileKind, FileRecord, FileState, Voided, is_wal
from warren.log.manifest import Change, ManifestState, drop_change, file_change, read_manifest, set_change
from warren.log.merge.external import sorted_merge
from warren.log.rotation import RotationResult
from warren.log.store import LogStore
from warren.log.streams import Stream
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

COMPACTED_NAME = re.compile(r"pwal_0000\.compacted\.\d{10}")


def catalog(store: LogStore) -> CompactionCatalog:
    return CompactionCatalog.of(store.manifest.state)


def compacted_file(store: LogStore) -> FileRecord:
    (found,) = catalog(store).compacted
    return found


# -- which files -----------------------------------------------------------------------------------------------------


def test_a_compaction_begins_with_a_rotation_and_chooses_its_targets_behind_it() -> None:
    """CO-02, CO-03: what is in the file being written at the request is compacted, too."""
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.rotate()
        put(store, {b"b": b"2"})
        rotations, active = store.rotation.rotations, store.channels[0].participant.number
        watched = watch(store)
        result = store.compact()
        assert store.rotation.rotations == rotations + 1
        assert active in watched.inputs
        assert (result["compacted"], result["entries_in"], result["entries"]) == (2, 2, 2)


def test_only_rotated_files_are_targets() -> None:
    """CO-04, CO-05: every input was in the answer of the rotation, and none is being written."""
    with Stage(channel_count=3).store() as store:
        for channel in (0, 1, 0):
            put(store, {b"key": b"%d" % channel}, channel=channel)
        watched = watch(store)
        store.compact()
        active = {channel.participant.number for channel in store.channels}
        assert watched.inputs == numbers(sealed(store))
        assert active.isdisjoint(watched.inputs)
        assert len(watched.inputs) == 2  # channel 2 has written nothing


def test_a_file_rotated_while_compaction_runs_waits_for_the_next_one() -> None:
    """CO-06: the list comes from the rotation's answer, whatever the directory holds by the time of the job."""
    with Stage().store() as store:
        put(store, {b"a": b"old"})
        late: list[FileNumber] = []

        def rotate_meanwhile(job: Job) -> None:
            put(store, {b"a": b"new", b"b": b"new"})
            store.rotate()
            late.append(sealed(store)[-1].number)

        watched = watch(store, rotate_meanwhile)
        store.compact()
        assert late and late[0] not in watched.inputs
        assert late[0] not in catalog(store).detached
        assert rows(store.refresh()) == of_storage({b"a": b"new", b"b": b"new"})
        watched.meanwhile = lambda job: None
        store.compact()
        assert late[0] in watched.inputs
        assert rows(store.refresh()) == of_storage({b"a": b"new", b"b": b"new"})


def test_a_file_rotated_behind_the_answer_is_not_in_it() -> None:
    """CO-06: also if it is rotated, and in manifest and directory, before the targets are chosen."""
    with Stage().store() as store:
        put(store, {b"a": b"old"})
        rotate = store.rotation.rotate

        def rotate_again_behind_the_answer() -> RotationResult:
            answer = rotate()
            put(store, {b"a": b"new"})
            rotate()
            return answer

        store.rotation.rotate = rotate_again_behind_the_answer  # type: ignore[method-assign]
        watched = watch(store)
        store.compact()
        assert watched.inputs == [sealed(store)[0].number]
        assert len(sealed(store)) == 2
        assert rows(store.refresh()) == of_storage({b"a": b"new"})


def test_a_stray_file_under_a_rotated_name_is_not_taken_for_a_target() -> None:
    """CO-06: targets are never taken from the directory listing."""
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.rotate()
        [known] = sealed(store)
        stray = f"{DIRECTORY}/pwal_0000.0000000099"
        stage.disk.create(stray).close()
        stage.disk.set_contents(stray, stage.disk.contents(join(DIRECTORY, known.name)))
        watched = watch(store)
        store.compact()
        assert watched.inputs == [known.number]


def test_files_the_catalog_names_are_passed_over_and_the_compacted_file_goes_in_again() -> None:
    """CO-07, CO-10: the inputs are the new rotated files and the previous compacted file, and nothing else."""
    with Stage(retention_seconds=1e6, retention_bytes=1 << 30).store() as store:
        put(store, {b"a": b"1"})
        store.compact()
        before = compacted_file(store)
        put(store, {b"b": b"2"})
        watched = watch(store)
        store.compact()
        new = [number for number in numbers(sealed(store)) if number not in before.sources]
        assert watched.inputs == [before.number, *new]
        assert len(new) == 1
        assert store.compact()["message"] == "nothing to compact"
        assert len(watched.jobs) == 1


def log_file(number: int, first: int, last: int) -> FileRecord:
    return FileRecord(
        FileNumber(number), ChannelId(0), TimelineId(1), Incarnation(number), FileKind.LOG, FileState.SEALED,
        f"pwal_0000.{number:010d}", entries=1, first_epoch=Epoch(first), last_epoch=Epoch(last),
        sealed_epoch=Epoch(last), stream_ends=((0, number << 32),),
    )  # fmt: skip


def test_a_rotated_file_is_a_target_unless_the_catalog_names_it_however_old_its_first_session_is() -> None:
    """CO-08, C-25: by the seed's rule a file that begins at or before the catalog's epoch would be lost."""
    compacted = replace(log_file(9, 1, 10), purpose=FileKind.COMPACTED, sources=(FileNumber(1), FileNumber(2)))
    view = CompactionCatalog((compacted,), frozenset(compacted.sources), Epoch(10))
    members = [log_file(1, 1, 5), log_file(2, 6, 10)]
    begins_early, begins_late = log_file(3, 7, 12), log_file(4, 13, 14)
    assert view.targets([*members, begins_early, begins_late]) == [begins_early, begins_late]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(["put 0", "put 1", "put 2", "rotate", "compact", "purge", "reopen"]), max_size=20))
def test_in_every_history_the_epoch_rule_by_last_epochs_says_the_same_as_membership(script: list[str]) -> None:
    """CO-08, C-25: the safe way round: the catalog's epoch covers the last epoch of its own files, and of no other."""
    stage = Stage(channel_count=3)
    store = stage.open()
    for step, line in enumerate(script):
        if line.startswith("put"):
            put(store, {b"key": b"%d" % step}, channel=int(line[-1]))
        elif line == "reopen":
            store.close()
            store = stage.open()
        else:
            getattr(store, line)()
        view = catalog(store)
        for record in sealed(store):
            assert (record.last_epoch <= view.max_epoch) == (record.number in view.detached), (record, view)
    store.close()


def test_a_file_without_key_values_is_no_target() -> None:
    """Records of a stream are not merged: their space comes back as the stream's base moves."""
    with Stage().store() as store:
        stream = store.stream("messages")
        with stream.begin() as session:
            session.record(b"one")
        put(store, {b"a": b"1"})
        watched = watch(store)
        store.compact()
        assert [record.channel for record in watched.jobs[-1].inputs] == [0]


# -- what comes out --------------------------------------------------------------------------------------------------


def test_the_compacted_file_has_the_name_of_its_format_and_is_a_log_file_by_name() -> None:
    """CO-11: pwal_0000.compacted with its number behind, so that the next one does not take its name."""
    stage = Stage()
    with stage.store() as store:
        for value in (b"1", b"2"):
            put(store, {b"a": value})
            result = store.compact()
            assert COMPACTED_NAME.fullmatch(result["file"])
            assert is_wal(result["file"])
            assert result["file"] in names(stage.disk)
        assert len([name for name in names(stage.disk) if COMPACTED_NAME.fullmatch(name)]) == 2


def test_compaction_deletes_no_target_and_purge_does_afterwards() -> None:
    """CO-12, C-26: the disk shrinks by a step of its own, behind the edit that detaches the targets."""
    stage = Stage()
    with stage.store() as store:
        for number in range(8):
            put(store, {b"a": bytes(1000) + b"%d" % number})
            store.rotate()
        targets = [record.name for record in sealed(store)]
        before = stage.disk.used_bytes
        store.compact()
        assert set(targets) <= set(names(stage.disk))
        purged = store.purge()
        assert set(purged.files) == set(targets)
        assert set(targets).isdisjoint(names(stage.disk))
        assert stage.disk.used_bytes < before / 2
        assert rows(store.refresh()) == of_storage({b"a": bytes(1000) + b"7"})


def test_nothing_is_removed_before_the_edit_that_detaches_it_is_synced() -> None:
    """C-26: the catalog is durable first."""
    stage = Stage()

    def body(store: LogStore) -> list[str]:
        put(store, {b"a": b"1"})
        targets = store.rotate().rotated
        store.compact()
        store.purge()
        return [join(DIRECTORY, record.name) for record in targets]

    files = FaultyFiles(stage.disk)
    targets = stage.play(1, body, files)
    reported = [str(step) for step in files.steps]
    synced = max(i for i, step in enumerate(reported) if "to log/pwal_0000.compacted" in step)
    edit = reported.index("sync log/manifest", synced)
    for target in targets:
        assert reported.index(f"remove {target}") > edit


def test_the_catalog_says_which_file_is_in_force_what_went_into_it_and_up_to_which_epoch() -> None:
    """CO-13, C-30: compacted file, detached PWALs, max epoch, over a restart (docs/formats/compaction_catalog.md)."""
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 30)
    with stage.store() as store:
        assert catalog(store) == CompactionCatalog((), frozenset(), Epoch(0))
        put(store, {b"a": b"1"})
        first = store.rotate().rotated
        epoch = put(store, {b"b": b"2"})
        result = store.compact()
        view = catalog(store)
        assert compacted_file(store).name == result["file"]
        assert view.detached == {record.number for record in first} | {numbers(sealed(store))[-1]}
        assert view.max_epoch == epoch == result["epoch"]
    with stage.store() as store:
        assert catalog(store) == view
        assert CompactionCatalog.of(read_manifest(stage.disk, DIRECTORY)) == view


def test_only_one_compacted_file_is_ever_read() -> None:
    """L6-02: merging old and new compacted files at use time is not done. The previous one goes into the next, since
    every reader then opens one sorted file and a key is found by one search; the price is paid by the niced worker."""
    with Stage(retention_seconds=1e6, retention_bytes=1 << 30).store() as store:
        for number in range(3):
            put(store, {b"%d" % number: b"x"})
            store.compact()
        assert len(sealed(store, FileKind.COMPACTED)) == 3
        read = [record for record in snapshot_inputs(store.manifest.state) if record.purpose is FileKind.COMPACTED]
        assert read == [compacted_file(store)]


def test_newest_versions_win_and_what_was_removed_takes_no_room() -> None:
    with Stage().store() as store:
        put(store, {b"%03d" % number: b"first" for number in range(100)})
        put(store, {b"%03d" % number: b"second" for number in range(0, 100, 2)})
        remove(store, *(b"%03d" % number for number in range(50)))
        with store.begin() as session:
            session.put(2, b"gone", b"1")
            session.clear_storage(2)
        result = store.compact()
        wanted = {b"%03d" % n: b"first" if n % 2 else b"second" for n in range(50, 100)}
        assert rows(store.refresh()) == of_storage(wanted)
        assert result["entries"] == len(wanted)


def test_the_compacted_file_s_epoch_and_its_digest_belong_together() -> None:
    """Else the anchor of a purge is wrong where epochs of streams lie behind the last key-value."""
    with Stage().store() as store:
        digests: dict[int, str] = {}
        stream = store.stream("messages")
        for number in range(4):
            put(store, {b"a": b"%d" % number}) if number == 0 else record(stream, b"%d" % number)
            digests[store.durable] = store.commit.digest.hex()
            store.rotate()
        store.compact()
        created = compacted_file(store)
        assert created.sealed_digest == digests[created.sealed_epoch]
        assert created.last_epoch == created.sealed_epoch


def record(stream: Stream, *values: bytes) -> None:
    with stream.begin() as session:
        for value in values:
            session.record(value)


# -- the same routine everywhere -------------------------------------------------------------------------------------


def test_the_start_up_snapshot_and_compaction_go_through_the_same_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    """SO-01, SO-02: ready → snapshot → job → sorted_merge; compaction → job → sorted_merge."""
    sorts: list[list[str]] = []

    def spied(inputs: Sequence[object], *rest: object) -> object:
        sorts.append([type(given).__name__ for given in inputs])
        return sorted_merge(inputs, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("warren.log.compaction.jobs.sorted_merge", spied)
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.abandon()
    with stage.store() as store:
        assert len(sorts) == 1, "a snapshot was made while opening"
        put(store, {b"b": b"2"})
        store.compact()
        assert len(sorts) == 2
        assert rows(store.refresh()) == of_storage({b"a": b"1", b"b": b"2"})


def test_the_last_durable_epoch_of_a_snapshot_comes_from_the_epoch_file() -> None:
    """SO-05: with the epoch file, a bad block of the last epoch is damage; without it, the epoch was never durable."""
    stage = Stage()
    store = stage.open()
    put(store, {b"a": b"1"})
    epoch = put(store, {b"b": b"2"})
    store.witness()
    store.abandon()
    witness, _ = read_witness(stage.disk, f"{DIRECTORY}/epoch")
    assert witness is not None and witness.durable == epoch
    whole, path = stage.disk.crash(ALL, SeededRandom(0)), f"{DIRECTORY}/pwal_0000"
    at = stage.disk.contents(path).rindex(b"b2")
    flip_bit(stage.disk, path, 8 * at)
    with pytest.raises(Damage, match="durable"):
        stage.open()
    stage.disk.remove(f"{DIRECTORY}/epoch")
    with stage.store() as store:
        assert store.snapshot().epoch == epoch - 1
        assert rows(store.snapshot()) == of_storage({b"a": b"1"})
    with Stage(whole).store() as store:
        assert store.snapshot().epoch == epoch
        assert rows(store.snapshot()) == of_storage({b"a": b"1", b"b": b"2"})


def test_online_and_offline_compaction_make_the_same_file() -> None:
    """CO-09: one logic, whether the store was opened for it or has been running."""
    stage = Stage(channel_count=2)
    store = stage.open()
    for number in range(20):
        put(store, {b"%d" % (number % 7): b"%d" % number}, channel=number % 2)
    remove(store, b"3")
    store.close()
    offline = Stage(stage.disk.crash(ALL, SeededRandom(0)), channel_count=2)
    with stage.store() as online, offline.store() as opened_for_it:
        assert online.compact() == opened_for_it.compact()
        created = compacted_file(online), compacted_file(opened_for_it)
        contents = [rows(remaining.refresh()) for remaining in (online, opened_for_it)]
    assert created[0].entries == created[1].entries == 6
    assert contents[0] == contents[1]


def test_offline_compaction_snapshot_and_online_compaction_read_the_same_files() -> None:
    """L6-01: un-compacted PWALs and the compacted file, each time."""
    stage = Stage(retention_seconds=1e6, retention_bytes=1 << 30)
    store = stage.open()
    put(store, {b"a": b"1"})
    store.compact()
    put(store, {b"b": b"2"})
    store.close()
    offline = Stage(stage.disk.crash(ALL, SeededRandom(0)), retention_seconds=1e6, retention_bytes=1 << 30)
    with stage.store() as store, offline.store() as opened_for_it:
        wanted = [compacted_file(store).number, sealed(store)[-1].number]
        assert len(sealed(store)) == 2
        watched = watch(store)
        store.refresh()
        assert watched.inputs == wanted
        store.compact()
        assert watched.inputs == wanted
        watched = watch(opened_for_it)
        opened_for_it.compact()
        assert watched.inputs == wanted


# -- one at a time, and only from what is current --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_two_compactions_never_run_at_once(seed: int) -> None:
    """CO-01: the second request waits for the first."""

    def body(store: LogStore) -> int:
        put(store, {b"a": b"1"})
        running, most = [0], [0]
        threads = store.environment.threads
        seam = threads.condition()

        def meanwhile(job: Job) -> None:
            running[0] += 1
            most[0] = max(most[0], running[0])
            for _ in range(5):
                with seam:
                    pass
            put(store, {b"a": b"more"})
            running[0] -= 1

        watched = watch(store, meanwhile)
        asking = [threads.start(f"asker {n}", lambda: keep(store.compact())) for n in range(3)]
        for asker in asking:
            asker.join()
        assert len(watched.jobs) == 3
        return most[0]

    results: list[object] = []
    keep = results.append
    assert Stage().play(seed, body) == 1
    assert len(results) == 3


def test_a_proposal_whose_inputs_have_changed_is_refused_and_nothing_happens() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        inputs = list(store.rotate().rotated)
        staging = f"{DIRECTORY}/staging/slow"
        [place] = store.compaction.places(1)
        job = Job(
            DIRECTORY, staging, place.number, place.identity, FileKind.COMPACTED, tuple(inputs),
            epoch_of(inputs), True, 1 << 20, 1, 0,
        )  # fmt: skip
        figures = store._worker.run(job, lambda share: None)
        proposal = store.compaction.proposal(inputs, [OutputFile(place, f"{staging}/output", figures)])
        put(store, {b"a": b"2"})
        store.compact()
        before = store.manifest.state, names(stage.disk)
        with pytest.raises(Refused, match="no longer in force"):
            store.compaction.commit(proposal)
        assert (store.manifest.state, names(stage.disk)) == before
        assert rows(store.refresh()) == of_storage({b"a": b"2"})


CHANGES: dict[str, Callable[[FileRecord], FileRecord | None]] = {
    "dropped": lambda record: None,
    "doomed": lambda record: record.changed(state=FileState.DOOMED),
    "of another life": lambda record: record.changed(incarnation=Incarnation(record.incarnation + 1)),
    "cut shorter": lambda record: record.changed(end=record.end - 8),
    "voided in part": lambda record: record.changed(voided=(Voided(64, 128, "repaired"),)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_check_current_finds_an_input_that_is(change: str) -> None:
    with Stage().store() as store:
        put(store, {b"a": b"1"})
        [record] = store.rotate().rotated
        state = store.manifest.state
        check_current(state, (record,))
        changed = CHANGES[change](record)
        stale = state.apply([file_change(changed) if changed else drop_change(record.number)])
        with pytest.raises(Refused, match=f"log file {record.number}, which has changed") as caught:
            check_current(stale, (record,))
        assert caught.value.hint == "compact again"


def test_check_current_finds_a_base_that_is_no_longer_in_force() -> None:
    with Stage().store() as store:
        put(store, {b"a": b"1"})
        store.compact()
        base = compacted_file(store)
        state = store.manifest.state
        check_current(state, (base,))
        with pytest.raises(Refused, match="no longer in force"):
            check_current(state, ())
        with pytest.raises(Refused, match="no longer in force"):
            check_current(state.apply([set_change(compacted=())]), (base,))


def test_a_rotation_beside_a_compaction_does_not_let_a_file_number_be_given_twice() -> None:
    """The rotation comes between the moment the next number is read and the edit that says it; then the power goes."""
    stage = Stage()
    store = stage.open()
    put(store, {b"a": b"1"})
    store.rotate()
    commit = store.manifest.commit

    def commit_behind_a_rotation(changes: Sequence[Change]) -> ManifestState:
        store.manifest.commit = commit  # type: ignore[method-assign]
        put(store, {b"b": b"2"})
        store.rotate()
        return commit(changes)

    store.manifest.commit = commit_behind_a_rotation  # type: ignore[method-assign]
    store.compact()
    put(store, {b"c": b"3"})
    store.abandon()
    with stage.crashed(SYNCED).store() as store:
        assert rows(store.snapshot()) == of_storage({b"a": b"1", b"b": b"2", b"c": b"3"})
        assert store.manifest.state.next_file > max(store.manifest.state.files)


# -- when it starts automatically -------------------------------------------------------------------------------------


def test_compaction_is_due_by_the_share_of_bytes_that_may_be_superseded() -> None:
    with Stage(compaction_garbage_ratio=0.5, compaction_bytes_min=3000).store() as store:
        assert not store.is_compaction_due()
        put(store, {b"a": bytes(2000)})
        assert not store.is_compaction_due(), "nothing is rotated yet"
        store.rotate()
        assert not store.is_compaction_due(), "too few bytes"
        put(store, {b"b": bytes(2000)})
        store.rotate()
        assert store.is_compaction_due()
        store.compact()
        assert not store.is_compaction_due()
        put(store, {b"c": bytes(3100)})
        store.rotate()
        fresh, old = sealed(store)[-1].end, compacted_file(store).end
        assert fresh >= 3000 and fresh < (fresh + old) / 2
        assert not store.is_compaction_due(), "too small a share"
        put(store, {b"d": bytes(2000)})
        store.rotate()
        assert store.is_compaction_due()


def test_a_ratio_of_zero_means_never_automatically() -> None:
    with Stage(compaction_garbage_ratio=0.0, compaction_bytes_min=0).store() as store:
        put(store, {b"a": bytes(2000)})
        store.rotate()
        assert not store.is_compaction_due()


def test_the_compaction_thread_compacts_and_purges_without_a_request() -> None:
    stage = Stage(compaction_garbage_ratio=0.5, compaction_bytes_min=3000, compaction_poll_seconds=1.0)

    def body(store: LogStore) -> int:
        for number in range(5):
            put(store, {b"a": bytes(1000) + b"%d" % number})
            store.rotate()
        pause(store, 5.0)
        assert rows(store.refresh()) == of_storage({b"a": bytes(1000) + b"4"})
        assert not sealed(store), "targets are compacted, and purged"
        return compacted_file(store).entries

    assert stage.play(3, body) == 1


def pause(store: LogStore, seconds: float) -> None:
    """Let time pass: the stepped threads' clock advances when all threads sleep."""
    bell = store.environment.threads.condition()
    with bell:
        bell.wait(seconds)


# -- what can go wrong -----------------------------------------------------------------------------------------------


def test_a_damaged_input_ends_the_compaction_and_not_the_store() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"a": b"1"})
        store.rotate()
        path = join(DIRECTORY, sealed(store)[0].name)
        flip_bit(stage.disk, path, 8 * stage.disk.contents(path).rindex(b"a1"))
        before = store.manifest.state.compacted
        with pytest.raises(Damage, match=sealed(store)[0].name):
            store.compact()
        assert store.manifest.state.compacted == before
        assert stage.disk.list(f"{DIRECTORY}/staging") == []
        put(store, {b"b": b"2"})


def test_a_full_disk_ends_the_compaction_gives_its_room_back_and_the_next_one_succeeds() -> None:
    stage = Stage()
    with stage.store() as store:
        put(store, {b"%04d" % number: bytes(50) for number in range(1000)})
        store.rotate()
        stage.disk.capacity_bytes = stage.disk.used_bytes + 20_000
        with pytest.raises(OutOfRoom):
            store.compact()
        assert stage.disk.list(f"{DIRECTORY}/staging") == []
        assert stage.disk.capacity_bytes - stage.disk.used_bytes >= 19_000
        stage.disk.capacity_bytes = None
        assert store.compact()["entries"] == 1000


def test_a_failing_disk_under_the_job_leaves_the_log_as_it_was() -> None:
    stage = Stage()
    files = FaultyFiles(stage.disk)
    with stage.store(files) as store:
        put(store, {b"a": b"1"})
        for operation in ("create", "write", "sync"):
            files.faults.append(Fault(FaultKind.IO_ERROR, operation, "*/output"))
            with pytest.raises(WarrenError, match="output"):
                store.compact()
            assert store.manifest.state.compacted == ()
        assert store.compact()["entries"] == 1


# -- the power goes --------------------------------------------------------------------------------------------------


def history(store: LogStore) -> State:
    """Something to compact: a compacted file, rotated files behind it, entries in the file being written."""
    put(store, {b"kept": b"0", b"changed": b"0", b"removed": b"0"})
    store.compact()
    put(store, {b"changed": b"1"}, channel=1)
    store.rotate()
    remove(store, b"removed")
    with store.begin() as session:
        session.put(2, b"cleared", b"1")
        session.clear_storage(2)
        session.put(2, b"after", b"2")
    return of_storage({b"kept": b"0", b"changed": b"1"}) | of_storage({b"after": b"2"}, 2)


def compact_and_purge(store: LogStore) -> None:
    store.compact()
    store.purge()


@pytest.fixture(scope="module")
def crash_points() -> tuple[list[int], list[str]]:
    """The steps between the call of compact and the end of the purge, and what each of them is."""
    stage = Stage(channel_count=2)
    files = FaultyFiles(stage.disk)
    marks: list[int] = []

    def body(store: LogStore) -> None:
        history(store)
        marks.append(len(files.steps))
        compact_and_purge(store)
        marks.append(len(files.steps))

    stage.play(5, body, files)
    return list(range(*marks)), [str(step) for step in files.steps]


def after_power_cut(step: int, fraction: float | None) -> MemoryFiles:
    stage = Stage(channel_count=2)
    files = FaultyFiles(stage.disk, cut_at=step, cut_fraction=fraction)

    def body(store: LogStore) -> None:
        history(store)
        compact_and_purge(store)

    with pytest.raises(PowerCut):
        stage.play(5, body, files)
    return stage.disk


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_between_any_two_steps_of_a_compaction_leaves_the_same_state(
    crash_points: tuple[list[int], list[str]], model: CrashModel
) -> None:
    """X-10: before each call and in the middle of it; then it opens, says the same, and compacts again."""
    steps, reported = crash_points
    wanted = of_storage({b"kept": b"0", b"changed": b"1"}) | of_storage({b"after": b"2"}, 2)
    for step in steps:
        for fraction in (None, 0.5) if reported[step].startswith(("write", "allocate")) else (None,):
            disk = after_power_cut(step, fraction)
            stage = Stage(disk.crash(model, SeededRandom(step)), channel_count=2)
            with stage.store() as store:
                assert rows(store.snapshot()) == wanted, (step, reported[step])
                assert stage.disk.list(f"{DIRECTORY}/staging") == []
                store.compact()
                store.purge()
                assert rows(store.refresh()) == wanted, (step, reported[step])
                assert not sealed(store) and len(sealed(store, FileKind.COMPACTED)) == 1
            with stage.store() as store:
                assert rows(store.snapshot()) == wanted, (step, reported[step])


def test_the_crash_points_of_a_compaction_are_those_of_the_failure_model(
    crash_points: tuple[list[int], list[str]],
) -> None:
    """X-10: staged and synced, named, name synced, in force, and only then removed: in this order."""
    steps, reported = crash_points
    compaction = reported[steps[0] : steps[-1] + 1]
    marks = [
        next(i for i, step in enumerate(compaction) if step.startswith("sync log/staging/")),
        next(i for i, step in enumerate(compaction) if "to log/pwal_0000.compacted" in step),
    ]
    marks.append(compaction.index("sync_directory log", marks[-1]))
    marks.append(compaction.index("sync log/manifest", marks[-1]))
    marks.append(next(i for i, step in enumerate(compaction) if step.startswith("remove log/pwal_")))
    assert marks == sorted(marks)


# -- the equivalence -------------------------------------------------------------------------------------------------

SessionPlan = tuple[int, list[tuple[str, int, bytes, bytes]]]
KEYS = st.sampled_from([b"", b"a", b"b", b"ab", b"\xff"])
ENTRY = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 2), KEYS, st.binary(max_size=40)),
    st.tuples(st.just("remove"), st.integers(0, 2), KEYS, st.just(b"")),
    st.tuples(st.just("clear"), st.integers(0, 2), st.just(b""), st.just(b"")),
)
SESSION = st.tuples(st.integers(0, 1), st.lists(ENTRY, min_size=1, max_size=6))
ACTION = st.one_of(SESSION, st.sampled_from(["rotate", "compact", "purge"]))


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTION, max_size=12))
def test_the_snapshot_is_the_same_before_and_after_a_compaction(actions: list[str | SessionPlan]) -> None:
    """ST-04: whatever was written, in whatever files it lies."""
    stage = Stage(channel_count=2)
    model: State = {}
    with stage.store() as store:
        for action in actions:
            if isinstance(action, str):
                getattr(store, action)()
                continue
            write(store, *action, model)
        before = rows(store.refresh())
        store.compact()
        after = rows(store.refresh())
        assert before == after == model
        store.purge()
        assert rows(store.refresh()) == model
    with stage.store() as store:
        assert rows(store.snapshot()) == model


def write(store: LogStore, channel: int, entries: list[tuple[str, int, bytes, bytes]], model: State) -> None:
    with store.begin(channel) as session:
        for kind, storage, key, value in entries:
            if kind == "put":
                session.put(storage, key, value)
                model[storage, key] = value
            elif kind == "remove":
                session.remove(storage, key)
                model.pop((storage, key), None)
            else:
                session.clear_storage(storage)
                for place in [place for place in model if place[0] == storage]:
                    del model[place]


def test_compaction_is_wired_to_the_store() -> None:
    with Stage().store() as store:
        assert isinstance(store.compaction, Compaction)
        shares: list[float] = []
        put(store, {b"a": b"1"})
        store.compact(shares.append)
        assert shares and shares[-1] == 1.0
