"""ACL 2.0: what policies mean, and who may change them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .place import OPERATOR, A, Line, Place, make_user, policy


@pytest.fixture(name="operator", scope="module")
def of_operator(users: Place) -> Iterator[Line]:
    with users.line(OPERATOR) as found:
        yield found


@pytest.mark.parametrize(
    "text", ["Topic:*-public*", "Topic:o*s*", "Topic:o*s", "Any:x", "Group:**"]
)
def test_a_pattern_is_not_widened(operator: Line, text: str) -> None:
    refused = operator.ask(3006, {"subject": f"User:{A}"}, policy(text, "Pub"))
    assert (refused.code, "would mean" in (refused.remark or "")) == (16, True)


@pytest.mark.parametrize("order", ["allowed first", "denied first"])
@pytest.mark.parametrize(
    ("allowed", "denied"),
    [("Topic:pay*", "Topic:pay-secret*"), ("Topic:pay-secret-1", "Topic:pay*"),
     ("Topic:pay*", "Topic:pay-secret-1"), ("*", "Topic:pay-secret-1"), ("Topic:pay*", "Topic:*"),
     ("Topic:pay-secret-1", "*")],
)  # fmt: skip
def test_what_is_denied_is_denied(
    users: Place, operator: Line, allowed: str, denied: str, order: str
) -> None:
    name = f"user-{hash((allowed, denied, order)) & 0xFFFFFF:x}"
    make_user(operator, name)
    entries = [policy(allowed, "Pub"), policy(denied, "All", decision="Deny")]
    if order == "denied first":
        entries.reverse()
    for entry in entries:
        assert operator.ask(3006, {"subject": f"User:{name}"}, entry).code == 0
    with users.line(name) as line:
        refused = line.send("pay-secret-1")
        assert (refused.code, "the decision is deny" in (refused.remark or "")) == (16, True)


def test_who_may_do_everything_else_changes_no_rights_and_sees_no_inner_topic(
    users: Place, operator: Line
) -> None:
    make_user(operator, "deputy", ("Cluster:*", ("All",)), ("Topic:TA", ("Sub", "Get")))
    make_user(operator, "owner", ("Topic:TB", ("All",)))
    with users.line("deputy") as deputy:
        assert deputy.ask(26).code == 0  # what the right is for
        changes = [
            (3001, {"username": "x"}, b'{"password":"a-long-password"}'),
            (3002, {"username": "owner"}, b'{"password":"a-long-password"}'),
            (3002, {"username": "deputy"}, b'{"userType":"Super"}'),
            (3003, {"username": "owner"}, b""),
            (3006, {"subject": "User:deputy"}, policy("*", "All")),
            (3007, {"subject": "User:deputy"}, policy("Topic:TB", "All")),
            (3008, {"subject": "User:owner"}, b""),
        ]
        for code, ext, body in changes:
            refused = deputy.ask(code, ext, body)
            assert (refused.code, "for super users" in (refused.remark or "")) == (16, True)
    make_user(operator, "almighty", ("*", ("All",)))
    with users.line("almighty") as almighty:
        for topic in ("RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"):
            for code in (29, 30, 31, 32, 202, 222, 321, 351, 17, 215, 310, 11, 12):
                fields = {"topic": topic, "b": topic, "consumerGroup": "g", "group": "g",
                          "queueId": 0, "key": "k"}  # fmt: skip
                refused = almighty.ask(code, fields)
                assert refused.code == 16, (code, topic, refused)
    with users.line("owner") as owner:
        assert owner.send("TB").code == 0
    with users.line(A) as a:
        assert a.send("TB").code == 16


def test_by_the_command_line_too(users: Place) -> None:
    done = users.ask("acl", "policy", "set", A, "Topic:*-public*", "pub")
    assert (done.returncode, "would mean" in done.stderr) == (1, True)
    told = users.ask("acl", "explain", A, "pub", "RMQ_SYS_TRANS_HALF_TOPIC")
    assert (told.returncode, "for super users" in told.stdout) == (1, True)
