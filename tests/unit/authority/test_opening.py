"""Addresses of authorities, and what is said about wrong ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from escrowmq.authority import opening
from escrowmq.authority.engine_authority import EngineAuthority
from escrowmq.authority.opening import open_authority
from escrowmq.errors import UsageError


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("etcd://h", "etcd at h:2379"),
        ("etcd://h:1,i:2/some/prefix?timeout=0.5", "etcd at h:1,i:2"),
        ("etcd://user:p%40ss@[::1]:1", "etcd at [::1]:1"),
        ("etcds://[::1]/x", "etcd at [::1]:2379"),
        ("s3://bucket", "S3 bucket bucket"),
        (
            "s3://bucket/a/b?endpoint=http://h:1&region=x&timeout=1",
            "S3 bucket bucket at http://h:1",
        ),
    ],
)
def test_an_address_names_an_engine(address: str, name: str) -> None:
    authority = open_authority(address)
    assert authority.name == name
    asyncio.run(authority.close())


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:2379", "an address is expected: etcd://"),
        ("zookeeper://h:1", "'zookeeper' is no kind of engine; etcd://"),
        ("etcd://", "'' is not HOST:PORT"),
        ("etcd://h:1,", "'' is not HOST:PORT"),
        ("etcd://h:70000", "'h:70000' is not HOST:PORT"),
        ("etcd://h:x", "'h:x' is not HOST:PORT"),
        ("etcd://h:1?ttl=3", "etcd has no option ttl"),
        ("etcd://h:1?ca=x", "etcd has no option ca"),
        ("etcd://h:1?timeout=0", "timeout='0'; 0.05 to 60 seconds"),
        ("etcd://h:1?timeout=soon", "timeout='soon'; 0.05 to 60 seconds"),
        ("etcd://h:1?password-file=x", "needs a user without a password"),
        ("etcd://u:p@h:1?password-file=x", "needs a user without a password"),
        ("etcd://u@h:1?password-file=/nowhere", "password-file='/nowhere': "),
        ("etcds://h:1?ca=/nowhere", "ca='/nowhere', .*No such file"),
        ("etcds://h:1?cert=/nowhere", "cert='/nowhere'.*No such file"),
        ("etcds://h:1?key=x", "key without cert"),
        ("kubernetes://", "without an address is for pods; elsewhere kubernetes://HOST:PORT"),
        ("kubernetes://h:1", "no namespace is given, and .*No such file"),
        ("kubernetes://h:1/Shop", "'Shop' is not a valid name in Kubernetes"),
        ("kubernetes://h:1/shop/my_records", "'my_records' is not a valid name in Kubernetes"),
        ("kubernetes://h:1/shop?token=x", "ca='/var/run/.*No such file"),
        ("s3:///prefix", "s3://BUCKET/PREFIX is expected"),
        ("s3://user:secret@bucket", "credentials are read from AWS_ACCESS_KEY_ID"),
        ("s3://bucket?acl=x", "s3 has no option acl"),
    ],
)
def test_a_wrong_address_is_explained(address: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        open_authority(address)


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    for address in ("etcd://u:secret@h:x", "etcd://u:secret@h:1?odd=1", "u:secret@h:1"):
        with pytest.raises(UsageError) as caught:
            open_authority(address)
        assert "secret" not in str(caught.value)
    file = tmp_path / "password"
    file.write_text("secret\n")
    parts = opening._split_address(f"etcd://u@h:1?password-file={file}")
    assert opening._read_account(parts) == ("u", "secret")
    assert opening._read_account(opening._split_address("etcd://u:p%40ss@h:1")) == ("u", "p@ss")


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("etcd://h", "escrowmq"),
        ("etcd://h/", "escrowmq"),
        ("etcd://h/a/b/", "a/b"),
        ("s3://bucket", "escrowmq"),
        ("s3://bucket/a/b", "a/b"),
    ],
)
def test_keys_have_a_prefix(address: str, prefix: str) -> None:
    authority = open_authority(address)
    assert isinstance(authority, EngineAuthority)
    assert authority._engine._prefix == prefix  # type: ignore[attr-defined]
    asyncio.run(authority.close())
