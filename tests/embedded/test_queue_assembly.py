"""Queues of a program, in a vhost that is routed as a broker's: names that come and go are found, and found no more."""

from __future__ import annotations

from pathlib import Path

import warren
from warren.embedded.database import Warren


def routed(db: Warren, name: str) -> bool:
    """Whether the default exchange leads to a queue of this name."""
    vhost = db.queue_room.queues.vhosts.find("/")
    with vhost.lock:
        default = vhost.routing.exchange("")
        assert default is not None
        return bool(vhost.routing.publish(default.id, name).queues)


def test_a_queue_is_found_by_its_name_as_long_as_it_is_there(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        queue = db.queue("jobs")
        assert routed(db, "jobs")
        db.queue("jobs")
        assert routed(db, "jobs") and not routed(db, "other")
        queue.delete()
        assert not routed(db, "jobs")
        db.queue("jobs")
        assert routed(db, "jobs")
    with warren.open(str(tmp_path)) as db:
        assert routed(db, "jobs")


def test_an_expired_queue_is_found_no_more(tmp_path: Path) -> None:
    with warren.open(str(tmp_path)) as db:
        db.queue("short", expires=0.2)
        assert routed(db, "short")
        while routed(db, "short"):
            continue
        assert db.queues() == []
