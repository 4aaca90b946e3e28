"""TLS with real clients: beside plain bytes on one port, and enforced with certificates on both
sides. The Go client (2.1.2) speaks no TLS."""

import asyncio
import itertools
import json
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import escrowmq
from escrowmq.errors import ConnectFailed, NoNameServer
from tests.harness.certificates import OPENSSL, Authority, Pair

from . import wire
from .drivers import JavaDriver, unique
from .process import until
from .servers import Server, new_topic

pytestmark = [
    pytest.mark.ours_alone,
    pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Pair:
    return authority.sign("a client")


@pytest.fixture(scope="module")
def open_one(server_factory: Callable[..., Server], authority: Authority) -> Server:
    """Speaks TLS and plainly."""
    shown = authority.sign("open one")
    return server_factory(
        **{
            "tls.server.certPath": shown.certificate,
            "tls.server.keyPath": shown.key,
            "transactionTimeOut": 1_000,
            "transactionCheckInterval": 1_000,
        }
    )


@pytest.fixture(scope="module")
def strict_one(server_factory: Callable[..., Server], authority: Authority, own: Pair) -> Server:
    """Speaks TLS only, with clients that show a certificate; the key has a password."""
    shown = authority.sign("strict one", password="open sesame")
    file = authority.root.with_name("tls.properties")
    file.write_text(
        "tls.server.need.client.auth=require\n"
        "tls.server.authClient=true\n"
        f"tls.server.trustCertPath={authority.root}\n"
        f"tls.server.certPath={shown.certificate}\n"
        f"tls.server.keyPath={shown.key}\n"
        "tls.server.keyPassword=open sesame\n"
        f"tls.client.certPath={own.certificate}\n"
        f"tls.client.keyPath={own.key}\n"
        "tls.client.authServer=true\n"
        f"tls.client.trustCertPath={authority.root}\n"
    )
    return server_factory(**{"tls.server.mode": "enforcing", "tls.config.file": file})


@pytest.fixture(scope="module")
def secure_java(
    tmp_path_factory: pytest.TempPathFactory, authority: Authority, own: Pair
) -> Iterator[JavaDriver]:
    """A JVM whose clients believe the authority alone and show a certificate."""
    driver = JavaDriver(
        "5.3.3",
        tmp_path_factory.mktemp("java"),
        properties={
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": authority.root,
            "tls.client.certPath": own.certificate,
            "tls.client.keyPath": own.key,
        },
    )
    yield driver
    driver.stop()


def test_java_clients_speak_tls_and_plainly_to_one_port(open_one: Server, java: JavaDriver) -> None:
    topic = new_topic(open_one, unique("T"))
    consumer = java.consumer(open_one.nameserver, topic, useTLS=True)
    plain = java.consumer(open_one.nameserver, topic)
    sender = java.producer(open_one.nameserver, useTLS=True)
    assert sender.send(topic, "by TLS").status == "SEND_OK"
    assert java.producer(open_one.nameserver).send(topic, "plainly").status == "SEND_OK"
    halves = java.transaction_producer(open_one.nameserver, useTLS=True)
    halves.transaction(topic, "checked", keys="k-1", outcome="UNKNOWN", checks=["COMMIT"])
    for each in (consumer, plain):
        assert {got.text for got in each.received(3)} == {"by TLS", "plainly", "checked"}


def test_java_clients_with_certificates_use_a_port_that_enforces_them(
    strict_one: Server, secure_java: JavaDriver
) -> None:
    topic = unique("T")
    where = ("-b", strict_one.broker, "-n", strict_one.nameserver)
    assert "create topic to" in secure_java.mqadmin("updateTopic", *where, "-t", topic)
    consumer = secure_java.consumer(strict_one.nameserver, topic)
    assert secure_java.producer(strict_one.nameserver).send(topic, "hello").status == "SEND_OK"
    assert [got.text for got in consumer.received(1)] == ["hello"]


def test_a_port_that_enforces_tls_refuses_plain_bytes(strict_one: Server) -> None:
    for address in (strict_one.broker, strict_one.nameserver):
        with pytest.raises(OSError):  # noqa: PT011 - closed, or reset
            wire.ask(address, 105, {"topic": "T"})


def s_client(address: str, *arguments: str) -> str:
    done = subprocess.run(
        [str(OPENSSL), "s_client", "-connect", address, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.stdout + done.stderr


def test_openssl_is_shown_a_certificate_that_it_can_check(
    open_one: Server, strict_one: Server, authority: Authority, own: Pair
) -> None:
    believing = ("-CAfile", str(authority.root), "-verify_return_error", "-verify_ip", "127.0.0.1")
    for address in (open_one.broker, open_one.nameserver):
        assert "Verification: OK" in s_client(address, *believing)
    shown = ("-cert", str(own.certificate), "-key", str(own.key))
    told = s_client(strict_one.broker, *believing, *shown)
    assert "Requested Signature Algorithms" in told  # it asks for a certificate
    assert "Verification: OK" in told
    for version in ("-tls1", "-tls1_1"):
        assert "Cipher is (NONE)" in s_client(open_one.broker, version, "-cipher", "ALL@SECLEVEL=0")


def test_our_clients_of_both_faces_speak_tls(
    open_one: Server, strict_one: Server, authority: Authority, own: Pair
) -> None:
    tls = escrowmq.Tls(trusted=authority.root, certificate=own.certificate, key=own.key)

    def shorten_traceback(server: Server, topic: str) -> None:
        with escrowmq.Producer(server.nameserver, group=unique("PG"), tls=tls) as producer:
            producer.send(topic, b"plain face")
            with producer.transaction(topic, b"in a transaction"):
                pass
        reader = escrowmq.Consumer(server.nameserver, group=unique("CG"), topic=topic, tls=tls)
        with reader as consumer:
            found = {message.body for message in itertools.islice(consumer, 2)}
        assert found == {b"plain face", b"in a transaction"}

    async def awaited(server: Server, topic: str) -> None:
        producer = escrowmq.aio.Producer(server.nameserver, group=unique("PG"), tls=tls)
        async with producer:
            assert (await producer.send(topic, b"awaited")).message_id

    for server in (open_one, strict_one):
        with escrowmq.Admin(server.nameserver, tls=tls) as admin:
            topic = unique("T")
            admin.topics.create(topic, queues=2)
        shorten_traceback(server, topic)
        asyncio.run(awaited(server, topic))


@pytest.mark.parametrize(
    ("tls", "reason"),
    [
        (True, "certificate is not believed"),
        (escrowmq.Tls(checks_name=False), "certificate is not believed"),
        (None, "closed it|Connection reset|reset"),
    ],
)
def test_our_clients_believe_only_whom_they_are_told_to(
    strict_one: Server, tls: Any, reason: str
) -> None:
    with (
        pytest.raises((NoNameServer, ConnectFailed), match=reason),
        escrowmq.Producer(strict_one.nameserver, group=unique("PG"), tls=tls) as producer,
    ):
        producer.send("T", b"never")


def test_who_says_so_believes_anybody(open_one: Server) -> None:
    with escrowmq.Admin(open_one.nameserver, tls=escrowmq.Tls(verify=False)) as admin:
        assert admin.brokers.all()


def test_the_command_line_speaks_tls(strict_one: Server, authority: Authority, own: Pair) -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "escrowmq", "broker", "list", "--json", "-n"]
        return subprocess.run(
            [*line, strict_one.nameserver, *arguments],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    shown = ("--tls-cert", str(own.certificate), "--tls-key", str(own.key))
    done = command("--tls-trusted", str(authority.root), *shown)
    assert json.loads(done.stdout)["address"] == strict_one.broker, done.stderr
    refused = command("--tls", *shown)
    assert refused.returncode == 2
    assert "certificate is not believed" in refused.stderr


def test_a_server_without_the_files_that_it_needs_says_so(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "escrowmq", "nameserver", "--port", "0", "--data", str(tmp_path)]
    for setting, reason in (
        ("tls.server.mode=enforcing", "needs tls.server.certPath"),
        ("tls.server.certPath=none.pem", "cannot be read"),
        ("tls.server.mode=sometimes", "tls.server.mode=sometimes"),
    ):
        done = subprocess.run(
            [*line, "--set", setting], capture_output=True, text=True, timeout=60, check=False
        )
        assert (done.returncode, reason in done.stderr) == (2, True), done.stderr


def test_half_a_hello_keeps_nobody_else_out(open_one: Server, java: JavaDriver) -> None:
    host, port = open_one.broker.split(":")
    halves = [socket.create_connection((host, int(port))) for _ in range(50)]
    for each in halves:
        each.sendall(b"\x16\x03\x01\x02\0\x01")
    topic = new_topic(open_one, unique("T"))
    assert java.producer(open_one.nameserver, useTLS=True).send(topic, "x").status == "SEND_OK"
    until("the broker answers", lambda: wire.ask(open_one.broker, 28).code == 0)
    for each in halves:
        each.close()
