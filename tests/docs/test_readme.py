"""What the README says can be typed as it stands: its examples, line by line, against `warren serve`.

Only the address is another one, since a test listens at a free port.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source_tree import ROOT
from tests.interop import brokers
from tests.interop.brokers import Broker

ADDRESS = "localhost:5672"
SECONDS_MAX = 60
PIKA_LINES_MAX, CELERY_LINES_MAX = 12, 8
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    started = brokers.start(brokers.WARREN, tmp_path_factory.mktemp("broker"))
    yield started
    started.stop()


def example(client: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (found,) = (block for block in blocks if re.match(rf"(import|from) {client}\b", block))
    assert ADDRESS in found
    return str(found)


def here(lines: str, broker: Broker) -> str:
    return lines.replace(ADDRESS, f"{broker.host}:{broker.port}")


def test_make_run_serves_at_the_address_of_the_examples() -> None:
    assert re.search(r"^make run +#.*localhost:5672$", README, re.MULTILINE)
    dry = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "run"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    *_, last = dry.splitlines()
    assert last.split() == [".venv/bin/warren", "serve", "--data-dir", "data"], "no other port is asked for"


def test_every_target_that_the_readme_names_is_there() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", README, re.MULTILINE))
    assert named >= {"run", "test", "simulate", "mutants", "torture"}
    subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *sorted(named)], cwd=ROOT, capture_output=True, check=True
    )


@pytest.mark.slow
def test_the_pika_example_publishes_and_reads_back(broker: Broker, tmp_path: Path) -> None:
    lines = example("pika")
    assert len(lines.splitlines()) <= PIKA_LINES_MAX
    line = [sys.executable, "-c", here(lines, broker)]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "b'resize 7'\n", "")


@pytest.mark.slow
def test_the_celery_example_gets_its_result_from_a_worker(broker: Broker, tmp_path: Path) -> None:
    lines = example("celery")
    assert len(lines.splitlines()) <= CELERY_LINES_MAX
    (tmp_path / "tasks.py").write_text(here(lines, broker))
    (command,) = re.findall(r"`celery (-A tasks worker)`", README)
    (call,) = re.findall(r"`(add\.delay\(2, 2\)\.get\(\))`", README)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", *command.split()], cwd=tmp_path, stderr=log, stdout=log
        )
    try:
        asking = [sys.executable, "-c", f"from tasks import add\nprint({call})"]
        done = subprocess.run(asking, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    finally:
        worker.terminate()
        worker.wait(SECONDS_MAX)
    assert (done.returncode, done.stdout) == (0, "4\n"), (done.stderr, (tmp_path / "worker.log").read_text())
