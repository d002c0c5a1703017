"""Rates and samples of the API."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx
import pika
import pytest

from tests.server.broker_process import BrokerProcess
from warren.base.errors import Refused
from warren.management.statistics import QUEUE_SAMPLES, SampleRing, SampleWindow, window_of

AT = 1_700_000_000_000  # milliseconds since 1970


def ring(*values: int, size: int = QUEUE_SAMPLES) -> SampleRing:
    """One number, a sample every five seconds."""
    made = SampleRing(["publish"], size)
    for number, value in enumerate(values):
        made.add(AT + number * 5000, [value])
    return made


def test_a_rate_is_that_of_the_last_two_samples() -> None:
    assert ring(0, 0, 50).details("publish", None) == {"rate": 10.0}
    assert ring(0, 50, 50).details("publish", None) == {"rate": 0.0}
    assert ring(7).details("publish", None) == {"rate": 0.0}


def test_samples_are_listed_newest_first_within_the_age_that_was_asked_for() -> None:
    shown = ring(0, 10, 20, 40).details("publish", SampleWindow(age=10, step=5))
    assert [each["sample"] for each in shown["samples"]] == [40, 20, 10]
    assert [each["timestamp"] for each in shown["samples"]] == [AT + 15000, AT + 10000, AT + 5000]
    assert (shown["avg_rate"], shown["avg"]) == (3.0, 70 / 3)


def test_a_step_longer_than_the_interval_leaves_samples_out() -> None:
    shown = ring(*range(0, 130, 10)).details("publish", SampleWindow(age=60, step=20))
    assert [each["sample"] for each in shown["samples"]] == [120, 80, 40, 0]


def test_a_ring_keeps_a_fixed_number_of_samples() -> None:
    shown = ring(*range(100)).details("publish", SampleWindow(age=3600, step=5))
    assert len(shown["samples"]) == QUEUE_SAMPLES


def test_only_a_full_ring_of_equal_samples_is_constant() -> None:
    assert ring(5, 5, 5, size=3).is_constant
    assert not ring(5, 5, size=3).is_constant
    assert not ring(4, 5, 5, size=3).is_constant
    assert ring(4, 5, 5, 5, size=3).is_constant


@pytest.mark.parametrize(("age", "step"), [("x", "5"), ("60", "0"), ("60", "-1"), ("99999999", "5"), ("86401", "5")])
def test_a_window_that_makes_no_sense_is_refused(age: str, step: str) -> None:
    with pytest.raises(Refused):
        window_of({"lengths_age": age, "lengths_incr": step}, "lengths")


def test_no_samples_are_shown_unless_both_parameters_are_given() -> None:
    assert window_of({"lengths_age": "60"}, "lengths") is None
    assert window_of({"lengths_age": "60", "lengths_incr": "5"}, "msg_rates") is None
    assert window_of({"lengths_age": "60", "lengths_incr": "5"}, "lengths") == SampleWindow(60, 5)


def test_a_running_broker_shows_rates_of_its_queues_and_of_itself(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))
        channel = connection.channel()
        for queue in ("used", "unused"):
            channel.queue_declare(queue, durable=True)
        for _ in range(20):
            channel.basic_publish("", "used", b"x")
        method, _, _ = channel.basic_get("used")
        channel.basic_ack(method.delivery_tag)
        channel.basic_get("used", auto_ack=True)
        with httpx.Client(base_url=f"http://127.0.0.1:{broker.management_port}", auth=("guest", "guest")) as client:

            def get(path: str) -> dict[str, Any]:
                answer = client.get(path)
                assert answer.status_code == 200, answer.text
                return dict(answer.json())

            deadline = time.monotonic() + 60
            while (
                not (stats := get("/api/queues/%2F/used").get("message_stats")) or not stats["publish_details"]["rate"]
            ):
                assert time.monotonic() < deadline, "no sample was taken"
                time.sleep(0.2)
            assert (stats["publish"], stats["get"], stats["get_no_ack"], stats["ack"]) == (20, 1, 1, 1)
            assert (stats["deliver_get"], stats["deliver"]) == (2, 0)
            sampled = get("/api/queues/%2F/used?lengths_age=60&lengths_incr=5&msg_rates_age=60&msg_rates_incr=5")
            assert sampled["messages_details"]["samples"][0]["sample"] == 18
            assert sampled["message_stats"]["publish_details"]["samples"][0]["sample"] == 20
            overview = get("/api/overview?msg_rates_age=60&msg_rates_incr=5")
            assert overview["message_stats"]["publish"] == 20
            assert overview["message_stats"]["publish_details"]["samples"][0]["sample"] == 20
            assert overview["queue_totals"]["messages_details"]["rate"] > 0
            assert "message_stats" not in get("/api/queues/%2F/unused")
            assert client.get("/api/overview?msg_rates_age=x&msg_rates_incr=5").status_code == 400
        connection.close()
