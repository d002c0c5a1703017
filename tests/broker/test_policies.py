"""Policies: matching, merging, and their effect on running queues with messages."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.faulty_queue import Faults
from tests.broker.policy_changes import change_policy, clear_policy, set_policy
from tests.broker.stage import BrokerStage, Waiter, bodies, settling
from warren.base.errors import Refused
from warren.base.ids import ExchangeId, ParameterId, QueueId, VhostId
from warren.broker.errors import QueueFull, UnknownQueue
from warren.broker.policies import (
    KEYS,
    LIMITS,
    MAX_QUEUES,
    POLICY,
    VHOST_LIMITS,
    InvalidParameter,
    ParameterChange,
    VhostPolicies,
    check_policy,
    merge_arguments,
    merge_definitions,
    term,
)
from warren.broker.queue_arguments import NUMBER_MAX, TIME_MS_MAX, Overflow
from warren.broker.queue_handle import QueueHandle
from warren.broker.storage import BackingRequest
from warren.catalog import exchanges, parameters
from warren.catalog.parameters import ParameterRow
from warren.catalog.queues import QueueRow
from warren.queues.kinds.memory_queue import MemoryQueue

WHO = VhostId(1)


@pytest.fixture
def stage() -> Iterator[BrokerStage]:
    stage = BrokerStage().up()
    yield stage
    stage.down()


def queue_row(name: str, **arguments: Any) -> QueueRow:
    return QueueRow(QueueId(1), WHO, name, True, False, False, {f"x-{key}": value for key, value in arguments.items()})


def of(*policies: Mapping[str, Any]) -> VhostPolicies:
    return VhostPolicies.of(
        ParameterRow(ParameterId(number), WHO, POLICY, f"p{number}", {"pattern": ".*", **policy})
        for number, policy in enumerate(policies)
    )


def name_for(policies: VhostPolicies, name: str, **arguments: Any) -> str:
    policy = policies.of_queue(queue_row(name, **arguments)).policy
    return "" if policy is None else policy.name


# -- matching and merging --------------------------------------------------------------------------------------------


def test_the_highest_priority_applies_alone_and_equal_ones_go_by_name() -> None:
    length = {"definition": {"max-length": 1}}
    policies = of(length | {"priority": 1}, length | {"priority": 2.5}, length | {"priority": -1}, length)
    assert name_for(policies, "q") == "p1"
    assert name_for(of(length, length), "q") == "p0"
    lower = of(length, {"definition": {"message-ttl": 5}, "priority": 1})
    assert lower.queue_arguments(queue_row("q")).max_length is None, "keys of lower priorities do not add up"


def test_a_pattern_matches_anywhere_in_a_name_and_an_empty_one_everything() -> None:
    definition = {"definition": {"max-length": 1}}
    assert name_for(of(definition | {"pattern": "ord"}), "all orders") == "p0"
    assert name_for(of(definition | {"pattern": "^ord"}), "all orders") == ""
    assert name_for(of(definition | {"pattern": ""}), "anything") == "p0"
    odd = "<b>\n%2F'\""
    assert name_for(of(definition | {"pattern": "^<b>\n%2F'\"$"}), odd) == "p0"


def test_a_policy_is_for_queues_or_exchanges_or_both() -> None:
    policies = of(
        {"definition": {"alternate-exchange": "ae"}, "apply-to": "exchanges", "priority": 3},
        {"definition": {"max-length": 1}, "apply-to": "queues", "priority": 2},
        {"definition": {"max-length": 9}},
    )
    assert name_for(policies, "x") == "p1"
    assert policies.alternate_exchange("x") == "ae"
    assert policies.alternate_exchange("") is None, "the default exchange has none"


def test_a_policy_with_a_key_of_another_type_of_queue_does_not_apply() -> None:
    policies = of({"definition": {"delivery-limit": 3, "max-length": 1}, "priority": 1}, {"definition": {"expires": 5}})
    assert name_for(policies, "q") == "p1"
    assert name_for(policies, "q", **{"queue-type": "quorum"}) == "p0"


def test_a_row_that_this_version_cannot_use_is_reported_and_the_others_apply() -> None:
    good = {"definition": {"max-length": 1}}
    for bad in (
        {"definition": {"of a newer version": 1}},
        {"definition": good, "pattern": "(a+)+$"},
        {"definition": 5},
    ):
        policies = of(bad | {"priority": 9}, good)
        assert name_for(policies, "q") == "p1"
        assert len(policies.problems) == 1 and policies.problems[0].startswith("policy 'p0' is not used")


NUMBERS = [key for key, rule in KEYS.items() if rule.is_lower_of and rule.is_argument]
DEFINITIONS = st.fixed_dictionaries(
    {},
    optional={
        **{key: st.integers(1, 9) for key in NUMBERS},
        "overflow": st.sampled_from([str(each) for each in Overflow]),
        "dead-letter-exchange": st.sampled_from(["a", "b"]),
        "queue-mode": st.just("lazy"),
    },
)


@given(DEFINITIONS, DEFINITIONS, DEFINITIONS)
def test_merging_is_the_lower_number_and_otherwise_whoever_is_more_specific(
    arguments: dict[str, Any], own: dict[str, Any], operator: dict[str, Any]
) -> None:
    """Against the rules in RabbitMQ's documentation, key by key."""
    operator = {key: value for key, value in operator.items() if key in NUMBERS}
    table = {f"x-{key}": value for key, value in arguments.items()}
    definition = merge_definitions(own, operator)
    merged = merge_arguments(table, definition)
    for key in {*arguments, *own, *operator}:
        values = [each[key] for each in (arguments, own, operator) if key in each]
        shown = [each[key] for each in (own, operator) if key in each]
        assert definition.get(key) == (None if not shown else min(shown) if key in NUMBERS else shown[0])
        if key == "queue-mode":
            assert merged.get(f"x-{key}") == arguments.get(key), "shown only"
        else:
            assert merged[f"x-{key}"] == (min(values) if key in NUMBERS else values[0])
    assert set(merged) <= {f"x-{key}" for key in {*arguments, *own, *operator}}


