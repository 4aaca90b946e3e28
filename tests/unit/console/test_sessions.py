from __future__ import annotations

import pytest

from escrowmq.console import sessions
from escrowmq.console.sessions import SessionStore, SessionUser

WHO = SessionUser(name="ann", may_change=True)


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_session_is_known_by_its_cookie_alone() -> None:
    found = SessionStore(Clock())
    cookie = found.open_session(WHO)
    session = found.find_session(cookie)
    assert session is not None
    assert session.who == WHO
    assert session.csrf not in ("", cookie)
    assert found.find_session(cookie[:-1]) is None
    assert found.find_session("") is None


def test_a_session_ends_when_it_rests_and_when_it_is_old() -> None:
    clock = Clock()
    found = SessionStore(clock)
    resting, used = found.open_session(WHO), found.open_session(WHO)
    for _ in range(int(sessions.AGE_MAX_S / sessions.IDLE_S) + 1):
        clock.now_s += sessions.IDLE_S - 1
        if clock.now_s - 1_000 <= sessions.AGE_MAX_S:
            assert found.find_session(used) is not None
    assert found.find_session(resting) is None
    assert found.find_session(used) is None


def test_logging_out_ends_one_session() -> None:
    found = SessionStore(Clock())
    one, other = found.open_session(WHO), found.open_session(WHO)
    found.end_session(one)
    assert found.find_session(one) is None
    assert found.find_session(other) is not None


def test_of_too_many_sessions_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 2)
    found = SessionStore(Clock())
    cookies = [found.open_session(WHO) for _ in range(3)]
    assert [found.find_session(cookie) is not None for cookie in cookies] == [False, True, True]


def test_of_too_many_sessions_of_a_user_the_oldest_of_that_user_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A viewer who logged in again and again ended the sessions and tokens of everybody."""
    monkeypatch.setattr(sessions, "OF_USER_MAX", 2)
    found = SessionStore(Clock())
    cookie, (token, _) = found.open_session(WHO), found.issue_token(WHO, 60)
    viewer = SessionUser(name="viewer", may_change=False)
    cookies = [found.open_session(viewer) for _ in range(5)]
    tokens = [found.issue_token(viewer, 60)[0] for _ in range(5)]
    assert found.find_session(cookie) is not None
    assert found.token_user(token) is WHO
    assert [found.find_session(each) is not None for each in cookies] == [False] * 3 + [True] * 2
    assert [found.token_user(each) is not None for each in tokens] == [False] * 3 + [True] * 2


def test_a_token_issued_with_a_token_ends_with_it() -> None:
    """It was valid for another eight hours, so that a token renewed itself for ever."""
    clock = Clock()
    found = SessionStore(clock)
    first, valid_s = found.issue_token(WHO, 60)
    assert valid_s == 60
    clock.now_s += 50
    second, left_s = found.issue_token(WHO, 60, issuer=first)
    assert left_s == 10
    third, _ = found.issue_token(WHO, 60, issuer=second)
    assert found.token_user(third) is WHO
    found.revoke_token(first)
    assert found.token_user(third) is None
    assert found.token_user(second) is None


def test_a_token_holds_for_its_time_and_until_it_is_revoked() -> None:
    clock = Clock()
    found = SessionStore(clock)
    (token, _), (other, _) = found.issue_token(WHO, 60), found.issue_token(WHO, 60)
    assert found.token_user(token) == WHO
    assert found.token_user("none") is None
    found.revoke_token(other)
    assert found.token_user(other) is None
    clock.now_s += 61
    assert found.token_user(token) is None
