"""A real SQL database and a real log under `kill -9`: at any moment, what was answered is in both, and whole."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.catalog.catalog_stage import check
from tests.catalog.catalog_to_be_killed import opened, reached
from tests.catalog.postgres_server import PostgresServer
from tests.lives import Lives
from tests.snapshot.snapshot_store_suite import QUICK_PLACE


class Killing:
    """Lives of one catalog, each ended at a random moment."""

    def __init__(self, directory: Path, seed: int, connect: str = "") -> None:
        self._directory = str(directory / "db")
        self._connect = connect
        self._rng = random.Random(seed)
        self.reached = 0
        self.lives = Lives("tests.catalog.catalog_to_be_killed", self._directory, connect)

    def one_life(self, loses_sql: bool = False) -> None:
        answers = self.lives.one(self._rng.choice([0.05, 0.2, 0.4]) * self._rng.random())
        if loses_sql:
            for path in Path(self._directory).glob("catalog/*"):
                path.unlink()
        self._check(max([self.reached, *(number for _, number in answers)]))

    def _check(self, answered: int) -> None:
        database, catalog = opened(self._directory, self._connect)
        try:
            assert not catalog.problems
            assert not database.problems
            check(catalog, database)
            assert answered <= reached(catalog) <= answered + 1, (
                "what was answered is there, and at most one change more"
            )
            self.reached = reached(catalog)
        finally:
            catalog.close()
            database.close()


def killed(times: int, seed: int, connect: str = "") -> Killing:
    with TemporaryDirectory(dir=QUICK_PLACE) as place:
        killing = Killing(Path(place), seed, connect)
        try:
            lives = 0
            while lives < times or killing.reached < times:
                killing.one_life(loses_sql=lives % 7 == 6)
                lives += 1
        finally:
            killing.lives.close()
    return killing


def test_a_catalog_killed_twenty_times_holds_what_was_answered() -> None:
    """HS-02, C-21: and now and then SQL's files are gone, too."""
    assert killed(20, seed=1).reached >= 20


def test_a_catalog_in_postgresql_killed_ten_times_holds_what_was_answered(postgres: PostgresServer) -> None:
    """HS-02, C-21: the server survives, and accepts the next connection."""
    assert killed(10, 3, postgres.url(postgres.make_database())).reached >= 10


@pytest.mark.torture
def test_a_catalog_killed_sixty_times_holds_what_was_answered() -> None:
    assert killed(60, seed=2).reached >= 60
