"""The limit on open files of this process: each client is one, and so is each file of the log and of the store.

Many systems start processes with a soft limit of 1,024 and a hard limit that is far higher. The broker raises the soft
limit to the hard one, and logs if that leaves less than it needs.
"""

from __future__ import annotations

import logging
import resource
from typing import Final

_LOG = logging.getLogger(__name__)
FILES_MIN: Final = 1024  # for files, and for clients that have logged in
UNLIMITED_FILES: Final = 1 << 20  # what Linux grants if the hard limit is unlimited (fs.nr_open)


def raise_limit(half_open_max: int) -> int:
    """The limit afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = UNLIMITED_FILES if hard == resource.RLIM_INFINITY else hard
    if soft not in (wanted, resource.RLIM_INFINITY):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            facts = {"soft": soft, "hard": hard, "why": error}
            _LOG.warning("limit on open files not raised", extra={"facts": facts})
    needed = half_open_max + FILES_MIN
    if soft != resource.RLIM_INFINITY and soft < needed:
        hint = "raise the hard limit (ulimit -Hn, LimitNOFILE=), or lower half_open_max"
        _LOG.warning("limit on open files too low", extra={"facts": {"limit": soft, "needed": needed, "hint": hint}})
    return soft
