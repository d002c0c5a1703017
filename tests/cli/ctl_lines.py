"""Command lines for rabbitmqctl and for `warren ctl`, in an order in which each finds what it needs, and how their
answers are compared.

`ask_rabbitmqctl.py` records the answers of RabbitMQ's own commands; tests run the same lines with `warren ctl`, against
a RabbitMQ (tests/interop/test_rabbitmqctl.py) and against Warren (tests/cli/test_ctl_warren.py).
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

ANSWERS = Path(__file__).with_name("rabbitmqctl_answers.json")
DIRECTORY = "DIRECTORY"  # stands for a temporary directory
PORT = "AMQP_PORT"


class CtlLine(NamedTuple):
    text: str
    typed: str = ""  # standard input

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    @property
    def verb(self) -> str:
        options = ("-p", "-n", "-t", "--formatter")
        words = self.words[1:]
        while words and words[0].startswith("-"):
            words = words[2 if words[0] in options else 1 :]
        return words[0] if words else ""


class CtlAnswer(NamedTuple):
    code: int
    out: str
    err: str


def _lines(text: str, program: str = "rabbitmqctl") -> list[CtlLine]:
    found = []
    for line in text.strip().splitlines():
        if line.strip():
            command, _, typed = line.strip().partition(" <<< ")
            found.append(CtlLine(f"{program} {command}", f"{typed}\n" if typed else ""))
    return found


USERS = _lines(r"""
list_users
add_user ann secret
add_user ann secret
add_user bob <<< typed
add_user "" x
add_user
add_user a b c
add_user --nosuch a b
list_users
-q list_users
-s list_users
list_users --no-table-headers
list_users --formatter json
list_users --formatter csv
set_user_tags ann administrator monitoring
set_user_tags nobody administrator
list_users
authenticate_user ann secret
authenticate_user ann wrong
authenticate_user nobody x
authenticate_user bob <<< typed
authenticate_user ann secret --formatter json
change_password ann other
change_password nobody other
change_password bob <<< another
authenticate_user ann other
authenticate_user bob another
clear_password bob
clear_password nobody
authenticate_user bob another
list_users
add_user carl carl --formatter json
set_user_tags carl --formatter json
delete_user nobody
delete_user carl
delete_user carl
set_user_limits ann '{"max-connections": 3}'
set_user_limits ann '{"max-channels": 5}'
set_user_limits nobody '{"max-connections": 3}'
set_user_limits ann '{bad'
list_user_limits
list_user_limits --user ann
list_user_limits --user nobody
list_user_limits --global
list_user_limits --global --formatter json
clear_user_limits ann max-connections
list_user_limits --user ann
clear_user_limits ann all
clear_user_limits nobody all
list_user_limits --global
""")

VHOSTS = _lines(r"""
add_vhost v1
add_vhost v1
add_vhost v2 --description "a vhost"
list_vhosts
list_vhosts name tracing description
list_vhosts nosuch
list_vhosts --formatter json
-s list_vhosts
set_vhost_tags v2 x y
list_vhosts name description tags
set_vhost_limits -p v1 '{"max-connections": 3, "max-queues": 7}'
list_vhost_limits -p v1
set_vhost_limits -p v1 '{"max-connections": 4}'
list_vhost_limits -p v1
set_vhost_limits -p v1 '{"nosuch": 3}'
set_vhost_limits -p nowhere '{"max-connections": 3}'
list_vhost_limits
list_vhost_limits --global
list_vhost_limits -p nowhere
clear_vhost_limits -p v1
list_vhost_limits -p v1
delete_vhost v2
delete_vhost v2
delete_vhost
trace_on -p v1
list_vhosts name tracing
trace_off -p v1
""")

ACCESS = _lines(r"""
set_permissions ann ".*" "w.*" "r"
set_permissions -p v1 ann ".*" ".*" ".*"
set_permissions -p nowhere ann ".*" ".*" ".*"
set_permissions nobody ".*" ".*" ".*"
set_permissions ann "[" ".*" ".*"
set_permissions ann
list_permissions
list_permissions -p v1 --formatter json
list_permissions -p nowhere
list_permissions -q --no-table-headers
list_user_permissions ann
list_user_permissions ann --formatter csv
list_user_permissions nobody
clear_permissions -p v1 ann
clear_permissions -p v1 ann
clear_permissions -p v1 nobody
clear_permissions -p nowhere ann
list_permissions -p v1
set_topic_permissions ann amq.topic "^a" "^b"
set_topic_permissions ann amq.direct "^c" "^d"
set_topic_permissions nobody amq.topic "^a" "^b"
set_topic_permissions -p nowhere ann amq.topic "^a" "^b"
list_topic_permissions
list_topic_permissions -p nowhere
clear_topic_permissions ann amq.topic
list_topic_permissions --formatter json
clear_topic_permissions ann
clear_topic_permissions nobody
list_topic_permissions
list_user_topic_permissions nobody
""")

POLICIES = _lines(r"""
set_policy ttl "^t" '{"message-ttl":1000}' --priority 3 --apply-to queues
set_policy bad "^t" '{"no-such":1000}'
set_policy bad "^t" '{bad'
set_policy bad "[" '{"message-ttl":1000}'
set_policy -p nowhere bad "^" '{"message-ttl":1000}'
set_policy ttl "^t"
list_policies
list_policies --formatter json
list_policies -p nowhere
list_policies -p v1
clear_policy ttl
clear_policy ttl
clear_policy -p nowhere ttl
set_operator_policy op "^t" '{"max-length":1000}' --apply-to queues
list_operator_policies
clear_operator_policy op
clear_operator_policy op
set_parameter nosuch name '{}'
set_parameter nosuch name '{bad'
list_parameters
clear_parameter nosuch name
set_global_parameter gp '{"a":1}'
set_global_parameter gp2 '"text"'
set_global_parameter gp3 '{bad'
clear_global_parameter gp
clear_global_parameter gp
clear_global_parameter gp2
""")

# A test declares the queues `orders` (durable, x-max-length 100, three messages) and `temp`, and the topic exchange
# `ex` bound to `orders` by a.#, before these lines.
LISTS = _lines(r"""
list_queues
list_queues -q
list_queues -s
list_queues name messages consumers durable auto_delete arguments
list_queues name,messages
list_queues name messages --formatter json
list_queues name durable --formatter csv
list_queues --no-table-headers name
list_queues -p v1
list_queues -p nowhere
list_queues nosuch
list_queues --offline
list_queues --timeout 5 name
list_queues --timeout x name
list_exchanges
list_exchanges name type durable auto_delete internal
list_exchanges -p v1 --formatter json
list_exchanges -p nowhere
list_exchanges nosuch
list_bindings
list_bindings source_name routing_key destination_kind
list_bindings -p nowhere
list_connections
list_connections nosuch
list_channels
list_channels nosuch
list_consumers
list_consumers -p nowhere
list_consumers nosuch
purge_queue orders
purge_queue nosuch
purge_queue
delete_queue orders --if-empty
delete_queue temp --if-unused
delete_queue nosuch
close_connection nosuch bye
close_all_connections maintenance
close_all_connections -p v1 maintenance
close_all_connections --formatter json maintenance
close_all_connections
close_all_user_connections guest bye
""")

CHECKS = _lines(
    r"""
