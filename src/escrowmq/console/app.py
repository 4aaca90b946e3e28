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
from escrowmq.console.accounts import Accounts
from escrowmq.console.audit import audit
from escrowmq.console.calls import OPERATIONS
from escrowmq.console.openapi import document
from escrowmq.console.operations import PREFIX, Caller, Operation
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem
from escrowmq.console.request_checks import address_of, bearer_of, caller_of, json_of
from escrowmq.console.routes import PAGES
from escrowmq.console.sessions import Sessions
from escrowmq.console.site import Site

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
    vitals: HealthReader | None,
    *,
    now_s: Callable[[], float],
    port: int,
    is_ending: Callable[[], bool],
) -> ASGIApp:
    """Build the application for a port. `now_s` is a monotonic clock; `is_ending` returns whether
    the server is stopping."""
    desks = AccountClients(options, now_s)
    sessions = Sessions(now_s, port=port)
    accounts = Accounts(options, desks, now_s)
    api = Api(desks, sessions, accounts)
    site = Site(options, desks, sessions, accounts, pages=PAGES, is_ending=is_ending)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await desks.close()

    routes = [*_probes(vitals, desks), *api.routes(), *site.routes()]
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={404: site.not_found})
    return Hardened(app)


class Hardened:
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


def _probes(vitals: HealthReader | None, desks: AccountClients) -> list[Route]:
    """Make the routes for load balancers and Prometheus (/healthz, /readyz, /metrics), which need
    no login."""

    async def healthz(request: Request) -> Response:
        if vitals is None:
            return PlainTextResponse("alive\n")
        return _probe(*await asyncio.to_thread(health, vitals))

    async def readyz(request: Request) -> Response:
        if vitals is not None:
            return _probe(*await asyncio.to_thread(readiness, vitals))
        return _probe(*await desks.is_reachable())

    async def metrics(request: Request) -> Response:
        if vitals is None:
            return PlainTextResponse("a console alone has no figures: brokers do\n", 404)
        accept = request.headers.get("accept", "")
        body, kind = await asyncio.to_thread(vitals.metrics_text, accept)
        return Response(body, headers={"Content-Type": kind})

    return [Route("/healthz", healthz), Route("/readyz", readyz), Route("/metrics", metrics)]


def _probe(is_good: bool, said: str) -> Response:
    return PlainTextResponse(f"{said}\n", 200 if is_good else 503)


class Api:
    """The routes of the API."""

    def __init__(self, desks: AccountClients, sessions: Sessions, accounts: Accounts) -> None:
        self._desks = desks
        self._sessions = sessions
        self._accounts = accounts

    def routes(self) -> list[Route]:
        """Return one route for each call, and those of the OpenAPI document and of tokens."""
        found = [
            Route(PREFIX + one.path, self._guarded(self._served(one)), methods=[one.method])
            for one in OPERATIONS
        ]
        described = msgspec.json.encode(document(OPERATIONS))

        async def openapi(request: Request) -> Response:
            return _json(described)

        return [
            Route(f"{PREFIX}/openapi.json", openapi),
            Route(f"{PREFIX}/tokens", self._guarded(self._token), methods=["POST", "DELETE"]),
            *found,
            Route(f"{PREFIX}/{{rest:path}}", self._guarded(_no_call)),
            Route("/api/{rest:path}", self._guarded(_no_call)),
        ]

    def _served(self, operation: Operation) -> Handler:
        async def serve(request: Request) -> Response:
            who = await caller_of(request, self._sessions, self._accounts)
            given: dict[str, object] = dict(request.query_params)
            if operation.method == "POST":
                given |= await json_of(request)
            given |= request.path_params
            if operation.takes_password and "password" in request.query_params:
                raise Problem(400, "bad_request", "there is a password in the URL",
                              "send it in the body: URLs are logged")  # fmt: skip
            caller = Caller(desk=self._desks.of(who.credentials), who=who)
            found = await operation(caller, given)
            if operation.changes and not getattr(found, "is_dry_run", False):
                audit(
                    "call", who=who.name, peer=address_of(request), call=operation.name,
                    said=found.said, reason=str(given.get("reason", "")),
                )  # fmt: skip
            return _json(msgspec.json.encode(found))

        return serve

    async def _token(self, request: Request) -> Response:
        """Issue a token to a client that proves its identity, or revoke one."""
        who = await caller_of(request, self._sessions, self._accounts)
        issuer = bearer_of(request)
        if request.method == "DELETE":
            self._sessions.revoke(issuer)
            return Response(status_code=204)
        try:
            wish = msgspec.convert(await json_of(request), _TokenWish)
        except msgspec.ValidationError as error:
            raise Problem(400, "bad_request", f"the body is not a request for a token: {error}",
                          '{"may_change": false} or nothing is expected') from error  # fmt: skip
        if not wish.may_change:
            who = msgspec.structs.replace(who, may_change=False)
        token, valid_s = self._sessions.issue(who, TOKEN_S, issuer=issuer)
        return _json(msgspec.json.encode({"token": token, "seconds": int(valid_s), "who": who.name,
                                          "mayChange": who.may_change}))  # fmt: skip

    def _guarded(self, serve: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await serve(request)
            except Problem as problem:
                return _refused(problem)
            except Exception:  # noqa: BLE001 - one request; logged with its trace
                _log.exception("%s %s failed", request.method, request.url.path)
                return _refused(Problem(500, "failed", "this console has failed; its log says how"))

        return guarded


class _TokenWish(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request for a token."""

    may_change: bool = True


async def _no_call(request: Request) -> Response:
    raise Problem(404, "no_call", f"there is no call {request.url.path}",
                  f"{PREFIX}/openapi.json lists all")  # fmt: skip


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


def _refused(problem: Problem) -> Response:
    answer = _json(msgspec.json.encode(problem.refused), problem.status)
    if problem.status == 401:
        answer.headers["WWW-Authenticate"] = 'Bearer realm="EscrowMQ"'
    return answer
