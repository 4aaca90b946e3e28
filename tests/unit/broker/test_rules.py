"""Each rule about sends, halves, ENDs and pulls matters: a request that breaks it is never served
on the fast path, and is answered, stored and counted as the general path does it."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.setting_facts import Setting, settings_of
from escrowmq.broker.fast import fast_puts
from escrowmq.broker.reads.pull_rules import (
    BROKER_RULES,
    OFFLINE_GROUP_RULE,
    PULL_RULES,
    SETTINGS_READ,
    SUBSCRIPTION_RULES,
)
from escrowmq.broker.rules import Rule, first_refusal, is_plain
from escrowmq.broker.sends.half_rules import HALF_RULES
from escrowmq.broker.sends.send_rules import (
    INPUT_RULES,
    NAMES_RULES,
    QUEUE_RULES,
    SPECIAL_PROPERTIES,
)
from escrowmq.codec.frame import FrameReader
from escrowmq.lane.native import requests_lane
from escrowmq.txn.end_rules import END_RULES
from tests.unit.broker.both import HALF, PLAIN, START_MS, Both, Side, begin, end, frame, half, send
from tests.unit.broker.fast.test_fast_pulls import heartbeat, pull
from tests.unit.broker.rule_examples import (
    ENDS,
    HALVES,
    OF_GROUP,
    PULLS,
    SENDS,
    Change,
    EndExample,
    Example,
    half_with,
    nothing,
    setting,
    topic,
)

pytestmark = pytest.mark.skipif(
    requests_lane is None, reason="without the native lane there is one path only"
)

ALL_PULL_RULES = (*BROKER_RULES, *PULL_RULES, OFFLINE_GROUP_RULE, *SUBSCRIPTION_RULES)


def names(*rules: Rule[Any]) -> list[str]:
    return [rule.name for rule in rules]


def test_each_rule_has_an_example() -> None:
    assert list(SENDS) == names(*INPUT_RULES, *QUEUE_RULES)
    assert list(HALVES) == names(*HALF_RULES)
    assert list(PULLS) == names(*ALL_PULL_RULES)
    assert [rule.name for rule in END_RULES] == list(ENDS)[: len(END_RULES)]


def examples(table: dict[str, list[Any]]) -> pytest.MarkDecorator:
    found = [
        pytest.param(one, id=f"{name}-{number}")
        for name, some in table.items()
        for number, one in enumerate(some)
    ]
    return pytest.mark.parametrize("example", found)


def test_the_first_rule_that_refuses_decides_and_one_without_a_judge_refuses_nothing() -> None:
    def rule(number: int, *, refuses: bool) -> Rule[int]:
        return Rule(
            f"over {number}",
            lambda given: given > number,
            lambda _: Refusal(number, "too much") if refuses else None,
        )

    rules = (Rule[int]("even", lambda n: n % 2 == 0), rule(5, refuses=False),
             rule(10, refuses=True), rule(20, refuses=True))  # fmt: skip

    def code(given: int) -> int | None:
        refusal = first_refusal(rules, given)
        return None if refusal is None else refusal.code

    assert [code(given) for given in (1, 2, 7, 11, 21)] == [None, None, None, 10, 10]
    assert [is_plain(rules, given) for given in (1, 2, 7, 11, 21)] == [True, *[False] * 4]
    assert rules[0].refusal(2) is rules[1].refusal(7) is rules[2].refusal(10) is None
    assert rules[2].refusal(11) == Refusal(10, "too much")


# -- sends -----------------------------------------------------------------------------------------


def warm() -> Both:
    """Messages, halves and ENDs are served on the fast path."""
    both = Both()
    for queue in range(4):
        both.feed((1, send(e=str(queue))), (1, send(e=str(queue))))
    both.feed((1, send(is_binary=False)), (1, send(is_binary=False)))
    halves = begin(both, *[half(number) for number in range(4)])
    both.feed((1, end(halves[0])), (1, end(halves[1])), (1, send() + half(9) + send()))
    before = both.fast.served_count
    both.feed((1, send() + half(10)), (1, end(halves[2])))
    assert both.fast.served_count == before + 3
    return both


def ask(both: Both, request: bytes, waited_ms: int = 0) -> tuple[list[Command], int]:
    """What is answered to a request, and how many of its input the fast path has served."""
    before = both.fast.served_count
    for side in both.sides:
        side.waited_ms = waited_ms
    heard = both.feed((1, request))
    return heard, both.fast.served_count - before


def hold(both: Both, example: Example, request: bytes) -> None:
    for side in both.sides:
        example.change(side)
    (answer,), served_count = ask(both, request, example.waited_ms)
    assert answer.code == example.code, answer.remark
    assert served_count == 0
    # Among plain ones, which are served or not as the example's change has it.
    plain = send(topic="Bills") + half(20)
    ask(both, plain + request + plain, example.waited_ms)
    ask(both, request * 2 + half(21) + request, example.waited_ms)
    ask(both, plain * 2)
    both.end()


def in_json(request: bytes) -> bytes:
    (command,) = FrameReader().read_commands(request)
    return frame(
        command.code, command.ext or {}, command.body,
        opaque=command.opaque, flag=command.flag, is_binary=False,
    )  # fmt: skip


@pytest.mark.parametrize("is_binary", [True, False])
@examples(SENDS | HALVES)
def test_a_send_that_breaks_a_rule_goes_the_general_way(
    example: Example, *, is_binary: bool
) -> None:
    request = example.request if is_binary else in_json(example.request)
    hold(warm(), example, request)


@pytest.mark.parametrize("name", sorted(SPECIAL_PROPERTIES - {"TRAN_MSG"}))
def test_a_message_with_a_special_name_goes_the_general_way(name: str) -> None:
    both = warm()
    for value in ("1", "true"):
        request = send({**PLAIN, name: value})
        _, served_count = ask(both, request)
        assert served_count == 0
        ask(both, send() + request + half(20) + in_json(request) + send())
    both.end()


OF_HALVES = sorted(
    {name for rule in NAMES_RULES if rule.of_halves for name in rule.names}
    | {"escrowDelay", "escrowOrderKey", "escrowNew"}
)


@pytest.mark.parametrize("name", OF_HALVES)
def test_a_half_with_a_special_name_goes_the_general_way(name: str) -> None:
    both = warm()
    for value in ("1", "true"):
        request = half_with(**{name: value})
        _, served_count = ask(both, request)
        assert served_count == 0
        ask(both, send() + request + half(20) + in_json(request) + send())
    both.end()


def test_names_of_ours_that_mean_something_to_clients_alone_make_no_half_special() -> None:
    both = warm()
    request = half_with(escrowChecker="db", escrowMarker="db:1")
    ask(both, request)
    assert ask(both, request)[1] == 1
    both.end()


def test_names_of_groups_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fast_puts, "_GROUPS_MAX", 3)
    side = Side(is_fast=True)
    seen = []
    for number in range(10):
        side.feed((1, half_with(PGROUP=f"group-{number}")))
        fast_path = side.core.remoting.fast_path
        assert fast_path is not None
        seen.append(len(fast_path._puts._groups))
    assert max(seen) == 3
    assert side.served_count > 5


@pytest.mark.parametrize("where", [{"address": "fe80::1"}, {"peers": "fe80::9"}])
def test_longer_addresses_go_the_general_way(where: dict[str, str]) -> None:
    both = Both(**where)
    for _ in range(3):
        both.feed((1, send() + half(1)), (1, send(is_binary=False)))
    assert both.fast.served_count == 0
    both.end()


@pytest.mark.parametrize(
    ("request_", "change", "waited_ms"),
    [
        (send(), setting(send_wait_max_ms=50), 50),
        (half_with(), nothing, 50),
        (send(), setting(accepts_sends_from_ms=START_MS), 0),
        (send(e="3"), topic(write_queue_nums=1), 0),
        (send(e="3"), topic(read_queue_nums=1), 0),
        (half_with(), setting(pending_max=5), 0),
        (half_with(PGROUP="g" * 255), nothing, 0),
    ],
)
def test_what_a_rule_just_allows_is_served_on_the_fast_path(
    request_: bytes, change: Change, waited_ms: int
) -> None:
    both = warm()
    for side in both.sides:
        change(side)
    (answer,), served_count = ask(both, request_, waited_ms)
    assert (answer.code, served_count) == (0, 1)
    both.end()


# -- ENDs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_remembered", [True, False])
@pytest.mark.parametrize("is_binary", [True, False])
@examples(ENDS)
def test_an_end_that_breaks_a_rule_goes_the_general_way(
    example: EndExample, *, is_binary: bool, is_remembered: bool
) -> None:
    both = warm()
    key = "0A000001ABCD18B4AAC2000000000077"
    (one,) = begin(both, send({**HALF, "UNIQ_KEY": key, **example.properties}, f="4"))
    others = begin(both, *[half(number) for number in range(30, 34)])
    if not is_remembered:
        both.forget()
    example.before(both, one)
    request = example.end(one)
    if not is_binary:
        request = in_json(request)
    heard, served_count = ask(both, request)
    assert [answer.code for answer in heard] == ([] if example.code is None else [example.code])
    assert served_count == 0
    ask(both, end(others[0]) + request + end(others[1]))
    ask(both, request * 2 + end(others[2]))
    ask(both, end(others[3]))
    both.end()


# -- pulls -----------------------------------------------------------------------------------------


def reading() -> Both:
    """Pulls are served on the fast path: of those who say themselves what they want, and of those
    who have subscribed."""
    both = Both()
    both.feed((1, b"".join(send(e=str(n % 4)) for n in range(40))), (2, heartbeat()))
    for _ in range(4):
        for request in REPEATED:
            both.feed((2, request))
    return both


REPEATED = [
    pull(0, code=code, flags=flags)
    for code in (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE)
    for flags in (5, OF_GROUP)
]


def pulled(both: Both, request: bytes) -> tuple[int, bytes]:
    """What is answered to a pull."""
    heard = both.feed((2, request))
    return (heard[0].code, heard[0].body) if heard else (-1, b"")


@examples(PULLS)
def test_a_pull_that_breaks_a_rule_is_refused_every_way(example: Example) -> None:
    both = reading()
    for _ in range(3):
        both.feed((2, example.request))
    for side in both.sides:
        example.change(side)
    pulls = both.fast.core.remoting.pulls
    assert pulls is not None
    before = pulls.served_count
    assert pulled(both, example.request)[0] == example.code
    assert pulled(both, example.request)[0] == example.code
    assert pulls.served_count == before
    both.end()


LIVE = [one for one in settings_of(BrokerSettings) if one.holds == "live"]


def other_value(one: Setting, value: object) -> object:
    """Another value that is allowed."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        low = int(one.low or 0)
        return low if value != low else low + 1
    return value


