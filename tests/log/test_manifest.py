"""The manifest: edits that are there or not, a state that is never seen half changed, and bytes that are not ours."""

from __future__ import annotations

import json
import struct
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from typing import Any
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.log.stage import DIRECTORY, opened, put
from tools.simulator.corruption import flip_bit, tear_tail
from warren.base.errors import Damage, OutOfRoom, Refused, SyncFailed
from warren.base.ids import ChannelId, Epoch, FileNumber, Incarnation, Lsn, StreamId, TimelineId
from warren.base.threads import SystemThreads
from warren.durability.timeline import Ancestor, Timeline
from warren.files.protocol import Files, join
from warren.log.file_record import MANIFEST, FileKind, FileRecord, FileState, Voided
from warren.log.manifest import (
    FOLD_BYTES,
    Change,
    Manifest,
    ManifestState,
    StreamRecord,
    drop_change,
    file_change,
    read_manifest,
    set_change,
    stream_change,
)
from warren.log.read.blocks import walk
from warren.records.block import FileIdentity, draft
from warren.records.format import BlockKind
from warren.testing.fakes import SeededRandom
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles
from warren.testing.memory_files import ALL, REORDERED, SYNCED, CrashModel, MemoryFiles, PowerCut

PATH = join(DIRECTORY, MANIFEST)
TIMELINE = Timeline(TimelineId(0xAA), (Ancestor(TimelineId(0x99), Epoch(5)),))
RECORD = FileRecord(
    number=FileNumber(3),
    channel=ChannelId(1),
    timeline=TimelineId(0xAA),
    incarnation=Incarnation(0xBB),
    purpose=FileKind.COMPACTED,
    state=FileState.SEALED,
    name="pwal_0000.compacted.0000000003",
    end=700,
    running=9,
    entries=11,
    first_epoch=Epoch(4),
    last_epoch=Epoch(6),
    first_wall_ns=12,
    last_wall_ns=13,
    sealed_ns=14,
    index_at=600,
    sources=(FileNumber(1), FileNumber(2)),
    stream_ends=((0, 77), (4, 88)),
    voided=(Voided(700, 800, "torn"),),
    is_recycled=True,
    is_handed_out=True,
)
STREAM = StreamRecord(StreamId(4), "messages", ChannelId(1), Lsn(99), True)
EMPTY = ManifestState(TIMELINE, 4096, 2)


def created(files: Files, state: ManifestState = EMPTY) -> Manifest:
    files.make_directories(DIRECTORY)
    return Manifest(files, DIRECTORY, SystemThreads(), SeededRandom(3), state)


def blocks_in(files: MemoryFiles) -> list[tuple[int, int]]:
    """Where each edit begins and ends."""
    return [(h.offset, h.end) for h in walk(memoryview(files.contents(PATH)), None).headers]


def test_what_was_committed_is_read_again() -> None:
    files = MemoryFiles()
    manifest = created(files)
    manifest.commit([file_change(RECORD), stream_change(STREAM), set_change(durable=Epoch(6), next_file=FileNumber(4))])
    manifest.commit([set_change(durable=Epoch(7))])
    found = read_manifest(files, DIRECTORY)
    assert found == manifest.state
    assert found.files == {3: RECORD}
    assert found.streams == {4: STREAM}
    assert (found.durable, found.next_file, found.edits) == (7, 4, 2)
    assert found.timeline == TIMELINE
    manifest.commit([drop_change(FileNumber(3))])
    assert read_manifest(files, DIRECTORY).files == {}


def test_an_edit_that_comes_late_does_not_set_the_next_file_number_back() -> None:
    """Two threads take their numbers in one order and commit their edits in the other: a number is never used twice."""
    files = MemoryFiles()
    manifest = created(files)
    manifest.commit([set_change(next_file=FileNumber(9))])
    manifest.commit([set_change(next_file=FileNumber(5))])
    assert manifest.state.next_file == read_manifest(files, DIRECTORY).next_file == 9


def test_every_field_goes_to_json_and_back() -> None:
    """No field may be forgotten: what is not written is not there after a restart."""
    assert {field.name for field in fields(FileRecord) if getattr(RECORD, field.name) == field.default} == {
        "sealed_epoch",
        "sealed_digest",
    }
    record = RECORD.changed(sealed_epoch=Epoch(6), sealed_digest="ab")
    assert FileRecord.from_json(json.loads(json.dumps(record.to_json()))) == record
    reported: dict[str, Any] = {field.name: index + 7 for index, field in enumerate(fields(ManifestState))}
    reported |= {"timeline": TIMELINE, "format": 1, "compacted": (FileNumber(3), FileNumber(9))}
    reported |= {"files": {record.number: record}, "streams": {STREAM.id: STREAM}}
    state = ManifestState(**reported)
    assert ManifestState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_an_edit_is_durable_when_commit_returns() -> None:
    files = MemoryFiles()
    created(files).commit([file_change(RECORD)])
    assert read_manifest(files.crash(SYNCED, SeededRandom(1)), DIRECTORY).files == {3: RECORD}


