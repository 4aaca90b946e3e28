"""`escrowmq pipeline` where TLS is enforced and accounts may do nothing by default: which rights
each command needs, and what is said when one is missing. docs/pipeline.md has the same table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import escrowmq
from escrowmq.cli.main import main
from escrowmq.net.clock import SystemClock
from tests.harness.certificates import OPENSSL, Authority
from tests.harness.parameters import quick
from tests.interop.drivers import unique
from tests.interop.servers import EscrowServer

from .clusters import OWN_TIME_MS
from .injected import GROUP, QUEUES, Injected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

from pyspark.errors import PySparkException

SEGMENT_SIZE: Final = 1 << 20
pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")

SECRET: Final = "secret-7-of-them"
PATIENT: Final = ("--grace", 900, "--overdue", 3600, "--lookback", 1800, "--timeout", 60)
Rights = dict[str, tuple[str, ...]]
READER: Final[Rights] = {"Group:escrowmq-spark": ("Sub",)}
TOPICS: Final[Rights] = {"Topic:paid": ("Sub", "Get"), "Topic:shipped": ("Sub", "Get")}
INNER: Final[Rights] = {
    "Cluster:*": ("Get",),
    "Topic:RMQ_SYS_TRANS*": ("Sub", "Get"),
    "Topic:TRANS_CHECK_MAX_TIME_TOPIC": ("Sub", "Get"),
    # where messages wait that are delayed
    "Topic:SCHEDULE_TOPIC_XXXX": ("Sub", "Get"),
    "Topic:rmq_sys_wheel_timer": ("Sub", "Get"),
}
NEEDS: Final[dict[str, Rights]] = {
    "reconcile": READER | TOPICS | INNER | {"Group:mailer": ("Get",)},
    "redo": (
        READER
        | {name: actions for name, actions in INNER.items() if name != "Cluster:*"}
        | {"Group:TOOLS_CONSUMER": ("Sub",)}
        | dict.fromkeys(TOPICS, ("Sub", "Get", "Pub"))
        # The last: a run without it stores messages before it is refused.
        | {"Cluster:*": ("Get", "Update")}
    ),
    "funnel": READER | TOPICS | INNER,
    "export": READER | {"Topic:paid": ("Sub", "Get")},
    "replay": READER | {"Topic:paid": ("Sub", "Get"), "Topic:again": ("Sub", "Get", "Pub")},
    "sink": {"Topic:again": ("Pub",), "Group:copier": ("Pub",)},
}


class World:
    """A guarded server on a store with known transactions, and its operator."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "authority")
        shown = authority.sign("server")
        self.root = authority.root
        self.injected = Injected(
            folder / "store", count=60, now_ms=SystemClock().now_ms(), segment_size=SEGMENT_SIZE,
            young_ms=1_200_000,
        )  # fmt: skip
        settings: dict[str, Any] = {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": shown.certificate,
            "tls.server.keyPath": shown.key,
            "tls.enable": True,
            "tls.client.authServer": True,
            "tls.client.trustCertPath": authority.root,
            "authenticationEnabled": True,
            "authorizationEnabled": True,
            "initAuthenticationUser": json.dumps({"username": "operator", "password": SECRET}),
            "transactionTimeOut": OWN_TIME_MS,
            "mappedFileSizeCommitLog": SEGMENT_SIZE,
        }
        self.server = EscrowServer(folder, **settings)
        self.secret = folder / "secret"
        self.secret.write_text(f"{SECRET}\n")
        self.admin = escrowmq.Admin(
            self.server.nameserver,
            credentials=escrowmq.Credentials("operator", SECRET),
            tls=escrowmq.Tls(trusted=authority.root),
        )
        for topic in ("paid", "shipped", "again"):
            self.admin.topics.create(topic, queues=QUEUES)
        with escrowmq.Producer(
            self.server.nameserver,
            group="before",
            credentials=escrowmq.Credentials("operator", SECRET),
            tls=escrowmq.Tls(trusted=authority.root),
        ) as producer:
            producer.send("again", b"before")  # of an empty target nothing is read

    def user(self, rights: Rights) -> str:
        """An account that has these rights and no others."""
        name = unique("user")
        self.admin.access.create_user(name, SECRET)
        for resource, actions in rights.items():
            self.admin.access.put_policy(name, resource, list(actions))
        return name

    def close(self) -> None:
        self.admin.close()
        self.server.kill()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("world"))
    yield made
    made.close()


