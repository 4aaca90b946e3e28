"""The console as one ASGI application, with the API and the pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from escrowmq.base.probes import HealthReader, health, readiness
from escrowmq.console.account_clients import AccountClients
from escrowmq.console.audit import write_audit_line
from escrowmq.console.calls import OPERATIONS
from escrowmq.console.openapi import openapi_document
from escrowmq.console.operations import PREFIX, Caller, Operation
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.page_table import PAGES
from escrowmq.console.password_checks import PasswordChecks
from escrowmq.console.problems import Problem
from escrowmq.console.request_checks import (
    authenticate_caller,
    read_bearer,
    read_json,
    sender_address,
)
from escrowmq.console.sessions import SessionStore
from escrowmq.console.site import PageSite

_log = logging.getLogger(__name__)
Handler = Callable[[Request], Awaitable[Response]]

TOKEN_S: Final = 8 * 3_600
POLICY: Final = (
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def build_app(
    options: ConsoleOptions,
    health_reader: HealthReader | None,
    *,
    now_s: Callable[[], float],
    port: int,
    is_ending: Callable[[], bool],
) -> ASGIApp:
    """Build the application for a port. `now_s` is a monotonic clock; `is_ending` returns whether
    the server is stopping."""
    desks = AccountClients(options, now_s)
    sessions = SessionStore(now_s, port=port)
    accounts = PasswordChecks(options, desks, now_s)
    api = ApiRoutes(desks, sessions, accounts)
    site = PageSite(options, desks, sessions, accounts, pages=PAGES, is_ending=is_ending)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await desks.close()

    routes = [*_probe_routes(health_reader, desks), *api.routes(), *site.routes()]
    app = Starlette(
        routes=routes, lifespan=lifespan, exception_handlers={404: site.answer_not_found}
    )
    return SecurityHeaders(app)


class SecurityHeaders:
    """Middleware: adds the security headers to every answer, and forbids caching it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and add the headers to the answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def hardened(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                names = {name.lower() for name, _ in headers}
                headers += [(name, value) for name, value in _HEADERS if name not in names]
                if b"cache-control" not in names:
                    headers.append((b"cache-control", b"no-store"))
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, hardened)


def _probe_routes(
    health_reader: HealthReader | None, account_clients: AccountClients
) -> list[Route]:
    """Make the routes for load balancers and Prometheus (/healthz, /readyz, /metrics), which need
    no login."""

    async def healthz(request: Request) -> Response:
        if health_reader is None:
            return PlainTextResponse("alive\n")
        return _probe_answer(*await asyncio.to_thread(health, health_reader))

    async def readyz(request: Request) -> Response:
        if health_reader is not None:
            return _probe_answer(*await asyncio.to_thread(readiness, health_reader))
        return _probe_answer(*await account_clients.is_reachable())

    async def metrics(request: Request) -> Response:
        if health_reader is None:
            return PlainTextResponse("a console alone has no figures: brokers do\n", 404)
        accept = request.headers.get("accept", "")
        body, kind = await asyncio.to_thread(health_reader.metrics_text, accept)
        return Response(body, headers={"Content-Type": kind})

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def _probe_answer(is_good: bool, said: str) -> Response:
    return PlainTextResponse(f"{said}\n", 200 if is_good else 503)


class ApiRoutes:
    """The routes of the API."""

    def __init__(
        self, desks: AccountClients, sessions: SessionStore, accounts: PasswordChecks
    ) -> None:
        self._desks = desks
        self._sessions = sessions
        self._accounts = accounts

    def routes(self) -> list[Route]:
        """Return one route for each call, and those of the OpenAPI document and of tokens."""
        found = [
            Route(
                one.route,
                self._with_error_answers(self._call_handler(one)),
                methods=[one.method],
            )
            for one in OPERATIONS
        ]
        described = msgspec.json.encode(openapi_document(OPERATIONS))

        async def openapi(request: Request) -> Response:
            return _json_answer(described)

        return [
            Route(f"{PREFIX}/openapi.json", openapi),
            Route(
                f"{PREFIX}/tokens",
                self._with_error_answers(self._serve_token),
                methods=["POST", "DELETE"],
            ),
            *found,
            Route(f"{PREFIX}/{{rest:path}}", self._with_error_answers(_unknown_call)),
            Route("/api/{rest:path}", self._with_error_answers(_unknown_call)),
        ]

    def _call_handler(self, operation: Operation) -> Handler:
        async def serve(request: Request) -> Response:
            who = await authenticate_caller(request, self._sessions, self._accounts)
            given: dict[str, object] = dict(request.query_params)
            if operation.method == "POST":
                given |= await read_json(request)
            given |= request.path_params
            if operation.takes_password and "password" in request.query_params:
                raise Problem(400, "bad_request", "there is a password in the URL",
                              "send it in the body: URLs are logged")  # fmt: skip
            caller = Caller(account_client=self._desks.client_of(who.credentials), who=who)
            found = await operation(caller, given)
            if operation.makes_changes and not getattr(found, "is_dry_run", False):
                write_audit_line(
                    "call", who=who.name, peer=sender_address(request), call=operation.name,
                    said=found.said, reason=str(given.get("reason", "")),
                )  # fmt: skip
            return _json_answer(msgspec.json.encode(found))

        return serve

    async def _serve_token(self, request: Request) -> Response:
        """Issue a token to a client that proves its identity, or revoke one."""
        who = await authenticate_caller(request, self._sessions, self._accounts)
        issuer = read_bearer(request)
        if request.method == "DELETE":
            self._sessions.revoke_token(issuer)
            return Response(status_code=204)
        try:
            wish = msgspec.convert(await read_json(request), _TokenRequest)
        except msgspec.ValidationError as error:
            raise Problem(400, "bad_request", f"the body is not a request for a token: {error}",
                          '{"may_change": false} or nothing is expected') from error  # fmt: skip
        if not wish.may_change:
            who = msgspec.structs.replace(who, may_change=False)
        token, valid_s = self._sessions.issue_token(who, TOKEN_S, issuer=issuer)
        body = {"token": token, "seconds": int(valid_s), "who": who.name}
        return _json_answer(msgspec.json.encode({**body, "mayChange": who.may_change}))

    def _with_error_answers(self, serve: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await serve(request)
            except Problem as problem:
                return _error_answer(problem)
            except Exception:  # noqa: BLE001 - one request; logged with its trace
                _log.exception("%s %s failed", request.method, request.url.path)
                return _error_answer(
                    Problem(500, "failed", "this console has failed; its log says how")
                )

        return guarded


class _TokenRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a token."""

    may_change: bool = True


async def _unknown_call(request: Request) -> Response:
    raise Problem(404, "no_call", f"there is no call {request.url.path}",
                  f"{PREFIX}/openapi.json lists all")  # fmt: skip


def _json_answer(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _error_answer(problem: Problem) -> Response:
    answer = _json_answer(msgspec.json.encode(problem.refused), problem.status)
    if problem.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="EscrowMQ"'
    return answer
