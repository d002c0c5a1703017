"""A run's row without the contents of messages that are gone: what is written again when its file must go.

Count and sequence ids stay, so that rows, acknowledgements and whoever holds the run mean the same as before; what is
gone has no bytes any more. A run whose contents lie in a message store is left as it is: that store trims its own.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warren.base.ids import Epoch, SequenceId
from warren.base.runs import QueuePlace, sizes_of
from warren.files.protocol import Buffer
from warren.queue_index.run_format import decode_contents, decode_run, encode_run


def without_gone(place: QueuePlace, first: SequenceId, value: Buffer, gone: int) -> bytes:
    """`gone`: bit i says that message i is."""
    run = decode_run(place, first, value, Epoch(0))
    if run.stored or not gone:
        return bytes(value)
    bits = np.frombuffer(gone.to_bytes((run.count + 7) // 8, "little"), np.uint8)
    is_gone = np.unpackbits(bits, count=run.count, bitorder="little").tolist()
    contents = decode_contents(place, first, value, 0, run.count)
    left = [b"" if out else content for content, out in zip(contents, is_gone, strict=True)]
    return encode_run(replace(run, sizes=sizes_of(left)), left)
