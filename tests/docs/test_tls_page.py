"""The commands of docs/tls.md run as they stand; only ports differ, since a test listens at free ones."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

from tests.house.source_tree import DOCS
from tests.server.broker_process import BrokerProcess

PAGE = (DOCS / "tls.md").read_text(encoding="utf-8")
SECONDS_MAX = 60


def blocks(language: str) -> list[str]:
    return [str(block) for block in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)]


CERTIFICATES, SERVE, WHOAMI, RELOAD, EXPIRY = blocks("sh")
SETTINGS, LOGINS = blocks("ini")
PLAIN, EXTERNAL = blocks("python")


def run(command: list[str], directory: Path) -> str:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def shell(lines: str, directory: Path) -> str:
    return run(["sh", "-e", "-c", lines], directory)


def started(directory: Path, settings: str) -> BrokerProcess:
    """A broker with the settings of the page; paths in them are relative to the directory."""
    assert SERVE.split() == ["warren", "serve", "--config", "rabbitmq.conf"]
    shell(CERTIFICATES, directory)
    settings = settings.replace("= 5671", "= 127.0.0.1:0").replace("= 15671", "= 0")
    conf = directory / "rabbitmq.conf"
    conf.write_text(re.sub(r"= (\w+\.(?:pem|key))", rf"= {directory}/\1", settings))
    pid_file = directory / "warren.pid"
    options = "--config", str(conf), "--pid-file", str(pid_file), "--management-ssl-port", "0"
    return BrokerProcess(directory / "data", *options)


def here(text: str, broker: BrokerProcess) -> str:
    text = text.replace("localhost:15671", f"localhost:{broker.management_tls_port}")
    return text.replace('"localhost", 5671', f'"localhost", {broker.amqps_port}')


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    with started(tmp_path, SETTINGS) as broker:
        assert run([sys.executable, "-c", here(PLAIN, broker)], tmp_path) == "b'over TLS'\n"
        assert '"name":"guest"' in shell(here(WHOAMI, broker), tmp_path)
        assert '"status":"ok"' in shell(here(EXPIRY, broker), tmp_path)
        shell(CERTIFICATES, tmp_path)
        shell(RELOAD, tmp_path)
        until = time.monotonic() + SECONDS_MAX
        while broker.log.count("certificates reloaded") < 2:  # of AMQP and of HTTP
            assert time.monotonic() < until
            time.sleep(0.02)
        assert '"name":"guest"' in shell(here(WHOAMI, broker), tmp_path)


def test_a_client_logs_in_by_its_certificate_as_the_page_says(tmp_path: Path) -> None:
    with started(tmp_path, SETTINGS + LOGINS) as broker:
        assert run([sys.executable, "-c", here(EXTERNAL, broker)], tmp_path) == "True\n"
