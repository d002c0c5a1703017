"""Names that users and other programs know stay as they are, whatever is renamed in the sources.

The names are literal data (public_names.json), so that a script that renames identifiers in *.py cannot change both
sides. What can be listed is compared name by name (`public_names`). What can only be tried (variables, keys, options,
commands) is given a value that must have an effect.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import warren
from tests.house.public_names import (
    SECTIONS,
    broker_names,
    differences,
    error_named,
    main,
    read_pinned,
)
from tests.house.running_broker import RunningBroker, accepts_queue, keys_of, running_broker
from warren.base import errors
from warren.config.configuration import configuration_of
from warren.config.options import OptionValues
from warren.files.local import LocalFiles
from warren.workers.control_socket import failure_from_json, failure_to_json
from warren.workers.process import error_from_json, error_to_json

PINNED = read_pinned()
NAMES: dict[str, list[str]] = PINNED["names"]
HOME = {"HOME": "/tmp"}


@pytest.mark.parametrize("section", SECTIONS)
def test_no_name_of_a_section_has_changed(section: str) -> None:
    assert not differences(section, NAMES[section], SECTIONS[section]())


@pytest.fixture(scope="module")
def names_of_broker(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return broker_names(tmp_path_factory.mktemp("broker") / "data")


@pytest.mark.parametrize("section", sorted(NAMES.keys() - SECTIONS.keys()))
def test_no_name_of_a_running_broker_has_changed(names_of_broker: dict[str, list[str]], section: str) -> None:
    assert not differences(section, NAMES[section], names_of_broker.get(section, []))


def test_every_section_of_a_running_broker_is_pinned(names_of_broker: dict[str, list[str]]) -> None:
    assert names_of_broker.keys() == NAMES.keys() - SECTIONS.keys()


# -- what can only be tried ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker(tmp_path_factory.mktemp("tried") / "data") as running:
        yield running


@pytest.mark.parametrize("name", PINNED["queue arguments, each with a value that is refused"])
def test_an_argument_of_a_queue_is_understood(broker: RunningBroker, name: str) -> None:
    wrong = PINNED["queue arguments, each with a value that is refused"][name]
    assert not accepts_queue(broker, {name: wrong}), f"the queue argument '{name}' is not understood any more"


def test_an_unknown_argument_of_a_queue_is_accepted(broker: RunningBroker) -> None:
    assert accepts_queue(broker, {"x-no-such-argument": "wrong"})


def test_every_control_command_is_understood(broker: RunningBroker) -> None:
    assert not [command for command in PINNED["control commands"] if not broker.knows_order(command)]
    assert not broker.knows_order("another-unknown-command")


@pytest.mark.slow
def test_every_control_command_of_the_puller_is_understood(tmp_path: Path) -> None:
    with running_broker(tmp_path / "data", "--reflection", "watch") as running:
        commands = PINNED["control commands of the puller"]
        assert commands[-1] == "stop", "it ends the puller, so it is tried last"
        assert not [command for command in commands[:-1] if not running.knows_order(command)]
        assert running.order(command="stop")["status"] == "ok"


def configured(environment: dict[str, str], lines: str, home: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The configuration of a broker with these variables and this rabbitmq.conf, and its warnings."""
    (home / "rabbitmq.conf").write_text(lines, encoding="utf-8")
    variables = {**HOME, "WARREN_CONFIG": str(home / "rabbitmq.conf"), **environment}
    configuration = configuration_of(LocalFiles(), OptionValues(), variables)
    fields = {field.name: getattr(configuration, field.name) for field in dataclasses.fields(configuration)}
    warnings: tuple[str, ...] = fields.pop("warnings")
    return fields, warnings


@pytest.mark.parametrize("name", PINNED["environment"])
def test_an_environment_variable_is_understood(name: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "other.conf").write_text("heartbeat = 17\n", encoding="utf-8")
    value = PINNED["environment"][name]
    value = {"CONF": str(other / "other.conf"), "CONF_DIRECTORY": str(other)}.get(value, value)
    usual, _ = configured({}, "", tmp_path)
    given, warnings = configured({name: value}, "", tmp_path)
    if name == "RABBITMQ_CONFIG_FILE":  # behind WARREN_CONFIG
        given, warnings = _only({name: value})
    assert given != usual, f"the environment variable '{name}' is not understood any more"
    assert not warnings


