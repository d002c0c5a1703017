"""What a user may do in a vhost, as the catalog keeps it."""

from __future__ import annotations

import pytest

from tests.catalog.catalog_stage import CatalogStage, home, rows_in_log
from warren.base.errors import Refused
from warren.base.ids import UserId, VhostId
from warren.catalog import permissions, users, vhosts
from warren.catalog.permissions import PermissionRow
from warren.catalog.rows import RowKind


def ann_and_home(stage: CatalogStage) -> tuple[UserId, VhostId]:
    return stage.catalog.change(lambda writer: users.put(writer, "ann", "", "")).id, home(stage.catalog).id


def permitted(stage: CatalogStage, user: UserId, vhost: VhostId, *patterns: str) -> PermissionRow:
    configure, write, read = patterns
    return stage.catalog.change(lambda writer: permissions.put(writer, user, vhost, configure, write, read))


def test_what_was_permitted_is_there_after_a_restart_that_lost_sql(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    row = permitted(stage, user, vhost, "^mine", ".*", "")
    stage.stop()
    stage.place.set_aside()
    with stage.begin().reading() as connection:
        assert permissions.get(connection, user, vhost) == row
    assert (row.configure, row.write, row.read) == ("^mine", ".*", "")


def test_permitting_again_writes_over_and_the_same_again_writes_nothing(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    first = permitted(stage, user, vhost, "a", "b", "c")
    second = permitted(stage, user, vhost, "", "b", "c")
    assert second.id == first.id and second.configure == ""
    applied = stage.catalog.applied
    assert permitted(stage, user, vhost, "", "b", "c") == second
    assert stage.catalog.applied == applied
    with stage.catalog.reading() as connection:
        assert permissions.every(connection, user) == permissions.every(connection, None, vhost) == [second]
        assert permissions.every(connection, UserId(user + 1)) == permissions.every(connection, user, VhostId(1)) == []


def test_clearing_returns_whether_there_was_anything(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    permitted(stage, user, vhost, ".*", ".*", ".*")
    assert stage.catalog.change(lambda writer: permissions.clear(writer, user, vhost))
    assert not stage.catalog.change(lambda writer: permissions.clear(writer, user, vhost))


def test_permissions_need_an_existing_user_and_vhost(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    for pair in ((UserId(5), vhost), (user, VhostId(5))):
        with pytest.raises(Refused, match="one of them does not exist"):
            permitted(stage, *pair, "", "", "")


def test_permissions_go_with_their_vhost(stage: CatalogStage) -> None:
    user, vhost = ann_and_home(stage)
    other = stage.catalog.change(lambda writer: vhosts.declare(writer, "shop")).id
    permitted(stage, user, vhost, "", "", "")
    stays = permitted(stage, user, other, "", "", "")
    stage.catalog.change(lambda writer: vhosts.delete(writer, vhost))
    assert [id_ for kind, id_ in rows_in_log(stage.database) if kind is RowKind.PERMISSION] == [stays.id]
