"""The first start creates a user who can log in; later starts change nothing."""

from __future__ import annotations

import pytest

from tests.catalog.catalog_stage import CatalogStage
from warren.app.broker import make_first_user
from warren.base.errors import Refused
from warren.broker.auth.passwords import verify
from warren.broker.auth.permissions import access_to
from warren.catalog import users, vhosts
from warren.catalog.users import UserRow
from warren.catalog.vhosts import VhostRow
from warren.config.configuration import FirstUser

ANN = FirstUser("ann", "secret", "prod", ("management",), "^a", ".*", "")


class Stage(CatalogStage):
    def make(self, first: FirstUser) -> bool:
        return make_first_user(self.catalog, self.rng, first)

    def user(self, name: str) -> UserRow:
        with self.catalog.reading() as connection:
            found = users.get(connection, name)
        assert found is not None
        return found

    def vhost(self, name: str) -> VhostRow:
        with self.catalog.reading() as connection:
            found = vhosts.get(connection, name)
        assert found is not None
        return found


def test_guest_may_do_everything_in_the_home_vhost() -> None:
    stage = Stage()
    stage.begin()
    assert stage.make(FirstUser())
    guest = stage.user("guest")
    assert guest.tags == ("administrator",)
    assert verify("guest", guest.password_hash, guest.hashing_algorithm)
    access = access_to(stage.catalog, guest, stage.vhost("/"))
    assert (access.configure, access.write, access.read) == (".*", ".*", ".*")
    stage.stop()


def test_another_name_vhost_and_permissions_may_be_configured() -> None:
    stage = Stage()
    stage.begin()
    assert stage.make(ANN)
    ann = stage.user("ann")
    access = access_to(stage.catalog, ann, stage.vhost("prod"))
    assert (ann.tags, access.configure, access.write, access.read) == (("management",), "^a", ".*", "")
    with stage.catalog.reading() as connection:
        assert [row.name for row in vhosts.every(connection)] == ["prod"]
    stage.stop()


def test_where_there_is_a_user_nothing_is_made() -> None:
    stage = Stage()
    stage.begin()
    stage.make(ANN)
    before = stage.user("ann")
    stage.again()
    assert not stage.make(FirstUser())
    assert not stage.make(FirstUser("ann", "other"))
    assert stage.user("ann") == before
    with stage.catalog.reading() as connection:
        assert users.get(connection, "guest") is None
    stage.stop()


@pytest.mark.parametrize("first", [FirstUser(configure="("), FirstUser(password=""), FirstUser(name="a" * 300)])
def test_what_cannot_be_is_refused_and_nothing_of_it_is_made(first: FirstUser) -> None:
    stage = Stage()
    stage.begin()
    with pytest.raises(Refused):
        stage.make(first)
    with stage.catalog.reading() as connection:
        assert not users.every(connection) and not vhosts.every(connection)
    stage.stop()
