"""Runtime parameters, as the catalog keeps them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test
from sqlalchemy.exc import IntegrityError

from tests.catalog.catalog_stage import CatalogStage, home, rows_in_log
from tests.catalog.test_catalog_machine import NAMES, VHOSTS, CatalogMachine, vhost_id
from warren.base.errors import Refused
from warren.base.ids import VhostId
from warren.catalog import parameters, vhosts
from warren.catalog.parameters import ParameterRow
from warren.catalog.rows import RowKind, RowWriter

VALUES: list[Any] = [None, True, 0, -7, 1.5, "", 'a "quoted" <é> \U0001f407', [], [1, [None]], {}, {"!": "bytes"}]
GLOBAL = parameters.GLOBAL


def put(stage: CatalogStage, vhost: VhostId | None, component: str, name: str, value: Any) -> ParameterRow:
    return stage.catalog.change(lambda writer: parameters.put(writer, vhost, component, name, value))


def test_any_json_is_there_after_a_restart_that_lost_sql(stage: CatalogStage) -> None:
    here = home(stage.catalog).id
    for number, value in enumerate(VALUES):
        put(stage, here, "policy", f"v{number:02}", value)
        put(stage, None, GLOBAL, f"v{number:02}", value)
    stage.stop()
    stage.place.set_aside()
    with stage.begin().reading() as connection:
        for vhost in (here, None):
            found = parameters.every(connection, vhost)
            assert [row.value for row in found] == VALUES
            assert [type(row.value) for row in found] == list(map(type, VALUES))


def test_there_is_one_parameter_of_a_name_also_where_the_vhost_is_null(stage: CatalogStage) -> None:
    here = home(stage.catalog).id
    for vhost in (here, None):
        first = put(stage, vhost, "policy", "p", 1)
        second = put(stage, vhost, "policy", "p", 2)
        assert second.id == first.id
        with stage.catalog.reading() as connection:
            assert parameters.every(connection, vhost) == [second]
            assert parameters.get(connection, vhost, "policy", "p") == second

        def insert_twice(writer: RowWriter, vhost: VhostId | None = vhost) -> None:
            writer.insert(RowKind.PARAMETER, {"vhost_id": vhost, "component": "policy", "name": "p", "value": 3})

        with pytest.raises(IntegrityError):
            stage.catalog.change(insert_twice)


def test_a_name_is_another_one_in_another_vhost_or_component(stage: CatalogStage) -> None:
    here = home(stage.catalog).id
    other = stage.catalog.change(lambda writer: vhosts.declare(writer, "other")).id
    for vhost in (here, other, None):
        for component in ("policy", "operator_policy"):
            put(stage, vhost, component, "p", [vhost, component])
    with stage.catalog.reading() as connection:
        for vhost in (here, other, None):
            found = [(row.component, row.value) for row in parameters.every(connection, vhost)]
            assert found == [(name, [vhost, name]) for name in ("operator_policy", "policy")]


def test_the_same_value_again_writes_nothing(stage: CatalogStage) -> None:
    first = put(stage, None, GLOBAL, "g", {"a": 1, "b": 2})
    applied = stage.catalog.applied
    assert put(stage, None, GLOBAL, "g", {"b": 2, "a": 1}) == first
    assert stage.catalog.applied == applied
    assert put(stage, None, GLOBAL, "g", {"a": 1.0, "b": 2}).id == first.id
    assert stage.catalog.applied > applied


def test_clearing_returns_whether_there_was_one(stage: CatalogStage) -> None:
    put(stage, None, GLOBAL, "g", 1)
    assert stage.catalog.change(lambda writer: parameters.clear(writer, None, GLOBAL, "g"))
    assert not stage.catalog.change(lambda writer: parameters.clear(writer, None, GLOBAL, "g"))


def test_parameters_of_a_vhost_are_deleted_with_it_and_others_stay(stage: CatalogStage) -> None:
    here = home(stage.catalog).id
    other = stage.catalog.change(lambda writer: vhosts.declare(writer, "other")).id
    for vhost in (here, other, None):
        put(stage, vhost, "policy", "p", 1)
    stage.catalog.change(lambda writer: vhosts.delete(writer, other))
    left = [image["vhost_id"] for (kind, _), image in rows_in_log(stage.database).items() if kind is RowKind.PARAMETER]
    assert sorted(left, key=str) == sorted([here, None], key=str)


def test_a_parameter_needs_an_existing_vhost_a_name_and_json(stage: CatalogStage) -> None:
    here = home(stage.catalog).id
    with pytest.raises(Refused, match="there is none"):
        put(stage, VhostId(5), "policy", "p", 1)
    for name in ("", "x" * 256, "a\0b"):
        with pytest.raises(Refused, match="bytes"):
            put(stage, here, "policy", name, 1)
    for value in (float("inf"), [float("nan")], "\ud800", {"a": "\ud800"}):
        with pytest.raises(Refused):
            put(stage, here, "policy", "p", value)
    with stage.catalog.reading() as connection:
        assert parameters.every(connection, here) == []


class ParametersMachine(CatalogMachine):
    """Against a plain dict, while vhosts come and go and SQL and the disk forget."""

    def __init__(self) -> None:
        super().__init__()
        self.parameters: dict[tuple[str | None, str], int] = {}

    @rule(vhost=VHOSTS | st.none(), name=NAMES, value=st.integers(0, 2))
    def put_parameter(self, vhost: str | None, name: str, value: int) -> None:
        if vhost is None or vhost in self.model.vhosts:
            self.catalog.change(lambda writer: parameters.put(writer, _id(writer, vhost), "policy", name, value))
            self.parameters[vhost, name] = value

    @rule(vhost=VHOSTS | st.none(), name=NAMES)
    def clear_parameter(self, vhost: str | None, name: str) -> None:
        if vhost is None or vhost in self.model.vhosts:
            was_there = self.parameters.pop((vhost, name), None) is not None
            assert was_there == self.catalog.change(
                lambda writer: parameters.clear(writer, _id(writer, vhost), "policy", name)
            )

    @invariant()
    def parameters_equal_the_dict(self) -> None:
        for vhost, name in list(self.parameters):
            if vhost is not None and vhost not in self.model.vhosts:
                del self.parameters[vhost, name]
        with self.catalog.reading() as connection:
            owners = [(None, None), *((row.name, row.id) for row in vhosts.every(connection))]
            found = {(vhost, row.name): row.value for vhost, id_ in owners for row in parameters.every(connection, id_)}
        assert found == self.parameters


def _id(writer: RowWriter, vhost: str | None) -> VhostId | None:
    return None if vhost is None else vhost_id(writer, vhost)


def test_parameters_equal_a_plain_dict_after_any_loss() -> None:
    run_state_machine_as_test(
        ParametersMachine, settings=settings(max_examples=15, stateful_step_count=30, deadline=None)
    )
