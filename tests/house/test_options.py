"""Every option is documented.

docs/configuration.md is generated from the table of options, which covers every field of every settings class
(tests/config/test_options.py). docs/operations.md has one section for each command (or for a group of commands). Its
heading has the full name (`warren log inspect`), and it names every option; the options of `warren serve` are in
docs/configuration.md.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import pytest
import typer
import typer.main

from tests.house.markdown import Section, rows, sections
from tests.house.source_tree import DOCS, SRC, modules_under
from tools import options_page
from warren.config.options import GROUPS, OPTIONS

OPERATIONS = DOCS / "operations.md"
CONFIGURATION = DOCS / "configuration.md"
TYPERS_OWN = ("--install-completion", "--show-completion")


class Parameter(Protocol):
    @property
    def opts(self) -> Sequence[str]: ...

    @property
    def secondary_opts(self) -> Sequence[str]: ...


class Command(Protocol):
    """The part of Typer's commands that is used. A group has `commands` by name besides."""

    @property
    def params(self) -> Sequence[Parameter]: ...


def commands_below(command: Command) -> Mapping[str, Command]:
    below: Mapping[str, Command] = getattr(command, "commands", {})
    return below


def undocumented_settings(settings: type, page: list[Section]) -> list[str]:
    """Fields of a settings class that a page omits, gets wrong or invents."""
    name = settings.__name__
    sections_of_it = [section for section in page if re.search(rf"\b{name}\b", section.title)]
    if not sections_of_it:
        return [f"{name}: no heading names it"]
    row_of = {cells[0].strip("`"): cells for section in sections_of_it for cells in rows(section.text)}
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return [
        *(f"{name}.{field} has no row" for field in fields if field not in row_of),
        *(f"{name} has no field {field}" for field in row_of if field not in fields),
        *(
            f"{name}.{field} has the default {_default(fields[field])!r}, its row says {row_of[field][1]}"
            for field in fields
            if field in row_of and row_of[field][1].strip("`") not in _spellings(_default(fields[field]))
        ),
    ]


