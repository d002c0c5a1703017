"""Differences between the answers of Warren and of RabbitMQ that stay, each with its reason.

A pattern is searched in the line that `replay` prints for a difference: `METHOD PATH: field a.b is missing`.
"""

from __future__ import annotations

from typing import Final

# Fields that are not compared: internals of Erlang's virtual machine, and statistics whose presence depends on timing.
IGNORED: Final = (
    r"_details$",
    r"(^|\.|\])(reductions|garbage_collection|message_stats|erlang_\w+|run_queue|gc_\w+|context_switches)",
)

EXPLAINED: Final[dict[str, str]] = {}
