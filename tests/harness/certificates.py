"""Certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import msgspec

OPENSSL: Final = shutil.which("openssl")
"""The command; None where there is none."""

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """A root and what it has signed, in a folder. Certificates are of localhost and 127.0.0.1."""

    def __init__(self, folder: Path, name: str = "root") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        # Python 3.13 and newer take no root that does not say what its key is for.
        uses = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self.root = self._make(name, "-x509", "-subj", f"/CN={name}", *uses).certificate

    def sign(self, name: str, *, password: str = "") -> Pair:
        """A certificate of this authority; the key is encrypted when there is a password."""
        pair = self._pair(name)
        request = self._folder / f"{name}.csr"
        names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
        encrypted = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _run("req", *_KEY, "-subj", f"/CN={name}", "-addext", names, *encrypted,
             "-keyout", str(pair.key), "-out", str(request))  # fmt: skip
        root_key = self.root.with_suffix(".key")
        _run("x509", "-req", "-in", str(request), "-CA", str(self.root), "-CAkey", str(root_key),
             "-CAcreateserial", "-days", "2", "-copy_extensions", "copyall",
             "-out", str(pair.certificate))  # fmt: skip
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.pem", self._folder / f"{name}.key")

    def _make(self, name: str, *arguments: str) -> Pair:
        pair = self._pair(name)
        _run("req", *_KEY, "-nodes", "-days", "2", *arguments,
             "-keyout", str(pair.key), "-out", str(pair.certificate))  # fmt: skip
        return pair


def _run(*arguments: str) -> None:
    assert OPENSSL is not None, "these tests need the openssl command"
    done = subprocess.run(  # a tool of the test's own choosing
        [OPENSSL, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