def _default(field: dataclasses.Field[object]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return "required" if field.default is dataclasses.MISSING else field.default


def _spellings(value: object) -> set[str]:
    """The ways a default may be written: 67108864, 67_108_864 or 64 MiB are the same."""
    spellings = {str(value), repr(value)}
    if isinstance(value, int) and not isinstance(value, bool):
        spellings |= {f"{value:_}", f"{value:,}"}
        units = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
        spellings |= {f"{value // size} {unit}" for unit, size in units.items() if value and value % size == 0}
    if value is None:
        spellings.add("none")
    return spellings


def undocumented_options(command: Command, path: str, page: list[Section], inherited: str = "") -> list[str]:
    """Options of a command and of those below it that no section of theirs or of a parent's names."""
    heading = re.compile(rf"`{re.escape(path)}( [A-Z\[<-][^`]*)?`")  # arguments may follow: `warren log inspect DIR`
    own = "\n".join(section.text for section in page if heading.search(section.title))
    text = f"{inherited}\n{own}"
    missing = [
        f"{path} {option}"
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--")
        and option not in TYPERS_OWN
        and not re.search(rf"{re.escape(option)}(?![\w-])", text)
    ]
    for name, below in commands_below(command).items():
        missing += undocumented_options(below, f"{path} {name}", page, text)
    if not commands_below(command) and not re.search(rf"{re.escape(path)}\b", text) and not own:
        missing.append(f"{path} has no section")
    return missing


def _settings_classes() -> Iterator[type]:
    for module in modules_under(SRC):
        if re.search(r"^class \w*Settings\b", module.text, re.MULTILINE):
            for value in vars(importlib.import_module(module.name)).values():
                if isinstance(value, type) and value.__name__.endswith("Settings") and value.__module__ == module.name:
                    assert dataclasses.is_dataclass(value), f"{value} should be a frozen dataclass"
                    yield value


def _page(path: Path) -> list[Section]:
    return sections(path.read_text(encoding="utf-8"))


def test_the_configuration_page_is_made_from_the_table_of_options() -> None:
    is_current = CONFIGURATION.read_text(encoding="utf-8") == options_page.page()
    assert is_current, "run `python -m tools.options_page > docs/configuration.md`"


def test_every_setting_of_warren_is_documented() -> None:
    """Classes in the table of options are compared with their fields by tests/config/test_options.py."""
    in_table = {group.settings for group in GROUPS}
    others = [settings for settings in _settings_classes() if settings.__name__ not in in_table]
    page = _page(CONFIGURATION)
    assert not [offence for settings in others for offence in undocumented_settings(settings, page)]


def test_every_command_line_option_of_warren_is_documented() -> None:
    app = importlib.import_module("warren.cli.main").app
    serve = " ".join(option.flag for option in OPTIONS.values() if option.has_flag)
    page = [*_page(OPERATIONS), Section("`warren serve`", serve)]
    assert not undocumented_options(typer.main.get_command(app), "warren", page)


@dataclasses.dataclass(frozen=True)
class SomeSettings:
    channel_count: int = 4
    file_bytes_max: int = 64 << 20
    directory: str = dataclasses.field(default_factory=str)


GOOD_ROWS = "| `channel_count` | `4` | … |\n| `file_bytes_max` | `64 MiB` | … |\n| `directory` | `` | … |"


@pytest.mark.parametrize(
    ("table", "offence"),
    [
        (GOOD_ROWS.replace("channel_count", "channels"), "SomeSettings.channel_count has no row"),
        (GOOD_ROWS.replace("channel_count", "channels"), "SomeSettings has no field channels"),
        (GOOD_ROWS.replace("`4`", "`8`"), "SomeSettings.channel_count has the default 4, its row says `8`"),
        (
            GOOD_ROWS.replace("64 MiB", "64 KiB"),
            "SomeSettings.file_bytes_max has the default 67108864, its row says `64 KiB`",
        ),
    ],
)
def test_a_setting_the_page_gets_wrong_is_found(table: str, offence: str) -> None:
    assert offence in undocumented_settings(SomeSettings, _settings_page("### SomeSettings", table))


def test_a_settings_class_without_a_heading_is_found() -> None:
    assert undocumented_settings(SomeSettings, _settings_page("### AwesomeSettings", GOOD_ROWS))


def test_a_setting_with_its_default_is_not_an_offence() -> None:
    assert not undocumented_settings(SomeSettings, _settings_page("### Some: `SomeSettings`", GOOD_ROWS))


def _settings_page(heading: str, table: str) -> list[Section]:
    return sections(f"{heading}\n| setting | default | meaning |\n|---|---|---|\n{table}\n")


def _commands() -> Command:
    app, log = typer.Typer(), typer.Typer()
    app.add_typer(log, name="log")

    @log.command()
    def inspect(directory: str, json: bool = False, epoch: int = 0) -> None: ...

    @app.command()
    def demo() -> None: ...

    return typer.main.get_command(app)


DEMO = "## `warren demo`\nShows it at work.\n"


@pytest.mark.parametrize(
    ("page", "offences"),
    [
        ("### `warren log inspect DIR`\n`--json`, `--no-json`, `--epoch E`", []),
        ("### `warren log`\n`warren log inspect` takes `--json`, `--no-json`, `--epoch E`", []),
        ("### `warren log inspect`\n`--json`, `--no-json`, `--epochs`", ["warren log inspect --epoch"]),
        (
            "### `warren log inspector`\n`--json`, `--no-json`, `--epoch`",
            [
                *(f"warren log inspect {option}" for option in ("--json", "--no-json", "--epoch")),
                "warren log inspect has no section",
            ],
        ),
    ],
)
def test_an_option_no_section_names_is_found(page: str, offences: list[str]) -> None:
    assert undocumented_options(_commands(), "warren", sections(DEMO + page)) == offences


def test_a_command_without_options_needs_a_section_too() -> None:
    page = sections("### `warren log inspect`\n`--json`, `--no-json`, `--epoch`")
    assert undocumented_options(_commands(), "warren", page) == ["warren demo has no section"]
