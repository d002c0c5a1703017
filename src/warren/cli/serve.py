"""`warren serve`: the broker. Says on standard output where it can be reached and when it is ready, then serves until
SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any

import typer

from warren.cli.output import Bar

INTERRUPTED = 130
STUCK = 1
_PERCENT = 100

_PORT = {"min": 0, "max": 65_535}


def _option(name: str, metavar: str, text: str, **more: Any) -> Any:
    return typer.Option(name, metavar=metavar, help=text, show_default=False, **more)


_NO_DATA_DIR = "There is no data directory: --store-dir must be given."
_FORCE = "Make the catalog of what the log has, where that does not cover it."
_WRITE_BUFFERS = "Blocks gathered before the log is flushed. Default: 10."
_REFLECTION = "notify (default), push, push-threaded, watch, spark or off."
_DRAIN = "Clients have so long to go at the end. Default: 10."

DataDir = Annotated[str | None, _option("--data-dir", "D", "Where everything is kept.")]
StoreDir = Annotated[str | None, _option("--store-dir", "S", "Where log and stores are, if elsewhere.")]
NoDataDir = Annotated[bool, typer.Option("--no-data-dir", help=_NO_DATA_DIR)]
Connect = Annotated[str | None, _option("--connect", "URL", "SQL database of the catalog. Default: SQLite.")]
CatalogName = Annotated[str | None, _option("--catalog", "NAME", "Name of that database. Default: warren.")]
Force = Annotated[bool, typer.Option("--force", help=_FORCE)]
Host = Annotated[str | None, _option("--host", "H", "Where to listen. Default: 127.0.0.1.")]
Port = Annotated[int | None, _option("--port", "P", "For AMQP. Default: 5672; 0 picks one.", **_PORT)]
ManagementPort = Annotated[int | None, _option("--management-port", "P", "For the HTTP API. Default: 15672.", **_PORT)]
PrometheusPort = Annotated[int | None, _option("--prometheus-port", "P", "For metrics. Default: 15692.", **_PORT)]
Config = Annotated[str | None, _option("--config", "F", "rabbitmq.conf, or a directory of such files.")]
DrainSeconds = Annotated[float | None, _option("--drain-seconds", "N", _DRAIN, min=0.0)]
Product = Annotated[str | None, _option("--product", "NAME", "What clients are told they talk to. Default: Warren.")]
ContainerSize = Annotated[str | None, _option("--container-size", "B", "Unit of allocation in the log. Default: 1MiB.")]
InitialContainers = Annotated[str | None, _option("--initial-containers", "N", "Of a new log file. Default: 2.")]
MaxWriteBuffers = Annotated[str | None, _option("--max-write-buffers", "N", _WRITE_BUFFERS)]
RotateBytes = Annotated[str | None, _option("--rotate-bytes", "B", "Size of a log file. Default: 256MiB.")]
RetentionSeconds = Annotated[str | None, _option("--retention-seconds", "S", "Age limit of history. Default: 86400.")]
RetentionBytes = Annotated[str | None, _option("--retention-bytes", "B", "Size limit of history. Default: 1GiB.")]
Reflection = Annotated[str | None, _option("--reflection", "MODE", _REFLECTION)]
ReflectionBuffer = Annotated[str | None, _option("--reflection-buffer", "KIND", "memory (default) or rocksdb.")]
LogLevel = Annotated[str | None, _option("--log-level", "L", "debug, info, warning, error, critical. Default: info.")]
LogFile = Annotated[str | None, _option("--log-file", "F", "Where events are logged. Default: standard error.")]
PidFile = Annotated[str | None, _option("--pid-file", "F", "Gets the process id while it runs.")]


def serve(
    data_dir: DataDir = None,
    store_dir: StoreDir = None,
    no_data_dir: NoDataDir = False,
    connect: Connect = None,
    catalog: CatalogName = None,
    force: Force = False,
    host: Host = None,
    port: Port = None,
    management_port: ManagementPort = None,
    prometheus_port: PrometheusPort = None,
    config: Config = None,
    drain_seconds: DrainSeconds = None,
    product: Product = None,
    container_size: ContainerSize = None,
    initial_containers: InitialContainers = None,
    max_write_buffers: MaxWriteBuffers = None,
    rotate_bytes: RotateBytes = None,
    retention_seconds: RetentionSeconds = None,
    retention_bytes: RetentionBytes = None,
    reflection: Reflection = None,
    reflection_buffer: ReflectionBuffer = None,
    log_level: LogLevel = None,
    log_file: LogFile = None,
    pid_file: PidFile = None,
) -> None:
    """Run the broker: AMQP 0-9-1, the management API, metrics."""
    from warren.config.options import OptionValues, read_flags
    from warren.config.parse import log_level as known_level

    told = OptionValues(
        data_dir=data_dir,
        store_dir=store_dir,
        has_no_data_dir=no_data_dir,
        connect=connect,
        catalog=catalog,
        is_forced=force,
        host=host,
        port=port,
        management_port=management_port,
        prometheus_port=prometheus_port,
        config=config,
        drain_seconds=drain_seconds,
        product=product,
        log_level=None if log_level is None else known_level(log_level),
        log_file=log_file,
        pid_file=pid_file,
        **read_flags(
            container_size=container_size,
            initial_containers=initial_containers,
            max_write_buffers=max_write_buffers,
            rotate_bytes=rotate_bytes,
            retention_seconds=retention_seconds,
            retention_bytes=retention_bytes,
            reflection=reflection,
            reflection_buffer=reflection_buffer,
        ),
    )
    _serve(told)


def _serve(told: Any) -> None:
    try:
        _open_and_run(told)
    except KeyboardInterrupt:  # while it was being opened: what is durable is there at the next start
        raise typer.Exit(INTERRUPTED) from None


def _open_and_run(told: Any) -> None:
    from warren.app.broker import open_with_room
    from warren.app.event_log import begin
    from warren.app.lifecycle import run
    from warren.base.build import mode
    from warren.config.options import configuration_of
    from warren.files.environment import Environment

    environment = Environment.real()
    began_ns = environment.clock.monotonic_ns()
    configuration = configuration_of(environment.files, told, os.environ)
    begin(configuration.log_to)
    log = logging.getLogger(__name__)
    for warning in configuration.warnings:
        log.warning(warning)
    log.info("kernels: %s", mode(), extra={"facts": {"directory": configuration.places.directory, "pid": os.getpid()}})
    with Bar("recovering", _PERCENT, "percent") as bar:
        broker = open_with_room(configuration, lambda share: bar.reach(round(share * _PERCENT)), environment)
    for problem in broker.problems:
        log.warning("found at the start", extra={"facts": {"problem": problem}})
    if not run(broker, _say, began_ns):
        logging.shutdown()
        os._exit(STUCK)  # who waits for room would be waited for


def _say(line: str) -> None:
    """At once: whoever started us waits for it."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
