"""Who gets in, who does not, and whose forms count."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from escrowmq.console import account_clients
from escrowmq.console.calls import OPERATIONS
from escrowmq.console.login_attempts import FAILURES_MAX
from escrowmq.console.options import ConsoleOptions, LocalUser
from escrowmq.console.page_table import PAGES
from escrowmq.testing import Account, Broker
from tests.harness.console import (
    ADMIN,
    HOST,
    PATIENCE_S,
    VIEWER,
    Browser,
    before,
    console,
    program,
)


def test_nothing_is_shown_to_strangers(port: int) -> None:
    stranger = Browser(port)
    for path in (path for path, _ in PAGES if "{" not in path):
        reply = stranger.get(path)
        assert (reply.status, reply.body) == (303, b""), path
        assert reply.headers["location"].startswith("/login?back=")
    for path in (one.path for one in OPERATIONS if "{" not in one.path and one.method == "GET"):
        reply = stranger.call("GET", path)
        assert (reply.status, reply.json["code"]) == (401, "not_logged_in"), path


def test_a_login_leads_back_to_the_page_that_was_asked_for(port: int) -> None:
    browser = Browser(port)
    fields = {"name": ADMIN.name, "password": ADMIN.password}
    reply = browser.send("/login", {**fields, "back": "/topics?page=2"}, csrf="")
    assert (reply.status, reply.headers["location"]) == (303, "/topics?page=2")
    cookie = reply.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie


@pytest.mark.parametrize(
    "back", ["//evil.example/", "https://evil.example/", "/\\evil.example", "javascript:alert(1)"]
)
def test_a_login_leads_to_no_other_site(port: int, back: str) -> None:
    fields = {"name": ADMIN.name, "password": ADMIN.password, "back": back}
    assert Browser(port).send("/login", fields, csrf="").headers["location"] == "/"


def test_a_wrong_password_is_refused_and_guessing_has_an_end(broker: Broker) -> None:
    with before(broker) as port:
        guesser = Browser(port)
        for nth in range(FAILURES_MAX):
            fields = {"name": "admin", "password": f"guess {nth}"}
            reply = guesser.send("/login", fields, csrf="")
            assert reply.status == 401
            assert "the name or the password is wrong" in reply.words()
        assert guesser.log_in().status == 429
        assert program(port).call("GET", "/overview").json["code"] == "too_many_attempts"


def test_a_stranger_behind_a_proxy_keeps_nobody_else_out(broker: Broker) -> None:
    """All who came through the proxy shared its ten failed logins."""
    with before(broker, proxies=("127.0.0.1/32", "10.0.0.0/8")) as port:
        stranger = Browser(port, {"X-Forwarded-For": "192.0.2.1, 203.0.113.7, 10.1.2.3"})
        for nth in range(FAILURES_MAX):
            fields = {"name": "admin", "password": f"guess {nth}"}
            assert stranger.send("/login", fields, csrf="").status == 401
        assert stranger.log_in().status == 429
        assert Browser(port, {"X-Forwarded-For": "198.51.100.2"}).log_in().status == 303
        other_claim = {"X-Forwarded-For": "198.51.100.3, 203.0.113.7"}
        assert Browser(port, other_claim).log_in().status == 429, "the proxy names the last one"


def test_what_a_client_says_of_its_address_counts_for_nothing(broker: Broker) -> None:
    with before(broker) as port:
        for nth in range(FAILURES_MAX):
            guesser = Browser(port, {"X-Forwarded-For": f"192.0.2.{nth}"})
            fields = {"name": "admin", "password": f"guess {nth}"}
            assert guesser.send("/login", fields, csrf="").status == 401
        assert Browser(port, {"X-Forwarded-For": "192.0.2.99"}).log_in().status == 429


def test_consoles_of_several_clusters_on_one_host_leave_each_other_alone(
    broker: Broker, port: int
) -> None:
    browser = Browser(port)
    browser.log_in()
    with before(broker) as other:
        second = Browser(other)
        second.log_in()
        assert second.cookie_name != browser.cookie_name
        assert f"{port}" in browser.cookie_name


def test_logging_out_ends_the_session_at_the_server(port: int) -> None:
    browser = Browser(port)
    browser.log_in()
    browser.get("/")
    cookie = browser.cookie
    assert browser.send("/logout", {}).status == 303
    browser.cookie = cookie
    assert browser.get("/").status == 303


def test_every_answer_has_the_strict_headers(port: int, browser: Browser) -> None:
    for reply in (browser.get("/"), browser.get("/nowhere"), Browser(port).get("/login"),
                  browser.call("GET", "/overview"), browser.get("/static/none.js")):  # fmt: skip
        policy = reply.headers["content-security-policy"]
        assert policy.startswith("default-src 'self';")
        assert "unsafe" not in policy
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["cache-control"] == "no-store"


def test_pages_load_only_what_is_named_by_its_digest(browser: Browser) -> None:
    page = browser.get("/").text
    assert "<style" not in page
    assert " style=" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    names = [part.partition('"')[0] for part in page.split('"/static/')[1:]]
    assert {name.split(".")[0] for name in names} == {"console", "icon"}
    for name in names:
        reply = browser.get(f"/static/{name}")
        assert reply.status == 200
        assert "immutable" in reply.headers["cache-control"]


def test_a_call_by_cookie_needs_the_sessions_own_mark(browser: Browser) -> None:
    kind = {"Content-Type": "application/json"}
    forged = browser.ask("POST", "/api/v1/tokens", b"{}", kind)
    assert (forged.status, forged.json["code"]) == (403, "stale_form")
    own = browser.ask("POST", "/api/v1/tokens", b"{}", {**kind, "X-CSRF-Token": browser.csrf})
    assert own.status == 200


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}]
)
def test_what_a_page_of_another_site_sends_is_refused(
    port: int, browser: Browser, headers: dict[str, str]
) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    body = f"name={ADMIN.name}&password={ADMIN.password}".encode()
    assert Browser(port).ask("POST", "/login", body, kind).status == 403
    mark = {"Content-Type": "application/json", "X-CSRF-Token": browser.csrf, **headers}
    assert browser.ask("POST", "/api/v1/tokens", b"{}", mark).json["code"] == "foreign_page"


def test_a_form_sent_as_something_else_is_refused(browser: Browser) -> None:
    for kind in ("text/plain", "multipart/form-data; boundary=x", "application/json"):
        reply = browser.ask("POST", "/login", b"name=admin", {"Content-Type": kind})
        assert reply.status == 415
    reply = browser.ask("POST", "/api/v1/tokens", b"{}", {"X-CSRF-Token": browser.csrf})
    assert reply.status == 415


def test_a_token_is_as_good_as_its_owner_or_less(port: int, api: Browser) -> None:
    token = api.call("POST", "/tokens", {}).json
    assert token["mayChange"] is True
    robot = Browser(port, {"Authorization": f"Bearer {token['token']}"})
    assert robot.call("GET", "/overview").status == 200
    less = robot.call("POST", "/tokens", {"may_change": False}).json
    assert less["mayChange"] is False
    weak = Browser(port, {"Authorization": f"Bearer {less['token']}"})
    assert weak.call("POST", "/tokens", {"may_change": True}).json["mayChange"] is False
    for odd in ({"may_change": "false"}, {"may_change": None}, {"mayChange": False}):
        assert api.call("POST", "/tokens", odd).status == 400
    assert robot.call("DELETE", "/tokens").status == 204
    for each in (robot, weak):
        assert each.call("GET", "/overview").json["code"] == "bad_token"


@pytest.mark.parametrize("given", ["Basic ???", "Basic YWRtaW4=", "Bearer none", "Digest x"])
def test_an_authorization_that_is_none_is_refused(port: int, given: str) -> None:
    assert Browser(port, {"Authorization": given}).call("GET", "/overview").status == 401


def test_a_body_that_is_too_large_or_no_form_is_refused(port: int, api: Browser) -> None:
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    assert Browser(port).ask("POST", "/login", b"a" * 300_000, kind).status == 413
    assert Browser(port).ask("POST", "/login", b"a=b&" * 2_000, kind).status == 400
    assert Browser(port).ask("POST", "/login", b"name=\xff%ff", kind).status in (400, 401)
    assert (
        api.ask("POST", "/api/v1/tokens", b"[", {"Content-Type": "application/json"}).status == 400
    )


def test_a_reader_sees_and_is_offered_no_change(port: int) -> None:
    reader = Browser(port)
    reader.log_in(VIEWER)
    assert "read-only" in reader.get("/").words()


def test_accounts_of_the_brokers_log_in_with_their_secrets() -> None:
    accounts = [Account("operator1", "secret-of-operator", is_admin=True),
                Account("service1", "secret-of-service", topics={"paid": "PUB"})]  # fmt: skip
    with (
        Broker(sockets=True, accounts=accounts) as broker,
        before(broker, login="accounts", users=()) as port,
    ):
        browser = Browser(port)
        login = {"name": "operator1", "password": "secret-of-operator"}
        assert browser.send("/login", {**login, "password": "wrong-secret"}, csrf="").status == 401
        assert browser.send("/login", {**login, "name": "nobody1"}, csrf="").status == 401
        assert browser.send("/login", login, csrf="").status == 303
        page = browser.get("/")
        assert page.status == 200
        assert "read-only" not in page.words()
        service = Browser(port)
        login = {"name": "service1", "password": "secret-of-service"}
        assert service.send("/login", login, csrf="").status == 303
        assert "read-only" in service.get("/").words()


OPERATOR = Account("operator1", "secret-of-operator", is_admin=True)


@pytest.mark.parametrize("is_program", [False, True])
def test_guesses_at_the_same_time_are_counted_too(is_program: bool) -> None:
    guesses = [f"guess {nth}" for nth in range(3 * FAILURES_MAX)]
    gate = threading.Barrier(len(guesses))
    with (
        Broker(sockets=True, accounts=[OPERATOR]) as broker,
        before(broker, login="accounts", users=()) as port,
        ThreadPoolExecutor(len(guesses)) as threads,
    ):

        def guess(password: str) -> int:
            user = LocalUser(name=OPERATOR.access_key, password=password, may_change=True)
            gate.wait(PATIENCE_S)
            if is_program:
                return program(port, user).call("GET", "/overview").status
            return Browser(port).log_in(user).status

        told = Counter(threads.map(guess, guesses))
        assert told == {401: FAILURES_MAX, 429: len(guesses) - FAILURES_MAX}


def test_a_program_s_calls_at_the_same_time_are_one_login() -> None:
    count = 2 * FAILURES_MAX
    gate = threading.Barrier(count)
    with (
        Broker(sockets=True, accounts=[OPERATOR]) as broker,
        before(broker, login="accounts", users=()) as port,
        ThreadPoolExecutor(count) as threads,
    ):
        user = LocalUser(name=OPERATOR.access_key, password=OPERATOR.secret_key, may_change=True)

        def call(_: int) -> int:
            gate.wait(PATIENCE_S)
            return program(port, user).call("GET", "/brokers").status

        assert set(threads.map(call, range(count))) == {200}


def test_a_login_that_no_broker_could_judge_is_no_wrong_password() -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        address = f"{HOST}:{nobody.getsockname()[1]}"
        with console(ConsoleOptions(name_servers=address, login="accounts", users=())) as port:
            told = [Browser(port).log_in().status for _ in range(FAILURES_MAX + 1)]
            assert set(told) == {503}


def test_an_account_for_which_there_is_no_place_is_told_so(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_clients, "ACCOUNT_CLIENTS_MAX", 0)
    with before(broker) as port:
        browser = Browser(port)
        browser.log_in()
        page = browser.get("/")
        assert page.status == 503
        assert "accounts are at work" in page.words()
        assert program(port).call("GET", "/overview").json["code"] == "too_many_accounts"
        assert browser.get("/readyz").status == 503


def test_a_cluster_that_is_not_there_is_told() -> None:
    with socket.socket() as nobody:
        nobody.bind((HOST, 0))
        address = f"{HOST}:{nobody.getsockname()[1]}"
        options = ConsoleOptions(name_servers=address, login="local", users=(ADMIN,))
        with console(options) as port:
            browser = Browser(port)
            browser.log_in()
            page = browser.get("/")
            assert page.status == 503
            assert "The cluster does not answer" in page.words()
            assert program(port).call("GET", "/overview").json["code"] == "unreachable"
            assert browser.get("/healthz").status == 200
            assert browser.get("/readyz").status == 503
