"""`warren serve`: the broker. Prints its addresses and `ready` on standard output, then serves until SIGTERM or SIGINT.

Its flags are those of the table in `config.options`.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from typing import Any

import typer

from warren.cli.output import Bar
from warren.config.options import GROUPS, Option, OptionValues, read_flags

INTERRUPTED = 130
STUCK = 1
_PERCENT = 100


def serve(**flags: str | bool | None) -> None:
    """Run the broker: AMQP 0-9-1, the management API, metrics.

    Every option is also a variable (WARREN_ROTATE_BYTES) and a key of rabbitmq.conf (rotate_bytes). The command line
    takes precedence, then the environment, then the file.
    """
    values = read_flags(flags)
    try:
        _open_and_run(values)
    except KeyboardInterrupt:  # during the start: everything durable is there at the next one
        raise typer.Exit(INTERRUPTED) from None


def _parameter(option: Option, group: str) -> inspect.Parameter:
    default = f" Default: {option.default}." if option.default and not option.is_switch else ""
    declared = typer.Option(
        False if option.is_switch else None,
        option.flag,
        metavar=None if option.is_switch else option.parse.metavar,
        help=option.help + default,
        show_default=False,
        rich_help_panel=group,
    )
    kind: Any = bool if option.is_switch else str | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=kind)


_PARAMETERS = [_parameter(each, group.title) for group in GROUPS for each in group.options if each.has_flag]
# Typer reads the flags of a command from the signature of its function.
vars(serve).update(__signature__=inspect.Signature(_PARAMETERS))
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _PARAMETERS}


def _open_and_run(values: OptionValues) -> None:
    from warren.app.broker import open_with_room
    from warren.app.event_log import begin
    from warren.app.lifecycle import run
    from warren.base.build import mode
    from warren.config.configuration import configuration_of
    from warren.files.environment import Environment

    environment = Environment.real()
    began_ns = environment.clock.monotonic_ns()
    configuration = configuration_of(environment.files, values, os.environ)
    begin(configuration.log_to)
    log = logging.getLogger(__name__)
    for warning in configuration.warnings:
        log.warning(warning)
    log.info("kernels: %s", mode(), extra={"facts": {"directory": configuration.places.directory, "pid": os.getpid()}})
    with Bar("recovering", _PERCENT, "percent") as bar:
        broker = open_with_room(configuration, lambda share: bar.reach(round(share * _PERCENT)), environment)
    for problem in broker.problems:
        log.warning("found at the start", extra={"facts": {"problem": problem}})
    if not run(broker, _print_now, began_ns):
        logging.shutdown()
        os._exit(STUCK)  # a normal exit would wait for the threads that wait for disk space


def _print_now(line: str) -> None:
    """Unbuffered: the process that started the broker waits for the line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
