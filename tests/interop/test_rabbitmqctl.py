"""`warren ctl --url` administers a RabbitMQ, and answers as its own commands do (tests/cli/ctl_lines.py)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.ask_rabbitmqctl import RunningRabbitMQ, declare_some, running_rabbitmq
from tests.cli.ctl_lines import LINES, LISTS, NOT_BY_URL
from tests.cli.ctl_stage import CtlStage
from tests.interop.brokers import RABBITMQ, missing

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(RABBITMQ in missing(), reason=missing().get(RABBITMQ, "")),
]


STATISTICS_SECONDS_MAX = 30.0  # RabbitMQ updates the numbers of a queue every five


def wait_for_statistics(stage: CtlStage) -> None:
    end = time.monotonic() + STATISTICS_SECONDS_MAX
    while "orders\t3" not in stage.run("list_queues").out:
        assert time.monotonic() < end, stage.run("list_queues")
        time.sleep(0.2)


@pytest.fixture
def rabbitmq(tmp_path: Path) -> Iterator[RunningRabbitMQ]:
    with running_rabbitmq(tmp_path / "rabbitmq") as found:
        yield found


def test_every_line_is_answered_as_by_rabbitmqctl(
    rabbitmq: RunningRabbitMQ, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = ["--url", f"http://guest:guest@127.0.0.1:{rabbitmq.management_port}"]
    stage = CtlStage(capsys, monkeypatch, target, str(tmp_path), rabbitmq.node, rabbitmq.port)
    first = LINES.index(LISTS[0])
    differences = stage.differences(line for line in LINES[:first] if line.verb not in NOT_BY_URL)
    declare_some(rabbitmq.port)
    wait_for_statistics(stage)
    differences += stage.differences(line for line in LINES[first:] if line.verb not in NOT_BY_URL)
    assert not differences, "\n".join(differences)
