from __future__ import annotations

import asyncio
import sys
import threading
from typing import Any

import msgspec
import pytest

from escrowmq.aio import Message, Outcome, Producer
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client import instance
from escrowmq.client.checking import NoMarkerFound
from escrowmq.client.producer import INNER_GROUP
from escrowmq.codec.client_bodies import HeartbeatBody
from escrowmq.codec.record import encode_message

from .peer import Link, a_place, ends

END = Request.END_TRANSACTION


def run(test: Any) -> None:
    asyncio.run(test())


def ask(link: Link, *, topic: str = "T", group: str = "PG", **properties: str) -> None:
    """Ask what became of a transaction, as brokers do."""
    body = encode_message(
        StoredMessage(
            topic=topic,
            body=b"x",
            properties={"PGROUP": group, "UNIQ_KEY": "K", "mine": "1", **properties},
            queue_offset=3,
            log_offset=99,
            stored_ms=1,
            record_size=0,
        )
    )
    fields = {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "tranStateTableOffset": "3",
        "commitLogOffset": "99",
        "msgId": "K",
        "transactionId": "K",
        "bname": "b",
    }
    link.ask(Request.CHECK_TRANSACTION_STATE, fields, body)


async def asked(settings: dict[str, Any], **properties: str) -> list[Command]:
    """The answers to one check of a producer with these settings."""
    async with (
        a_place("T") as (names, broker),
        Producer(names.address, group="PG", topics=["T"], **settings),
    ):
        await broker.until(lambda: broker.links)
        ask(broker.links[0], **properties)
        await broker.until(lambda: ends(broker))
        return [command for command in broker.requests if command.code == END]


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_check_is_answered_with_what_the_function_says(outcome: Outcome) -> None:
    seen: list[Any] = []

    def check(message: Any) -> Outcome:
        seen.append((message, threading.current_thread().name))
        return outcome

    (answer,) = asyncio.run(asked({"check": check}))
    assert answer.ext == {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "bname": "b",
        "producerGroup": "PG",
        "tranStateTableOffset": "3",
        "commitLogOffset": "99",
        "commitOrRollback": str(outcome.value),
        "fromTransactionCheck": "true",
        "msgId": "K",
        "transactionId": "K",
    }
    message, thread = seen[0]
    assert (message.topic, message.body, message.properties) == ("T", b"x", {"mine": "1"})
    assert thread == "escrowmq-check", "users' code runs on a thread of its own"


def test_a_coroutine_function_answers_checks_too() -> None:
    async def check(message: Any) -> Outcome:
        await asyncio.sleep(0)
        return Outcome.COMMIT

    (answer,) = asyncio.run(asked({"check": check}))
    assert (answer.ext or {})["commitOrRollback"] == "8"


def test_a_check_that_meets_a_cancellation_says_that_it_does_not_know() -> None:
    async def check(message: Any) -> Outcome:
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        future.cancel()
        return await future

    (answer,) = asyncio.run(asked({"check": check}))
    assert (answer.ext or {})["commitOrRollback"] == "0"


def test_the_checker_is_found_by_name_then_by_topic_then_the_one_for_all() -> None:
    def says(outcome: Outcome) -> Any:
        return lambda message: outcome

    settings = {
        "checkers": {"by-name": says(Outcome.COMMIT), "T": says(Outcome.ROLLBACK)},
        "check": says(Outcome.UNKNOWN),
    }
    for properties, value in (
        ({"escrowChecker": "by-name"}, "8"),
        ({}, "12"),
        ({"escrowChecker": "nobody"}, "12"),
        ({"topic": "U"}, "0"),
    ):
        (answer,) = asyncio.run(asked(settings, **properties))
        assert (answer.ext or {})["commitOrRollback"] == value, properties


