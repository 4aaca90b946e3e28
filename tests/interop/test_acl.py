"""Real clients with accounts: who has the right gets through, who has not is told so."""

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import escrowmq
from escrowmq.errors import PermissionDenied

from . import wire
from .drivers import ClientError, Driver, JavaDriver, unique
from .process import until
from .servers import Server
from .test_acl_rules import signed

pytestmark = pytest.mark.ours_alone  # RocketMQ that the other tests take has no ACL 1.0 any more

SECRET: Final = "secret-7-of-them"
OPERATOR: Final[dict[str, Any]] = {"accessKey": "operator", "secretKey": SECRET}
USER: Final[dict[str, Any]] = {"accessKey": "user-of-all", "secretKey": SECRET}
READER: Final[dict[str, Any]] = {"accessKey": "reader-only", "secretKey": SECRET}
FORGER: Final = {"accessKey": "user-of-all", "secretKey": "not the secret"}
FILE: Final = f"""
accounts:
- {{accessKey: operator, secretKey: {SECRET}, admin: true}}
- {{accessKey: user-of-all, secretKey: {SECRET}, defaultTopicPerm: PUB|SUB, defaultGroupPerm: SUB}}
- {{accessKey: reader-only, secretKey: {SECRET}, defaultTopicPerm: SUB, defaultGroupPerm: SUB}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("accounts")
    (made / "plain_acl.yml").write_text(FILE)
    return made


@pytest.fixture(scope="module")
def guarded(server_factory: Callable[..., Server], folder: Path) -> Server:
    return server_factory(
        aclEnable=True,
        escrowAclFolder=folder,
        transactionTimeOut=1_000,
        transactionCheckInterval=1_000,
    )


@pytest.fixture
def place(guarded: Server) -> str:
    """A topic that an operator made."""
    name = unique("T")
    fields = {
        "topic": name, "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false",
    }  # fmt: skip
    assert wire.ask(guarded.broker, 17, fields).code == 1
    reply = wire.ask(guarded.broker, 17, signed("operator", fields, b"", SECRET))
    assert reply.code == 0, reply
    until("a route", lambda: wire.ask(guarded.nameserver, 105, {"topic": name}).code == 0)
    return name


def test_who_has_the_right_sends_receives_and_commits(
    guarded: Server, client: Driver, place: str
) -> None:
    consumer = client.consumer(guarded.nameserver, place, **USER)
    producer = client.producer(guarded.nameserver, **USER)
    assert producer.send(place, "plain").status == "SEND_OK"
    halves = client.transaction_producer(guarded.nameserver, **USER)
    halves.transaction(place, "ended", keys="k-1", outcome="COMMIT")
    assert {got.text for got in consumer.received(2)} == {"plain", "ended"}


def test_answers_to_checks_end_transactions(guarded: Server, client: Driver, place: str) -> None:
    consumer = client.consumer(guarded.nameserver, place, **USER)
    halves = client.transaction_producer(guarded.nameserver, **USER)
    halves.transaction(place, "checked", keys="k-1", outcome="UNKNOWN", checks=["COMMIT"])
    assert [got.text for got in consumer.received(1)] == ["checked"]


@pytest.mark.parametrize(
    ("signer", "reason"),
    [
        ({}, "No accessKey is configured"),
        (FORGER, "Check signature failed for accessKey=user-of-all"),
        (READER, "No default permission for topic:"),
    ],
)
def test_who_has_not_is_told_why(
    guarded: Server, client: Driver, place: str, signer: dict[str, str], reason: str
) -> None:
    producer = client.producer(guarded.nameserver, **signer)
    with pytest.raises(ClientError) as caught:
        producer.send(place, "never", queueId=0)  # to one queue: without a second try
    assert reason in caught.value.text
    reader = client.consumer(guarded.nameserver, place, **USER)
    client.producer(guarded.nameserver, **USER).send(place, "allowed")
    assert [got.text for got in reader.received(1)] == ["allowed"]


def test_a_reader_reads(guarded: Server, client: Driver, place: str) -> None:
    consumer = client.consumer(guarded.nameserver, place, **READER)
    client.producer(guarded.nameserver, **USER).send(place, "for readers")
    assert [got.text for got in consumer.received(1)] == ["for readers"]


def test_lite_consumers_read(guarded: Server, java: JavaDriver, place: str) -> None:
    producer = java.producer(guarded.nameserver, **USER)
    for queue_id in range(4):
        producer.send(place, f"pulled from {queue_id}", queueId=queue_id)
    lite = java.lite(guarded.nameserver, place, **READER)
    assert {got.text for got in lite.poll(4)} == {f"pulled from {n}" for n in range(4)}
    lite.close()


@pytest.mark.parametrize("token", ["", "a-token"])
def test_our_own_client_sends_commits_and_receives(guarded: Server, place: str, token: str) -> None:
    who = escrowmq.Credentials("user-of-all", SECRET, token)
    with escrowmq.Producer(guarded.nameserver, group=unique("PG"), credentials=who) as producer:
        producer.send(place, b"plain")
        with producer.transaction(place, b"ended"):
            pass
        consumer = escrowmq.Consumer(
            guarded.nameserver, group=unique("CG"), topic=place, credentials=who
        )
        with consumer:
            assert {message.body for message in itertools.islice(consumer, 2)} == {
                b"plain",
                b"ended",
            }


def test_our_own_client_is_told_why(guarded: Server, place: str) -> None:
    for signer, reason in ((READER, "No default permission for topic"), (FORGER, "signature")):
        who = escrowmq.Credentials(signer["accessKey"], signer["secretKey"])
        with (
            escrowmq.Producer(guarded.nameserver, group=unique("PG"), credentials=who) as producer,
            pytest.raises(PermissionDenied, match=reason),
        ):
            producer.send(place, b"never")


def test_mqadmin_needs_an_operator(guarded: Server, java: JavaDriver) -> None:
    make = ("updateTopic", "-b", guarded.broker, "-n", guarded.nameserver, "-t", unique("T"))
    assert "No accessKey is configured" in java.mqadmin(*make)
    assert "Need admin permission for request code=17" in java.mqadmin(*make, **USER)
    assert "create topic to" in java.mqadmin(*make, **OPERATOR)
    status = ("brokerStatus", "-b", guarded.broker, "-n", guarded.nameserver)
    assert "Need admin permission for request code=28" in java.mqadmin(*status, **USER)
    assert "brokerVersionDesc" in java.mqadmin(*status, **OPERATOR)


@pytest.mark.parametrize("java", ["java-4.9.8"], indirect=True)
def test_mqadmin_changes_accounts(guarded: Server, java: JavaDriver, place: str) -> None:
    def mqadmin(verb: str, *arguments: str, **signer: Any) -> str:
        where = ("-b", guarded.broker, "-n", guarded.nameserver)
        return java.mqadmin(verb, *where, *arguments, **signer)

    new: dict[str, Any] = {"accessKey": unique("account"), "secretKey": SECRET}
    wish = ("-a", new["accessKey"], "-s", SECRET, "-t", f"{place}=PUB")
    assert "Need admin permission" in mqadmin("updateAclConfig", *wish, **USER)
    assert "success" in mqadmin("updateAclConfig", *wish, **OPERATOR)
    assert java.producer(guarded.nameserver, **new).send(place, "x", queueId=0).status == "SEND_OK"
    removal = mqadmin("deleteAccessConfig", "-a", new["accessKey"], **OPERATOR)
    assert "success" in removal
    with pytest.raises(ClientError, match="No acl config for"):
        java.producer(guarded.nameserver, **new).send(place, "x", queueId=0)


def test_a_changed_file_counts_for_clients_that_run(
    guarded: Server, java: JavaDriver, folder: Path, place: str
) -> None:
    late = {"accessKey": unique("late-account"), "secretKey": SECRET}
    producer = java.producer(guarded.nameserver, **late)
    with pytest.raises(ClientError, match="No acl config for"):
        producer.send(place, "x", queueId=0)
    account = f"{{accessKey: {late['accessKey']}, secretKey: {SECRET}, defaultTopicPerm: PUB}}"
    (folder / "acl").mkdir(exist_ok=True)
    (folder / "acl" / "late.yml").write_text(f"accounts: [{account}]\n")

    def sends() -> bool:
        try:
            return producer.send(place, "x", queueId=0).status == "SEND_OK"
        except ClientError:
            return False

    until("the account counts", sends, within_s=5)


def test_no_request_is_misjudged_while_the_file_is_written_again_and_again(
    guarded: Server, folder: Path, place: str
) -> None:
    file = folder / "acl" / "changing.yml"
    file.parent.mkdir(exist_ok=True)
    account = f"- {{accessKey: steady-one, secretKey: {SECRET}, topicPerms: [{place}=SUB]}}\n"
    filler = [f"- {{accessKey: filler-{n}, secretKey: {SECRET}}}\n" for n in range(300)]
    query = {"topic": place, "queueId": "0"}

    def judged(topic: str) -> int:
        fields = {**query, "topic": topic}
        return wire.ask(guarded.broker, 30, signed("steady-one", fields, b"", SECRET)).code

    file.write_text("accounts:\n" + account)
    until("the account counts", lambda: judged(place) == 0, within_s=5)
    end_s = time.monotonic() + 3  # some ten looks of the broker at the file
    while time.monotonic() < end_s:
        with file.open("w") as cut:
            cut.write("accounts:\n" + "".join(filler[: len(filler) // 2]))
            cut.flush()
            assert judged(place) == 0
            cut.write("".join(filler[len(filler) // 2 :]) + account)
        assert judged(place) == 0
        assert judged("another") == 1
