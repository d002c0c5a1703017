"""The end of the machine, as seen from inside it: no operation returns any more.

It is a BaseException, so that no `except Exception` of the product mistakes it for an error it may handle. Raised by
`faulty_files` at the step it was told, and by `stepped_threads` in every other thread, at its next seam point.
"""

from __future__ import annotations


class PowerCut(BaseException):
    """The power is gone. Only a test may catch this."""
