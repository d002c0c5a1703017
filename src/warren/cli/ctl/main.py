"""`warren ctl`, `warrenctl`: parse a command line by the table of verbs, run the verb, print its result.

    warren ctl [options] VERB [arguments] [options]     options may stand anywhere; after -- nothing is an option

    0   good                              67   no such user
    64  wrong usage, no such verb         69   not running, or refused by the broker
    65  wrong value, no such vhost        70   a conflict, such as a user that exists; 75 a time limit

Under the name rabbitmqctl, rabbitmq-diagnostics or rabbitmq-plugins (`warren ctl --link DIR` makes the links) it is the
same command; `rabbitmq-plugins list` is the verb `plugins list`.

The broker is found by its data directory: `--data-dir`, else WARREN_DATA_DIR, else the default of `warren serve`; or by
`--url http://USER:PASSWORD@HOST:15672` (also WARREN_URL, which other users of the machine do not see). If it does not
run, verbs of users, vhosts, permissions, policies and definitions use its files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from warren.base.errors import WarrenError
from warren.cli.ctl.call import Call, Parameter, Verb, WrongUsage, timed_out, timeout_of
from warren.cli.ctl.client import (
    OK,
    SOFTWARE,
    UNAVAILABLE,
    USAGE,
    ApiClient,
    CtlError,
    FilesClient,
    NotRunning,
    UnixClient,
    UrlClient,
    data_directory,
    is_store,
    socket_path,
)
from warren.cli.ctl.output import FORMATTERS, formatted
from warren.cli.ctl.verbs import BY_NAME, VERBS

PROGRAMS = ("rabbitmqctl", "rabbitmq-diagnostics", "rabbitmq-plugins")
PLUGINS_PROGRAM = "rabbitmq-plugins"
INTERRUPTED = 130
_SHORT = {"p": "vhost", "n": "node", "q": "quiet", "s": "silent", "t": "timeout", "l": "longnames", "?": "help"}
_SHORT |= {"h": "help", "m": "minimal", "e": "enabled", "E": "enabled", "v": "verbose"}
_WITH_VALUE = {"vhost", "node", "timeout", "formatter", "url", "data-dir", "socket", "link", "erlang-cookie"}
_WITH_VALUE |= {"script-name", "rabbitmq-home", "mnesia-dir", "plugins-dir", "enabled-plugins-file", "printer"}
_SWITCHES = {"quiet", "silent", "longnames", "help", "version", "json", "dry-run", "print-stacktrace"}
_LOCAL_HOSTS = ("", "localhost", "127.0.0.1")
_GENERAL = """\
Options of all verbs:
  -p, --vhost VHOST       vhost of verbs that concern one (default: /)
  -q, --quiet             no banner                     -s, --silent     no banner, no header row
  --formatter NAME        table, json, csv, pretty_table; --json is the same as --formatter json
  -t, --timeout SECONDS   of the request (default: 60; `infinity`)
  --data-dir DIR          data directory of the broker (WARREN_DATA_DIR)
  --socket PATH           its socket, if it is elsewhere
  --url URL               management API of another machine: http://USER:PASSWORD@HOST:15672 (WARREN_URL)
  -n, --node NODE         accepted if it names this machine
