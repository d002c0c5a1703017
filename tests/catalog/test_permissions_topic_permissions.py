"""By which routing keys a user may use a topic exchange, as the catalog keeps it."""

from __future__ import annotations

import pytest

from tests.catalog.catalog_stage import CatalogStage, home, rows_in_log
from warren.base.errors import Refused
from warren.base.ids import UserId, VhostId
from warren.catalog import permissions, users, vhosts
from warren.catalog.permissions import TopicPermissionRow
from warren.catalog.rows import RowKind


def ann_and_home(stage: CatalogStage) -> tuple[UserId, VhostId]:
    return stage.catalog.change(lambda writer: users.put(writer, "ann", "", "")).id, home(stage.catalog).id


def permitted(stage: CatalogStage, user: UserId, vhost: VhostId, exchange: str, write: str = "w") -> TopicPermissionRow:
    return stage.catalog.change(lambda writer: permissions.put_topic(writer, user, vhost, exchange, write, "r"))


def test_each_exchange_has_patterns_of_its_own_also_one_that_is_not_there_yet(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    permitted_rows = [permitted(stage, user, vhost, name) for name in ("amq.topic", "later", "")]
    stage.stop()
    stage.place.set_aside()
    with stage.begin().reading() as connection:
        assert permissions.every_topic(connection, user, vhost) == permitted_rows
        assert permissions.get_topic(connection, user, vhost, "later") == permitted_rows[1]
        assert permissions.get_topic(connection, user, vhost, "never") is None


def test_permitting_again_writes_over_and_the_same_again_writes_nothing(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    first = permitted(stage, user, vhost, "e")
    second = permitted(stage, user, vhost, "e", "other")
    assert (second.id, second.write) == (first.id, "other")
    applied = stage.catalog.applied
    assert permitted(stage, user, vhost, "e", "other") == second
    assert stage.catalog.applied == applied


def test_clearing_takes_one_exchange_or_all(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    for name in ("a", "b", "c"):
        permitted(stage, user, vhost, name)
    assert stage.catalog.change(lambda writer: permissions.clear_topic(writer, user, vhost, "b")) == 1
    assert stage.catalog.change(lambda writer: permissions.clear_topic(writer, user, vhost)) == 2
    assert stage.catalog.change(lambda writer: permissions.clear_topic(writer, user, vhost)) == 0


def test_permissions_need_an_existing_user_and_vhost(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    for pair in ((UserId(5), vhost), (user, VhostId(5))):
        with pytest.raises(Refused, match="one of them does not exist"):
            permitted(stage, *pair, "e")


def test_topic_permissions_go_with_their_vhost(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    other = stage.catalog.change(lambda writer: vhosts.declare(writer, "shop")).id
    permitted(stage, user, vhost, "e")
    stays = permitted(stage, user, other, "e")
    stage.catalog.change(lambda writer: vhosts.delete(writer, vhost))
    assert [id_ for kind, id_ in rows_in_log(stage.database) if kind is RowKind.TOPIC_PERMISSION] == [stays.id]