@pytest.mark.parametrize("found", [None, "COMMIT", ValueError("planted"), StopIteration()])
def test_a_check_that_fails_or_answers_nonsense_leaves_the_outcome_open(found: Any) -> None:
    def check(message: Any) -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    (answer,) = asyncio.run(asked({"check": check}))
    assert (answer.ext or {})["commitOrRollback"] == "0"
    assert (answer.remark or "").startswith("checkLocalTransactionState Exception")


@pytest.mark.parametrize("found", [True, False, 8, "COMMIT"])
def test_what_is_no_outcome_is_told_with_what_is_expected(
    found: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (answer,) = asyncio.run(asked({"check": lambda _: found}))
    assert (answer.ext or {})["commitOrRollback"] == "0"
    assert "Outcome.COMMIT, ROLLBACK or UNKNOWN is expected" in caplog.text


def test_a_check_that_hangs_is_left_alone_and_others_are_answered() -> None:
    release = threading.Event()

    def check(message: Any) -> Outcome:
        if message.message_id == "K" and not message.properties.get("quick"):
            release.wait(30)
        return Outcome.COMMIT

    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", topics=["T"], check=check, check_timeout_ms=50),
        ):
            await broker.until(lambda: broker.links)
            ask(broker.links[0])
            ask(broker.links[0], quick="1")
            await broker.until(lambda: len(ends(broker)) == 2)
            assert [end["commitOrRollback"] for end in ends(broker)] == ["0", "8"]
            release.set()
            ask(broker.links[0], quick="1")
            await broker.until(lambda: len(ends(broker)) == 3)

    run(go)


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_a_timeout_of_the_check_itself_is_its_failure_and_not_its_slowness(
    is_coroutine: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def check(message: Any) -> Outcome:
        raise TimeoutError("the database did not answer")

    async def awaited_check(message: Any) -> Outcome:
        return check(message)

    (answer,) = asyncio.run(asked({"check": awaited_check if is_coroutine else check}))
    assert (answer.ext or {})["commitOrRollback"] == "0"
    assert "the database did not answer" in (answer.remark or "")
    assert "failed; the broker will ask again" in caplog.text
    assert "left alone" not in caplog.text


def test_checks_beyond_the_limit_are_dropped_and_those_of_other_groups_refused() -> None:
    release = threading.Event()

    def check(message: Any) -> Outcome:
        release.wait(30)
        return Outcome.COMMIT

    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", topics=["T"], check=check, checks_held_max=2),
        ):
            await broker.until(lambda: broker.links)
            link = broker.links[0]
            ask(link, group="other")
            await broker.until(lambda: broker.replies)
            assert broker.replies[0].code == 3
            for _ in range(5):  # one runs, two wait
                ask(link)
            link.ask(999, {})
            await broker.until(lambda: len(broker.replies) == 2)
            release.set()
            await broker.until(lambda: len(ends(broker)) == 3)
            link.ask(999, {})
            await broker.until(lambda: len(broker.replies) == 3)
            assert len(ends(broker)) == 3

    run(go)


def test_a_producer_without_a_check_is_not_asked() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            cases: list[tuple[dict[str, Any], list[str]]] = [
                ({}, [INNER_GROUP]),
                ({"check": lambda message: Outcome.COMMIT}, [INNER_GROUP, "PG"]),
            ]
            for settings, groups in cases:
                broker.requests.clear()
                async with Producer(names.address, group="PG", topics=["T"], **settings):
                    beat = next(c for c in broker.requests if c.code == Request.HEART_BEAT)
                    told = msgspec.json.decode(beat.body, type=HeartbeatBody).producers or []
                    assert sorted(group.group_name for group in told) == sorted(groups)

    run(go)


def test_a_producer_with_a_check_knows_all_brokers_without_naming_topics() -> None:
    async def go() -> None:
        async with a_place() as (names, broker):
            names.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda link, command: link.reply(
                command,
                body=b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"%b"},"brokerName":"b"}}}'
                % broker.address.encode(),
            )
            async with Producer(names.address, group="PG", check=lambda message: Outcome.COMMIT):
                assert Request.HEART_BEAT in broker.codes()

    run(go)