def forget_judgements(both: Both) -> None:
    """As if nobody had pulled before."""
    for side in both.sides:
        side.core.assembly.pulls.judge._remembered.clear()
    both.lose(2)
    both.feed((2, heartbeat()))


@pytest.mark.parametrize("one", LIVE, ids=lambda one: one.field)
def test_a_setting_that_changes_between_two_pulls_is_heeded_by_the_second(one: Setting) -> None:
    """What was judged before the change gives no other answer than a judgement made after it."""
    both = reading()
    for side in both.sides:
        settings = side.core.broker.settings
        value = other_value(one, getattr(settings, one.field))
        setattr(settings, one.field, value)
    remembered = [pulled(both, request) for request in REPEATED]
    forget_judgements(both)
    assert remembered == [pulled(both, request) for request in REPEATED]


def test_broker_that_stops_being_read_answers_no_pull_that_it_had_answered() -> None:
    both = reading()
    assert {pulled(both, request)[0] for request in REPEATED} == {0}
    for side in both.sides:
        side.core.broker.settings.permission = 2
    assert {pulled(both, request)[0] for request in REPEATED} == {16}


def test_rules_about_pulls_read_no_other_settings_than_they_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: set[str] = set()

    class Watched:
        """Settings, and which of them were read."""

        def __init__(self, settings: BrokerSettings) -> None:
            self._settings = settings

        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(self._settings, name)

    for some in PULLS.values():
        for example in some:
            side = Side(is_fast=False)
            side.feed((1, send()))
            side.feed((2, heartbeat()))
            example.change(side)
            judge = side.core.assembly.pulls.judge
            monkeypatch.setattr(judge, "_settings", Watched(side.core.broker.settings))
            side.feed((2, example.request))
    assert read - {"advertised_host"} == set(SETTINGS_READ)
