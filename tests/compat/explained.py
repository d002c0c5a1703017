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

_NUMBERS = r"(messages?(_\w+)?|memory|consumers|state|policy|operator_policy|effective_policy_definition)"

EXPLAINED: Final[dict[str, str]] = {
    # -- the node
    r"listeners\[\]\.socket_opts\.": "options of Erlang's sockets",
    r"overview.*: field problems is new": "what needs an operator; RabbitMQ has no such list",
    r"field release_series_support_status is missing": "a date of RabbitMQ's own support",
    r"/nodes.*: field \S*(io_|mnesia_|msg_store_|queue_index_|proc_|ra_|net_|metrics_gc)": "RabbitMQ's own parts",
    r"/nodes.*(config_files|enabled_plugins|log_files) is empty": "no plugins; the files are in the environment",
    r"GET /api/extensions: the list is empty": "extensions are scripts of a web interface, which Warren has not",
    r"port-listener/1: refusal": "the ports of each broker are different",
    r"protocol-listener/mqtt: refusal": "the broker has no clustering protocol, and one for Prometheus",
    r"overview.*: field object_totals\.consumers is new": "RabbitMQ omits a total of 0 until it has statistics",
    # -- queues and exchanges
    r"/queues.*: field \S*(members|online|leader|open)\b.* is missing": "replicas of a quorum queue",
    r"/channels.*: field \S*pending_raft_commands is missing": "replicas of a quorum queue",
    r"columns=policy.*instead of \[\]": "RabbitMQ shows these fields of a new queue after some seconds",
    r"/queues.*: field \S*(backing_queue_status|recoverable_slaves|slave_nodes)\b.* is missing": "RabbitMQ's internals",
    r"/queues.*: field \S*(consumer_capacity|consumer_utilisation|idle_since|head_message_timestamp) is missing": (
        "not measured: it would cost work for every message"
    ),
    r"/queues.*: field \S*(exclusive_consumer_tag|single_active_consumer_tag) is missing": "see /api/consumers",
    r"/queues.*: field \S*(incoming|deliveries) is missing": "rates of pairs of objects are not kept",
    rf"/queues.*: field (items)?(\[\])?\.?{_NUMBERS} is new": "RabbitMQ shows these some seconds later",
    rf"/vhosts.*: field (\[\]\.)?{_NUMBERS} is new": "RabbitMQ shows these some seconds later",
    r"/vhosts.*: field (\[\]\.)?(send|recv)_oct is missing": "bytes are counted by connection",
    r"/exchanges.*: field \S*(incoming|outgoing) is missing": "rates of pairs of objects are not kept",
    r"field \S*user_who_performed_action is missing": "who declared an object is in the log, not in the catalog",
    r"queues/%2F/nope/bindings: the list is empty": "RabbitMQ lists the default binding of a queue that does not exist",
    r"location 'q/key~\w+' instead of 'q/key~": "the hash of arguments is longer: 72 bits instead of 32",
    r"routing_key is text instead of number": "a routing key is text",
    # -- definitions
    r"GET /api/definitions: field vhosts\[\]\.(description|tags) is new": "RabbitMQ 3.10 exports names only",
    r"GET /api/definitions: field warnings is new": "names of users whose hash RabbitMQ could not use",
    r"POST /api/definitions: status 400 instead of 204 .*inequivalent arg": (
        "a queue that exists with other arguments refuses the whole import; RabbitMQ skips it"
    ),
    # -- refusals
    r"ACCESS_REFUSED - .*instead of.*(Access refused\.|ACCESS_REFUSED - access)": "the missing permission is named",
    r"403 ACCESS_REFUSED - write access to exchange": "the missing permission is named",
    r"instead of 500 ": "RabbitMQ fails on this request",
    r"(permissions|policies)/.*pattern": "the text of another regular-expression library",
    r"invalid exchange type 'nope'": "the text that RabbitMQ has for the same error in AMQP",
    r"status 400 instead of 201 \(.*not_string": "a routing key that is a number is refused",
    r"page=0: refusal": "RabbitMQ shows the page size as undefined",
    r"publish: refusal .*key_missing": "RabbitMQ breaks the line",
}