ping
-q ping
-s ping
ping --formatter json
check_running
-q check_running
check_local_alarms
check_local_alarms --formatter json
check_alarms
alarms
check_virtual_hosts
check_virtual_hosts --formatter json
check_port_listener 1
check_port_listener x
check_port_listener AMQP_PORT
check_protocol_listener amqp
check_protocol_listener mqtt
listeners --formatter json
status
status --formatter json
cluster_status
memory_breakdown --formatter json
is_running
""",
    "rabbitmq-diagnostics",
)

NODE = _lines(r"""
nosuch_verb
help nosuch_verb
await_startup
await_startup --timeout 5
wait --timeout 1 DIRECTORY/nosuch.pid
export_definitions DIRECTORY/definitions.json
export_definitions /nonexistent/definitions.json
export_definitions
import_definitions DIRECTORY/definitions.json
import_definitions /nonexistent/definitions.json
set_vm_memory_high_watermark 0.5
set_vm_memory_high_watermark 3
set_vm_memory_high_watermark x
set_vm_memory_high_watermark absolute 2GB
set_vm_memory_high_watermark nosuch 2GB
set_vm_memory_high_watermark 0.4
set_disk_free_limit 60MB
set_disk_free_limit mem_relative 0.0001
set_disk_free_limit x
set_disk_free_limit 50MB
set_log_level debug
set_log_level nosuch
set_log_level info
stop_app
stop_app
start_app
""")

LINES = [*USERS, *VHOSTS, *ACCESS, *POLICIES, *LISTS, *CHECKS, *NODE]

# Verbs for which RabbitMQ's management API has no route: not run with --url against RabbitMQ.
NOT_BY_URL = {"set_vm_memory_high_watermark", "set_disk_free_limit", "set_log_level", "stop_app", "start_app"}

# Lines whose standard output differs, by verb, and why. The exit code is compared all the same.
OUTPUT_DIFFERS = {
    "check_running": "names the broker, not RabbitMQ",
    "is_running": "names the broker, not RabbitMQ",
    "ping": "the banner does not mention epmd",
    "listeners": "RabbitMQ has a listener for Erlang, and other purposes",
    "status": "no Erlang; other kinds of memory",
    "cluster_status": "no Erlang",
    "memory_breakdown": "other kinds of memory",
    "import_definitions": "the import has ended when the command returns",
    "list_vhosts": "tags are a list however they were set",
    "stop_app": "the banner does not name the Erlang application",
}
# Lines whose exit code differs, and why.
CODE_DIFFERS = {
    "rabbitmqctl trace_on -p nowhere": "a vhost that does not exist cannot be traced",
}


def normalized(text: str, node: str, port: int, directory: str) -> list[str]:
    """Lines without escape sequences, blank lines and the prompt; sorted, since the order of rows is not defined."""
    text = re.sub(r"\x1b\[\d*m", "", text).replace(directory, DIRECTORY).replace(node, "NODE").replace(str(port), PORT)
    text = re.sub(r"(?m)^Password: ?", "", text)
    return sorted(line.rstrip().removeprefix(",") for line in text.splitlines() if line.strip())
