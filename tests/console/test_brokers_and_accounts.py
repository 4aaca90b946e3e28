"""Brokers with their settings, and who may do what."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escrowmq.testing import Account, Broker
from tests.harness.console import VIEWER, Browser, before, program

OPERATOR = Account("operator1", "secret-of-operator", is_admin=True)
SERVICE = Account("service1", "secret-of-service", topics={"paid": "PUB"})


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        yield broker


@pytest.fixture
def port(broker: Broker) -> Iterator[int]:
    with before(broker) as port:
        yield port


def test_a_broker_is_shown_as_people_look_for_it(browser: Browser, api: Browser) -> None:
    assert "broker-a" in browser.get("/brokers").words()
    found = api.call("GET", "/brokers/broker-a").json
    assert {"title": "accepts messages", "value": "yes"} in found["summary"]
    assert "msgPutTotalTodayNow" in found["runtime"]
    page = browser.get("/brokers/broker-a")
    assert "Accepts messages yes" in page.words()
    assert len(page.body) < 60 * 1024
    unknown = api.call("GET", "/brokers/nowhere")
    assert (unknown.status, unknown.json["hint"]) == (404, "there are broker-a")
    assert api.call("GET", "/brokers/nowhere/settings").json["code"] == "no_broker"


def test_settings_say_when_a_change_holds_and_who_made_it(browser: Browser, api: Browser) -> None:
    path = "/brokers/broker-a/settings"
    found = {one["name"]: one for one in api.call("GET", path).json}
    assert found["transactionTimeOut"]["holds"] == "live"
    assert found["aclEnable"]["holds"] == "fixed"
    assert found["transactionCheckMax"]["isDefault"] is True
    wanted = {"name": "transactionCheckMax", "value": "7"}
    preview = api.call("POST", f"{path}?dry_run=1", wanted).json
    assert preview["rows"] == [{"what": "transactionCheckMax", "before": "15", "after": "7"}]
    assert "at once" in preview["said"]
    assert api.call("GET", f"{path}?which=changed").json == []
    shown, done = browser.do("brokers.configure", {"broker": "broker-a", **wanted})
    assert "would be changed" in shown.words()
    assert done.status == 303
    (changed,) = api.call("GET", f"{path}?which=changed").json
    assert (changed["name"], changed["value"], changed["before"]) == (
        "transactionCheckMax", "7", "15",
    )  # fmt: skip
    assert changed["who"].startswith("127.0.0.1")
    assert api.call("GET", f"{path}?which=other&part=checkmax").json == [changed]
    words = browser.get("/brokers/broker-a?which=changed").words()
    assert "was 15, by 127.0.0.1" in words


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ({"name": "aclEnable", "value": "true"}, 409),
        ({"name": "noSuchSetting", "value": "1"}, 404),
        ({"name": "transactionCheckMax"}, 400),
    ],
)
def test_a_setting_that_cannot_be_changed_is_told(
    api: Browser, wanted: dict[str, str], status: int
) -> None:
    assert api.call("POST", "/brokers/broker-a/settings?dry_run=1", wanted).status == status


def test_a_value_that_cannot_be_is_refused_by_the_broker(api: Browser) -> None:
    wanted = {"name": "transactionCheckMax", "value": "many"}
    refused = api.call("POST", "/brokers/broker-a/settings", wanted)
    assert refused.status in (400, 502)
    assert "transactionCheckMax" in refused.json["message"]


def test_without_access_control_nobody_is_asked_and_the_page_says_so(
    browser: Browser, api: Browser
) -> None:
    path = "/access/explain?user=bob&action=pub&resource=paid"
    assert api.call("GET", path).json == []
    page = browser.get("/accounts?user=bob&action=pub&resource=paid")
    assert "There is no access control" in page.words()
    assert api.call("GET", f"{path}&address=somewhere").status == 400


def test_why_somebody_may_not_is_told_by_the_rule_that_decides() -> None:
    with (
        Broker(sockets=True, accounts=[OPERATOR, SERVICE]) as broker,
        before(broker, login="accounts", users=()) as port,
    ):
        browser = Browser(port)
        login = {"name": OPERATOR.access_key, "password": OPERATOR.secret_key}
        assert browser.send("/login", login, csrf="").status == 303
        words = browser.get("/accounts?user=service1&action=sub&resource=paid").words()
        assert "service1 may not sub paid" in words
        assert "topicPerms: paid=PUB" in words
        service = Browser(port)
        login = {"name": SERVICE.access_key, "password": SERVICE.secret_key}
        assert service.send("/login", login, csrf="").status == 303
        page = service.get("/brokers/broker-a")
        assert (page.status, "/do/" in page.text) == (403, False)
        refused = service.get("/transactions")
        assert refused.status == 403
        assert "admin permission" in refused.words()


def test_who_may_only_look_changes_no_setting(port: int) -> None:
    reader = Browser(port)
    reader.log_in(VIEWER)
    assert "/do/" not in reader.get("/brokers/broker-a").text
    robot = program(port, VIEWER)
    wanted = {"name": "transactionCheckMax", "value": "7"}
    refused = robot.call("POST", "/brokers/broker-a/settings", wanted)
    assert refused.json["code"] == "read_only"


def test_every_call_and_key_is_on_the_page_of_help(browser: Browser) -> None:
    words = browser.get("/help").words()
    assert "dead-letters.redeliver" in words
    assert "/api/v1/transactions/{transaction}/commit" in words
