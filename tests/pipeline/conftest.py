"""One Spark session for all tests of this package, started when the first asks for it. Without PySpark (`make setup`
alone) none of them is collected; `make setup-spark` brings it."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("pyspark") is None:
    collect_ignore_glob = ["test_*.py"]

QUICK_TO_START = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.task.maxFailures": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from warren.pipeline.session import spark_session

    session = spark_session("local[2]", config=QUICK_TO_START)
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
