"""The checksum of every block: CRC-32, as zlib has it, computed by whoever is fastest at it here.

ISA-L uses the processor's carry-less multiplication: a block of 100 KB takes a twentieth of zlib's time. Where
there is no wheel of it zlib does the same. The values are the same in any case (a test compares): which one it was is
of no interest to a reader.
"""

from __future__ import annotations

__all__ = ["crc32"]

try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32