def test_numbers_beyond_all_bounds_are_in_effect_as_the_highest() -> None:
    huge = {"message-ttl": 10**30, "max-length": 10**30, "expires": 10**30}
    arguments = of({"definition": huge}).queue_arguments(queue_row("q"))
    assert (arguments.message_ttl_ms, arguments.max_length, arguments.expires_ms) == (
        TIME_MS_MAX,
        NUMBER_MAX,
        TIME_MS_MAX,
    )


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=2)))
def test_any_value_is_refused_with_a_text_or_accepted(value: Any) -> None:
    good = {"pattern": "a", "definition": {"max-length": 1}}
    for key in KEYS:
        refusal = refusal_of(good | {"definition": {key: value}})
        assert not refusal or term(value) in refusal or "ha-mode" in refusal
    for field in ("pattern", "priority", "apply-to"):
        refusal = refusal_of(good | {field: value})
        assert not refusal or field in refusal


def refusal_of(policy: dict[str, Any]) -> str:
    try:
        check_policy(policy)
    except InvalidParameter as error:
        return error.what
    return ""


# -- effects on running queues ---------------------------------------------------------------------------------------


def test_a_lower_length_removes_the_oldest_messages_at_once(stage: BrokerStage) -> None:
    stage.queue("q")
    stage.put(b"1", b"2", b"3", b"4", to="q")
    pending = stage.take("q")
    set_policy(stage.vhost, "p", {"max-length": 2})
    assert stage.length("q") == 2
    stage.put(b"5", to="q")
    assert stage.get("q") == [b"4", b"5"]
    stage.queue_api.requeue(stage.vhost.find_queue("q"), settling(pending))
    assert stage.get("q") == [b"1"], "an unacked message is not touched"
    clear_policy(stage.vhost, "p")
    stage.put(b"6", b"7", b"8", to="q")
    assert stage.length("q") == 3


def test_what_a_new_length_removes_goes_to_the_new_dead_letter_exchange(stage: BrokerStage) -> None:
    for name in ("q", "dead"):
        stage.queue(name)
    stage.put(*(b"%d" % number for number in range(3000)), to="q")
    letters = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    set_policy(stage.vhost, "p", letters, pattern="^q$")
    assert stage.get("q") == [b"2998", b"2999"]
    assert stage.get("dead", 5000) == [b"%d" % number for number in range(2998)], "each of them, in order"


def test_bytes_are_limited_at_once(stage: BrokerStage) -> None:
    stage.queue("q")
    stage.put(b"x" * 50, b"y" * 50, b"z" * 50, to="q")
    set_policy(stage.vhost, "p", {"max-length-bytes": 110})
    assert stage.get("q") == [b"y" * 50, b"z" * 50]


