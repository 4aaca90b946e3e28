"""An API server of Kubernetes, as far as ConfigMaps go. It behaves as the real one with versions:
one counter for all objects, 409 for a conflict, no comparison where a request names no version."""

from __future__ import annotations

import json
import re
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from tests.harness.certificates import Pair

TOKEN: Final = "token-of-the-pod"
NAMESPACE: Final = "shop"
_FOLDER: Final = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class ApiServer:
    """Objects by name. `fails` is the number of next requests that get a 503."""

    def __init__(self, pair: Pair) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 100
        self.fails = 0
        self.forbids: set[str] = set()
        """Methods that the account's role does not allow."""
        self.requests: list[str] = []
        self.lock = threading.Lock()
        api = self

        class Handler(_Handler):
            server_state = api

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(pair.certificate, pair.key)
        self._server.socket = tls.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def put(self, name: str, item: dict[str, Any]) -> None:
        """Store an object under the next version."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.objects[name] = item

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_state: ApiServer

    def do_GET(self) -> None:
        self._serve("get", lambda api, name, item: (200, api.objects[name]))

    def do_DELETE(self) -> None:
        self._serve("delete", lambda api, name, item: (200, api.objects.pop(name)))

    def do_PUT(self) -> None:
        def replace(api: ApiServer, name: str, item: dict[str, Any]) -> tuple[int, Any]:
            if item["metadata"]["name"] != name:
                return 400, _status("BadRequest", "the name of the object does not match the URL")
            wanted = item["metadata"].get("resourceVersion")
            if wanted and wanted != api.objects[name]["metadata"]["resourceVersion"]:
                return 409, _status("Conflict", "the object has been modified")
            api.put(name, item)
            return 200, item

        self._serve("update", replace)

    def do_POST(self) -> None:
        def create(api: ApiServer, _: str, item: dict[str, Any]) -> tuple[int, Any]:
            name = item["metadata"]["name"]
            if "resourceVersion" in item["metadata"]:
                return 400, _status("BadRequest", "resourceVersion should not be set on creation")
            if not _NAME.fullmatch(name):
                return 422, _status("Invalid", f"{name} is no name")
            if name in api.objects:
                return 409, _status("AlreadyExists", f'configmaps "{name}" already exists')
            api.put(name, item)
            return 201, item

        self._serve("create", create)

    def _serve(self, verb: str, act: Any) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        api = self.server_state
        with api.lock:
            api.requests.append(verb)
            status, answer = self._judged(api, verb, act, body)
        self._answer(status, answer)

    def _judged(self, api: ApiServer, verb: str, act: Any, body: bytes) -> tuple[int, Any]:
        api.fails -= 1
        if api.fails >= 0:
            return 503, _status("ServiceUnavailable", "etcdserver: no leader")
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return 401, _status("Unauthorized", "Unauthorized")
        if verb in api.forbids:
            return 403, _status("Forbidden", f"configmaps is forbidden: cannot {verb}")
        folder, _, name = self.path.partition("/configmaps")
        name = name.strip("/")
        if f"{folder}/configmaps" != _FOLDER:
            return 404, _status("NotFound", "namespaces not found")
        if verb != "create" and name not in api.objects:
            return 404, _status("NotFound", f'configmaps "{name}" not found')
        if body and self.headers["Content-Type"] != "application/json":
            return 415, _status("UnsupportedMediaType", "the body is not JSON")
        status, answer = act(api, name, json.loads(body) if body else {})
        return status, answer

    def _answer(self, status: int, answer: Any) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the base
        """Nothing."""


def _status(reason: str, message: str) -> dict[str, str]:
    return {"kind": "Status", "apiVersion": "v1", "reason": reason, "message": message}
