"""Names that users and other programs know, found by running the code: one list per section of public_names.json.

    python -m tests.house.public_names          what differs from the pinned names
    python -m tests.house.public_names --add    pin names that are new; a name that is pinned is never removed

A section ends up as a sorted list of strings. Sections of a running broker come from `running_broker`, which imports
nothing of Warren; the others from an entry point or from a class that writes JSON. The pinned names are in a data file,
so that a script that renames identifiers in *.py does not change them.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import tempfile
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import typer.main

import warren
from tests.house.running_broker import RunningBroker, keys_of, publish_some, running_broker
from tests.house.source_tree import SRC, modules_under
from warren.amqp.methods import METHODS
from warren.base import errors
from warren.base.errors import Damage, WarrenError
from warren.broker.queue_arguments import Overflow
from warren.catalog.rows import RowKind
from warren.embedded.database import OpenOptions
from warren.log.compaction.compaction import Proposal, proposal_to_json
from warren.log.compaction.handover import CompactionJob
from warren.log.compaction.jobs import Job
from warren.log.compaction.ranges import MergeTask, PartitionTask
from warren.log.file_record import FileKind, FileRecord, FileState, compacted_name, rotated_name, snapshot_name
from warren.log.manifest import ManifestState, StreamRecord
from warren.log.read.parts import FilePart
from warren.log.retention import FileLifecycle, Pin
from warren.log.settings import EntryKind
from warren.management.broker_facts import Alarm
from warren.message_store.body_format import RecordKind
from warren.pipeline.schema import TableFormat
from warren.queue_index.history_format import DequeueReason, HistoryRecord
from warren.records.format import BlockKind, ColumnTag, Encoding
from warren.snapshot.puller.process import PullerRequest
from warren.snapshot.reflection import Mode
from warren.snapshot.tables.tasks import TableResult, TableTask

PINNED = Path(__file__).with_name("public_names.json")
TYPERS_OWN = ("--install-completion", "--show-completion")
# Sections that may show more than is pinned: edits and files that depend on when something happened; members of classes
# that no page documents. `--add` leaves them alone.
OPEN_SECTIONS = ("files and folders", "manifest keys", "JSON printed by commands", "members of public classes")

Names = dict[str, list[str]]

JSON_FORMS: Mapping[str, type] = {
    "manifest": ManifestState,
    "manifest file": FileRecord,
    "manifest stream": StreamRecord,
    "compaction job": Job,
    "compaction order": CompactionJob,
    "part of a file": FilePart,
    "task of key ranges: deal": PartitionTask,
    "task of key ranges: merge": MergeTask,
    "puller": PullerRequest,
    "table task": TableTask,
    "table result": TableResult,
    "pin": Pin,
}
NUMBERS_ON_DISK: Mapping[str, type[Enum]] = {
    "block kind": BlockKind,
    "column tag": ColumnTag,
    "column encoding": Encoding,
    "entry kind": EntryKind,
    "file purpose": FileKind,
    "message record kind": RecordKind,
    "catalog row kind": RowKind,
    "history event": HistoryRecord,
    "dequeue reason": DequeueReason,
}
WORDS_IN_TEXT: Mapping[str, type[Enum]] = {
    "file state": FileState,
    "file life cycle": FileLifecycle,
    "reflection mode": Mode,
    "table format": TableFormat,
    "overflow": Overflow,
    "alarm": Alarm,
}


# -- from entry points and classes --------------------------------------------------------------------------------


def exports() -> list[str]:
    return list(warren.__all__)


def open_keywords() -> list[str]:
    return list(OpenOptions.__annotations__)


def public_members() -> list[str]:
    """Of every class that `warren` exports, and of what an open directory returns."""
    classes = {name: value for name in warren.__all__ if isinstance(value := getattr(warren, name), type)}
    with tempfile.TemporaryDirectory() as directory, warren.open(directory) as db:
        db.kv("pinned")[b"key"] = b"value"
        queue = db.queue("pinned")
        queue.put(b"body")
        objects = {"kv": db.kv("pinned"), "akv": db.akv("pinned"), "queue": queue, "aqueue": db.aqueue("pinned")}
        message = queue.get()
        classes |= {f"{name}()": type(value) for name, value in {**objects, "message": message}.items()}
        if message is not None:
            message.ack()
    return [f"{name}.{member}" for name, kind in classes.items() for member in _members(kind)]


def _members(kind: type) -> list[str]:
    """Without the attributes every error or string has."""
    inherited = {name for base in (BaseException, str) if issubclass(kind, base) for name in dir(base)}
    return [name for name in dir(kind) if not name.startswith("_") and name not in inherited]


def commands() -> list[str]:
    app = importlib.import_module("warren.cli.main").app
    return list(_below(typer.main.get_command(app), "warren"))


def _below(command: Any, path: str) -> Iterator[str]:
    yield path
    for parameter in command.params:
        options = [*parameter.opts, *parameter.secondary_opts]
        if parameter.param_type_name == "argument":
            yield f"{path} {(parameter.metavar or parameter.name).upper()}"
        else:
            yield from (f"{path} {option}" for option in options if option not in TYPERS_OWN)
    for name, below in getattr(command, "commands", {}).items():
        yield from _below(below, f"{path} {name}")


def method_names() -> list[str]:
    """Class and method number of AMQP with the name that errors and logs show: made from the name of a class."""
    for module in modules_under(SRC):
        if module.name.startswith("warren.amqp."):
            importlib.import_module(module.name)  # a module with methods enters them into the table
    return [f"{class_id}.{method_id} {spec.name}" for (class_id, method_id), spec in METHODS.items()]


def numbers_on_disk() -> list[str]:
    return [f"{label} {member.value!r}" for label, kind in NUMBERS_ON_DISK.items() for member in kind]


def entry_kind_words() -> list[str]:
    """As Spark's column `kind` and `warren log dump` show them."""
    return [f"{kind.value} {kind.name.lower()}" for kind in EntryKind]


