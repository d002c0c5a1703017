"""The table of verbs, the command line, formatters and links of `warren ctl`, without a broker."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.ctl_lines import LINES
from tests.cli.ctl_stage import CtlStage
from warren.cli.ctl.main import PROGRAMS, main, parse
from warren.cli.ctl.output import Document, Rows, Section, Sections, Sentence, cell, formatted
from warren.cli.ctl.verbs import BY_NAME, VERBS

HEAVY = {
    "numpy",
    "sqlalchemy",
    "rocksdict",
    "typer",
    "rich",
    "asyncio",
    "http.client",
    "argparse",
    "dataclasses",
    "ssl",
}


@pytest.fixture
def ctl(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> CtlStage:
    return CtlStage(capsys, monkeypatch, ["--data-dir", str(tmp_path)], str(tmp_path))


# -- the table ----------------------------------------------------------------------------------------------------


def test_verbs_have_different_names_and_known_lines_use_them() -> None:
    assert len(BY_NAME) == len(VERBS)
    assert {line.verb for line in LINES} - BY_NAME.keys() == {"nosuch_verb", "help"}


@pytest.mark.parametrize("name", BY_NAME)
def test_every_verb_has_help_and_refuses_a_wrong_option(name: str, ctl: CtlStage) -> None:
    for words in (["help", name], [name, "--help"], ["-?", name]):
        shown = ctl.run(*words)
        assert (shown.code, shown.err) == (0, "")
        assert f"warrenctl [options] {name}" in shown.out and BY_NAME[name].help in shown.out
    wrong = ctl.run(name, "--no-such-option")
    assert wrong.code == 64 and "Usage: " in wrong.err and wrong.out == ""


@pytest.mark.parametrize("name", sorted(name for name, verb in BY_NAME.items() if "*" not in verb.arguments))
def test_too_many_arguments_are_refused(name: str, ctl: CtlStage) -> None:
    refused = ctl.run(name, *["x"] * (len(BY_NAME[name].parameters) + 1))
    assert (refused.code, "too many arguments" in refused.err) == (64, True)


@pytest.mark.parametrize("name", BY_NAME)
def test_without_a_broker_every_verb_ends_with_a_sentence(name: str, ctl: CtlStage, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("{}")
    values = {"limit": "0.5", "port": "5672", "level": "info", "definition": "{}", "action": "list", "file": "-"}
    values |= {"pidfile": str(tmp_path / "no pid"), "password": "x"}
    words = [values.get(each.name, "x") for each in BY_NAME[name].parameters if not each.is_many]
    ended = ctl.run(name, *words, "--timeout", "1", typed="{}")
    alone = {"version", "hash_password", "plugins", "report"}  # `report` prints the errors of its verbs
    expected = {"await_startup": 75, "wait": 75, "report": 69}.get(name, 0 if name in alone else 69)
    assert ended.code == expected, ended
    assert ended.err or not expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


def test_the_help_lists_every_verb(ctl: CtlStage) -> None:
    shown = ctl.run("help")
    assert shown.code == 0
    assert all(f"  {name} " in shown.out for name in BY_NAME)
    without = ctl.run()
    assert (without.code, without.out, without.err) == (64, "", shown.out)


# -- the command line ---------------------------------------------------------------------------------------------


def test_options_may_stand_anywhere() -> None:
    lines = ["-q list_queues -p v name", "list_queues name --vhost=v --quiet", "list_queues -q name -pv"]
    for line in lines:
        parsed = parse(line.split())
        assert (parsed.words, parsed.options) == (["list_queues", "name"], {"quiet": "", "vhost": "v"})


def test_after_two_dashes_nothing_is_an_option() -> None:
    assert parse(["add_user", "--", "-ann", "--secret"]).words == ["add_user", "-ann", "--secret"]
    assert parse(["set_policy", "--priority", "-1", "-"]).options == {"priority": "-1"}


def test_a_similar_verb_is_suggested(ctl: CtlStage) -> None:
    refused = ctl.run("list_queue")
    assert (refused.code, "Did you mean 'list_queues'?" in refused.err) == (64, True)


def test_another_formatter_is_refused(ctl: CtlStage) -> None:
    assert ctl.run("list_queues", "--formatter", "xml").code == 64


def test_a_node_of_another_machine_is_not_mistaken_for_this_one(ctl: CtlStage) -> None:
    for local in ("rabbit", "rabbit@localhost", f"rabbit@{os.uname().nodename}"):
        assert "nothing listens" in ctl.run("-n", local, "-q", "ping").err
    refused = ctl.run("-n", "rabbit@elsewhere", "-q", "ping")
    assert (refused.code, "not on this machine" in refused.err) == (69, True)


def test_a_wrong_url_is_refused(ctl: CtlStage) -> None:
    assert ctl.run("--url", "amqp://localhost", "ping").code == 64
    assert ctl.run("--url", "http://127.0.0.1:1", "ping").code == 69


def test_a_hash_is_that_of_rabbitmq(ctl: CtlStage) -> None:
    for answer in (ctl.run("-q", "hash_password", "secret"), ctl.run("-q", "hash_password", typed="secret\n")):
        raw = base64.b64decode(answer.out)
        assert raw[4:] == hashlib.sha256(raw[:4] + b"secret").digest()
    assert ctl.run("hash_password", "").code == 65


def test_plugins_that_are_part_of_warren_can_be_enabled_and_no_others(ctl: CtlStage) -> None:
    assert "rabbitmq_management" in ctl.run("list", program="rabbitmq-plugins").out
    assert ctl.run("list", "-m", "-q", program="rabbitmq-plugins").out.splitlines()[0] == "rabbitmq_management"
    assert ctl.run("enable", "rabbitmq_management", program="rabbitmq-plugins").code == 0
    assert ctl.run("enable", "rabbitmq_mqtt", program="rabbitmq-plugins").code == 70
    assert ctl.run("disable", "rabbitmq_management", program="rabbitmq-plugins").code == 69
    assert ctl.run("nosuch", program="rabbitmq-plugins").code == 64


def test_links_are_made_under_the_names_of_rabbitmqs_commands(
    ctl: CtlStage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin" / "warrenctl"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nimport sys\nfrom warren.cli.ctl.main import main\nsys.exit(main())\n")
    script.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(script.with_name("python")))
    made = ctl.run("--link", str(tmp_path / "links"))
    assert (made.code, made.err) == (0, "")
    assert sorted(path.name for path in (tmp_path / "links").iterdir()) == sorted(PROGRAMS)
    listed = subprocess.run(
        [tmp_path / "links" / "rabbitmq-plugins", "list"], capture_output=True, text=True, check=True
    )
    assert "rabbitmq_management" in listed.stdout
    again = ctl.run("--link", str(tmp_path / "links"))
    assert (again.code, "File exists" in again.err) == (70, True)


def test_a_reader_that_has_enough_sees_no_traceback() -> None:
    command = f"{sys.executable} -m warren ctl help | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert (len(done.stdout.splitlines()), done.stderr) == (1, "")


def test_a_health_check_imports_only_what_it_needs(tmp_path: Path) -> None:
    """Docker runs one every few seconds, `rabbitmq-diagnostics -q ping`: it must take less than 50 ms."""
    program = f"from warren.__main__ import main; main(['ctl', '--data-dir', {str(tmp_path)!r}, '-q', 'ping'])"
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program], capture_output=True, text=True, check=True
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert loaded & HEAVY == set()
    assert {name for name in loaded if name.startswith("warren.")} == {
        *("warren.__main__", "warren.base", "warren.base.errors", "warren.cli", "warren.config"),
        *("warren.config.data_directory", "warren.cli.ctl", "warren.cli.ctl.main", "warren.cli.ctl.call"),
        *("warren.cli.ctl.client", "warren.cli.ctl.output", "warren.cli.ctl.verbs", "warren.cli.ctl.node"),
    }


# -- formatters -----------------------------------------------------------------------------------------------------

ROWS = Rows(["name", "arguments"], [["a", {"x-max-length": 5, "k": "v"}], ["tab\t\x1b[2J\n", None]])


@pytest.mark.parametrize(
    ("formatter", "text"),
    [
        ("table", 'name\targuments\na\t[{"x-max-length",5},{"k","v"}]\ntab\\t\\x1b[2J\\n\t\n'),
        ("csv", '"name","arguments"\n"a","[{""x-max-length"",5},{""k"",""v""}]"\n"tab\\t\\x1b[2J\\n",""\n'),
        (
            "json",
            '[\n{"name":"a","arguments":{"x-max-length":5,"k":"v"}}\n'
            ',{"name":"tab\\t\\u001b[2J\\n","arguments":null}\n]\n',
        ),
    ],
)
def test_rows_are_lines_whatever_is_in_them(formatter: str, text: str) -> None:
    assert formatted(ROWS, formatter, True, "", False) == text


def test_a_pretty_table_is_drawn() -> None:
    drawn = formatted(Rows(["n"], [["é"], ["long"]]), "pretty_table", True, "", False)
    assert drawn.splitlines() == ["┌──────┐", "│ n    │", "├──────┤", "│ é    │", "├──────┤", "│ long │", "└──────┘"]


def test_a_header_can_be_left_out_and_an_empty_list_has_none() -> None:
    assert formatted(Rows(["n"], [["a"]]), "table", False, "", False) == "a\n"
    assert formatted(Rows(["n"], []), "table", True, "", False) == ""
    assert formatted(Rows(["n"], []), "json", True, "", False) == "[\n]\n"


def test_results_that_are_no_lists() -> None:
    assert formatted(None, "table", True, "", False) == ""
    assert formatted(None, "json", True, "n@h", False) == '{"node":"n@h","result":"ok"}\n'
    assert formatted(Sentence("yes"), "json", True, "", False) == '{"message":"yes"}\n'
    assert formatted(Sentence("yes", {"a": 1}), "json", True, "", False) == '{"a":1}\n'
    assert formatted(Document({"a": "é"}), "table", True, "", False) == '{"a": "é"}\n'
    page = Sections([Section("A", ["x", "y"]), Section("B", [])], {"a": 1})
    assert formatted(page, "table", True, "", False) == "A\n\nx\ny\n\nB\n\n"
    assert formatted(page, "table", True, "", True).startswith("\x1b[1mA\x1b[0m\n")
    assert formatted(page, "json", True, "", False) == '{"a":1}\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (1.5, "1.5"),
        ([], "[]"),
        (["administrator", "monitoring"], "[administrator, monitoring]"),
        ({}, "[]"),
        ({"a": [1, "b", None, {"c": False}]}, '[{"a",[1,"b",undefined,[{"c",false}]]}]'),
    ],
)
def test_values_look_as_in_rabbitmqctl(value: object, text: str) -> None:
    assert cell(value) == text


def test_the_command_is_also_the_module(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], "rabbitmqctl") == 0
    assert capsys.readouterr().out.strip()
