"""A topic exchange: keys are words between dots, and a binding's key is a pattern of them.

    logs.*.error   * is one word                      root ─ logs ─ * ─ error •
    logs.#         # is any number of words, or none            └ # •
    #.error                                           root ─ # ─ error •

Patterns share a trie. A message's words are taken one after the other, and what is kept is the set of nodes at which
the words so far may have arrived:

    a word leads     from a node to its child of that word and to its child *
    no word leads    from a node to its child #
    a node # stays   where it is, whatever the word

Always true: a node is in the set once, however many ways lead there. So a message costs at most its words times the
trie's nodes; patterns full of # cannot make it cost more. Nothing calls itself: depth is a loop.

As in RabbitMQ the empty key has no words at all (# matches it, * does not), and between two dots is a word of no
letters, which * matches. A word of a message that reads "#" or "*" needs no care: where there is such a child, the
pattern matches that word anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from warren.amqp.types import Table
from warren.base.ids import BindingId
from warren.broker.exchanges.simple import Destination, destination_of
from warren.catalog.bindings import BindingRow

ONE = "*"
ANY = "#"


class _Node:
    __slots__ = ("ends", "handles", "is_any")

    def __init__(self, is_any: bool = False) -> None:
        self.handles: dict[str, _Node] = {}
        self.ends: dict[BindingId, Destination] = {}  # of patterns whose last word this is
        self.is_any = is_any


class Topic:
    looks_at_headers = False

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: BindingRow) -> None:
        node = self._root
        for word in words_of(binding.routing_key):
            node = node.handles.setdefault(word, _Node(word == ANY))
        node.ends[binding.id] = destination_of(binding)

    def remove(self, binding: BindingRow) -> None:
        """Takes the nodes along that lead nowhere any more."""
        node = self._root
        way: list[tuple[_Node, str]] = []
        for word in words_of(binding.routing_key):
            if word not in node.handles:
                return
            way.append((node, word))
            node = node.handles[word]
        node.ends.pop(binding.id, None)
        for parent, word in reversed(way):
            handle = parent.handles[word]
            if handle.ends or handle.handles:
                return
            del parent.handles[word]

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        here: dict[_Node, None] = {}  # a set that keeps its order
        _arrive(here, self._root)
        for word in words_of(routing_key):
            here = _after(word, here)
        return [destination for node in here for destination in node.ends.values()]

    @property
    def node_count(self) -> int:
        """What the trie holds; the root alone is 1."""
        count, open_ = 0, [self._root]
        while open_:
            count += 1
            open_.extend(open_.pop().handles.values())
        return count


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def _after(word: str, here: dict[_Node, None]) -> dict[_Node, None]:
    there: dict[_Node, None] = {}
    for node in here:
        if node.is_any:
            _arrive(there, node)
        _arrive(there, node.handles.get(word))
        _arrive(there, node.handles.get(ONE))
    return there


def _arrive(there: dict[_Node, None], node: _Node | None) -> None:
    """At this node, and at every # behind it, for these need no word."""
    while node is not None and node not in there:
        there[node] = None
        node = node.handles.get(ANY)