def test_a_listener_runs_between_the_phases_and_answers_checks() -> None:
    class Both:
        def __init__(self) -> None:
            self.answers: list[Any] = [Outcome.COMMIT, Outcome.ROLLBACK, None, ValueError("x")]
            self.args: list[object] = []

        def execute(self, message: Message, arg: object) -> Outcome:
            self.args.append(arg)
            found = self.answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found  # type: ignore[no-any-return]

        def check(self, message: Any) -> Outcome:
            return Outcome.ROLLBACK

    async def go() -> None:
        both = Both()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", topics=["T"], listener=both) as producer,
        ):
            found = [
                (await producer.send_in_transaction(Message("T", b"x"), n)).outcome
                for n in range(4)
            ]
            assert found == [Outcome.COMMIT, Outcome.ROLLBACK, Outcome.UNKNOWN, Outcome.UNKNOWN]
            assert both.args == [0, 1, 2, 3]
            await broker.until(lambda: len(ends(broker)) == 4)
            assert [end["commitOrRollback"] for end in ends(broker)] == ["8", "12", "0", "0"]
            ask(broker.links[0])
            await broker.until(lambda: len(ends(broker)) == 5)
            assert ends(broker)[4]["commitOrRollback"] == "12"

    run(go)


def test_a_message_with_a_marker_is_asked_of_the_databases_and_nobody_else() -> None:
    async def other(message: Any) -> Outcome | None:
        return None

    async def go(answers: list[Any], value: str, *, is_held: bool = False) -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(
                names.address, group="PG", topics=["T"], check=lambda message: Outcome.ROLLBACK
            ) as producer,
        ):
            for answer in answers:
                producer.add_database_check(answer)
            await broker.until(lambda: broker.links)
            ask(broker.links[0], escrowMarker="db:K")
            await broker.until(lambda: ends(broker))
            (end,) = ends(broker)
            assert (end["commitOrRollback"], "escrowOpen" in end) == (value, is_held)

    seen: list[str] = []

    def mine(message: Any) -> Outcome:
        seen.append(message.system["escrowMarker"])
        return Outcome.COMMIT

    asyncio.run(go([other, mine], "8"))
    assert seen == ["db:K"]
    asyncio.run(go([other], "0"))
    asyncio.run(go([], "0"))
    asyncio.run(go([lambda message: Outcome.UNKNOWN], "0", is_held=True))


async def answer_of(*answers: Any) -> dict[str, str]:
    """The answer of a producer with databases that answer so."""
    async with (
        a_place("T") as (names, broker),
        Producer(names.address, group="PG", topics=["T"]) as producer,
    ):
        for answer in answers:

            def check(message: Any, answer: Any = answer) -> Any:
                return answer

            producer.add_database_check(check)
        await broker.until(lambda: broker.links)
        ask(broker.links[0], escrowMarker="db:K")
        await broker.until(lambda: ends(broker))
        return ends(broker)[0]


AWAY = NoMarkerFound(error="planted")


