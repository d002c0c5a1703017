"""Variables of the environment: honoured, ignored with a warning, or not ours."""

from __future__ import annotations

import pytest

from warren.base.errors import Misuse
from warren.config.options import IGNORED_VARIABLES, VARIABLES, OptionValues, read_environment


def test_a_variable_is_honoured_or_ignored() -> None:
    assert not set(VARIABLES) & set(IGNORED_VARIABLES)


def test_variables_of_rabbitmq_are_honoured() -> None:
    choices, warnings = read_environment(
        {
            "RABBITMQ_DEFAULT_USER": "ann",
            "RABBITMQ_DEFAULT_PASS": "secret",
            "RABBITMQ_DEFAULT_VHOST": "prod",
            "RABBITMQ_NODE_PORT": "5673",
            "RABBITMQ_NODE_IP_ADDRESS": "0.0.0.0",
            "RABBITMQ_CONFIG_FILE": "/etc/r.conf",
            "RABBITMQ_CONFIG_FILES": "/etc/conf.d",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_LOG": "connection.debug,warning,+color",
            "RABBITMQ_PID_FILE": "/run/warren.pid",
            "PATH": "/bin",
        }
    )
    assert not warnings
    assert choices == OptionValues(
        default_user="ann",
        default_pass="secret",
        default_vhost="prod",
        port=5673,
        host="0.0.0.0",
        config="/etc/r.conf",
        config_files="/etc/conf.d",
        log_file="-",
        log_level="warning",
        log_connection_level="debug",
        pid_file="/run/warren.pid",
    )


def test_ours_come_before_theirs() -> None:
    choices, _ = read_environment({"RABBITMQ_NODE_PORT": "1", "WARREN_PORT": "2", "WARREN_PRODUCT": "RabbitMQ"})
    assert choices == OptionValues(port=2, product="RabbitMQ")
    assert read_environment({"RABBITMQ_LOG": "debug", "WARREN_LOG_LEVEL": "error"})[0]["log_level"] == "error"


def test_what_is_erlangs_is_ignored_with_a_reason_and_an_empty_one_is_none() -> None:
    choices, warnings = read_environment(
        {
            "RABBITMQ_ERLANG_COOKIE": "x",
            "RABBITMQ_NODENAME": "rabbit@a",
            "RABBITMQ_OTHER": "1",
            "RABBITMQ_NODE_PORT": "",
        }
    )
    assert choices == OptionValues()
    assert warnings == [
        "RABBITMQ_ERLANG_COOKIE is ignored: there is no Erlang here",
        "RABBITMQ_NODENAME is ignored: data belongs to its directory, whatever the machine is called",
        "RABBITMQ_OTHER is ignored: unknown variable",
    ]


def test_variables_that_are_not_ours_are_ignored() -> None:
    assert read_environment({"WARREN_PURE": "1", "HOME": "/root"}) == (OptionValues(), [])


@pytest.mark.parametrize(
    ("variable", "value"),
    [("RABBITMQ_NODE_PORT", "amqp"), ("WARREN_DRAIN_SECONDS", "soon"), ("RABBITMQ_LOG", "loud")],
)
def test_what_cannot_be_is_refused_by_the_name_of_the_variable(variable: str, value: str) -> None:
    with pytest.raises(Misuse, match=f"^{variable}: '{value}'"):
        read_environment({variable: value})


def test_passwords_are_shown_nowhere() -> None:
    choices, _ = read_environment({"RABBITMQ_DEFAULT_PASS": "secret", "WARREN_CONNECT": "postgresql://u:secret@h/d"})
    assert "secret" not in repr(choices)
