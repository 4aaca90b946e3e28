"""Makes a certificate for the gRPC port if none is configured.

The Java, Go, C# and C++ clients of RocketMQ 5 use TLS by default, and accept any certificate; for
them RocketMQ's proxy makes itself one. This certificate encrypts just as well and proves as little,
and its subject says so.

A separate process makes it, once for each data folder: the libraries for it would take 20 MB of the
server's memory as long as it runs."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from escrowmq.errors import UsageError
from escrowmq.net.certificates import ReloadedCertificates, TlsFiles
from escrowmq.net.tls import TlsPolicy
from escrowmq.node.connection_settings import ConnectionSettings

_log = logging.getLogger(__name__)

FILE: Final = "self-made-certificate.pem"
ORGANIZATION: Final = "EscrowMQ self-made certificate, proves nothing"
_MAKING_S: Final = 30.0
_FIRST_DAY: Final = datetime(2020, 1, 1, tzinfo=UTC)
_LAST_DAY: Final = datetime(9999, 12, 31, tzinfo=UTC)


def self_signed_tls(
    settings: ConnectionSettings, *, data: str, names: tuple[str, ...]
) -> TlsPolicy | None:
    """Return the TLS policy of a gRPC port without a configured certificate; None if it should have
    no TLS, or no certificate could be made."""
    is_wanted = settings.makes_certificate and settings.mode != "disabled"
    if settings.certificate or not is_wanted:
        return None
    path = Path(data) / FILE
    try:
        certificates = _load_or_make(path, names)
    except UsageError as error:
        _log.warning("the gRPC port has no TLS, which clients of RocketMQ 5 expect: %s", error)
        return None
    _log.info(
        "the gRPC port uses a self-signed certificate: it encrypts, and does not prove the "
        "server's identity; name your own in tls.server.certPath"
    )
    return TlsPolicy(mode="permissive", certificates=certificates)


def _load_or_make(path: Path, names: tuple[str, ...]) -> ReloadedCertificates:
    """Load the certificate of an earlier start; make one if there is none, or if it cannot be used:
    a loss of power may have left an empty file."""
    files = TlsFiles(certificate=str(path), key="")
    if path.exists():
        try:
            return ReloadedCertificates(files)
        except UsageError as error:
            _log.warning("the gRPC port's own certificate is made again: %s", error)
    _run_maker_process(path, names)
    return ReloadedCertificates(files)


def _run_maker_process(path: Path, names: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "escrowmq.node.self_made_certificate", str(path), *names]
    try:
        done = subprocess.run(  # noqa: S603 - this file, by this interpreter
            command, check=False, capture_output=True, timeout=_MAKING_S, text=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(f"no certificate could be made: {error}") from error
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        raise UsageError(f"no certificate could be made: {reason[0]}")


def make_certificate(path: Path, names: tuple[str, ...]) -> None:
    """Write a key and its certificate for these names and addresses to a file that only its owner
    can read."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost"),
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, ORGANIZATION),
        ]
    )
    known: list[x509.GeneralName] = []
    for name in dict.fromkeys(names):
        try:
            known.append(x509.IPAddress(ip_address(name)))
        except ValueError:
            known.append(x509.DNSName(name))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_FIRST_DAY)
        .not_valid_after(_LAST_DAY)
        .add_extension(x509.SubjectAlternativeName(known), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    data = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(pem)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)  # in a container, a process that was killed had the same number
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)


if __name__ == "__main__":
    make_certificate(Path(sys.argv[1]), tuple(sys.argv[2:]))
