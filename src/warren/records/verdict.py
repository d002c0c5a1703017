"""What was found where a block was looked for.

    EMPTY    zeros, or the end of the file: nothing was ever written here
    STALE    a block of another life of the file, another timeline or another place: as good as nothing
    TORN     something of ours begins here and does not end well: a wrong checksum, an impossible size, a cut

Whether TORN is a power cut's doing or damage is not the block's to say: it depends on the durable witness (log/scan).
"""

from __future__ import annotations

from enum import Enum


class BlockVerdict(Enum):
    GOOD = "good"
    EMPTY = "empty"
    STALE = "stale"
    TORN = "torn"
