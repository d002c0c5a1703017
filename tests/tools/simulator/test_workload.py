"""Scripts: what is written is what is read, and a mistake is named with its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.simulator.workload import ALL_CLIENTS, Script, ScriptOperation, parse, phases, text, value_bytes
from tools.simulator.workload_shapes import SHAPES, generate
from warren.base.errors import Misuse

SCRIPT = """
store channels=2 seed=7
a begin 1 0          # a remark
a put 1 7 k3 s1.0*9
a commit 1
. kill
b flush
"""


def test_a_script_is_read_line_by_line() -> None:
    script = parse(SCRIPT)
    assert script.settings == {"channels": 2, "seed": 7}
    assert [str(operation) for operation in script.operations] == [
        "a begin 1 0",
        "a put 1 7 k3 s1.0*9",
        "a commit 1",
        ". kill",
        "b flush",
    ]


@given(st.sampled_from(sorted(SHAPES)), st.integers(0, 1 << 16))
def test_what_is_printed_is_what_is_read(shape: str, seed: int) -> None:
    script = generate(shape, seed)
    assert parse(text(script)) == script


@pytest.mark.parametrize("shape", SHAPES)
def test_one_seed_is_one_script_and_another_is_another(shape: str) -> None:
    assert generate(shape, 3) == generate(shape, 3)
    assert generate(shape, 3).operations != generate(shape, 4).operations


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(5))
def test_every_session_has_a_put_and_no_two_puts_have_the_same_value(shape: str, seed: int) -> None:
    operations = generate(shape, seed).operations
    begun = {operation.number(0) for operation in operations if operation.verb == "begin"}
    puts = [operation for operation in operations if operation.verb == "put"]
    values = [value_bytes(put.arguments[3]) for put in puts]
    assert begun == {put.number(0) for put in puts}
    assert len(set(values)) == len(values)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("a fly 1", "is no operation"),
        ("a", "is no operation"),
        (". begin 1 0", "is no operation"),
        ("a reopen", "is no operation"),
        ("a begin 1", "begin has 1 arguments"),
        ("a begin one 0", "session 'one' is not a number"),
        ("store channels=two", "channels needs a number"),
    ],
)
def test_a_mistake_is_named_with_its_line(line: str, reason: str) -> None:
    with pytest.raises(Misuse, match="line 2: ") as raised:
        parse(f"# first\n{line}\n")
    assert reason in raised.value.what


def test_an_unknown_workload_is_answered_with_those_there_are() -> None:
    with pytest.raises(Misuse, match="append"):
        generate("apend", 1)


def test_a_life_ends_with_the_line_that_ends_it() -> None:
    processes = [[str(operation) for operation in life] for life in parse(SCRIPT).processes()]
    assert processes == [["a begin 1 0", "a put 1 7 k3 s1.0*9", "a commit 1", ". kill"], ["b flush"]]


def test_lines_of_all_clients_part_the_phases() -> None:
    lines = [
        ScriptOperation("a", "flush"),
        ScriptOperation("b", "flush"),
        ScriptOperation(ALL_CLIENTS, "check"),
        ScriptOperation("a", "flush"),
    ]
    assert [(is_all, len(group)) for is_all, group in phases(lines)] == [(False, 2), (True, 1), (False, 1)]


def test_a_value_is_repeated_to_its_size() -> None:
    assert value_bytes("ab*5") == b"ababa"
    assert value_bytes("ab") == b"ab"


def test_an_empty_script_prints_as_nothing_but_a_newline() -> None:
    assert parse(text(Script(()))) == Script(())
