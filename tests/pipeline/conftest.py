"""One Spark session for all tests of this package, started when the first asks for it. Without PySpark (`make setup`
alone) none of them is collected; `make setup-spark` brings it.

`spark` is the session, `kind` the word for where it runs: `local` unless WARREN_SPARK says otherwise, see spark_kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.pipeline.spark_kinds import Place

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py", "core/test_*.py"]


@pytest.fixture(scope="session")
def kind() -> str:
    from tests.pipeline.spark_kinds import chosen_kind

    return chosen_kind()


@pytest.fixture(scope="session")
def place(kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    from tests.pipeline.spark_kinds import spark_place

    with spark_place(kind, tmp_path_factory.mktemp("spark")) as place:
        yield place


@pytest.fixture(scope="session")
def spark(place: Place) -> Iterator[Any]:
    from tests.pipeline.spark_kinds import session_at

    session = session_at(place)
    yield session
    session.stop()
