from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.exchanges.rows import binding
from warren.broker.exchanges.topic import Topic, words_of

KEYS = st.lists(st.sampled_from(["a", "b", "", "#", "*"]), max_size=6).map(".".join)
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#", "#"]), max_size=6).map(".".join)


def matches(pattern: list[str], words: list[str]) -> bool:
    """The rule in its simplest form, regardless of its cost."""
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(matches(pattern[1:], words[taken:]) for taken in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and matches(pattern[1:], words[1:])


@pytest.mark.parametrize(
    ("pattern", "met", "not_met"),
    [
        ("logs.*.error", ["logs.a.error", "logs..error"], ["logs.error", "logs.a.b.error", "logs.a.error.c"]),
        ("logs.#", ["logs", "logs.a", "logs.a.b"], ["log", "", "a.logs"]),
        ("#.error", ["error", "a.error", "a.error.b.error"], ["error.a", ""]),
        ("#", ["", "a", "a.b", "."], []),
        ("*", ["a", "#"], ["", "a.b", "."]),
        ("*.#", ["a", "a.b"], [""]),
        ("a.#.#.b", ["a.b", "a.c.b", "a.c.c.b"], ["a", "b", "a.b.c"]),
        ("", [""], ["a", "."]),
        (".", ["."], ["", ".."]),
    ],
)
def test_words_of_the_pattern_are_met(pattern: str, met: list[str], not_met: list[str]) -> None:
    topic = Topic()
    topic.add(binding(1, 100, 1, pattern))
    assert [key for key in met + not_met if topic.match(key, {})] == met


@given(st.lists(PATTERNS, max_size=12), st.lists(KEYS, max_size=5), st.data())
def test_the_trie_finds_what_a_naive_matcher_finds_while_bindings_come_and_go(
    patterns: list[str], keys: list[str], data: st.DataObject
) -> None:
    topic = Topic()
    bound = {number: binding(number, 100, number, pattern) for number, pattern in enumerate(patterns, 1)}
    for row in bound.values():
        topic.add(row)
    for number in data.draw(st.sets(st.sampled_from(sorted(bound)))) if bound else ():
        topic.remove(bound.pop(number))
    for key in keys:
        wanted = {row.queue_id for row in bound.values() if matches(words_of(row.routing_key), words_of(key))}
        found = [queue for queue, _ in topic.match(key, {})]
        assert set(found) == wanted
        assert len(found) == len(wanted), "a binding is met once, however many ways lead to it"


@given(st.lists(PATTERNS, max_size=12))
def test_removed_bindings_leave_no_nodes_behind(patterns: list[str]) -> None:
    topic = Topic()
    rows = [binding(number, 100, number, pattern) for number, pattern in enumerate(patterns, 1)]
    for row in rows:
        topic.add(row)
    for row in rows:
        topic.remove(row)
    assert topic.node_count == 1


def test_removing_one_pattern_keeps_its_prefixes_and_extensions() -> None:
    topic = Topic()
    for number, pattern in enumerate(("a", "a.b", "a.b.c"), 1):
        topic.add(binding(number, 100, number, pattern))
    topic.remove(binding(2, 100, 2, "a.b"))
    assert [topic.match(key, {}) for key in ("a", "a.b", "a.b.c")] == [[(1, None)], [], [(3, None)]]


def test_patterns_full_of_wildcards_are_matched_in_steps_that_do_not_explode() -> None:
    """Exhaustive matching would take longer than the age of the universe; the run time of the test is the check."""
    topic = Topic()
    topic.add(binding(1, 100, 1, ".".join(["#", "a"] * 60)))
    topic.add(binding(2, 100, 2, ".".join(["#", "a"] * 60 + ["b"])))
    topic.add(binding(3, 100, 3, ".".join(["#"] * 120)))
    assert {queue for queue, _ in topic.match(".".join(["a"] * 120), {})} == {1, 3}
