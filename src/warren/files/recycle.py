"""Recycled files (CL-07): a file that is no longer needed becomes the next new one, with its blocks already allocated.

    offer   log/000017.log  → rename →  recycle/000003     if it is free and has no other name
    take    recycle/000003  → rename →  log/000042.log     its old bytes stay in it

Writing over allocated blocks is cheaper than growing a file: no zeros to write, no size to sync. The price is that the
new file is full of its earlier life. The reader tells them apart, since every block names the incarnation it belongs
to; so nothing is zeroed here. It is an option, off by default.

Always true: what is handed out has one name, its own. A file with a second name (a backup's link), or one that the
caller's predicate does not call free (pinned, retained, ever handed out to a reader), is never accepted. The count of
names is looked at again when it is taken, since a link may have been made meanwhile.

What a power cut leaves: a rename between two directories may leave both names or neither. Neither costs a free file.
Both means that the pool's name leads to a file in use: its link count is 2, so it is dropped from the pool on opening,
and by `take`. The old name may also come back, and lead to the new life's bytes; therefore a file is offered only when
the manifest, durably, no longer names it. Then no sync is needed here: `offer` and `take` sync nothing, and the caller
syncs the directory of the new file as it would after `create`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from warren.base.errors import Refused
from warren.files.protocol import File, Files, join


class RecyclePool:
    """Free files waiting in a directory of their own. Belongs to the holder of the directory lock."""

    def __init__(self, files: Files, directory: str, is_free: Callable[[str], bool], count_max: int = 4) -> None:
        """`is_free(path)` says whether nobody needs, retains, pins or was ever given the file."""
        self._files = files
        self._directory = directory
        self._is_free = is_free
        self._count_max = count_max
        files.make_directories(directory)
        self._names = deque(files.list(directory))
        self._next_number = max((int(name) for name in self._names if name.isdecimal()), default=0) + 1
        for _ in range(len(self._names)):
            name = self._names.popleft()
            if self._is_sole_name(name):
                self._names.append(name)

    def __len__(self) -> int:
        return len(self._names)

    def offer(self, path: str) -> bool:
        """Take the file out of its directory and keep it; False means "no, remove it yourself"."""
        if len(self._names) >= self._count_max or not self._is_free(path):
            return False
        found = self._files.stat(path)
        if found.links != 1 or found.is_directory:
            return False
        name = f"{self._next_number:06d}"
        self._next_number += 1
        self._files.rename(path, join(self._directory, name))
        self._names.append(name)
        return True

    def take(self, new_path: str) -> File | None:
        """A file under `new_path` with stale bytes in it, open for writing; None if the pool is empty."""
        if self._files.exists(new_path):
            raise Refused(f"cannot recycle a file as {new_path}: the name is taken")
        while self._names:
            name = self._names.popleft()
            if self._is_sole_name(name):
                self._files.rename(join(self._directory, name), new_path)
                return self._files.open(new_path, writable=True)
        return None

    def _is_sole_name(self, name: str) -> bool:
        """Drop the pool's name of a file that has another one: somebody holds on to it."""
        path = join(self._directory, name)
        if self._files.stat(path).links == 1:
            return True
        self._files.remove(path)
        return False
