"""Memory of a process and its descendants, sampled from outside while a workload runs.

*Anonymous* memory is what they allocated. The *resident set* also counts pages of mapped files, which the kernel keeps
as long as memory is free; pages that two of them share count twice. Of each the highest sum that was seen:
a process that lives shorter than the time between two looks may be missed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tools.bench.process_tree import status_mib, tree_of
from warren.base.threads import SystemThreads, repeatedly

_POLL_SECONDS = 0.02


@dataclass(slots=True)
class TreePeak:
    """In MiB."""

    pid: int
    anonymous: float = 0.0
    resident: float = 0.0
    own: float = 0.0  # resident, of the process itself without the others …
    own_anonymous: float = 0.0  # … and what it allocated of that

    def look(self) -> None:
        pids = [process.pid for process in tree_of(self.pid)]
        self.anonymous = max(self.anonymous, sum(status_mib(pid, "RssAnon") for pid in pids))
        resident = {pid: status_mib(pid, "VmRSS") for pid in pids}
        self.resident = max(self.resident, sum(resident.values()))
        self.own = max(self.own, resident.get(self.pid, 0.0))
        self.own_anonymous = max(self.own_anonymous, status_mib(self.pid, "RssAnon"))


@contextmanager
def watched_tree(pid: int) -> Iterator[TreePeak]:
    peak = TreePeak(pid)
    peak.look()
    with repeatedly(SystemThreads(), "memory-watch", _POLL_SECONDS, peak.look):
        yield peak
    peak.look()  # on a busy machine there may have been no poll
