"""A broker in which something breaks as soon as it is ready: `python -m tests.chaos.broker_to_break DIRECTORY WHAT`.

    witness    the witness half of the background commit
    lead       the commit that the background thread leads
    wait       the wait of the thread that sends confirms
    confirm    the loop's side of a confirm
    watching   the task that watches the log for its failure

The first call raises ValueError. How the process ends is what the test is about.
"""

from __future__ import annotations

import sys
from typing import Any

from tests.chaos.stage import DEFECT
from warren.app import lifecycle
from warren.app.broker import Broker, open_broker
from warren.app.event_log import begin
from warren.base.errors import WarrenError
from warren.cli.main import exit_code
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.environment import Environment
from warren.server.vhost_loop import VhostLoop


def fail(*arguments: Any, **named: Any) -> Any:
    raise ValueError(DEFECT)


def break_it(broker: Broker, what: str) -> None:
    commit = broker.database.log.commit
    owner, name = {
        "witness": (commit._hooks, "witness"),
        "lead": (commit, "_lead_once"),
        "wait": (broker._queues.confirms, "_wait"),
        "confirm": (VhostLoop, "_confirm"),
        "watching": (lifecycle.LoopCallbacks, "clear_if_quiet"),
    }[what]
    setattr(owner, name, fail)


def main(directory: str, what: str) -> int:
    environment = Environment.real()
    ports = OptionValues(data_dir=directory, port=0, management_port=0, prometheus_port=0)
    configuration = configuration_of(environment.files, ports, {})
    begin(configuration.log_to)
    broker = open_broker(configuration, environment=environment)

    def say(line: str) -> None:
        if line.startswith("ready"):
            break_it(broker, what)
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    try:
        lifecycle.run(broker, say, 0)
    except WarrenError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
