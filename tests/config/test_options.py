"""The table of options: every settings field is reachable by flag, variable and key; defaults are those of the code."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

from warren.base.errors import Misuse
from warren.config.configuration import Configuration, configuration_of
from warren.config.options import (
    GROUPS,
    KEY_FAMILIES,
    KEYS,
    MECHANISMS,
    NOT_OPTIONS,
    OPTIONS,
    REFLECTION_MODES,
    VARIABLES,
    Option,
    OptionValues,
    read_flags,
)
from warren.files.local import LocalFiles
from warren.server import authentication
from warren.snapshot.reflection import Mode

HOME = {"HOME": "/home/ann"}
NOT_SETTINGS = {"places.directory", "memory_limit_bytes", "warnings"}  # computed
CANDIDATES: tuple[str, ...] = (
    "true",
    "false",
    "0.25",
    "33",
    "9999",
    "2MiB",
    "300KiB",
    "zstd",
    "sha256",
    "sql",
    "push",
    "rocksdb",
    "debug",
    "json",
    "AMQPLAIN",
    "/tmp/named",
    "named",
    "verify_peer",
    "common_name",
    "tlsv1.3",
)
FILLED = [pytest.param(option, id=option.name) for option in OPTIONS.values() if option.fills]


def value_at(configuration: object, path: str) -> Any:
    return reduce(getattr, path.split("."), configuration)


def fields_of(configuration: object, above: str = "") -> list[str]:
    """Paths of all fields of all settings in a configuration."""
    found = []
    for each in fields(configuration):  # type: ignore[arg-type]
        value = getattr(configuration, each.name)
        below = is_dataclass(value) and not isinstance(value, type)
        found += fields_of(value, f"{above}{each.name}.") if below else [f"{above}{each.name}"]
    return found


def other_text(option: Option) -> str:
    """A text for a value other than the default."""
    for text in CANDIDATES:
        try:
            value = option.parse(text)
        except Misuse:
            continue
        if not option.default or value != option.parse(option.default):
            return text
    raise AssertionError(f"{option.name}: no candidate fits")


def test_every_field_has_an_option_or_a_reason_to_have_none() -> None:
    filled = {path for option in OPTIONS.values() for path in option.fields}
    assert not filled & NOT_OPTIONS.keys()
    assert filled | NOT_OPTIONS.keys() | NOT_SETTINGS == set(fields_of(Configuration()))


def test_names_are_unique() -> None:
    assert len(OPTIONS) == sum(len(group.options) for group in GROUPS)
    assert len(KEYS) == sum(len(option.all_keys) for option in OPTIONS.values())
    assert len(VARIABLES) == sum(len(option.all_variables) for option in OPTIONS.values())
    assert {name for names in KEY_FAMILIES.values() for name in names} <= OPTIONS.keys()


@pytest.mark.parametrize("option", FILLED)
def test_the_default_of_a_row_is_the_default_of_its_field(option: Option) -> None:
    default = option.parse(option.default) if option.default else ""
    assert [value_at(Configuration(), path) for path in option.fields] == [default] * len(option.fields)


@pytest.mark.parametrize("option", FILLED)
def test_an_option_fills_its_fields_from_each_source(option: Option, tmp_path: Path) -> None:
    text = other_text(option)
    for source in ("flag", "variable", "key"):
        for path in option.fields:
            if (configuration := configured(option, source, text, tmp_path)) is not None:
                assert value_at(configuration, path) == option.parse(text), source
                assert not configuration.warnings


def configured(option: Option, source: str, text: str, home: Path) -> Configuration | None:
    """A broker with this option from one source, if the option has that source."""
    flags, variables, lines = OptionValues(), dict(HOME), ""
    if source == "flag" and option.has_flag:
        flags = read_flags({option.name: option.parse(text) if option.is_switch else text})
    elif source == "variable" and option.has_variable:
        variables[f"WARREN_{option.name.upper()}"] = text
    elif source == "key" and option.all_keys:
        lines = f"{option.all_keys[0]} = {text}\n"
    else:
        return None
    conf = home / "rabbitmq.conf"
    conf.write_text(lines, encoding="utf-8")
    return configuration_of(LocalFiles(), OptionValues(**{"config": str(conf), **flags}), variables)


def test_a_bad_flag_is_refused_by_its_name() -> None:
    with pytest.raises(Misuse, match=r"^--rotate-bytes: '1' is not from 1048576 to 1073741824 bytes"):
        read_flags({"rotate_bytes": "1"})


def test_an_unknown_option_is_refused_and_a_password_is_not_printed() -> None:
    with pytest.raises(TypeError, match="no such options: colour"):
        OptionValues(colour="red")
    assert repr(OptionValues(default_pass="secret", port=1)) == "OptionValues(default_pass=…, port=1)"


def test_choices_are_those_of_the_code() -> None:
    """The table imports neither the server nor RocksDB, so it repeats these names."""
    assert tuple(Mode) == REFLECTION_MODES
    assert authentication.MECHANISMS == MECHANISMS