def test_overflow_changes_from_dropping_to_refusing_and_back(stage: BrokerStage) -> None:
    stage.queue("q", max_length=2)
    stage.put(b"1", b"2", to="q")
    set_policy(stage.vhost, "p", {"overflow": "reject-publish"})
    with pytest.raises(QueueFull):
        stage.put(b"3", to="q")
    clear_policy(stage.vhost, "p")
    stage.put(b"3", to="q")
    assert stage.get("q") == [b"2", b"3"]


def test_a_queue_that_begins_to_refuse_drops_nothing(stage: BrokerStage) -> None:
    stage.queue("q")
    stage.put(b"1", b"2", b"3", to="q")
    set_policy(stage.vhost, "p", {"max-length": 1, "overflow": "reject-publish"})
    assert stage.get("q") == [b"1", b"2", b"3"]


def test_a_ttl_expires_messages_that_are_there_and_one_that_was_cleared_does_not(stage: BrokerStage) -> None:
    for name in ("q", "dead"):
        stage.queue(name)
    stage.put(b"1", to="q")
    stage.pass_ms(50)
    letters = {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    set_policy(stage.vhost, "p", {"message-ttl": 100, **letters}, pattern="^q$")
    stage.pass_ms(49)
    assert stage.length("q") == 1
    stage.pass_ms(1)
    assert (stage.length("q"), stage.get("dead")) == (0, [b"1"])
    stage.put(b"2", to="q")
    set_policy(stage.vhost, "p", {"message-ttl": 1000}, pattern="^q$")
    stage.pass_ms(500)
    assert stage.length("q") == 1, "the earlier timer finds nothing to expire"
    clear_policy(stage.vhost, "p")
    stage.pass_ms(10_000)
    assert stage.get("q") == [b"2"]


def test_a_shorter_ttl_has_its_timer_set_again(stage: BrokerStage) -> None:
    stage.queue("q", message_ttl_ms=1000)
    stage.put(b"1", to="q")
    set_policy(stage.vhost, "p", {"message-ttl": 100})
    stage.pass_ms(100)
    assert stage.length("q") == 0


def test_an_expiry_counts_from_the_change_and_deletes_the_queue(stage: BrokerStage) -> None:
    stage.queue("q")
    stage.put(b"1", to="q")
    stage.pass_ms(5000)
    set_policy(stage.vhost, "p", {"expires": 1000})
    stage.pass_ms(999)
    assert stage.vhost.started_queue("q") is not None
    set_policy(stage.vhost, "p", {"expires": 2000})
    stage.pass_ms(1999)
    assert stage.vhost.started_queue("q") is not None, "the same here"
    stage.pass_ms(1)
    with pytest.raises(UnknownQueue):
        stage.vhost.find_queue("q")


def test_an_expiry_that_is_cleared_in_time_leaves_the_queue(stage: BrokerStage) -> None:
    stage.queue("q")
    set_policy(stage.vhost, "p", {"expires": 1000})
    clear_policy(stage.vhost, "p")
    stage.pass_ms(5000)
    assert stage.length("q") == 0


def test_dead_letters_go_where_the_policy_says_at_that_moment(stage: BrokerStage) -> None:
    for name in ("q", "dead", "other"):
        stage.queue(name)

    def reject(body: bytes) -> None:
        stage.put(body, to="q")
        stage.queue_api.reject(stage.vhost.find_queue("q"), settling(stage.take("q")))

    for key in ("dead", "other"):
        set_policy(stage.vhost, "p", {"dead-letter-exchange": "", "dead-letter-routing-key": key}, pattern="^q$")
        reject(b"to " + key.encode())
    clear_policy(stage.vhost, "p")
    reject(b"to nobody")
    assert [stage.get(name) for name in ("dead", "other", "q")] == [[b"to dead"], [b"to other"], []]


def test_a_delivery_limit_also_counts_what_was_requeued_before_the_change(stage: BrokerStage) -> None:
    handle = stage.queue("q", queue_type="quorum")
    stage.put(b"1", to="q")

    def requeue(times: int) -> int:
        for _ in range(times):
            stage.queue_api.requeue(handle, settling(stage.take("q")))
        return stage.length("q")

    assert requeue(5) == 1
    set_policy(stage.vhost, "p", {"delivery-limit": 2})
    assert requeue(1) == 0
    stage.put(b"2", to="q")
    assert requeue(2) == 1
    clear_policy(stage.vhost, "p")
    assert requeue(5) == 1


def test_a_waiting_getter_stays_when_the_policy_changes(stage: BrokerStage) -> None:
    handle, waiter = stage.queue("q"), Waiter()
    stage.vhost.execute([handle], lambda work: handle.serving().wait(waiter, work))
    set_policy(stage.vhost, "p", {"max-length": 5, "message-ttl": 1000})
    stage.put(b"1", to="q")
    assert waiter.handed == [[b"1"]]


def test_only_queues_whose_effective_arguments_changed_are_touched(stage: BrokerStage) -> None:
    handles = {name: stage.queue(name) for name in ("a1", "a2", "b")}
    bounded = stage.queue("a3", max_length=1)
    before = {name: handle.serving().arguments for name, handle in handles.items()}
    own = bounded.serving().arguments
    set_policy(stage.vhost, "p", {"max-length": 5}, pattern="^a")
    assert bounded.serving().arguments is own, "its own argument is lower"
    assert handles["b"].serving().arguments is before["b"]
    assert handles["a1"].serving().arguments.max_length == 5
    changed = handles["a1"].serving().arguments
    set_policy(stage.vhost, "other", {"max-length": 5}, pattern="^a", priority=9)
    assert handles["a1"].serving().arguments is changed, "another policy with the same effect"


def test_a_queue_that_starts_has_its_policies(stage: BrokerStage) -> None:
    set_policy(stage.vhost, "p", {"max-length": 1})
    stage.queue("q")
    stage.put(b"1", b"2", to="q")
    assert stage.get("q") == [b"2"]
    stage.put(b"3", to="q")
    stage.down()
    stage.up()
    stage.put(b"4", to="q")
    assert stage.get("q") == [b"4"]


def test_a_queue_that_failed_and_was_restarted_has_its_policies() -> None:
    faults = Faults()
    stage = BrokerStage({"odd": lambda request: faults.over(MemoryQueue(request.is_durable))}, "odd").up()
    stage.queue("q")
    set_policy(stage.vhost, "p", {"max-length": 1})
    faults.once["publish"] = RuntimeError("a defect")
    with pytest.raises(Exception, match="a defect"):
        stage.put(b"1", to="q")
    assert stage.vhost.find_queue("q").serving().arguments.max_length == 1
    stage.down()


def test_a_queue_that_is_down_does_not_keep_others_from_their_policies() -> None:
    faults = Faults()
    stage = BrokerStage({"odd": lambda request: faults.over(MemoryQueue(request.is_durable))}, restarts_max=0).up()
    for name, backing in (("a", None), ("b", "odd"), ("c", None)):
        stage.queue(name, backing=backing)
    stage.put(b"1", b"2", to=["a", "b", "c"])
    faults.always["drop"] = RuntimeError("a defect")
    set_policy(stage.vhost, "p", {"max-length": 1})
    assert [stage.length(name) for name in ("a", "c")] == [1, 1]
    assert any("could not be applied to queue 'b'" in problem for problem in stage.vhost.problems)
    stage.down()


def test_a_kill_behind_the_change_leaves_the_rest_to_the_next_start(stage: BrokerStage) -> None:
    for name in ("q", "dead"):
        stage.queue(name)
    stage.put(*(b"%d" % number for number in range(5)), to="q")
    letters = {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    change_policy(stage.vhost, "p", letters, pattern="^q$")
    assert stage.length("q") == 5, "as if it was killed here"
    stage.down()
    stage.up()
    assert stage.length("q") == 5
    stage.pass_ms(0)
    assert (stage.get("q"), stage.get("dead")) == ([b"3", b"4"], [b"0", b"1", b"2"])


def test_queues_that_expire_by_a_policy_expire_without_a_client(stage: BrokerStage) -> None:
    for name in ("gone", "messages"):
        stage.queue(name)
    stage.put(b"1", to="messages")
    set_policy(stage.vhost, "p", {"expires": 1000}, pattern="^gone")
    stage.down()
    stage.up()
    stage.vhost.timers.begin = lambda: None  # type: ignore[method-assign]  # the clock is the test's
    stage.vhost.begin()
    assert set(stage.vhost.started_queues()) == {handle.id for handle in stage.vhost.handles() if handle.name == "gone"}
    set_policy(stage.vhost, "ttl", {"message-ttl": 500}, pattern="^messages")  # not started yet
    stage.pass_ms(1000)
    assert (stage.vhost.queue_names(), stage.length("messages")) == (["messages"], 0)


def test_exchanges_follow_the_alternate_of_a_policy_unless_they_have_their_own(stage: BrokerStage) -> None:
    home, catalog = stage.vhost.row.id, stage.catalog
    own = catalog.change(
        lambda writer: exchanges.declare(writer, home, "own", arguments={"alternate-exchange": "amq.fanout"})
    )
    plain = catalog.change(lambda writer: exchanges.declare(writer, home, "plain"))
    with stage.vhost.lock:
        stage.vhost.routing.add_exchange(own)
        stage.vhost.routing.add_exchange(plain)
    handle = stage.queue("q")

    def reached(exchange: ExchangeId, key: str = "q") -> tuple[QueueId, ...]:
        with stage.vhost.lock:
            return stage.vhost.routing.publish(exchange, key).queues

    assert (reached(plain.id), reached(own.id)) == ((), ())
    version = stage.vhost.routing.version
    set_policy(stage.vhost, "p", {"alternate-exchange": ""}, pattern="^[^a]")
    assert stage.vhost.routing.version > version, "caches of routes elsewhere notice"
    assert (reached(plain.id), reached(own.id)) == ((handle.id,), ())
    later = catalog.change(lambda writer: exchanges.declare(writer, home, "later"))
    with stage.vhost.lock:
        stage.vhost.routing.add_exchange(later)
    assert reached(later.id) == (handle.id,), "an exchange that is declared later"
    set_policy(stage.vhost, "p", {"alternate-exchange": "amq.fanout"}, pattern="^[^a]")
    assert reached(plain.id) == ()
    clear_policy(stage.vhost, "p")
    assert (reached(plain.id), reached(later.id)) == ((), ())
    set_policy(stage.vhost, "p", {"alternate-exchange": ""}, pattern="^[^a]")
    stage.down()
    stage.up()
    assert (reached(plain.id), reached(own.id)) == ((stage.vhost.find_queue("q").id,), ())


def test_a_vhost_has_no_more_queues_than_its_limit(stage: BrokerStage) -> None:
    def limit(most: int) -> None:
        stage.vhost.apply(ParameterChange(stage.vhost, VHOST_LIMITS, LIMITS, lambda old: {MAX_QUEUES: most}))

    stage.queue("a")
    limit(1)
    with pytest.raises(Refused, match=r"cannot declare queue 'b': queue limit in vhost '/' \(1\) is reached"):
        stage.queue("b")
    stage.queue("a")
    limit(2)
    stage.queue("b")
    limit(0)
    with pytest.raises(Refused, match="queue limit"):
        stage.queue("c")
    limit(-1)
    stage.queue("c")
    assert stage.vhost.queue_names() == ["a", "b", "c"]


def test_every_queue_has_the_last_policy_whoever_declared_it_meanwhile(stage: BrokerStage) -> None:
    """Declarations, deletions and policies in several threads: no queue is left with an earlier policy."""
    handles: list[QueueHandle] = []
    errors: list[BaseException] = []

    def run(work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            errors.append(error)
            raise

    def declare(who: int) -> None:
        for number in range(40):
            handle = stage.queue(f"{who}-{number}")
            stage.put(b"1", b"2", to=handle.name)
            if number % 5:
                handles.append(handle)
            else:
                stage.vhost.delete_queue(handle)

    def change(who: int) -> None:
        for number in range(25):
            set_policy(stage.vhost, f"p{who}", {"max-length": 1000 + number}, priority=who)

    threads = [threading.Thread(target=run, args=(work, who)) for who in (1, 2) for work in (declare, change)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors and not any(thread.is_alive() for thread in threads)
    assert len(handles) == 64
    assert {handle.serving().arguments.max_length for handle in handles} == {1024}
    with stage.catalog.reading() as connection:
        assert len(parameters.every(connection, stage.vhost.row.id)) == 2
    assert all(bodies(stage.take(handle.name, 5)) == [b"1", b"2"] for handle in handles)


def test_a_queue_that_is_being_started_gets_a_policy_of_that_moment() -> None:
    """It has read the earlier policies, and is not among the started queues yet."""
    is_starting, may_start = threading.Event(), threading.Event()

    def slow(request: BackingRequest) -> MemoryQueue:
        is_starting.set()
        assert may_start.wait(60)
        return MemoryQueue(request.is_durable)

    stage = BrokerStage({"slow": slow}, "slow").up()
    starting = threading.Thread(target=stage.queue, args=("q",))
    starting.start()
    assert is_starting.wait(60)
    change_policy(stage.vhost, "p", {"max-length": 1})
    applying = threading.Thread(target=stage.vhost.apply_policies)
    applying.start()
    applying.join(0.3)  # it waits for the queue
    may_start.set()
    for thread in (starting, applying):
        thread.join(60)
    assert stage.vhost.find_queue("q").serving().arguments.max_length == 1
    stage.down()
