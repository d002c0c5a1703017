"""A script being written, line by line, as its seed has it.

Keys and storages are few, so that puts, removes and clears meet; values are now and then larger than a sector or a
container, so that writes can be torn and files must grow.
"""

from __future__ import annotations

import random

from tools.simulator.workload import ALL_CLIENTS, ScriptOperation

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

    def say(self, client: str, verb: str, *arguments: object) -> None:
        self.operations.append(ScriptOperation(client, verb, tuple(map(str, arguments))))

    def all_clients(self, verb: str, *arguments: object) -> None:
        self.say(ALL_CLIENTS, verb, *arguments)

    def open_session(self, client: str) -> int:
        """Begin a session and put something into it."""
        self._sessions += 1
        number = self._sessions
        self.say(client, "begin", number, self.rng.randrange(self._channels))
        self._put(client, number, 0)
        for index in range(1, self.rng.choice((1, 1, 2, 3))):
            match self.rng.randrange(6):
                case 0:
                    self.say(client, "clear", number, self._storage())
                case 1 | 2:
                    self.say(client, "remove", number, self._storage(), self._key(client))
                case _:
                    self._put(client, number, index)
        return number

    def stream_session(self, client: str, name: str, ending: str) -> int:
        self._sessions += 1
        self.say(client, "stream", self._sessions, name)
        for index in range(self.rng.choice((1, 2))):
            self.say(client, "record", self._sessions, f"s{self._sessions}.{index}" + self.rng.choice(SIZES))
        self.say(client, ending, self._sessions)
        return self._sessions

    def session(self, client: str, endings: tuple[str, ...] = ("commit", "commit", "end", "abort")) -> None:
        number = self.open_session(client)
        self.say(client, self.rng.choice(endings), number)

    def sessions(self, clients: str, rounds: int, endings: tuple[str, ...] = ("commit", "commit", "end")) -> None:
        """A few sessions of several clients beside each other."""
        for _ in range(rounds):
            for client in clients:
                self.session(client, endings)

    def _put(self, client: str, number: int, index: int) -> None:
        value = f"s{number}.{index}" + self.rng.choice(SIZES)
        self.say(client, "put", number, self._storage(), self._key(client), value)

    def _storage(self) -> int:
        return self.rng.choice(STORAGES)

    def _key(self, client: str) -> str:
        return (client if self._keys_apart else "k") + str(self.rng.randrange(KEYS))