def test_opening_folds_the_edits_into_one_block() -> None:
    files = MemoryFiles()
    manifest = created(files)
    for epoch in range(5):
        manifest.commit([set_change(durable=Epoch(epoch))])
    assert len(blocks_in(files)) == 6
    manifest.close()
    again = created(files, read_manifest(files, DIRECTORY))
    assert len(blocks_in(files)) == 1
    assert read_manifest(files, DIRECTORY) == manifest.state == again.state
    again.commit([set_change(durable=Epoch(9))])
    assert read_manifest(files, DIRECTORY).edits == 6, "edits are counted on"


def test_a_manifest_that_has_grown_long_is_folded() -> None:
    files = MemoryFiles()
    manifest = created(files)
    text = "x" * (FOLD_BYTES // 4)
    for _ in range(12):
        manifest.commit([file_change(RECORD.changed(name=text))])
        assert files.stat(PATH).size_bytes < 2 * FOLD_BYTES
        assert read_manifest(files, DIRECTORY) == manifest.state
    assert manifest.state.edits == 12


def test_a_manifest_beyond_what_a_block_holds_is_refused_and_the_old_one_stays() -> None:
    files = MemoryFiles()
    manifest = created(files)
    manifest.commit([file_change(RECORD)])
    with pytest.raises(Refused, match="8 MiB") as refusal:
        manifest.commit([file_change(RECORD.changed(name="x" * (8 << 20)))])
    assert "compact" in refusal.value.hint
    assert read_manifest(files, DIRECTORY) == manifest.state
    manifest.commit([set_change(durable=Epoch(3))])
    assert read_manifest(files, DIRECTORY).durable == 3


def edits_under(files: Files, reported: list[int]) -> None:
    manifest = created(files)
    for edit in range(1, 5):
        manifest.commit([set_change(durable=Epoch(edit)), file_change(RECORD.changed(end=edit))])
        reported.append(edit)
    manifest.close()
    created(files, read_manifest(files, DIRECTORY))


@pytest.mark.parametrize("model", [ALL, SYNCED, REORDERED])
def test_a_power_cut_at_any_step_leaves_whole_edits_and_all_that_were_answered(model: CrashModel) -> None:
    count = FaultyFiles(MemoryFiles())
    edits_under(count, [])
    for step in range(len(count.steps)):
        for fraction in (None, 0.4):
            memory = MemoryFiles()
            reported: list[int] = []
            with suppress(PowerCut):
                edits_under(FaultyFiles(memory, cut_at=step, cut_fraction=fraction), reported)
            left = memory.crash(model, SeededRandom(step))
            if not left.exists(PATH):
                assert not reported
                continue
            found = read_manifest(left, DIRECTORY)
            assert found.edits in (len(reported), len(reported) + 1)
            assert found.durable == found.edits, "an edit is all there or not at all"
            if found.edits:
                assert found.files[FileNumber(3)].end == found.edits


def test_a_full_disk_keeps_the_edit_out_and_it_can_be_tried_again() -> None:
    files = MemoryFiles()
    manifest = created(files)
    manifest.commit([set_change(durable=Epoch(1))])
    files.capacity_bytes = files.used_bytes + 50
    for _ in range(2):
        with pytest.raises(OutOfRoom):
            manifest.commit([file_change(RECORD)])
        assert manifest.state.edits == read_manifest(files, DIRECTORY).edits == 1
    files.capacity_bytes = None
    manifest.commit([file_change(RECORD)])
    assert read_manifest(files, DIRECTORY).files == {3: RECORD}


def test_a_failed_sync_is_not_believed_and_not_tried_again() -> None:
    disk = FaultyFiles(MemoryFiles())
    manifest = created(disk)
    disk.faults.append(Fault(FaultKind.IO_ERROR, "sync"))
    for _ in range(2):
        with pytest.raises(SyncFailed):
            manifest.commit([file_change(RECORD)])
    assert manifest.state == EMPTY


# -- bytes that are not what was written ----------------------------------------------------------------------------


def disk_with(content: bytes) -> MemoryFiles:
    files = MemoryFiles()
    files.make_directories(DIRECTORY)
    files.create(PATH).close()
    files.set_contents(PATH, content)
    return files


@cache
def bytes_of_three_edits() -> bytes:
    files = MemoryFiles()
    manifest = created(files)
    for edit in range(1, 4):
        manifest.commit([set_change(durable=Epoch(edit))])
    return files.contents(PATH)


def three_edits() -> MemoryFiles:
    return disk_with(bytes_of_three_edits())


def test_a_torn_last_edit_was_never_answered_and_is_passed_over() -> None:
    whole = three_edits()
    start, end = blocks_in(whole)[-1]
    for size in range(1, end - start + 1):
        files = three_edits()
        tear_tail(files, PATH, size)
        assert read_manifest(files, DIRECTORY).durable == 2


def test_every_flipped_bit_is_found() -> None:
    """X-09: in the last edit it looks torn, and the witness's count of edits shows it; anywhere else it is damage."""
    whole = three_edits()
    blocks = blocks_in(whole)
    for bit in range(0, blocks[-1][1] * 8, 3):
        files = three_edits()
        flip_bit(files, PATH, bit)
        if bit // 8 >= blocks[-1][0]:
            assert read_manifest(files, DIRECTORY).durable == 2
        else:
            with pytest.raises(Damage, match="manifest"):
                read_manifest(files, DIRECTORY)


def test_a_missing_edit_is_damage() -> None:
    files = three_edits()
    blocks = blocks_in(files)
    raw = files.contents(PATH)
    identity = header_identity(raw)
    skipped = block({"durable": 9}, identity, blocks[-1][1], 9)
    files.set_contents(PATH, raw + skipped)
    with pytest.raises(Damage, match="misses edit 4"):
        read_manifest(files, DIRECTORY)


def header_identity(raw: bytes) -> FileIdentity:
    header = walk(memoryview(raw), None).headers[0]
    return FileIdentity(header.timeline, header.incarnation)


def block(body: Any, identity: FileIdentity, offset: int, edit: int, kind: BlockKind = BlockKind.EDIT) -> bytes:
    made_of = draft(kind, [body if isinstance(body, bytes) else json.dumps(body).encode()])
    header, _ = made_of.place(identity, offset, Epoch(0), edit)
    return header + b"".join(made_of.pieces)


def with_edit(changes: Any) -> MemoryFiles:
    """A manifest whose last edit is whole, with the given contents."""
    raw = bytes_of_three_edits()
    return disk_with(raw + block(changes, header_identity(raw), len(raw), 4))


def test_edits_of_another_life_of_the_file_do_not_count() -> None:
    files = three_edits()
    raw = files.contents(PATH)
    other = FileIdentity(TIMELINE.id, Incarnation(0xDEAD))
    files.set_contents(PATH, raw + block([["set", {"durable": 99}]], other, len(raw), 4))
    assert read_manifest(files, DIRECTORY).durable == 3


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        ([["enchant", 1]], "enchant"),
        ([["set", {"colour": 1}]], "colour"),
        ([["file", RECORD.to_json() | {"smell": 1}]], "smell"),
        ([["stream", {"id": 1, "name": "x", "channel": 0, "taste": 1}]], "taste"),
    ],
)
def test_what_this_version_does_not_know_is_refused_by_name(changes: list[Change], unknown: str) -> None:
    with pytest.raises(Refused, match=unknown) as refusal:
        read_manifest(with_edit(changes), DIRECTORY)
    assert "newer warren" in refusal.value.hint


