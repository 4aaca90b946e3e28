from __future__ import annotations

import pytest
from starlette.requests import Request

from escrowmq.console import sessions
from escrowmq.console.request_checks import find_session
from escrowmq.console.sessions import SessionStore, SessionUser


def a_request(cookie: str, **headers: str) -> Request:
    found = {"cookie": cookie, **{name.replace("_", "-"): each for name, each in headers.items()}}
    raw = [(name.encode(), each.encode()) for name, each in found.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": raw})


@pytest.mark.parametrize(
    ("headers", "is_kept"),
    [({}, True), ({"accept": "text/event-stream"}, False), ({"x_live": "1"}, False)],
)
def test_what_an_open_page_asks_by_itself_keeps_no_session(
    headers: dict[str, str], is_kept: bool
) -> None:
    now_s = 0.0
    found = SessionStore(lambda: now_s)
    cookie = found.open_session(SessionUser(name="ann", may_change=True))
    request = a_request(f"{found.cookie}={cookie}", **headers)
    now_s = sessions.IDLE_S - 1
    assert find_session(request, found) is not None
    now_s = sessions.IDLE_S + 1
    assert (find_session(request, found) is not None) == is_kept
