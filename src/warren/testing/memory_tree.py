"""Names to inodes on the memory disk: every operation on names, as POSIX has it.

Raises the system's own errors (OSError with its number); `memory_files` translates them. Each operation is one numbered
change in one directory or, for a rename across directories, one change with a share in both.
"""

from __future__ import annotations

import errno

from warren.testing.memory_inode import DirectoryNode, FileNode, Node


class Tree:
    """A root directory and what can be reached from it."""

    __slots__ = ("inodes", "operations", "root")

    def __init__(self, root: DirectoryNode | None = None, inodes: int = 1) -> None:
        self.root = root or DirectoryNode(1)
        self.inodes = inodes  # numbers given out so far; none is used again, also not after a crash
        self.operations = 0

    def find(self, path: str) -> Node:
        node: Node = self.root
        for name in _names(path):
            entries = _as_directory(node).entries
            if name not in entries:
                raise FileNotFoundError(errno.ENOENT, "no such file")
            node = entries[name]
        return node

    def file(self, path: str) -> FileNode:
        node = self.find(path)
        if isinstance(node, DirectoryNode):
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        return node

    def directory(self, path: str) -> DirectoryNode:
        return _as_directory(self.find(path))

    def create(self, path: str) -> FileNode:
        node = FileNode(self._next_inode())
        self._enter(path, node)
        return node

    def make_directories(self, path: str, is_read_only: bool) -> None:
        at = self.root
        for name in _names(path):
            node = at.entries.get(name)
            if node is None:
                if is_read_only:
                    raise OSError(errno.EROFS, "read-only")
                node = DirectoryNode(self._next_inode())
                at.change(self._next_operation(), (name, node))
                at.sync()
            at = _as_directory(node)

    def rename(self, old: str, new: str) -> FileNode | None:
        """Returns the file that lost its name to the new one."""
        node = self.find(old)
        source, source_name = self._place(old)
        target, target_name = self._place(new)
        replaced = target.entries.get(target_name)
        if replaced is node:
            return None  # two names of one file: POSIX does nothing, and so do we
        if isinstance(node, DirectoryNode) and _names(new)[: len(_names(old))] == _names(old):
            raise OSError(errno.EINVAL, "into itself")
        _may_replace(node, replaced)
        operation = self._next_operation()
        if source is target:
            source.change(operation, (source_name, None), (target_name, node))
        else:
            source.change(operation, (source_name, None))
            target.change(operation, (target_name, node))
        return _unlinked(replaced)

    def link(self, old: str, new: str) -> None:
        self._enter(new, self.find(old))

    def remove(self, path: str) -> FileNode:
        node = self.file(path)
        place, name = self._place(path)
        place.change(self._next_operation(), (name, None))
        _unlinked(node)
        return node

    def remove_directory(self, path: str) -> None:
        if self.directory(path).entries:
            raise OSError(errno.ENOTEMPTY, "not empty")
        place, name = self._place(path)
        place.change(self._next_operation(), (name, None))

    def _enter(self, path: str, node: Node) -> None:
        place, name = self._place(path)
        if name in place.entries:
            raise FileExistsError(errno.EEXIST, "exists")
        if isinstance(node, DirectoryNode):
            raise OSError(errno.EPERM, "a directory has one name")
        place.change(self._next_operation(), (name, node))
        node.links += 1

    def _place(self, path: str) -> tuple[DirectoryNode, str]:
        names = _names(path)
        if not names:
            raise OSError(errno.EBUSY, "the root")
        return self.directory("/".join(names[:-1])), names[-1]

    def _next_inode(self) -> int:
        self.inodes += 1
        return self.inodes

    def _next_operation(self) -> int:
        self.operations += 1
        return self.operations


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _as_directory(node: Node) -> DirectoryNode:
    if isinstance(node, FileNode):
        raise NotADirectoryError(errno.ENOTDIR, "is a file")
    return node


def _may_replace(node: Node, replaced: Node | None) -> None:
    if isinstance(replaced, DirectoryNode):
        if isinstance(node, FileNode):
            raise OSError(errno.EISDIR, "a file over a directory")
        if replaced.entries:
            raise OSError(errno.ENOTEMPTY, "a directory over one that is not empty")
    elif isinstance(replaced, FileNode) and isinstance(node, DirectoryNode):
        raise OSError(errno.ENOTDIR, "a directory over a file")


def _unlinked(node: Node | None) -> FileNode | None:
    if not isinstance(node, FileNode):
        return None
    node.links -= 1
    return node