def test_a_newer_format_is_refused() -> None:
    files = MemoryFiles()
    created(files, replace(EMPTY, format=2))
    with pytest.raises(Refused, match="format 2") as refusal:
        read_manifest(files, DIRECTORY)
    assert "newer warren" in refusal.value.hint


@pytest.mark.parametrize("index", [0, 2])
def test_blocks_of_a_newer_format_are_refused(index: int) -> None:
    files = three_edits()
    raw = bytearray(files.contents(PATH))
    start, end = blocks_in(files)[index]
    struct.pack_into("<H", raw, start + 10, 2)
    checksum = crc32(raw[start + 8 : start + 64], crc32(raw[start + 64 : end]))
    struct.pack_into("<I", raw, start + 4, checksum)
    files.set_contents(PATH, bytes(raw))
    with pytest.raises(Refused, match=f"format 2 at byte {start}"):
        read_manifest(files, DIRECTORY)


@pytest.mark.parametrize("content", [b"", b"not ours at all\n" * 20, bytes(500), b"WRRN", b"WRRN" * 50])
def test_a_file_that_is_no_manifest_is_named(content: bytes) -> None:
    with pytest.raises(Damage, match="does not begin with a whole edit") as damage:
        read_manifest(disk_with(content), DIRECTORY)
    assert (damage.value.path, damage.value.offset) == (PATH, 0)
    assert damage.value.hint


def test_a_log_file_in_the_manifests_place_is_no_manifest() -> None:
    files = MemoryFiles()
    with opened(files) as store:
        put(store, b"key")
    files.rename(join(DIRECTORY, "pwal_0000"), PATH)
    with pytest.raises(Damage, match="does not begin with a whole edit"):
        read_manifest(files, DIRECTORY)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["durable", "number", "id"]), inner),
    max_leaves=6,
)
hostile = st.one_of(
    json_values,
    st.lists(st.tuples(st.sampled_from(["file", "drop", "stream", "set", 1, None]), json_values).map(list), max_size=3),
    st.lists(st.tuples(st.sampled_from(["file", "drop", "stream", "set"])).map(list), max_size=2),
    st.binary(max_size=30),
)


@settings(deadline=None)
@given(hostile)
def test_a_whole_edit_that_makes_no_sense_is_damage_or_refused_and_nothing_else(changes: Any) -> None:
    with suppress(Damage, Refused):
        assert read_manifest(with_edit(changes), DIRECTORY).edits == 4


def test_an_edit_of_ten_thousand_brackets_is_damage() -> None:
    with pytest.raises(Damage, match="makes no sense"):
        read_manifest(with_edit(b"[" * 100_000), DIRECTORY)
