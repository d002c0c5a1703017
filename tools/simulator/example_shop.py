"""Example data: ten minutes of a small shop as a log, the same on every machine.

    storage 1   stock     300 articles, counted down with every order, filled up now and then      overwritten often
    storage 2   carts     come, change and go; all are cleared in the seventh minute                 many removes
    storage 3   orders    one more at a time, never changed                                          only grows

An epoch is a second of simulated time. Used by `docs/notebook.md` only.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from warren.base.ids import StorageId
from warren.base.threads import SystemThreads
from warren.files.environment import Environment
from warren.files.local import LocalFiles
from warren.log.session import Session
from warren.log.settings import LogSettings
from warren.log.store import LogStore
from warren.testing.fakes import ManualClock, SeededRandom

STOCK, CARTS, ORDERS = StorageId(1), StorageId(2), StorageId(3)
OPENS = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SECONDS = 600
CLEARED_AT = 420
ROTATED_EVERY = 150
ARTICLES = 300


def make_shop(directory: str, seconds: int = SECONDS, seed: int = 7) -> None:
    """Make a store in a directory that has none, and stop it."""
    clock = ManualClock(int(OPENS.timestamp()) * 10**9)
    environment = Environment(LocalFiles(), clock, SystemThreads(), SeededRandom(seed))
    settings = replace(LogSettings(), use_worker_process=False, compaction_garbage_ratio=0.0)
    shop = _Shop(random.Random(seed))
    with LogStore.open(directory, settings, environment) as store:
        for second in range(seconds):
            clock.advance_ns(10**9)
            with store.begin() as session:
                shop.run_second(session, second)
            if second % ROTATED_EVERY == ROTATED_EVERY - 1:
                store.rotate()


@dataclass(slots=True)
class _Shop:
    rng: random.Random
    carts: dict[int, int] = field(default_factory=dict)  # articles in each
    carts_ever: int = 0
    orders_ever: int = 0

    def run_second(self, session: Session, second: int) -> None:
        """One second."""
        if second == 0:
            for article in range(ARTICLES):
                self._count(session, article)
        if second == CLEARED_AT:
            session.clear_storage(CARTS)
            self.carts.clear()
            return
        for _ in range(self.rng.randint(1, 4 if second < SECONDS // 2 else 8)):
            self._take(session)
        for cart in [cart for cart in self.carts if self.rng.random() < 0.02]:
            self._leave(session, cart)
        if second % 30 == 29:
            for article in self.rng.sample(range(ARTICLES), 40):
                self._count(session, article)

    def _take(self, session: Session) -> None:
        """A new cart, or one more article in an existing one."""
        is_new = not self.carts or self.rng.random() < 0.5
        cart = self.carts_ever if is_new else self.rng.choice(list(self.carts))
        self.carts_ever += is_new
        self.carts[cart] = self.carts.get(cart, 0) + 1
        session.put(CARTS, b"cart-%06d" % cart, b"article," * self.carts[cart])

    def _leave(self, session: Session, cart: int) -> None:
        """Remove a cart, with an order or without."""
        count = self.carts.pop(cart)
        session.remove(CARTS, b"cart-%06d" % cart)
        if self.rng.random() < 0.6:
            session.put(ORDERS, b"order-%06d" % self.orders_ever, b"paid,sent,%d articles;" % count * 4)
            self.orders_ever += 1
            for _ in range(count):
                self._count(session, self.rng.randrange(ARTICLES))

    def _count(self, session: Session, article: int) -> None:
        session.put(STOCK, b"article-%04d" % article, b"%5d on the shelf" % self.rng.randint(0, 99))