def _only(environment: dict[str, str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    configuration = configuration_of(LocalFiles(), OptionValues(), {**HOME, **environment})
    fields = {field.name: getattr(configuration, field.name) for field in dataclasses.fields(configuration)}
    return fields, fields.pop("warnings")


def test_an_unknown_variable_changes_nothing(tmp_path: Path) -> None:
    assert configured({"WARREN_NO_SUCH": "pinned"}, "", tmp_path) == configured({}, "", tmp_path)


@pytest.mark.parametrize("key", PINNED["rabbitmq.conf"])
def test_a_key_of_rabbitmq_conf_is_understood(key: str, tmp_path: Path) -> None:
    usual, _ = configured({}, "", tmp_path)
    given, warnings = configured({}, f"{key} = {PINNED['rabbitmq.conf'][key]}\n", tmp_path)
    assert given != usual, f"the key '{key}' of rabbitmq.conf is not understood any more"
    assert not warnings


@pytest.mark.parametrize("key", PINNED["rabbitmq.conf known and ignored"])
def test_a_key_that_is_known_and_ignored_has_its_own_warning(key: str, tmp_path: Path) -> None:
    _, [warning] = configured({}, f"{key} = 1\n", tmp_path)
    _, [unknown] = configured({}, "no_such_key = 1\n", tmp_path)
    assert warning.replace(key, "no_such_key") != unknown, f"the key '{key}' is not known any more"


@pytest.mark.parametrize("name", PINNED["environment known and ignored"])
def test_a_variable_that_is_known_and_ignored_has_its_own_warning(name: str, tmp_path: Path) -> None:
    _, [warning] = configured({name: "1"}, "", tmp_path)
    _, [unknown] = configured({"RABBITMQ_NO_SUCH": "1"}, "", tmp_path)
    assert warning.replace(name, "RABBITMQ_NO_SUCH") != unknown, f"the variable '{name}' is not known any more"


# -- errors that cross a process ----------------------------------------------------------------------------------


@pytest.mark.parametrize("family", PINNED["error families"]["worker process"])
def test_an_error_of_a_worker_process_keeps_its_family(family: str) -> None:
    encoded = json.loads(json.dumps(error_to_json(error_named(family))))
    of_damage = " of Damage" if family == "Damage" else ""
    assert sorted(encoded) == PINNED["error families"][f"worker process keys{of_damage}"]
    assert encoded["family"] == family
    assert type(error_from_json(encoded)).__name__ == family


@pytest.mark.parametrize("family", PINNED["error families"]["control socket"])
def test_an_error_of_a_control_socket_keeps_its_family(family: str) -> None:
    encoded = json.loads(json.dumps(failure_to_json(error_named(family))))
    assert encoded["family"] == family
    assert type(failure_from_json(encoded)).__name__ == family


def test_exported_errors_are_the_families() -> None:
    exported = [name for name in warren.__all__ if hasattr(errors, name)]
    assert not [name for name in exported if getattr(warren, name) is not getattr(errors, name)]


# -- the comparison itself ----------------------------------------------------------------------------------------


def test_a_name_that_has_gone_or_is_new_is_named() -> None:
    gone, new = differences("flags", ["--port", "--host"], ["--host", "--listen"])
    assert gone == "flags: '--port' is pinned and has gone"
    assert new.startswith("flags: '--listen' is new")
    assert not differences("flags", ["--port"], ["--port", "--port"])


def test_an_open_section_may_show_more_and_never_less() -> None:
    assert not differences("files and folders", ["log/"], ["log/", "log/epoch.#"])
    assert differences("files and folders", ["log/"], []) == ["files and folders: 'log/' is pinned and has gone"]


def test_keys_of_nested_objects_are_paths() -> None:
    value = {"a": {"b": 1}, "c": [{"d": 1}, {"e": [{"f": 1}]}], "g": []}
    assert list(keys_of(value)) == ["a", "a.b", "c", "c[].d", "c[].e", "c[].e[].f", "g"]


def test_a_renamed_field_of_a_json_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclasses.dataclass
    class Renamed:
        ident: str
        reader: str

    monkeypatch.setattr("tests.house.public_names.JSON_FORMS", {"pin": Renamed})
    lines = differences("JSON between processes", ["pin: id", "pin: reader"], SECTIONS["JSON between processes"]())
    assert "JSON between processes: 'pin: id' is pinned and has gone" in lines


def test_adding_never_removes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "public_names.json"
    path.write_text(json.dumps({"names": {"flags": ["--port"]}}), encoding="utf-8")
    monkeypatch.setattr("tests.house.public_names.PINNED", path)
    monkeypatch.setattr("tests.house.public_names.read_pinned", lambda: read_pinned(path))
    monkeypatch.setattr("tests.house.public_names.all_names", lambda: {"flags": ["--host"], "keys": ["a"]})
    assert main([]) == 1
    assert main(["--add"]) == 0
    assert read_pinned(path)["names"] == {"flags": ["--host", "--port"], "keys": ["a"]}
