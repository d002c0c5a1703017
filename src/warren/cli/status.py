"""`warren status` shows a broker on one page; `warren doctor` checks a data directory and its broker.

    finding    ok, note or PROBLEM, with what to do; exit 1 if there is a problem

Neither opens the store. Of a stopped broker the doctor checks the lock and, in the manifest, whether it was stopped in
order.
"""

from __future__ import annotations

import os
import resource
import stat
from typing import Annotated, Any, NamedTuple

import typer

from warren.cli.output import AsJson, print_json, print_line, size

DataDir = Annotated[
    str | None,
    typer.Option(
        "--data-dir", metavar="DIR", help="Data directory of the broker. Default: WARREN_DATA_DIR, or as serve."
    ),
]
PROBLEM_EXIT = 1
FILES_MIN = 4096
DISK_MIN_BYTES = 1 << 30
_TIMEOUT_SECONDS = 10.0
_PRIVATE = 0o700


def ctl(context: typer.Context) -> None:
    """Verbs of rabbitmqctl, rabbitmq-diagnostics and rabbitmq-plugins: `warren ctl help`."""
    from warren.cli.ctl.main import main

    raise typer.Exit(main(context.args, "warren ctl"))


# -- status -----------------------------------------------------------------------------------------------------------


def status(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show version, addresses, alarms, memory, disk and totals of a running broker."""
    from warren.cli.ctl.client import CtlError

    try:
        facts = _facts(data_dir)
    except (CtlError, TimeoutError) as error:
        typer.echo(f"warren: {str(error) or 'the broker does not answer'}", err=True)
        raise typer.Exit(69) from None
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        print_line(f"{name:<12} {_shown(name, value)}")


def _facts(data_dir: str | None) -> dict[str, Any]:
    from warren import __version__
    from warren.cli.ctl.call import Call
    from warren.cli.ctl.client import UnixClient, data_directory, socket_path
    from warren.cli.ctl.node import status_facts
    from warren.cli.ctl.verbs import BY_NAME

    directory = data_directory(data_dir)
    client = UnixClient(socket_path(directory), _TIMEOUT_SECONDS)
    found = status_facts(Call(BY_NAME["status"], {}, [], {"vhost": "/"}, client, str, lambda name, options: ""))
    return {
        "node": found["node"],
        "version": found["product_version"] or __version__,
        "state": "running" if found["running"] else "not accepting clients",
        "pid": found["pid"],
        "uptime": found["uptime"],
        "directory": found["data_directory"],
        "addresses": [f"{each['protocol']} {each['interface']}:{each['port']}" for each in found["listeners"]],
        "alarms": found["alarms"],
        "problems": found["problems"],
        "memory": {"used": found["memory"]["total"]["rss"], "limit": found["vm_memory_high_watermark_limit"]},
        "disk": {"free": found["disk_free"], "limit": found["disk_free_limit"]},
        "files": {"used": found["file_descriptors"]["total_used"], "limit": found["file_descriptors"]["total_limit"]},
        "totals": found["totals"],
    }


def _shown(name: str, value: Any) -> str:
    match value:
        case list():
            return ", ".join(map(str, value)) or "none"
        case {"used": used, "limit": limit} if name == "memory":
            return f"{size(used)} of {size(limit)}"
        case {"used": used, "limit": limit}:
            return f"{used} of {limit}"
        case {"free": free, "limit": limit}:
            return f"{size(free)} free; publishers are blocked below {size(limit)}"
        case dict():
            return ", ".join(
                f"{count} {kind.removesuffix('_count').replace('_', ' ')}s" for kind, count in value.items()
            )
    return f"{value} s" if name == "uptime" else str(value)


# -- doctor -----------------------------------------------------------------------------------------------------------


class Diagnosis(NamedTuple):
    check: str
    verdict: str  # ok, note, PROBLEM
    text: str
    hint: str = ""


OK, NOTE, PROBLEM = "ok", "note", "PROBLEM"


def doctor(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Check a data directory and its broker; exit 1 if something needs an operator."""
    from warren.cli.ctl.client import data_directory

    directory = data_directory(data_dir)
    findings = [_build(), _open_files()]
    if not os.path.isdir(directory):
        hint = f"start a broker: warren serve --data-dir {directory}"
        findings.append(Diagnosis("directory", PROBLEM, f"{directory} does not exist", hint))
    else:
        findings += [_permissions(directory), _owner(directory), _disk(directory), *_broker(directory)]
    is_good = all(each.verdict != PROBLEM for each in findings)
    if as_json:
        print_json({"is_good": is_good, "directory": directory, "findings": [each._asdict() for each in findings]})
    else:
        for each in findings:
            print_line(
                f"{each.verdict:<8} {each.check}: {each.text}" + (f"\n         {each.hint}" if each.hint else "")
            )
    if not is_good:
        raise typer.Exit(PROBLEM_EXIT)


def _build() -> Diagnosis:
    from warren.base.build import mode

    if mode() == "compiled":
        return Diagnosis("build", OK, "compiled")
    hint = "faster: pip install . in a checkout, with a C compiler"
    return Diagnosis("build", NOTE, "pure Python: the same results, slower", hint)


def _open_files() -> Diagnosis:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or hard >= FILES_MIN:
        return Diagnosis("open files", OK, "unlimited" if hard == resource.RLIM_INFINITY else f"at most {hard}")
    hint = "raise the hard limit: ulimit -Hn, LimitNOFILE= of a service"
    return Diagnosis("open files", PROBLEM, f"at most {hard}: every client and every log file needs one", hint)


def _permissions(directory: str) -> Diagnosis:
    mode = stat.S_IMODE(os.stat(directory).st_mode)
    if mode & ~_PRIVATE:
        hint = f"chmod 700 {directory}"
        return Diagnosis("permissions", PROBLEM, f"{directory} has mode {mode:o}: other users may read messages", hint)
    return Diagnosis("permissions", OK, f"{directory} has mode {mode:o}")


def _owner(directory: str) -> Diagnosis:
    owner = os.stat(directory).st_uid
    if owner == os.geteuid() or os.geteuid() == 0:
        return Diagnosis("owner", OK, f"user {owner}")
    hint = "run this command as the owner, or with sudo -u"
    return Diagnosis("owner", PROBLEM, f"{directory} belongs to user {owner}, this is user {os.geteuid()}", hint)


def _disk(directory: str) -> Diagnosis:
    space = os.statvfs(directory)
    free = space.f_bavail * space.f_frsize
    if free < DISK_MIN_BYTES:
        return Diagnosis(
            "disk", PROBLEM, f"{size(free)} are free", "free some space: publishers are blocked when it ends"
        )
    return Diagnosis("disk", OK, f"{size(free)} are free")


def _broker(directory: str) -> list[Diagnosis]:
    from warren.cli.ctl.client import CtlError, NotRunning, is_store

    try:
        facts = _facts(directory)
    except NotRunning:
        if not is_store(directory):
            return [Diagnosis("broker", NOTE, "not running; the directory has no store yet", _start_hint(directory))]
        not_running = Diagnosis("broker", NOTE, "not running", _start_hint(directory))
        return [not_running, _lock(directory), _last_stop(directory)]
    except (CtlError, TimeoutError) as error:
        hint = "see its log; it may be starting, or stuck"
        return [Diagnosis("broker", PROBLEM, f"does not answer: {error}", hint)]
    findings = [Diagnosis("broker", OK, f"running, pid {facts['pid']}, version {facts['version']}")]
    if facts["state"] != "running":
        findings.append(Diagnosis("clients", PROBLEM, "are not accepted", "warren ctl start_app, or it is stopping"))
    findings += [
        Diagnosis("alarm", PROBLEM, text, "free memory or disk space; publishers wait") for text in facts["alarms"]
    ]
    findings += [Diagnosis("problem", PROBLEM, text, "docs/operations.md") for text in facts["problems"]]
    return [*findings, *_ports(facts["addresses"])]


def _start_hint(directory: str) -> str:
    return f"warren serve --data-dir {directory}"


def _lock(directory: str) -> Diagnosis:
    """Whether a process has the directory open, though nothing answers at its socket. Read from the kernel's list: a
    lock taken here could refuse a broker that starts at this moment."""
    from warren.log.file_record import LOCK

    number = os.stat(os.path.join(_log(directory), LOCK)).st_ino
    with open("/proc/locks", encoding="ascii") as listed:
        locks = [line.split() for line in listed]
    pids = [words[4] for words in locks if words[1] == "FLOCK" and words[5].endswith(f":{number}")]
    if pids:
        hint = "the broker is starting or stopping, or another command uses the directory"
        return Diagnosis("lock", PROBLEM, f"process {pids[0]} has the directory open", hint)
    return Diagnosis("lock", OK, "free: a broker can start")


def _last_stop(directory: str) -> Diagnosis:
    from warren.base.errors import WarrenError
    from warren.files.local import LocalFiles
    from warren.log.manifest import read_manifest

    try:
        is_clean = read_manifest(LocalFiles(), _log(directory)).is_clean
    except WarrenError as error:
        return Diagnosis("last stop", PROBLEM, error.what, error.hint)
    if is_clean:
        return Diagnosis("last stop", OK, "orderly")
    return Diagnosis(
        "last stop", NOTE, "not orderly: a crash, or kill -9", "the next start recovers everything durable"
    )


def _log(directory: str) -> str:
    from warren.files.local import LocalFiles
    from warren.snapshot.database import log_directory

    return log_directory(LocalFiles(), directory)


def _ports(addresses: list[str]) -> list[Diagnosis]:
    import socket

    findings = []
    for address in addresses:
        protocol, _, where = address.partition(" ")
        host, _, port = where.rpartition(":")
        host = {"0.0.0.0": "127.0.0.1", "[::]": "::1"}.get(host, host.strip("[]"))
        try:
            with socket.create_connection((host, int(port)), _TIMEOUT_SECONDS):
                findings.append(Diagnosis("port", OK, f"{protocol} answers at {where}"))
        except OSError as error:
            hint = "a firewall, or too many clients: see the log of the broker"
            findings.append(Diagnosis("port", PROBLEM, f"{protocol} does not answer at {where}: {error}", hint))
    return findings
