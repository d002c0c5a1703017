"""`warren serve`: the broker. Prints its addresses and `ready` on standard output, then serves until SIGTERM or SIGINT.

Its flags are those of the table in `config.options`.
"""

from __future__ import annotations

import inspect
import logging
import os
import platform
import signal
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

    Most options are also an environment variable, named with each, and a key of rabbitmq.conf.

    The command line takes precedence, then the environment, then the file.

    \b
    Examples:
      warren serve --data-dir /var/lib/warren
      warren serve --host 0.0.0.0 --config /etc/rabbitmq/rabbitmq.conf
      warren serve --port 0 --management-port 0 --prometheus-port 0
      RABBITMQ_DEFAULT_USER=ann RABBITMQ_DEFAULT_PASS=secret warren serve
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
        help=f"{option.help}{default}{_variables(option)}",
        show_default=False,
        rich_help_panel=group,
    )
    kind: Any = bool if option.is_switch else str | None
    return inspect.Parameter(option.name, inspect.Parameter.KEYWORD_ONLY, default=declared, annotation=kind)


def _variables(option: Option) -> str:
    return f" Environment: {', '.join(option.all_variables)}." if option.all_variables else ""


_PARAMETERS = [_parameter(each, group.title) for group in GROUPS for each in group.options if each.has_flag]
# Typer reads the flags of a command from the signature of its function.
vars(serve).update(__signature__=inspect.Signature(_PARAMETERS))
serve.__annotations__ = {parameter.name: parameter.annotation for parameter in _PARAMETERS}


def _open_and_run(values: OptionValues) -> None:
    from warren.app.broker import open_with_room
    from warren.app.event_log import begin
    from warren.app.lifecycle import BoundPorts, run
    from warren.app.service_manager import ServiceManager
    from warren.config.configuration import configuration_of
    from warren.files.environment import Environment

    environment = Environment.real()
    began_ns = environment.clock.monotonic_ns()
    configuration = configuration_of(environment.files, values, os.environ)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until the broker serves; by default it would end the process
    begin(configuration.log_to)
    log = logging.getLogger(__name__)
    for warning in configuration.warnings:
        log.warning(warning)
    _log_start(log, configuration.places.directory)
    manager = ServiceManager(os.environ)
    with BoundPorts(configuration) as ports:
        with Bar("recovering", _PERCENT, "percent") as bar:

            def progress(share: float) -> None:
                bar.reach(round(share * _PERCENT))
                manager.recovering(round(share * _PERCENT))

            broker = open_with_room(configuration, progress, environment)
        for problem in broker.problems:
            log.warning("found at the start", extra={"facts": {"problem": problem}})
        is_complete = run(broker, _print_now, began_ns, ports, manager)
    if not is_complete:
        logging.shutdown()
        os._exit(STUCK)  # a normal exit would wait for the threads that wait for disk space


def _log_start(log: logging.Logger, directory: str) -> None:
    from warren import __version__
    from warren.base.build import mode

    facts = {"version": __version__, "kernels": mode(), "directory": directory, "pid": os.getpid()}
    log.info("starting", extra={"facts": {**facts, "python": platform.python_version()}})
    if mode() == "pure":
        hint = "install with a C compiler: pip install -v shows why modules were not compiled"
        log.warning("running as pure Python, several times slower", extra={"facts": {"hint": hint}})


def _print_now(line: str) -> None:
    """Unbuffered: the process that started the broker waits for the line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
