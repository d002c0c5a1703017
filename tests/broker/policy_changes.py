"""Changes of policies in tests: as the management makes them."""

from __future__ import annotations

from typing import Any

from warren.broker.policies import OPERATOR_POLICY, POLICY, ParameterChange, check_policy
from warren.broker.vhost import Vhost


def set_policy(vhost: Vhost, name: str, definition: dict[str, Any], is_operator: bool = False, **more: Any) -> None:
    """For every queue and exchange, unless `more` says otherwise: `pattern`, `priority`, `apply_to`."""
    change_policy(vhost, name, definition, is_operator, **more)
    vhost.apply_policies()


def change_policy(vhost: Vhost, name: str, definition: dict[str, Any], is_operator: bool = False, **more: Any) -> None:
    """Durable; running queues do not have it yet."""
    body = {"pattern": ".*", "definition": definition} | {key.replace("_", "-"): value for key, value in more.items()}
    value = check_policy(body, is_operator)
    vhost.apply(ParameterChange(vhost, OPERATOR_POLICY if is_operator else POLICY, name, lambda old: value))


def clear_policy(vhost: Vhost, name: str, is_operator: bool = False) -> None:
    vhost.apply(ParameterChange(vhost, OPERATOR_POLICY if is_operator else POLICY, name, lambda old: None))
    vhost.apply_policies()
