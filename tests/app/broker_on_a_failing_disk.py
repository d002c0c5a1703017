"""A broker whose disk fails as soon as it is ready: `python -m tests.app.broker_on_a_failing_disk DIRECTORY`.

A background write follows, for which no caller in the event loop waits, and its sync fails. The test checks how the
process ends.
"""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from dataclasses import replace

from warren.app.broker import open_broker
from warren.app.event_log import begin
from warren.app.lifecycle import run
from warren.base.errors import WarrenError
from warren.catalog import vhosts
from warren.cli.main import exit_code
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.testing.faulty_files import Fault, FaultKind, FaultyFiles


def main(directory: str) -> int:
    failing = Fault(FaultKind.IO_ERROR, "sync", times=None, is_armed=False)
    environment = Environment.real()
    environment = replace(environment, files=FaultyFiles(environment.files, [failing]))
    ports = OptionValues(data_dir=directory, port=0, management_port=0, prometheus_port=0)
    configuration = configuration_of(environment.files, ports, {})
    begin(configuration.log_to)
    broker = open_broker(configuration, environment=environment)

    def fail() -> None:
        failing.is_armed = True
        with suppress(WarrenError):
            broker.catalog.change(lambda change: vhosts.declare(change, "another"))

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        if line.startswith("ready"):
            threading.Thread(target=fail, daemon=True).start()

    try:
        run(broker, say, 0)
    except WarrenError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
