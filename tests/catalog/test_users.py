"""Users in the catalog: in the log first, found again, and gone with all that was permitted to them."""

from __future__ import annotations

import pytest

from tests.catalog.catalog_stage import CatalogStage, check, home, rows_in_log
from warren.base.errors import Refused
from warren.base.ids import UserId
from warren.catalog import permissions, users
from warren.catalog import permissions as topic_permissions
from warren.catalog.catalog import Catalog
from warren.catalog.rows import RowKind
from warren.catalog.users import TAG_COUNT_MAX, UserRow


def made_user(catalog: Catalog, name: str = "ann") -> UserRow:
    return catalog.change(lambda writer: users.put(writer, name, "hash", "scrypt", ["administrator"]))


def found(catalog: Catalog, name: str = "ann") -> UserRow | None:
    with catalog.reading() as connection:
        return users.get(connection, name)


def test_a_user_is_there_after_a_restart_even_if_sql_lost_it() -> None:
    stage = CatalogStage()
    ann = made_user(stage.begin())
    ann = stage.catalog.change(lambda writer: users.set_limits(writer, ann.id, {"max-channels": 3}))
    stage.stop()
    stage.forgetful.lose(2)
    assert found(stage.begin()) == ann
    assert ann == UserRow(ann.id, "ann", "hash", "scrypt", ("administrator",), {"max-channels": 3})
    check(stage.catalog, stage.database)
    stage.stop()


def test_putting_a_user_again_writes_over_it_and_keeps_its_id_and_its_limits(stage: CatalogStage) -> None:
    ann = stage.catalog.change(lambda writer: users.put(writer, "ann", "a", "scrypt", limits={"max-connections": 1}))
    again = stage.catalog.change(lambda writer: users.put(writer, "ann", "b", "sha", ["monitoring", "monitoring"]))
    assert again == UserRow(ann.id, "ann", "b", "sha", ("monitoring",), {"max-connections": 1})
    assert found(stage.catalog) == again


def test_a_password_and_tags_are_changed_each_alone(stage: CatalogStage) -> None:
    ann = made_user(stage.catalog)
    stage.catalog.change(lambda writer: users.change_password(writer, ann.id, "other", "sha"))
    stage.catalog.change(lambda writer: users.set_tags(writer, ann.id, []))
    assert found(stage.catalog) == UserRow(ann.id, "ann", "other", "sha")


def test_repeating_a_change_writes_nothing(stage: CatalogStage) -> None:
    ann = made_user(stage.catalog)
    applied = stage.catalog.applied
    assert made_user(stage.catalog) == ann
    stage.catalog.change(lambda writer: users.set_tags(writer, ann.id, ["administrator"]))
    assert stage.catalog.applied == applied


def test_users_are_listed_by_name(stage: CatalogStage) -> None:
    for name in ("zoe", "ann"):
        made_user(stage.catalog, name)
    with stage.catalog.reading() as connection:
        assert [user.name for user in users.every(connection)] == ["ann", "zoe"]


def test_deleting_a_user_deletes_its_permissions_and_a_later_user_does_not_inherit_them(stage: CatalogStage) -> None:
    here, ann, bob = home(stage.catalog), made_user(stage.catalog), made_user(stage.catalog, "bob")
    for user in (ann, bob):
        stage.catalog.change(lambda writer, id_=user.id: permissions.put(writer, id_, here.id, "", "", ".*"))  # type: ignore[misc]
        stage.catalog.change(lambda writer, id_=user.id: topic_permissions.put_topic(writer, id_, here.id, "e", "", ""))  # type: ignore[misc]
    stage.catalog.change(lambda writer: users.delete(writer, ann.id))
    left = [image["user_id"] for (kind, _), image in rows_in_log(stage.database).items() if "user_id" in image]
    assert left == [bob.id, bob.id]
    assert made_user(stage.catalog).id > bob.id
    with stage.catalog.reading() as connection:
        assert [each.user_id for each in permissions.every(connection)] == [bob.id]
        assert [each.user_id for each in topic_permissions.every_topic(connection)] == [bob.id]
    assert RowKind.USER.value == b"U"


def test_what_is_no_user_is_refused(stage: CatalogStage) -> None:
    missing = UserId(7)
    for work in (
        lambda writer: users.delete(writer, missing),
        lambda writer: users.set_tags(writer, missing, []),
        lambda writer: users.change_password(writer, missing, "", ""),
    ):
        with pytest.raises(Refused, match="there is no user 7"):
            stage.catalog.change(work)


def test_names_tags_and_limits_that_cannot_be_are_refused_and_leave_nothing(stage: CatalogStage) -> None:
    many = [str(number) for number in range(TAG_COUNT_MAX + 1)]
    with pytest.raises(Refused, match="the user '' has 0 bytes"):
        made_user(stage.catalog, "")
    with pytest.raises(Refused, match="65 tags"):
        stage.catalog.change(lambda writer: users.put(writer, "ann", "", "", many))
    for limit in ("3", True, 1.5):
        with pytest.raises(Refused, match="it is an integer"):
            stage.catalog.change(lambda writer, it=limit: users.put(writer, "ann", "", "", limits={"max": it}))  # type: ignore[misc]
    assert found(stage.catalog) is None


def test_a_hash_is_not_shown_with_the_user(stage: CatalogStage) -> None:
    ann = stage.catalog.change(lambda writer: users.put(writer, "ann", "c2VjcmV0", "scrypt"))
    assert "c2VjcmV0" not in repr(ann)
