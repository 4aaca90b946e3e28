"""Our clients at brokers with accounts (ACL 1.0): EscrowMQ's, or with --peer=java RocketMQ's 5.3.2,
the last that has them."""

from collections.abc import Iterator
from typing import Any, Final, Literal

import pytest

import escrowmq
from escrowmq.errors import PermissionDenied
from tests.interop import jars
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import EscrowServer, JavaBroker, Server

SECRET: Final = "secret-of-8"
OPERATOR: Final = escrowmq.Credentials("operator", SECRET)
USER: Final = escrowmq.Credentials("user-of-all", SECRET)
READER: Final = escrowmq.Credentials("reader-only", SECRET)
FILE: Final = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: user-of-all, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: reader-only, secretKey: {SECRET}, defaultTopicPerm: SUB, defaultGroupPerm: SUB}}
"""
CHECKED: Final[dict[str, Any]] = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}


@pytest.fixture(scope="module")
def guarded(peer: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A name server in front of a broker with accounts."""
    folder = tmp_path_factory.mktemp("guarded")
    home = folder / "broker"
    accounts = home / "conf" / "plain_acl.yml"
    accounts.parent.mkdir(parents=True)
    accounts.write_text(FILE)
    if peer == "java":
        names = EscrowServer(folder / "names", verb="nameserver")
        release = jars.ACL_BROKER_RELEASE
        broker = JavaBroker(home, names.nameserver, release=release, aclEnable=True, **CHECKED)
        yield names.nameserver
        broker.kill()
        names.kill()
    else:
        own = {**CHECKED, "aclEnable": True, "escrowAclFolder": accounts.parent}
        server = Server("escrow", folder, own).start()
        yield server.nameserver
        server.kill()


@pytest.fixture
def place(guarded: str) -> str:
    """A topic that an operator made."""
    name = unique("T")
    with escrowmq.Admin(guarded, credentials=OPERATOR) as admin:
        admin.topics.create(name, queues=1)
        until("a route", lambda: name in admin.topics.names())
    return name


@pytest.mark.parametrize("token", ["", "a-token"])
def test_who_has_the_right_sends_settles_answers_checks_and_consumes(
    guarded: str, place: str, token: str
) -> None:
    settings: dict[str, Any] = {
        "group": unique("G"),
        "credentials": escrowmq.Credentials(USER.access_key, USER.secret_key, token),
    }
    seen: set[bytes] = set()

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        return escrowmq.Outcome.ROLLBACK if message.body == b"gone" else escrowmq.Outcome.COMMIT

    def handle(message: escrowmq.Delivery) -> None:
        seen.add(message.body)

    with (
        escrowmq.Producer(guarded, check=check, topics=[place], **settings) as producer,
        escrowmq.Consumer(guarded, topic=place, handler=handle, **settings),
    ):
        producer.send(place, b"plain")
        with producer.transaction(place, b"ended"):
            pass
        with producer.transaction(place, b"checked") as tx:
            tx.unknown()
        tx = producer.transaction(place, b"gone").begin()
        tx.settle(escrowmq.Outcome.ROLLBACK)
        until("all three", lambda: seen >= {b"plain", b"ended", b"checked"})
    assert seen == {b"plain", b"ended", b"checked"}


@pytest.mark.parametrize(
    ("who", "reason", "advice"),
    [
        (None, "No accessKey is configured", "give this client credentials="),
        (escrowmq.Credentials("nobody-knows", SECRET), "No acl config for", "access_key"),
        (escrowmq.Credentials(USER.access_key, "not the secret"), "signature", "check secret_key"),
        (READER, "No default permission for", "give this client credentials="),
    ],
    ids=["no account", "unknown account", "wrong secret", "no right"],
)
def test_who_has_not_is_told_why_and_what_to_do(
    guarded: str, place: str, who: escrowmq.Credentials | None, reason: str, advice: str
) -> None:
    with escrowmq.Producer(guarded, group=unique("G"), credentials=who) as producer:
        with pytest.raises(PermissionDenied, match=reason) as refused:
            producer.send(place, b"never")
        with pytest.raises(PermissionDenied, match=reason), producer.transaction(place, b"never"):
            raise AssertionError("the block must not run")
    assert advice in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_a_consumer_without_the_right_is_told_so(
    guarded: str, place: str, mode: Literal["pull", "pop"]
) -> None:
    who = escrowmq.Credentials(USER.access_key, "not the secret")
    with (
        escrowmq.Consumer(
            guarded, group=unique("G"), topic=place, mode=mode, credentials=who
        ) as consumer,
        pytest.raises(PermissionDenied, match="signature"),
    ):
        consumer.receive(timeout_s=30)


def test_administration_needs_an_operator(guarded: str) -> None:
    with (
        escrowmq.Admin(guarded, credentials=USER) as admin,
        pytest.raises(PermissionDenied, match="admin permission"),
    ):
        admin.topics.create(unique("T"))