def words_in_text() -> list[str]:
    return [f"{label} {member.value}" for label, kind in WORDS_IN_TEXT.items() for member in kind]


def json_forms() -> list[str]:
    found = [f"{label}: {key}" for label, kind in JSON_FORMS.items() for key in keys_of(_as_json(sample(kind)))]
    result = proposal_to_json(sample(Proposal))
    return [*found, *(f"compaction result: {key}" for key in keys_of(result))]


def _as_json(value: Any) -> Any:
    """What is written: through the text, as every reader sees it."""
    return json.loads(json.dumps(value.to_json() if hasattr(value, "to_json") else dataclasses.asdict(value)))


def sample(kind: Any) -> Any:
    """Some value of a type, with everything optional there and one element in each collection."""
    kind = getattr(kind, "__supertype__", kind)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return sample(next(each for each in arguments if each is not type(None)))
    if origin is tuple:
        return (sample(arguments[0]),) if arguments[-1] is Ellipsis else tuple(map(sample, arguments))
    if origin is not None and issubclass(origin, Mapping):
        return {sample(arguments[0]): sample(arguments[1])}
    if origin is not None and issubclass(origin, Collection):
        elements = [sample(arguments[0])]
        return origin(elements) if origin in (set, frozenset) else elements
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        hints = typing.get_type_hints(kind)
        names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
        return kind(*(sample(hints[name]) for name in names))
    return {int: 1, float: 1.0, str: "00", bytes: b"\0", bool: True}[kind]


def file_names() -> list[str]:
    """Names of log files that a short run need not make."""
    return [rotated_name(0, 1), compacted_name(1), snapshot_name(1)]  # type: ignore[arg-type]


def error_named(family: str) -> WarrenError:
    """An error of this family, with everything that it can say."""
    kind: type[WarrenError] = getattr(errors, family)
    if kind is Damage:
        return Damage("what", "path", 7, "hint")
    return kind("what", "hint")


# -- from a running broker ----------------------------------------------------------------------------------------


