"""Pages that are sent again when they have changed."""

from __future__ import annotations

import asyncio
import http.client
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

import pytest
from starlette.responses import Response, StreamingResponse
from starlette.types import Message

from escrowmq.console import app, page_streams
from escrowmq.console.page_table import PAGES
from escrowmq.console.site import Page
from escrowmq.testing import Broker
from tests.harness.console import HOST, PATIENCE_S, Browser, before


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        broker.create_topic("stock", 1)
        yield broker


@contextmanager
def followed(browser: Browser, path: str) -> Iterator[http.client.HTTPResponse]:
    """The stream of a page, as an EventSource asks for it."""
    connection = http.client.HTTPConnection(HOST, browser.port, timeout=PATIENCE_S)
    with closing(connection):
        headers = {
            "Accept": page_streams.MEDIA_TYPE, "Cookie": f"{browser.cookie_name}={browser.cookie}",
        }  # fmt: skip
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        with closing(answer):
            yield answer


def next_event(answer: http.client.HTTPResponse) -> tuple[str, str]:
    """The name and the data of the next event; comments are passed over."""
    name, data = "message", []
    while line := answer.readline().decode().rstrip("\n"):
        kind, _, value = line.partition(": ")
        if kind == "event":
            name = value
        elif kind == "data":
            data.append(value)
        if not data and name == "message":
            answer.readline()  # the end of a comment
    return name, "\n".join(data)


def test_a_page_is_sent_again_when_it_has_changed(broker: Broker, browser: Browser) -> None:
    with followed(browser, "/topics?part=stock") as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert answer.headers["Cache-Control"] == "no-store"
        _, text = next_event(answer)
        assert 'href="/topics/stock"' in text
        broker.send("stock", b"x")
        seen = [next_event(answer)[1] for _ in range(2)]
        assert any('<td class="n">1</td>' in one for one in seen)


def test_a_session_that_is_over_ends_its_streams(port: int) -> None:
    browser = Browser(port)
    browser.log_in()
    browser.get("/topics")
    with followed(browser, "/topics") as answer:
        next_event(answer)
        assert browser.send("/logout", {}).status == 303
        name = ""
        while name != "over":
            name, _ = next_event(answer)
        assert answer.read() == b""


def test_a_stranger_is_sent_to_the_login_and_another_site_refused(
    port: int, browser: Browser
) -> None:
    stranger = Browser(port, {"Accept": page_streams.MEDIA_TYPE})
    assert stranger.get("/topics").status == 303
    foreign = {"Accept": page_streams.MEDIA_TYPE, "Sec-Fetch-Site": "cross-site"}
    assert browser.ask("GET", "/topics", headers=foreign).status == 403


def test_of_too_many_pages_of_one_browser_the_rest_asks_by_itself(browser: Browser) -> None:
    with (
        followed(browser, "/topics") as one, followed(browser, "/groups") as two,
        followed(browser, "/brokers") as three, followed(browser, "/") as four,
    ):  # fmt: skip
        for each in (one, two, three, four):
            assert each.readline() == b": as before\n"
        with followed(browser, "/jobs") as refused:
            assert refused.status == 503
        assert browser.get("/jobs").status == 200


def test_a_server_stops_although_pages_are_followed(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    with before(broker) as port:
        browser = Browser(port)
        browser.log_in()
        stream = followed(browser, "/topics")
        assert stream.__enter__().readline() == b": as before\n"
    stream.__exit__(None, None, None)
    assert "Cancel" not in caplog.text, "the stream did not end by itself"


def test_pages_of_ids_with_the_marks_of_a_url_are_different_pages(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looked at one saw the other, and came to a third after the login."""

    async def echo(page: Page) -> Response:
        name = page.request.path_params["name"]
        return page.render("stranger.html", problem={"message": name, "hint": ""})

    monkeypatch.setattr(app, "PAGES", (*PAGES, ("/echo/{name:path}", echo)))
    with before(broker) as port:
        browser = Browser(port)
        asked = "/echo/a%23b%3Fc?topic=T"
        assert browser.get(asked).headers["location"] == f"/login?back={quote(asked, safe='')}"
        browser.log_in()
        with followed(browser, "/echo/a%23b") as one, followed(browser, "/echo/a%23c") as two:
            assert "<title>a#b " in next_event(one)[1]
            assert "<title>a#c " in next_event(two)[1]


def test_a_page_is_drawn_once_for_all_that_follow_it() -> None:
    drawn = 0
    is_ending = False

    async def draw() -> Response:
        nonlocal drawn, is_ending
        drawn += 1
        is_ending = drawn == 3
        return Response(f"page {min(drawn, 2)} for CSRF")

    async def followed_by(streams: page_streams.PageStreams, name: str) -> bytes:
        answer = streams.open_stream(
            "page", draw, session=name, is_over=lambda: False,
            finish=lambda text: text.replace("CSRF", name),
        )  # fmt: skip
        assert isinstance(answer, StreamingResponse)
        return b"".join([part async for part in answer.body_iterator])  # type: ignore[misc]

    async def main() -> None:
        streams = page_streams.PageStreams(lambda: is_ending, step_s=0.01)
        names = [f"viewer {nth}" for nth in range(20)]
        got = await asyncio.gather(*(followed_by(streams, name) for name in names))
        for name, events in zip(names, got, strict=True):
            assert events.split(b"\n\n") == [
                b": as before", f"data: page 1 for {name}".encode(),
                f"data: page 2 for {name}".encode(), b"",
            ]  # fmt: skip
        assert streams.count == 0

    asyncio.run(main())
    assert drawn == 3


def test_streams_count_from_when_they_are_granted() -> None:
    async def draw() -> Response:
        return Response("page")

    async def send(_: Message) -> None:
        return None

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def main() -> None:
        streams = page_streams.PageStreams(lambda: False)
        given: dict[str, Any] = {"is_over": lambda: False, "finish": str}
        of_one = [streams.open_stream("page", draw, session="a", **given) for _ in range(6)]
        assert [each.status_code for each in of_one] == [200] * 4 + [503] * 2
        others = [streams.open_stream("page", draw, session=str(nth), **given) for nth in range(64)]
        assert [each.status_code for each in others] == [200] * 60 + [503] * 4
        scope = {"type": "http", "asgi": {"spec_version": "2.3"}}
        for each in of_one + others:  # every browser is gone before its stream began
            await each(scope, receive, send)
        assert streams.count == 0

    asyncio.run(main())


def test_forms_that_are_sent_again_are_those_of_the_session(port: int, browser: Browser) -> None:
    other = Browser(port)
    other.log_in()
    path = "/topics/stock"
    for each in (browser, other):
        each.get(path)
    assert browser.csrf != other.csrf
    with followed(browser, path) as one, followed(other, path) as two:
        for each, answer in ((browser, one), (other, two)):
            text = next_event(answer)[1]
            assert set(re.findall(r'name="csrf" value="([^"]+)"', text)) == {each.csrf}


def test_what_was_done_is_said_on_a_page_and_not_lost_to_one_that_moves(browser: Browser) -> None:
    fields = {"topic": "noticed", "queues": "1"}
    browser.get("/topics")
    with followed(browser, "/topics") as answer:
        next_event(answer)
        browser.do("topics.create", fields, back="/topics")
        next_event(answer)
        browser.ask("GET", "/topics", headers={"X-Live": "1"})
        assert 'role="status"' in browser.get("/topics").text
        assert 'role="status"' not in browser.get("/topics").text


def test_an_event_has_each_line_of_a_text() -> None:
    assert page_streams.format_event("a\nb") == b"data: a\ndata: b\n\n"