"""


class CommandLine(NamedTuple):
    words: list[str]  # the verb and its arguments
    options: dict[str, str]
    unknown: list[str]


def main(arguments: Sequence[str] | None = None, program: str | None = None) -> int:
    """Run a command line; its exit code."""
    program = program or os.path.basename(sys.argv[0])
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = run(arguments, program)
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK


def run(arguments: Sequence[str], program: str) -> int:
    line = parse(arguments)
    if "link" in line.options:
        return _link(line.options["link"])
    if "version" in line.options:
        line = line._replace(words=["version"])
    words = ["plugins", *line.words] if program == PLUGINS_PROGRAM and line.words[:1] != ["help"] else line.words
    is_help = "help" in line.options or words[:1] == ["help"]
    name = next(iter(words[1:] if words[:1] == ["help"] else words), "")
    if not name:
        (sys.stdout if is_help else sys.stderr).write(general_help(program))
        return OK if is_help else USAGE
    verb = BY_NAME.get(name)
    if verb is None:
        sys.stderr.write(_unknown_verb(name, program))
        return USAGE
    if is_help:
        sys.stdout.write(verb_help(verb, program))
        return OK
    return _run_verb(verb, line._replace(words=words), arguments, program)


def _run_verb(verb: Verb, line: CommandLine, arguments: Sequence[str], program: str) -> int:
    is_json = _formatter(line.options) == "json"
    try:
        return _print_result(verb, line)
    except WrongUsage as error:
        shown = " ".join(arguments)
        sys.stderr.write(f"Error (argument validation): {error.text}\nArguments given:\n\t{shown}\n\n")
        sys.stderr.write(f"{usage(verb, program)}\n")
        return error.code
    except CtlError as error:
        if is_json and error.facts is not None:
            import json

            sys.stderr.write(json.dumps(error.facts) + "\n")
        else:
            sys.stderr.write(f"Error:\n{error.text}\n" if error.has_label else f"{error.text}\n")
        return error.code
    except WarrenError as error:  # of the files of a stopped broker
        sys.stderr.write(f"Error:\n{error}\n")
        return UNAVAILABLE


def _print_result(verb: Verb, line: CommandLine) -> int:
    formatter = _formatter(line.options)
    if formatter not in FORMATTERS:
        raise WrongUsage(f"there is no formatter {formatter}: {', '.join(FORMATTERS)}", USAGE)
    options = {"vhost": "/", **line.options}
    named, many = _arguments(verb, line)
    client = _client(verb, options)

    def run_other(name: str, more: Sequence[str]) -> str:
        return _captured(name, [*more], line, client)

    call = Call(verb, named, many, options, client, _read_secret, run_other)
    try:
        return _execute(call, formatter)
    except TimeoutError:
        raise timed_out(call) from None
    finally:
        client.close()


def _execute(call: Call, formatter: str) -> int:
    verb, options = call.verb, call.options
    if verb.validate is not None:
        verb.validate(call)
    is_silent = "silent" in options
    if not is_silent and "quiet" not in options and formatter in ("table", "pretty_table") and (text := call.banner):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    if "dry-run" in options:
        return OK
    result = verb.run(call)
    has_header = not is_silent and "no-table-headers" not in options
    node = call.node if formatter == "json" and result is None else ""
    sys.stdout.write(formatted(result, formatter, has_header, node, sys.stdout.isatty()))
    return OK


def _captured(name: str, more: Sequence[str], line: CommandLine, client: ApiClient) -> str:
    """The output of a verb without arguments, for `report`; its error, if it fails."""
    verb = BY_NAME[name]
    options = {"vhost": "/", **line.options, **parse(more).options}
    call = Call(verb, {}, [], options, client, _read_secret, lambda name, more: "")
    try:
        result = formatted(verb.run(call), "table", True, "", False)
        return f"{call.banner}\n{result}"
    except CtlError as error:
        return f"{call.banner}\nError: {error.text}\n"


# -- parsing ----------------------------------------------------------------------------------------------------------


def parse(arguments: Sequence[str]) -> CommandLine:
    """Options of all verbs and of the verb that the line names. An option without a value is `""`."""
    verbs_options = {name for verb in VERBS for name in verb.options.split()}
    with_value = _WITH_VALUE | {name[:-1] for name in verbs_options if name.endswith("=")}
    switches = _SWITCHES | {name for name in verbs_options if not name.endswith("=")}
    line = CommandLine([], {}, [])
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if word == "--":
            line.words.extend(reversed(waiting))
            break
        if word == "-" or not word.startswith("-") or _is_number(word):
            line.words.append(word)
            continue
        name, has_value, value = word[2:].partition("=") if word.startswith("--") else (word[1:2], word[2:], word[2:])
        name = name.replace("_", "-") if word.startswith("--") else _SHORT.get(name, "")
        if name in with_value and (has_value or waiting):
            line.options[name] = value if has_value else waiting.pop()
        elif name in switches and not has_value:
            line.options[name] = ""
        else:
            line.unknown.append(word)
    return line


def _is_number(word: str) -> bool:
    return word[1:].isdecimal()


def _formatter(options: Mapping[str, str]) -> str:
    return "json" if "json" in options else options.get("formatter", "table")


def _arguments(verb: Verb, line: CommandLine) -> tuple[dict[str, str], list[str]]:
    own = {name.rstrip("=") for name in verb.options.split()} | _WITH_VALUE | _SWITCHES
    unknown = [*line.unknown, *(f"--{name}" for name in line.options if name not in own)]
    if unknown:
        raise WrongUsage("Invalid options for this command:\n" + "\n".join(f"{each} : " for each in unknown), USAGE)
    values, parameters = line.words[1:], verb.parameters
    single: list[Parameter] = [each for each in parameters if not each.is_many]
    least = sum(not each.is_optional for each in single)
    if len(values) < least:
        raise WrongUsage("not enough arguments.", USAGE)
    if len(values) > len(single) and len(single) == len(parameters):
        raise WrongUsage("too many arguments.", USAGE)
    named = dict(zip((each.name for each in single), values, strict=False))
    return named, values[len(single) :]


def _client(verb: Verb, options: Mapping[str, str]) -> ApiClient:
    timeout = timeout_of(options)
    if url := options.get("url", os.environ.get("WARREN_URL", "") if "socket" not in options else ""):
        return UrlClient(url, timeout)
    _require_local(options.get("node", ""))
    directory = data_directory(options.get("data-dir"))
    unix = UnixClient(options.get("socket") or socket_path(directory), timeout)
    if verb.works_stopped and "socket" not in options and is_store(directory) and not _answers(unix):
        sys.stderr.write(f"The broker of {directory} is not running: using its files\n")
        return FilesClient(directory)
    return unix


def _answers(client: UnixClient) -> bool:
    try:
        client.request("GET", "/api/version")
    except NotRunning:
        return False
    return True


def _require_local(node: str) -> None:
    host = node.partition("@")[2]
    if host.lower() not in (*_LOCAL_HOSTS, os.uname().nodename.lower(), os.uname().nodename.partition(".")[0].lower()):
        raise NotRunning(f"node '{node}' is not on this machine: name its management API with --url")


def _read_secret() -> str:
    if sys.stdin.isatty():
        from getpass import getpass

        return getpass("Password: ")
    return sys.stdin.readline().rstrip("\r\n")


# -- help -------------------------------------------------------------------------------------------------------------


def usage(verb: Verb, program: str) -> str:
    return f"Usage: {_shown_program(program)} [options] {verb.usage}"


def _shown_program(program: str) -> str:
    return program if program in (*PROGRAMS, "warrenctl") else "warren ctl"


def verb_help(verb: Verb, program: str) -> str:
    return f"{usage(verb, program)}\n\n{verb.help}\n\n{_GENERAL}"


def general_help(program: str) -> str:
    groups: dict[str, list[Verb]] = {}
    for verb in VERBS:
        groups.setdefault(verb.group, []).append(verb)
    width = max(len(verb.name) for verb in VERBS)
    lines = [f"Usage: {_shown_program(program)} [options] VERB [arguments]"]
    for group, verbs in groups.items():
        lines += ["", f"{group}:", *(f"  {verb.name:<{width}}  {verb.help}" for verb in verbs)]
    links = "  --link DIR              create rabbitmqctl, rabbitmq-diagnostics and rabbitmq-plugins in DIR\n"
    return "\n".join([*lines, "", f"{_GENERAL}{links}", f"{_shown_program(program)} help VERB shows its arguments.\n"])


def _unknown_verb(name: str, program: str) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name, BY_NAME, 1)
    hint = f"Did you mean '{close[0]}'?\n" if close else f"See {_shown_program(program)} help\n"
    return f"Command '{name}' not found.\n{hint}"


def _link(directory: str) -> int:
    """Symbolic links under the names of RabbitMQ's commands to warrenctl, which is beside this interpreter."""
    import shutil

    beside = os.path.join(os.path.dirname(sys.executable), "warrenctl")
    target = beside if os.path.exists(beside) else shutil.which("warrenctl")
    if target is None:
        sys.stderr.write("Error:\nwarrenctl is not installed: pip install warren\n")
        return SOFTWARE
    try:
        os.makedirs(directory, exist_ok=True)
        for name in PROGRAMS:
            os.symlink(target, os.path.join(directory, name))
            sys.stdout.write(f"{os.path.join(directory, name)} -> {target}\n")
    except OSError as error:
        sys.stderr.write(f"Error:\n{error.filename2 or error.filename}: {error.strerror}\n")
        return SOFTWARE
    return OK


if __name__ == "__main__":
    sys.exit(main())
