"""docs/configuration.md, made from the table of options.

python -m tools.options_page > docs/configuration.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from warren.config.configuration import Configuration
from warren.config.options import (
    GROUPS,
    IGNORED_KEYS,
    IGNORED_VARIABLES,
    KEY_FAMILIES,
    NOT_OPTIONS,
    Option,
    OptionGroup,
)

HEAD = """\
# Configuration

Generated from `src/warren/config/options.py` by `python -m tools.options_page`; a house test compares. How to run a
broker: [operations.md](operations.md).

Every option of `warren serve` has one name and three places:

| place | example | precedence |
|---|---|---|
| command line | `--rotate-bytes 64MiB` | first |
| environment | `WARREN_ROTATE_BYTES=64MiB` | second |
| `rabbitmq.conf` | `rotate_bytes = 64MiB` | third |

The tables name the option (`rotate_bytes`), its default in `warren serve`, the settings field that it fills, and
RabbitMQ's own variables and keys where there are some. An option that RabbitMQ has keeps RabbitMQ's key; its own name
is then not a key. Programs that use `warren.open` set the same fields: `warren.LogSettings(rotate_bytes=64 << 20)`, see
[embedded.md](embedded.md).

A value that does not parse is refused, with flag, variable, or file and line, before anything is opened. Unknown keys
and unknown `RABBITMQ_…` variables are ignored with a warning in the event log. `WARREN_…` variables take precedence
over RabbitMQ's.

* **Sizes**: `4096`, `50MB`, `1GiB`. `kB`, `MB`, `GB` are powers of 1000; `KiB`, `MiB`, `GiB` and a letter alone (`1G`)
  of 1024.
* **Durations** are in the unit that the name or the text says; `SECONDS` may have a fraction.
* **Lists**: `guest,ann`, or `none`. **Truth values**: `true`, `false`.
* **Files**: lines of `key = value`; `#` begins a comment; a value in single quotes may hold one. The ending `.conf` of
  `config` is optional. In every path of a directory `~` is the home directory.
"""

TAIL = """\
## Compaction by command: `CompactionSettings`

For `warren compact` and `warren log compact`: `--engine`, or `WARREN_COMPACTION_ENGINE`.

| field | default | meaning |
|---|---|---|
| `engine` | `auto` | `auto`: Spark if installed and there is `spark_bytes_min` to merge; or `inprocess`, `spark` |
| `spark_bytes_min` | `4 GiB` | below it starting Spark takes longer than the merge |
"""


def page() -> str:
    return "\n".join([HEAD, *(_group(group) for group in GROUPS), _families(), _ignored(), TAIL])


def _group(group: OptionGroup) -> str:
    title = f"{group.title}: `{group.settings}`" if group.settings else group.title
    head = "| option | default | meaning | field | also |\n|---|---|---|---|---|\n"
    return f"## {title}\n\n{head}{''.join(map(_row, group.options))}{_without_option(group)}"


def _row(option: Option) -> str:
    name = f"`{option.name}`" + ("" if option.has_flag else " (no flag)")
    fields = ", ".join(f"`{path.rpartition('.')[2]}`" for path in option.fields)
    families = [family for family, options in KEY_FAMILIES.items() if option.name in options]
    keys = [key for key in (*option.all_keys, *families) if key != option.name]
    also = ", ".join(f"`{each}`" for each in (*option.variables, *keys))
    text = option.help if option.all_keys or families else f"{option.help} Not in rabbitmq.conf."
    text = text if option.has_variable else f"{text} Flag only."
    choices = f" (`{_cell(option.parse.metavar)}`)" if "|" in option.parse.metavar else ""
    default = f"`{option.default}`" if option.default else ""
    return f"| {name} | {default} | {_cell(text)}{choices} | {fields} | {also} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _without_option(group: OptionGroup) -> str:
    areas = {path.rpartition(".")[0] for option in group.options for path in option.fields}
    rows = [row for path, row in _fields_without_option() if path.rpartition(".")[0] in areas]
    if not rows:
        return ""
    head = "| field without an option | default in a program | meaning | in `warren serve` |\n|---|---|---|---|\n"
    return f"\n{head}{''.join(rows)}"


def _fields_without_option() -> Iterator[tuple[str, str]]:
    for path, (meaning, reason) in NOT_OPTIONS.items():
        area, _, field = path.rpartition(".")
        default = getattr(type(getattr(Configuration(), area))(), field)
        yield path, f"| `{field}` | `{default}` | {meaning} | {reason} |\n"


def _families() -> str:
    return """\
## Keys of several lines

| key | value |
|---|---|
| `listeners.tcp.NAME` | `5672`, `0.0.0.0:5672`, `[::1]:5672`. One listener is served; `none` is refused |
| `loopback_users.NAME` | `true` or `false`, for each user; `loopback_users = none` for no user |
| `auth_mechanisms.N` | `PLAIN` or `AMQPLAIN`, in the order of the keys |
| `default_user_tags.TAG` | `true` or `false`, for each tag |
| `log.file`, `log.dir` | file name (or `true`: `warren.log`; `false`: standard error) and its directory |
"""


def _ignored() -> str:
    rows = {**{f"`{key}`": why for key, why in IGNORED_KEYS.items()}}
    rows |= {f"`{variable}`": why for variable, why in IGNORED_VARIABLES.items()}
    body = "".join(f"| {name} | {why} |\n" for name, why in rows.items())
    head = "## Known and ignored\n\nEach is a warning in the event log.\n\n| key or variable | reason |\n|---|---|\n"
    return head + body


if __name__ == "__main__":
    sys.stdout.write(page())
