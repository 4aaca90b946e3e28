"""Checks a request before it is served: its size, its sender, and whether a page of another site
made the browser send it."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from escrowmq.console.page_streams import MEDIA_TYPE
from escrowmq.console.password_checks import PasswordChecks
from escrowmq.console.problems import Problem
from escrowmq.console.sessions import BrowserSession, SessionStore, SessionUser, are_equal_secrets

BODY_MAX: Final = 256 * 1024
"""The most bytes of a request's body."""

LIVE: Final = "x-live"
"""The header by which an open page marks the requests that it makes by itself, to refresh its
values."""

_PATIENCE_S: Final = 10.0
FIELDS_MAX: Final = 1_000
CSRF: Final = "csrf"
CSRF_HEADER: Final = "x-csrf-token"
_BASIC: Final = "basic"
_BEARER: Final = "bearer"


async def read_body(request: Request) -> bytes:
    """Read the request's body. Raises Problem if it is too large."""
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_PATIENCE_S):
            async for part in request.stream():
                size += len(part)
                if size > BODY_MAX:
                    raise Problem(
                        413,
                        "too_large_result",
                        f"a body of more than {BODY_MAX} bytes",
                        "send less",
                    )
                parts.append(part)
    except TimeoutError as error:
        raise Problem(408, "too_slow", f"the body took more than {_PATIENCE_S:.0f} s") from error
    return b"".join(parts)


async def read_form(request: Request) -> dict[str, list[str]]:
    """Read the fields of a form: the values of each, by name."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Problem(415, "bad_request", f"a form is expected, not {kind or 'nothing'}")
    try:
        text = (await read_body(request)).decode()
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX)
    except ValueError as error:
        raise Problem(400, "bad_request", f"the form cannot be read: {error}") from error
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return found


async def read_json(request: Request) -> dict[str, object]:
    """Read the members of a JSON body; none if the body is empty."""
    body = await read_body(request)
    if not body:
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        # Forms of other sites can send three content types without a preflight request; this is
        # none of them.
        raise Problem(415, "bad_request", f"application/json is expected, not {kind or 'nothing'}")
    try:
        return msgspec.json.decode(body, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, "bad_request", f"the body is not a JSON object: {error}") from error


def sender_address(request: Request) -> str:
    """Return the address that sent a request."""
    return request.client.host if request.client is not None else ""


def find_session(request: Request, sessions: SessionStore) -> BrowserSession | None:
    """Return the browser's session; None if it has none. Requests that an open page makes by itself
    do not prolong the session, so that an unattended page is logged out."""
    headers = request.headers
    is_use = LIVE not in headers and headers.get("accept", "") != MEDIA_TYPE
    return sessions.find_session(request.cookies.get(sessions.cookie, ""), is_use=is_use)


def check_origin(request: Request) -> None:
    """Raise Problem if the browser reports that another site made it send this request."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    host = request.headers.get("host", "")
    is_foreign = origin is not None and origin.partition("://")[2] != host
    if site not in ("same-origin", "none") or is_foreign:
        raise Problem(403, "foreign_page", "this request was sent by a page of another site")


def check_csrf(session: BrowserSession, given: str) -> None:
    """Raise Problem if a form lacks the token of this session, and so may come from another
    site."""
    if not given or not are_equal_secrets(given, session.csrf):
        raise Problem(
            403, "stale_form", "this form belongs to another session", "load the page again"
        )


async def authenticate_caller(
    request: Request, sessions: SessionStore, accounts: PasswordChecks
) -> SessionUser:
    """Authenticate the caller of the API by a token, a name and password, or the cookie of a page.
    Raises Problem if that fails."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == _BEARER:
        who = sessions.token_user(read_bearer(request))
        if who is None:
            raise Problem(401, "bad_token", "this token is invalid, or has expired",
                          "POST /api/v1/tokens issues one")  # fmt: skip
        return who
    if scheme.lower() == _BASIC:
        name, password = _parse_basic(given)
        return await accounts.check_password_cached(name, password, sender_address(request))
    session = find_session(request, sessions)
    if session is None:
        raise Problem(401, "not_logged_in", "not logged in",
                      "send a bearer token, or name and password")  # fmt: skip
    if request.method not in ("GET", "HEAD"):
        check_origin(request)
        check_csrf(session, request.headers.get(CSRF_HEADER, ""))
    return session.who


def read_bearer(request: Request) -> str:
    """Return the token in a request; empty if it has none."""
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == _BEARER else ""


def _parse_basic(given: str) -> tuple[str, str]:
    try:
        name, mark, password = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise Problem(401, "wrong_login", "the header Authorization cannot be read") from error
    if not mark:
        raise Problem(401, "wrong_login", "the header Authorization has no password")
    return name, password
