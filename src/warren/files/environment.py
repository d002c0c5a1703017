"""The environment of a store: files, clock, threads and random numbers, and the registry of its background tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from warren.base.environment import Clock, Random, SystemClock, SystemRandom
from warren.base.threads import Background, SystemThreads, Threads
from warren.files.local import LocalFiles
from warren.files.protocol import Files


@dataclass(frozen=True, slots=True)
class Environment:
    files: Files
    clock: Clock
    threads: Threads
    rng: Random
    background: Background = field(default_factory=Background)

    @classmethod
    def real(cls) -> Environment:
        return cls(LocalFiles(), SystemClock(), SystemThreads(), SystemRandom())