@pytest.mark.parametrize(
    "answers",
    [
        (AWAY, Outcome.COMMIT),
        (Outcome.UNKNOWN, Outcome.COMMIT),
        (NoMarkerFound("another"), AWAY, Outcome.COMMIT, None),
    ],
)
def test_a_database_that_does_not_know_is_not_the_last_one_that_is_asked(
    answers: tuple[Any, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """While one of two was unreachable, committed messages of the other one were not delivered."""
    assert asyncio.run(answer_of(*answers))["commitOrRollback"] == "8"
    assert "escrowmq" not in [each.name.partition(".")[0] for each in caplog.records]


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        (
            (AWAY, NoMarkerFound("another")),
            "a database cannot be queried: planted; the broker will",
        ),
        (
            (NoMarkerFound("one"), NoMarkerFound("two"), None),
            "the outboxes of this producer have one, two",
        ),
    ],
)
def test_what_no_database_knows_is_told_once(
    answers: tuple[Any, ...], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = asyncio.run(answer_of(*answers))
    assert (found["commitOrRollback"], "escrowOpen" in found) == ("0", AWAY in answers)
    assert [told in each.getMessage() for each in caplog.records if "K" in each.getMessage()] == [
        True
    ]


def test_a_database_that_waits_for_a_lock_holds_up_no_other_check() -> None:
    async def go() -> None:
        free = asyncio.Event()

        async def check(message: Any) -> Outcome:
            if message.system["escrowMarker"] == "db:locked":
                await free.wait()
            return Outcome.COMMIT

        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", topics=["T"]) as producer,
        ):
            producer.add_database_check(check)
            await broker.until(lambda: broker.links)
            ask(broker.links[0], escrowMarker="db:locked")
            ask(broker.links[0], escrowMarker="db:K")
            await broker.until(lambda: ends(broker))
            free.set()
            await broker.until(lambda: len(ends(broker)) == 2)

    run(go)


def test_a_database_hears_when_its_producer_is_opened() -> None:
    told: list[str] = []

    class Database:
        async def __call__(self, message: Any) -> Outcome:
            told.append(message.message_id)
            return Outcome.COMMIT

        def on_open(self) -> None:
            told.append("opened")

    async def go() -> None:
        async with a_place("T") as (names, broker):
            producer = Producer(names.address, group="PG", topics=["T"])
            producer.add_database_check(Database())
            producer.add_database_check(lambda message: None)
            assert told == []
            async with producer:
                assert told == ["opened"]
                await broker.until(lambda: broker.links)
                ask(broker.links[0], escrowMarker="db:K")
                await broker.until(lambda: ends(broker))
        assert told == ["opened", "K"]

    run(go)


def test_a_producer_that_gets_a_database_makes_its_group_known() -> None:
    async def go() -> None:
        async with a_place() as (names, broker):
            names.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda link, command: link.reply(
                command,
                body=b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"%b"},"brokerName":"b"}}}'
                % broker.address.encode(),
            )
            async with Producer(names.address, group="PG") as producer:
                assert Request.HEART_BEAT not in broker.codes()
                producer.add_database_check(lambda message: None)
                await broker.until(lambda: Request.HEART_BEAT in broker.codes())

    run(go)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 has no eager tasks")
def test_checks_are_answered_where_tasks_begin_at_once() -> None:
    """Each check was begun again and again, because it was still the first one that waited."""
    seen: list[str] = []

    async def check(message: Any) -> Outcome:
        seen.append(message.keys[0])
        return Outcome.ROLLBACK

    async def go() -> None:
        factory: Any = getattr(asyncio, "eager_task_factory")  # noqa: B009 - mypy knows 3.11
        asyncio.get_running_loop().set_task_factory(factory)
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", topics=["T"], check=check),
        ):
            await broker.until(lambda: broker.links)
            for number in range(50):
                ask(broker.links[0], KEYS=f"k{number}")
            await broker.until(lambda: len(ends(broker)) == 50)

    run(go)
    assert seen == [f"k{number}" for number in range(50)]


def test_a_check_for_which_no_task_can_be_begun_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(
                names.address, group="PG", topics=["T"], check=lambda _: Outcome.COMMIT
            ) as producer,
        ):
            await broker.until(lambda: broker.links)
            with monkeypatch.context() as few:
                few.setattr(instance, "TASKS_MAX", 0)
                ask(broker.links[0])
                await broker.until(lambda: broker.replies)
            queue = producer._checks._queue
            assert (len(queue.waiting), queue.running_count) == (1, 0)
            ask(broker.links[0])
            await broker.until(lambda: len(ends(broker)) == 2)

    run(go)