def broker_names(directory: Path) -> Names:
    """Everything that a process shows of itself. Files are read when it has stopped."""
    with running_broker(directory) as broker:
        names = {
            "serve: lines at the start": list(broker.places),
            "AMQP server properties": list(keys_of(publish_some(broker))),
            "HTTP routes": broker.http_routes(),
            "HTTP fields": broker.http_fields(),
            "metrics of RabbitMQ": [name for name in broker.metrics() if " rabbitmq_" in name],
            "metrics of Warren": [name for name in broker.metrics() if " rabbitmq_" not in name],
            "control socket answers": _control_answers(broker),
            "ctrl/ results": _ctrl_results(broker),
        }
        layout = broker.disk_layout()
        home = str(directory)
        printed = broker.printed_keys("reflection", "status", home)
        printed += broker.printed_keys("compact", "--data-dir", home)
    printed += broker.printed_keys("log", "inspect", home)
    printed += broker.printed_keys("log", "verify", home)
    printed += broker.printed_keys("log", "repair", home, "--dry-run")
    printed += broker.printed_keys("log", "dump", home)
    return {
        **names,
        "JSON printed by commands": printed,
        "files and folders": [*layout, *broker.disk_layout()],
        "manifest keys": broker.manifest_names(),
        "streams": broker.stream_names(),
        "catalog rows": broker.catalog_rows(),
        "catalog tables": broker.sql_columns(),
    }


def _control_answers(broker: RunningBroker) -> list[str]:
    requests = [{"command": command} for command in ("status", "pause", "resume", "persist", "no-such-command")]
    return [f"{request['command']}: {key}" for request in requests for key in keys_of(broker.order(**request))]


def _ctrl_results(broker: RunningBroker) -> list[str]:
    requests: Mapping[str, dict[str, Any]] = {
        "nothing": {},
        "order": {"order": {"places": 2, "seconds": 10}},
        "cancel": {"cancel": {"name": "x"}},
        "accept": {"accept": {"name": "x", "made": []}},
    }
    return [f"{name}: {key}" for name, request in requests.items() for key in keys_of(broker.ctrl(**request))]


SECTIONS: Mapping[str, Callable[[], list[str]]] = {
    "exports of warren": exports,
    "keywords of warren.open": open_keywords,
    "members of public classes": public_members,
    "commands and flags": commands,
    "AMQP methods": method_names,
    "numbers on disk": numbers_on_disk,
    "entry kinds": entry_kind_words,
    "words in text": words_in_text,
    "JSON between processes": json_forms,
    "names of log files": file_names,
}


def read_pinned(path: Path = PINNED) -> dict[str, Any]:
    pinned: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return pinned


def differences(section: str, pinned: Sequence[str], found: Sequence[str]) -> list[str]:
    """One line for each name that has gone or is new."""
    gone, new = sorted(set(pinned) - set(found)), sorted(set(found) - set(pinned))
    if section in OPEN_SECTIONS:
        new = []
    return [
        *(f"{section}: '{name}' is pinned and has gone" for name in gone),
        *(f"{section}: '{name}' is new: pin it with `python -m tests.house.public_names --add`" for name in new),
    ]


def all_names() -> Names:
    with tempfile.TemporaryDirectory() as directory:
        of_broker = broker_names(Path(directory) / "data")
    found = {section: find() for section, find in SECTIONS.items()} | of_broker
    return {section: sorted(set(names)) for section, names in found.items()}


def main(arguments: Sequence[str]) -> int:
    pinned, found = read_pinned(), all_names()
    lines = [line for name, names in found.items() for line in differences(name, pinned["names"].get(name, []), names)]
    print("\n".join(lines) or "all names are pinned")
    if "--add" in arguments:
        for section, names in found.items():
            if section not in OPEN_SECTIONS or section not in pinned["names"]:
                pinned["names"][section] = sorted({*pinned["names"].get(section, []), *names})
        PINNED.write_text(json.dumps(pinned, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        return 0
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
