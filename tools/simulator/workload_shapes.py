"""Workloads from seeds: a shape and a seed make a script, the same one every time.

A shape defines what a workload exercises; `ScriptDraft` draws the details from the seed. Keys and storages are few, so
that puts, removes and clears overlap. Some values are larger than a sector or a container, so that writes can be torn
and files must grow.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tools.simulator.workload import ALL_CLIENTS, Script, ScriptOperation
from warren.base.errors import Misuse

KEYS = 5
STORAGES = (1, 2)
SIZES = ("", "", "", "*700", "*1600", "*5000")


class ScriptDraft:
    """A script being written."""

    def __init__(self, seed: str, channels: int, keys_apart: bool = False, sessions: int = 0) -> None:
        self.rng = random.Random(seed)
        self.operations: list[ScriptOperation] = []
        self._channels = channels
        self._keys_apart = keys_apart  # each client has keys of its own
        self._sessions = sessions  # numbers used so far

    def add(self, client: str, verb: str, *arguments: object) -> None:
        self.operations.append(ScriptOperation(client, verb, tuple(map(str, arguments))))

    def all_clients(self, verb: str, *arguments: object) -> None:
        self.add(ALL_CLIENTS, verb, *arguments)

    def open_session(self, client: str) -> int:
        """Begin a session and put something into it."""
        self._sessions += 1
        number = self._sessions
        self.add(client, "begin", number, self.rng.randrange(self._channels))
        self._put(client, number, 0)
        for index in range(1, self.rng.choice((1, 1, 2, 3))):
            match self.rng.randrange(6):
                case 0:
                    self.add(client, "clear", number, self._storage())
                case 1 | 2:
                    self.add(client, "remove", number, self._storage(), self._key(client))
                case _:
                    self._put(client, number, index)
        return number

    def stream_session(self, client: str, name: str, ending: str) -> int:
        self._sessions += 1
        self.add(client, "stream", self._sessions, name)
        for index in range(self.rng.choice((1, 2))):
            self.add(client, "record", self._sessions, f"s{self._sessions}.{index}" + self.rng.choice(SIZES))
        self.add(client, ending, self._sessions)
        return self._sessions

    def session(self, client: str, endings: tuple[str, ...] = ("commit", "commit", "end", "abort")) -> None:
        number = self.open_session(client)
        self.add(client, self.rng.choice(endings), number)

    def sessions(self, clients: str, rounds: int, endings: tuple[str, ...] = ("commit", "commit", "end")) -> None:
        """A few sessions of several clients beside each other."""
        for _ in range(rounds):
            for client in clients:
                self.session(client, endings)

    def _put(self, client: str, number: int, index: int) -> None:
        value = f"s{number}.{index}" + self.rng.choice(SIZES)
        self.add(client, "put", number, self._storage(), self._key(client), value)

    def _storage(self) -> int:
        return self.rng.choice(STORAGES)

    def _key(self, client: str) -> str:
        return (client if self._keys_apart else "k") + str(self.rng.randrange(KEYS))


def append(draft: ScriptDraft) -> None:
    """Several clients on several channels; some wait, some do not, some abort."""
    draft.sessions("abc", 3, ("commit", "end", "end", "abort"))
    draft.add("a", "flush")
    draft.all_clients("advance", 150)
    draft.sessions("ab", 1)


def rotate(draft: ScriptDraft) -> None:
    """Rotations between and beside sessions, one of them open all the while."""
    draft.sessions("ab", 1)
    open_session = draft.open_session("a")
    draft.add("b", "rotate")
    draft.session("b")
    draft.add("a", "commit", open_session)
    draft.all_clients("advance", draft.rng.choice((0, 150)))
    draft.sessions("a", 1)
    draft.add("a", "rotate")
    draft.session("a", ("end",))
    draft.add("b", "rotate")


def recover(draft: ScriptDraft) -> None:
    """Short processes, ended in every way, one after the other."""
    for _ in range(4):
        draft.sessions("ab", 1)
        draft.session("a", ("end", "abort"))
        match draft.rng.randrange(4):
            case 0:
                draft.all_clients("reopen")
            case 1:
                draft.all_clients("kill")
            case 2:
                draft.add("c", "kill")
                draft.all_clients("kill")
            case _:
                model = draft.rng.choice(("all", "synced", "reordered"))
                draft.all_clients("power-cut", model, draft.rng.randrange(1000))
    draft.session("a", ("commit",))


def compact(draft: ScriptDraft) -> None:
    """Compactions, also during sessions, and over the output of an earlier one."""
    draft.sessions("ab", 1)
    draft.add("a", "compact")
    draft.session("b", ("commit",))
    draft.all_clients("check")
    draft.sessions("ab", 1)
    draft.add("b", "compact")
    draft.session("a", ("commit",))


def purge(draft: ScriptDraft) -> None:
    """Compacted files are purged, and nothing of them reappears."""
    draft.sessions("ab", 1, ("commit",))
    draft.add("a", "compact")
    draft.add("a", "purge")
    draft.session("b", ("commit",))
    draft.all_clients("reopen")
    draft.sessions("ab", 1, ("commit",))
    draft.add("a", "compact")
    draft.add("a", "purge")


def recycle(draft: ScriptDraft) -> None:
    """Log files are recycled: not linked ones, and nothing of the first use is read."""
    draft.sessions("ab", 1, ("commit",))
    if draft.rng.random() < 0.5:
        draft.add("a", "rotate")
        draft.add("a", "link")
    for _ in range(2):
        draft.add("a", "compact")
        draft.add("a", "purge")
        draft.add("a", "rotate")
        draft.sessions("ab", 1, ("commit", "end"))
    draft.add("a", "rotate")


def busy(draft: ScriptDraft) -> None:
    """Rotations and compactions beside each other."""
    draft.sessions("ab", 1)
    for _ in range(2):
        for client in "abc":
            draft.session(client)
            draft.add(client, "compact" if client == "a" else "rotate")


def stream(draft: ScriptDraft) -> None:
    """Streams come to be while others write; their bases move up, and what lies before goes."""
    for _ in range(2):
        draft.session("a")
        draft.stream_session("a", "shared", draft.rng.choice(("end", "commit")))
        draft.stream_session("b", "own", draft.rng.choice(("end", "commit")))
        draft.add("a", "rotate")
        draft.add("b", "base", draft.stream_session("b", "own", "commit"))
        draft.add("b", "purge")
    draft.all_clients(draft.rng.choice(("kill", "reopen")))
    draft.add("b", "base", draft.stream_session("b", "own", "commit"))
    draft.add("a", "compact")
    draft.add("a", "purge")


def crowd(draft: ScriptDraft) -> None:
    """Many clients that lead and follow each other; files that grow until they are rotated."""
    draft.sessions("abcd", 3, ("end", "end", "commit"))


def bulk(draft: ScriptDraft) -> None:
    """Sessions of several blocks, more than the buffers hold: the store flushes and throttles writers."""
    for _ in range(2):
        for client in "abc":
            number = draft.open_session(client)
            draft.add(client, "many", number, draft.rng.choice(STORAGES), client, f"s{number}.m", 12)
            draft.add(client, draft.rng.choice(("end", "commit")), number)
    draft.add("a", "compact")


def create(draft: ScriptDraft) -> None:
    """A store that is not there yet."""
    draft.session("a", ("commit",))
    draft.all_clients("reopen")
    draft.session("a", ("commit",))


def failing(draft: ScriptDraft) -> None:
    """A sync or a write fails: nothing of it may be believed, not even by the next process."""
    draft.sessions("ab", 1)
    path = draft.rng.choice(("*pwal_*", "*pwal_*", "*pwal_0000", "*epoch", "*manifest*"))
    kind, operation = draft.rng.choice((*[("io-error", "sync")] * 3, ("short-write", "write"), ("io-error", "*")))
    draft.all_clients("fail", kind, operation, path, draft.rng.choice(("clean", "clean", "dropped", "dirty")), 1)
    draft.sessions("ab", 2)
    if draft.rng.random() < 0.5:
        draft.add("a", "rotate")
    draft.all_clients("kill")
    draft.sessions("a", 2, ("commit",))


def full(draft: ScriptDraft) -> None:
    """The disk is full for a while: writers wait, nothing is lost."""
    draft.sessions("ab", 1)
    operation, path = draft.rng.choice((("allocate", "*"), ("write", "*pwal_*"), ("write", "*"), ("create", "*")))
    draft.all_clients("fail", "no-space", operation, path, "dirty", draft.rng.randrange(1, 6))
    draft.sessions("ab", 1)
    draft.add("a", draft.rng.choice(("rotate", "compact")))
    draft.session("b")


def repair(draft: ScriptDraft) -> None:
    """A durable block decays: the start stops there, and a repair loses that block and no other."""
    draft.sessions("ab", 1)
    if draft.rng.random() < 0.5:
        draft.add("a", "rotate")
    draft.sessions("ab", 1, ("commit",))
    draft.all_clients("advance", 150)
    draft.all_clients("decay", draft.rng.randrange(1000))
    draft.sessions("ab", 1, ("commit",))


SHAPES: dict[str, tuple[Callable[[ScriptDraft], None], dict[str, int]]] = {
    "append": (append, {"channels": 3}),
    "rotate": (rotate, {"channels": 2}),
    "compact": (compact, {"channels": 2}),
    "purge": (purge, {"channels": 2, "snapshot": 1}),
    "recycle": (recycle, {"channels": 2, "recycle": 1}),
    "busy": (busy, {"channels": 2}),
    "recover": (recover, {"channels": 2, "snapshot": 1}),
    "stream": (stream, {"channels": 2}),
    "crowd": (crowd, {"channels": 2, "rotate_bytes": 3000}),
    "bulk": (bulk, {"channels": 2, "buffers": 2, "block": 64, "memory": 3000, "keys_apart": 1}),
    "create": (create, {"channels": 1, "fresh": 1}),
    "failing": (failing, {"channels": 2}),
    "full": (full, {"channels": 2}),
    "repair": (repair, {"channels": 2}),
}


SAVED: dict[str, Script] = {}  # scripts that were read from files, and perhaps shrunk by hand, by their names


def generate(shape: str, seed: int) -> Script:
    if shape in SAVED:
        return SAVED[shape]
    if shape not in SHAPES:
        raise Misuse(f"there is no workload {shape!r}", f"there are {', '.join(SHAPES)}")
    write, settings = SHAPES[shape]
    draft = ScriptDraft(f"{shape} {seed}", settings["channels"], bool(settings.get("keys_apart")))
    write(draft)
    return Script(tuple(draft.operations), {**settings, "seed": seed})
