"""What a session lets in: whatever passes here can be written, and read again.

A small session shares its block with others, and the block is encoded only when its epoch closes: what could not be
encoded then would take the entries of strangers with it. Columns are written as they come: offsets that lie would pass
every checksum, and nobody could read the block again. So all of it is judged at the door, in the thread of whoever
brings it.
"""

from __future__ import annotations

from warren.base.errors import Misuse
from warren.base.ids import UINT64_MAX
from warren.log.referring import is_pointer
from warren.records.columns import Texts
from warren.records.format import ENTRY_BYTES_MAX
from warren.records.numbers import NumberColumn


def check_strings(key: object, value: object) -> None:
    if not (isinstance(key, bytes) and isinstance(value, bytes)):
        wrong = value if isinstance(key, bytes) else key
        raise Misuse(f"keys and values are bytes, not {type(wrong).__name__}", "encode it")


def check_no_pointer(value: bytes) -> None:
    if is_pointer(value):
        raise Misuse(f"a value of this stream cannot begin with {value[:1].hex()}: pointers do", "begin it otherwise")


def check_64_bits(what: str, *numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= UINT64_MAX:
            raise Misuse(f"{what} {number} does not fit 64 bits", "it must be from 0 to 2**64 - 1")


def check_size(size: int) -> None:
    if size > ENTRY_BYTES_MAX:
        raise Misuse(f"an entry of {size} bytes is over the limit of {ENTRY_BYTES_MAX}", "cut it into chunks")


def check_columns(keys: Texts, values: Texts, majors: NumberColumn | None, minors: NumberColumn | None) -> None:
    count = keys.count
    if values.count != count or any(n is not None and n.count != count for n in (majors, minors)):
        raise Misuse(f"{count} keys and {values.count} values: the columns differ in length")
    if (majors is None) != (minors is None):
        raise Misuse("a write version has two parts: give majors and minors, or neither")
    for numbers in (majors, minors):
        if numbers is not None and count:
            check_64_bits("version", numbers.base, numbers.base + (count - 1) * numbers.step)
    check_offsets(keys)
    check_offsets(values)
    check_largest(keys, values)


def check_offsets(texts: Texts) -> None:
    """They never step back, and end inside the heap."""
    offsets = texts.offsets
    steady = offsets.step >= 0 if offsets.deltas is None else not (offsets.deltas[1:] < offsets.deltas[:-1]).any()
    if not steady or not 0 <= texts.start <= texts.end <= len(texts.heap):
        raise Misuse(
            f"the offsets of a column run from {texts.start} to {texts.end}, its heap has {len(texts.heap)} bytes",
            "give count + 1 offsets into the heap that never step back",
        )


def check_largest(keys: Texts, values: Texts) -> None:
    if keys.size_bytes + values.size_bytes <= ENTRY_BYTES_MAX:
        return
    _, key_sizes = keys.bounds()
    _, value_sizes = values.bounds()
    check_size(int((key_sizes + value_sizes).max()))