Run = Callable[..., tuple[int, list[Any], str]]


@pytest.fixture
def run(
    spark: SparkSession, world: World, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> Run:  # fmt: skip
    """Runs a command with the account of a user: exit code, what it says in JSON, errors."""
    monkeypatch.setenv("NAMESRV_ADDR", world.server.nameserver)
    commands = {
        "reconcile": ("reconcile", "--out", tmp_path, "--group", GROUP, *PATIENT),
        "redo": ("reconcile", "--out", tmp_path, "--redo", "--rate", 0, *PATIENT),
        "funnel": ("funnel", "--out", tmp_path),
        "export": ("export", "--out", tmp_path, "paid"),
        "replay": ("replay", "paid", "--to-topic", "again", "--send"),
    }

    def run(name: str, user: str) -> tuple[int, list[Any], str]:
        who = ("--access-key", user, "--secret-key-file", world.secret)
        words = (*commands[name], "--json", *who, "--tls-trusted", world.root)
        code = main(["pipeline", *map(str, words)])
        told = capsys.readouterr()
        return code, [json.loads(line) for line in told.out.splitlines()], told.err

    return run


def without(rights: Rights, resource: str, action: str) -> Rights:
    left = tuple(name for name in rights[resource] if name != action)
    found = {name: actions for name, actions in rights.items() if name != resource}
    return found | {resource: left} if left else found


ALL: Final = [
    (name, resource, action)
    for name, rights in NEEDS.items()
    for resource, actions in rights.items()
    for action in actions
    # the messages that are lost are all of the other topic
    if name != "sink" and (name, resource, action) != ("redo", "Topic:paid", "Pub")
]
SOME: Final = [
    ("export", "Topic:paid", "Sub"),
    ("export", "Group:escrowmq-spark", "Sub"),
    ("replay", "Topic:again", "Pub"),
    ("reconcile", "Cluster:*", "Get"),
    ("reconcile", "Group:mailer", "Get"),
]


@pytest.mark.parametrize(
    ("name", "resource", "action"),
    [*SOME, *(pytest.param(*one, marks=pytest.mark.long) for one in ALL if one not in SOME)],
)
def test_a_right_that_is_missing_is_named_on_one_line(
    world: World, run: Run, name: str, resource: str, action: str
) -> None:
    code, told, errors = run(name, world.user(without(NEEDS[name], resource, action)))
    own = [line for line in errors.splitlines() if line.startswith("escrowmq pipeline")]
    assert code == 1, errors
    assert told == []
    assert len(own) == 1
    assert resource.partition("*")[0] in own[0]
    assert "docs/pipeline.md lists the rights" in own[0]


@pytest.mark.parametrize(
    "name",
    quick(["export", "replay"], of=["export", "replay", "reconcile", "funnel", "redo"]),
)  # fmt: skip
def test_an_account_with_these_rights_may(world: World, run: Run, name: str) -> None:
    code, told, errors = run(name, world.user(NEEDS[name]))
    assert code == 0, errors
    assert told, errors
    if name == "redo":
        assert told[0]["deeds"].keys() == {"redone", "proposed"}


def test_the_exactly_once_sink_needs_the_right_to_topic_and_group(
    spark: SparkSession, world: World
) -> None:
    def write(user: str, number: int) -> None:
        frame = spark.createDataFrame([(f"{number}",)], "body string")
        writer = frame.write.format("escrowmq").option("nameServer", world.server.nameserver)
        for name, value in {
            "accessKey": user, "secretKeyFile": world.secret, "useTls": "true",
            "tlsCaFile": world.root, "topic": "again", "transactional": "true",
            "producerGroup": "copier", "txnAppId": user, "txnVersion": number,
        }.items():  # fmt: skip
            writer = writer.option(name, str(value))
        writer.mode("append").save()

    rights = NEEDS["sink"]
    write(world.user(rights), 1)
    for resource in rights:
        user = world.user(without(rights, resource, "Pub"))
        with pytest.raises(PySparkException, match=f"no permission to access {resource}"):
            write(user, 2)
