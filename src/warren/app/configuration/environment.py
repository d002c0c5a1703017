"""The environment: RabbitMQ's variables, so that what sets them today goes on working, and our own.

    HONOURED    one variable, one choice; ours come first where both are set
    IGNORED     of Erlang or of a cluster: a warning says why nothing comes of them
    RABBITMQ_…  any other: a warning, for whoever set it expects something

WARREN_DATA_DIR is asked for by `places`. A value that cannot be is refused by the name of its variable. The environment
is handed in: nobody here asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from warren.app.configuration.choices import OptionValues
from warren.app.configuration.store_options import STORE_VARIABLES
from warren.app.configuration.values import Read, log_level, name, port, seconds, text
from warren.base.errors import Misuse

HONOURED: dict[str, tuple[str, Read]] = {
    "RABBITMQ_DEFAULT_USER": ("default_user", name),
    "RABBITMQ_DEFAULT_PASS": ("default_password", name),
    "RABBITMQ_DEFAULT_VHOST": ("default_vhost", name),
    "RABBITMQ_NODE_PORT": ("port", port),
    "RABBITMQ_NODE_IP_ADDRESS": ("host", name),
    "RABBITMQ_CONFIG_FILE": ("config", name),
    "RABBITMQ_CONFIG_FILES": ("config_more", name),
    "RABBITMQ_LOGS": ("log_file", text),
    "RABBITMQ_PID_FILE": ("pid_file", name),
    "WARREN_HOST": ("host", name),
    "WARREN_PORT": ("port", port),
    "WARREN_MANAGEMENT_HOST": ("management_host", name),
    "WARREN_MANAGEMENT_PORT": ("management_port", port),
    "WARREN_PROMETHEUS_PORT": ("prometheus_port", port),
    "WARREN_PRODUCT": ("product", name),
    "WARREN_PRODUCT_VERSION": ("product_version", name),
    "WARREN_DRAIN_SECONDS": ("drain_seconds", seconds),
    **STORE_VARIABLES,
    "WARREN_CONFIG": ("config", name),
    "WARREN_CONNECT": ("connect", name),
    "WARREN_CATALOG": ("catalog", name),
    "WARREN_LOG_LEVEL": ("log_level", log_level),
    "WARREN_LOG_FILE": ("log_file", text),
    "WARREN_PID_FILE": ("pid_file", name),
}
_LOG_LEVELS = "RABBITMQ_LOG"  # `debug`, or categories with levels: `connection.debug,+color`
_FAMILY = "RABBITMQ_"

IGNORED: dict[str, str] = {
    "RABBITMQ_ERLANG_COOKIE": "there is no Erlang here",
    "RABBITMQ_NODENAME": "data belongs to its directory, whatever the machine is called",
    "RABBITMQ_MNESIA_BASE": "say where data is with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_MNESIA_DIR": "say where data is with --data-dir or WARREN_DATA_DIR",
    "RABBITMQ_ENABLED_PLUGINS": "management and Prometheus are always there, other plugins are not",
    "RABBITMQ_ENABLED_PLUGINS_FILE": "management and Prometheus are always there, other plugins are not",
    "RABBITMQ_FEATURE_FLAGS": "all that is here is switched on",
}


def read_environment(environment: Mapping[str, str]) -> tuple[OptionValues, list[str]]:
    """What it says, and what of it is passed over. An empty variable is none."""
    told = {variable: value for variable, value in environment.items() if value}
    found: dict[str, Any] = {}
    for variable, (field, read) in HONOURED.items():  # ours stand behind RabbitMQ's, and win
        if variable in told:
            found[field] = _read(variable, told[variable], read)
    if _LOG_LEVELS in told and "log_level" not in found:
        found |= _level(told[_LOG_LEVELS])
    others = sorted(each for each in told if each.startswith(_FAMILY) and each not in HONOURED and each != _LOG_LEVELS)
    warnings = [f"{each} is ignored: {IGNORED.get(each, 'nothing here is called so')}" for each in others]
    return OptionValues(**found), warnings


def _level(value: str) -> dict[str, str]:
    """The level of everything, which is the part without a category."""
    for part in value.split(","):
        if part and "." not in part and part[0] not in "+-":
            level: str = _read(_LOG_LEVELS, part, log_level)
            return {"log_level": level}
    return {}


def _read(variable: str, value: str, read: Read) -> Any:
    try:
        return read(value)
    except Misuse as error:
        raise Misuse(f"{variable}: {error.what}", error.hint) from error
