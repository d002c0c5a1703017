from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import Damage, Refused
from warren.base.ids import FileNumber, Lsn, QueueId, SequenceId, lsn_of
from warren.message_store.body_format import CHUNK_BYTES as CHUNK
from warren.message_store.body_format import (
    HOLDERS_MAX,
    Body,
    BodyPlace,
    RecordKey,
    RecordKind,
    Reference,
    Stored,
    decode_key,
    decode_stored,
    encode_key,
    encode_stored,
    every,
)
from warren.records.format import ENTRY_BYTES_MAX

U32, U64 = st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 64) - 1)
holders = st.builds(Reference, U64.map(QueueId), st.integers(0, 255), U64.map(SequenceId))
places = st.builds(BodyPlace, U64.map(Lsn), U32)


@st.composite
def units(draw: st.DrawFn) -> Body:
    messages = draw(st.integers(1, 200))
    alive = draw(st.integers(1, every(messages)) | st.just(every(messages)))
    where = tuple(draw(st.lists(places, min_size=1, max_size=4)))
    return Body(Lsn(draw(U64)), draw(U64), draw(U32), messages, where, alive)


@given(st.sampled_from(RecordKind), U32, U64, st.lists(holders, max_size=5))
def test_a_record_key_decodes_to_what_was_encoded(
    kind: RecordKind, chunk: int, unit: int, references: list[Reference]
) -> None:
    key = RecordKey(kind, chunk, Lsn(unit), tuple(references))
    assert decode_key(encode_key(key)) == key


@given(st.lists(units(), max_size=5), st.integers(1, 1 << 20))
def test_a_run_decodes_to_what_was_encoded(reported: list[Body], chunk_bytes: int) -> None:
    assert decode_stored(encode_stored(reported, chunk_bytes)) == Stored(chunk_bytes, tuple(reported))


@given(st.lists(units(), min_size=1, max_size=3), st.data())
def test_words_that_were_cut_or_changed_in_length_are_damage_and_nothing_worse(
    reported: list[Body], data: st.DataObject
) -> None:
    raw = encode_stored(reported)
    short = raw[: data.draw(st.integers(0, len(raw) - 1))]
    for wrong in (short, raw + b"\0"):
        with pytest.raises(Damage):
            decode_stored(wrong)


@given(st.binary(max_size=120))
def test_any_bytes_are_words_or_refused(raw: bytes) -> None:
    for decode in (decode_stored, decode_key):
        try:
            reported = decode(raw)
        except (Damage, Refused):
            continue
        assert reported is not None


@pytest.mark.parametrize("wrong", [b"", b"\x01" * 15, encode_key(RecordKey(RecordKind.START, 0, Lsn(0), ())) + b"x"])
def test_a_key_of_a_wrong_length_is_damage(wrong: bytes) -> None:
    with pytest.raises(Damage):
        decode_key(wrong)


def test_what_a_newer_version_wrote_is_refused() -> None:
    key = bytearray(encode_key(RecordKey(RecordKind.START, 0, Lsn(0), ())))
    for at in (0, 1, 2):  # version, kind, flags
        newer = bytearray(key)
        newer[at] = 9
        with pytest.raises(Refused):
            decode_key(bytes(newer))
    with pytest.raises(Refused):
        decode_stored(b"\x02" + encode_stored([])[1:])


def test_as_many_holders_as_there_may_be_fit_an_entry_beside_a_chunk() -> None:
    crowd = tuple(Reference(QueueId(n), 0, SequenceId(n)) for n in range(HOLDERS_MAX))
    assert len(encode_key(RecordKey(RecordKind.START, 0, Lsn(0), crowd))) + CHUNK <= ENTRY_BYTES_MAX


def test_a_place_names_file_block_and_entry() -> None:
    place = BodyPlace(lsn_of(FileNumber(5), 96), 3)
    assert (place.file, place.offset, place.lsn) == (5, 96, lsn_of(FileNumber(5), 96, 3))
