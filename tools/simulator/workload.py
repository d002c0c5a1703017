"""Workloads as plain text: one operation per line, to be saved, replayed, and shrunk by hand.

    store channels=2 buffers=10          how the store is set up; must be the first line, may be left out
    a begin 1 0                          client a begins session 1 on channel 0
    b begin 2 1                          client b does so beside it
    a put 1 7 k3 s1.0*900                session 1 puts into storage 7 the key k3; the value is "s1.0" over 900 bytes
    a many 1 7 k s1.1 20                 … and the keys k.0 to k.19 with the values s1.1.0 to s1.1.19, as columns
    a end 1
    b put 2 7 k4 s2.0
    b commit 2                           end and wait
    a stream 3 own                       a session on the stream `own`, which has a channel of its own; `shared` has not
    a record 3 s3.0
    a commit 3
    a base 3                             the stream's base moves up to this session's first record
    . advance 150                        all clients: first they finish their lines; then 150 ms pass
    a rotate                             likewise: compact, purge; link: hard links of all sealed files are made
    . kill                               the process dies; its page cache stays; it is started again
    . power-cut reordered 7              … or only what the disk happened to have (`memory_crash`, seed 7)
    . decay 7                            … or it dies, and one bit flips in a block of the durable log
    . fail io-error sync *pwal_* clean 1 from here on operations fail (`testing.faults`)
    # a remark

Lines of one client run in order. Lines of different clients run beside each other, as the seed of the threads has it,
up to the next line of `.`, which is done when all clients are done. A client may also have `kill`: then the process
dies while the other clients work.

Invariants: `parse(text(script)) == script`. Every session has at least one put, and no two puts of a script have the
same value, so that a value read back identifies its session. Scripts come from seeds in `workload_shapes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from warren.base.errors import Misuse

ALL_CLIENTS = "."

# verb → its arguments. Verbs of a client and verbs of all clients; `kill` is both.
CLIENT_VERBS: dict[str, tuple[str, ...]] = {
    "begin": ("session", "channel"),
    "stream": ("session", "name"),
    "put": ("session", "storage", "key", "value"),
    "many": ("session", "storage", "key", "value", "times"),
    "record": ("session", "value"),
    "base": ("session",),
    "remove": ("session", "storage", "key"),
    "clear": ("session", "storage"),
    "end": ("session",),
    "wait": ("session",),
    "commit": ("session",),
    "abort": ("session",),
    "flush": (),
    "rotate": (),
    "compact": (),
    "purge": (),
    "link": (),
    "kill": (),
}
EVERYBODYS_VERBS: dict[str, tuple[str, ...]] = {
    "advance": ("milliseconds",),
    "check": (),
    "reopen": (),
    "kill": (),
    "power-cut": ("model", "chance"),
    "decay": ("chance",),
    "fail": ("kind", "operation", "path", "pages", "times"),
}
LIFE_ENDS = ("reopen", "kill", "power-cut", "decay")  # behind these lines a new process opens the store
NUMBERS = ("session", "channel", "storage", "milliseconds", "chance", "times")


@dataclass(frozen=True, slots=True)
class ScriptOperation:
    client: str
    verb: str
    arguments: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.client, self.verb, *self.arguments))

    def number(self, index: int) -> int:
        return int(self.arguments[index])


@dataclass(frozen=True, slots=True)
class Script:
    operations: tuple[ScriptOperation, ...]
    settings: dict[str, int] = field(default_factory=dict)

    def processes(self) -> Iterator[list[ScriptOperation]]:
        """The operations of each process, the line which ends it included."""
        life: list[ScriptOperation] = []
        for operation in self.operations:
            life.append(operation)
            if operation.client == ALL_CLIENTS and operation.verb in LIFE_ENDS:
                yield life
                life = []
        if life:
            yield life


def phases(operations: list[ScriptOperation]) -> Iterator[tuple[bool, list[ScriptOperation]]]:
    """Runs of lines of clients, and runs of lines of all clients (True)."""
    for is_everybodys, group in groupby(operations, lambda operation: operation.client == ALL_CLIENTS):
        yield is_everybodys, list(group)


def text(script: Script) -> str:
    head = ["store " + " ".join(f"{name}={value}" for name, value in script.settings.items())]
    return "\n".join([*(head if script.settings else []), *map(str, script.operations)]) + "\n"


def parse(source: str) -> Script:
    settings: dict[str, int] = {}
    operations: list[ScriptOperation] = []
    for number, line in enumerate(source.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if words[0] == "store" and not operations:
            settings |= _settings(words[1:], number)
        else:
            operations.append(_operation(words, number))
    return Script(tuple(operations), settings)


def value_bytes(value: str) -> bytes:
    """`s1.0*900` is "s1.0" over and over, 900 bytes of it."""
    word, star, size = value.partition("*")
    raw = word.encode()
    return (raw * (int(size) // len(raw) + 1))[: int(size)] if star else raw


def _settings(words: list[str], number: int) -> dict[str, int]:
    pairs = [word.partition("=") for word in words]
    if bad := [name for name, _, value in pairs if not value.lstrip("-").isdecimal()]:
        raise Misuse(f"line {number}: the setting {bad[0]} needs a number", "write it as name=number")
    return {name: int(value) for name, _, value in pairs}


def _operation(words: list[str], number: int) -> ScriptOperation:
    client, *rest = words
    verbs = EVERYBODYS_VERBS if client == ALL_CLIENTS else CLIENT_VERBS
    if not rest or rest[0] not in verbs:
        raise Misuse(f"line {number}: {' '.join(words)!r} is no operation", f"a verb is one of {', '.join(verbs)}")
    verb, *arguments = rest
    wanted = verbs[verb]
    if len(arguments) != len(wanted):
        raise Misuse(f"line {number}: {verb} has {len(arguments)} arguments", f"it takes {' '.join(wanted) or 'none'}")
    for name, argument in zip(wanted, arguments, strict=True):
        if name in NUMBERS and not argument.isdecimal():
            raise Misuse(f"line {number}: {name} {argument!r} is not a number")
    return ScriptOperation(client, verb, tuple(arguments))
