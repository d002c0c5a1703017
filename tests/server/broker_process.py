"""`warren serve` as a process: started on ports of its own, killed or stopped, started again on the same directory."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO

START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0


class BrokerProcess:
    def __init__(self, directory: Path | str, *options: str, env: dict[str, str] | None = None) -> None:
        self.directory = str(directory)
        self.port = self.amqps_port = self.management_port = self.management_tls_port = self.prometheus_port = 0
        self._options = options
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        self._process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        """On the port it had before, if it had one."""
        line = [sys.executable, "-m", "warren.cli.main", "serve", "--data-dir", self.directory]
        line += ["--port", str(self.port), "--prometheus-port", "0", *self._options]
        if "--management-ssl-port" not in self._options:
            line += ["--management-port", "0"]
        Path(self.directory).parent.mkdir(parents=True, exist_ok=True)
        with Path(self._log).open("ab") as log:
            process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=log, text=True, env=self._env)
        self._process = process
        lines: queue.Queue[str] = queue.Queue()
        assert process.stdout is not None
        threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
        while not (output := self._line(lines)).startswith("ready"):
            kind, _, where = output.strip().partition(" ")
            number = int(where.removesuffix("/metrics").rpartition(":")[2])
            kind = "management_tls" if where.startswith("https:") else kind
            setattr(self, {"amqp": "port"}.get(kind, f"{kind}_port"), number)

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None
        return self._process

    @property
    def log(self) -> str:
        return Path(self._log).read_text()

    @property
    def _log(self) -> str:
        return f"{self.directory}.log"

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(STOP_SECONDS_MAX)

    def stop(self) -> int:
        """Orderly; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS_MAX)

    def __enter__(self) -> BrokerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def _line(self, lines: queue.Queue[str]) -> str:
        try:
            output = lines.get(timeout=START_SECONDS_MAX)
        except queue.Empty:
            output = ""
        if not output:
            self.kill()
            raise RuntimeError(f"warren serve does not start:\n{self.log}")
        return output


def _read_lines(pipe: IO[str], lines: queue.Queue[str]) -> None:
    """Read to the end, so that the writer never blocks; an empty line marks the end."""
    with pipe:
        for line in pipe:
            lines.put(line)
    lines.put("")
