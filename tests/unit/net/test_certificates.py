from __future__ import annotations

import os
import shutil
import ssl
from pathlib import Path

import pytest
from tests.harness.certificates import OPENSSL, Authority, Pair

from escrowmq.errors import UsageError
from escrowmq.net.certificates import ReloadedCertificates, TlsFiles, make_server_context

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pairs(authority: Authority) -> list[Pair]:
    return [authority.sign("first"), authority.sign("second")]


@pytest.fixture
def files(tmp_path: Path, pairs: list[Pair]) -> TlsFiles:
    files = TlsFiles(certificate=str(tmp_path / "cert.pem"), key=str(tmp_path / "cert.key"))
    put(pairs[0], files)
    return files


def put(pair: Pair, files: TlsFiles) -> None:
    shutil.copyfile(pair.certificate, files.certificate)
    shutil.copyfile(pair.key, files.key)


def touch(path: str, *, after_ns: int) -> None:
    os.utime(path, ns=(after_ns, after_ns))


def test_changed_files_count_when_two_looks_find_the_same(
    files: TlsFiles, pairs: list[Pair]
) -> None:
    certificates = ReloadedCertificates(files)
    first = certificates.context
    assert not certificates.reload_if_changed()
    put(pairs[1], files)
    touch(files.key, after_ns=10**18)
    assert not certificates.reload_if_changed()
    touch(files.key, after_ns=2 * 10**18)
    assert not certificates.reload_if_changed(), "it was written to since the last look"
    assert certificates.reload_if_changed()
    assert certificates.context is not first
    assert not certificates.reload_if_changed()


def test_a_pair_that_does_not_fit_changes_nothing_and_is_told_once(
    files: TlsFiles, pairs: list[Pair], caplog: pytest.LogCaptureFixture
) -> None:
    certificates = ReloadedCertificates(files)
    first = certificates.context
    shutil.copyfile(pairs[1].certificate, files.certificate)
    touch(files.certificate, after_ns=10**18)
    assert [certificates.reload_if_changed() for _ in range(4)] == [False] * 4
    assert certificates.context is first
    assert "belong together" in certificates.trouble
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1
    shutil.copyfile(pairs[1].key, files.key)
    assert [certificates.reload_if_changed(), certificates.reload_if_changed()] == [False, True]
    assert certificates.trouble == ""


def test_files_that_are_gone_leave_the_last_good_certificate(files: TlsFiles) -> None:
    certificates = ReloadedCertificates(files)
    first = certificates.context
    Path(files.certificate).unlink()
    assert [certificates.reload_if_changed() for _ in range(3)] == [False] * 3
    assert certificates.context is first
    assert "cannot be read" in certificates.trouble


def test_a_key_with_a_password_needs_it_and_nobody_is_asked(
    authority: Authority, files: TlsFiles
) -> None:
    put(authority.sign("locked", password="open sesame"), files)
    locked = TlsFiles(certificate=files.certificate, key=files.key, password="open sesame")
    assert make_server_context(locked).verify_mode == ssl.CERT_NONE
    assert "sesame" not in repr(locked)
    for password in ("", "wrong"):
        with pytest.raises(UsageError, match="password"):
            make_server_context(
                TlsFiles(certificate=files.certificate, key=files.key, password=password)
            )


@pytest.mark.parametrize("name", ["certificate", "key", "trusted"])
def test_files_that_cannot_be_used_are_named(files: TlsFiles, name: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_bytes(b"")
    given = {
        "certificate": files.certificate, "key": files.key, "trusted": files.certificate,
    } | {name: str(empty)}  # fmt: skip
    with pytest.raises(UsageError, match=r"empty\.pem"):
        make_server_context(
            TlsFiles(
                certificate=given["certificate"],
                key=given["key"],
                trusted=given["trusted"],
                clients="require",
            )
        )


def test_a_certificate_may_stand_with_its_key_in_one_file(files: TlsFiles) -> None:
    both = Path(files.certificate)
    both.write_bytes(both.read_bytes() + Path(files.key).read_bytes())
    make_server_context(TlsFiles(certificate=str(both), key=""))
