"""Why a message left its queue. The numbers are on disk: never change one, only add (DESIGN section 8).

A message that is dead-lettered leaves for one of these reasons, whether somebody gets it or not; where it went is told
by the run that it is in there. So there is no reason of its own for that: 8 was meant for it, and is not written.
"""

from __future__ import annotations

from enum import IntEnum


class DequeueReason(IntEnum):
    ACKED = 1  # a consumer has done with it
    EXPIRED = 2  # its time, or its queue's, had come
    OVER_LIMIT = 3  # the queue was full, and it stood at the head
    REJECTED = 4  # a consumer did not want it
    PURGED = 5  # somebody emptied the queue
    QUEUE_DELETED = 6
    MOVED = 7  # to another queue, by hand
    TRANSACTION = 9  # by the outcome of a transaction
    DELIVERY_LIMIT = 10  # it was given back too often
