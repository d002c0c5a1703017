"""Topic exchange: routing keys are words separated by dots, and a binding key is a pattern of words.

    logs.*.error   * is one word                      root ─ logs ─ * ─ error •
    logs.#         # is any number of words, or none            └ # •
    #.error                                           root ─ # ─ error •

Patterns share a trie. `match` takes the words of a message one by one, and keeps the set of nodes that the words so far
may have reached:

    a word           leads from a node to its child of that word and to its child *
    no word          leads from a node to its child #
    a node #         stays in the set, whatever the word

Invariant: a node is in the set once, however many paths lead to it. So a message costs at most its words times the
trie's nodes, also with patterns full of #. There is no recursion.

As in RabbitMQ the empty key has no words (# matches it, * does not), and two adjacent dots enclose an empty word, which
* matches. A message's word "#" or "*" needs no special case: where there is such a child, its pattern matches that word
anyway.
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
    __slots__ = ("children", "ends", "is_any")

    def __init__(self, is_any: bool = False) -> None:
        self.children: dict[str, _Node] = {}
        self.ends: dict[BindingId, Destination] = {}  # patterns whose last word this is
        self.is_any = is_any


class Topic:
    uses_headers = False

    __slots__ = ("_root",)

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: BindingRow) -> None:
        node = self._root
        for word in words_of(binding.routing_key):
            node = node.children.setdefault(word, _Node(word == ANY))
        node.ends[binding.id] = destination_of(binding)

    def remove(self, binding: BindingRow) -> None:
        """Also removes nodes that lead nowhere any more."""
        node = self._root
        path: list[tuple[_Node, str]] = []
        for word in words_of(binding.routing_key):
            if word not in node.children:
                return
            path.append((node, word))
            node = node.children[word]
        node.ends.pop(binding.id, None)
        for parent, word in reversed(path):
            child = parent.children[word]
            if child.ends or child.children:
                return
            del parent.children[word]

    def match(self, routing_key: str, headers: Table) -> Iterable[Destination]:
        reached: dict[_Node, None] = {}  # an ordered set
        _add_node(reached, self._root)
        for word in words_of(routing_key):
            reached = _after(word, reached)
        return [destination for node in reached for destination in node.ends.values()]

    @property
    def node_count(self) -> int:
        """Nodes of the trie; the root alone is 1."""
        count, open_ = 0, [self._root]
        while open_:
            count += 1
            open_.extend(open_.pop().children.values())
        return count


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def _after(word: str, reached: dict[_Node, None]) -> dict[_Node, None]:
    """The nodes that are reached with one more word."""
    following: dict[_Node, None] = {}
    for node in reached:
        if node.is_any:
            _add_node(following, node)
        _add_node(following, node.children.get(word))
        _add_node(following, node.children.get(ONE))
    return following


def _add_node(reached: dict[_Node, None], node: _Node | None) -> None:
    """Add this node, and the # nodes below it, which need no word."""
    while node is not None and node not in reached:
        reached[node] = None
        node = node.children.get(ANY)
