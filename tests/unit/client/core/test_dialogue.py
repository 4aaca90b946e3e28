"""What is asked on a connection and what becomes of it, without a socket and without a clock."""

from __future__ import annotations

import math

import pytest

from escrowmq.base.codes import Flag, Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core import dialogue
from escrowmq.client.core.credentials import Credentials
from escrowmq.client.core.dialogue import (
    REQUESTS_WAITING_MAX,
    Dialogue,
    Done,
    Fields,
    recognize_protocol,
)
from escrowmq.client.core.signing import Signer
from escrowmq.codec.command import encode_reply, encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.own_signature import SESSION, is_request_signed
from escrowmq.errors import ConnectionLost, RequestTimeout, TransportError, UsageError

WHO = Credentials("owner-1", "the secret of owner-1")


class Talk:
    """A dialogue, and what its peer hears."""

    def __init__(self, who: Credentials | None = None) -> None:
        signer = Signer(who)
        self.served: list[Command] = []
        self.ends: list[Command | TransportError] = []
        self._frames = bytearray()
        self.dialogue = Dialogue(
            "host:1",
            write=self._frames.extend,
            serve=self.served.append,
            decorate=signer.add_common_fields,
            sign_own=signer.add_own_signature if who is not None else None,
        )

    def ask(self, now: float = 0.0, timeout_s: float = 3.0, done: Done | None = None) -> None:
        self.dialogue.ask(
            Request.GET_MAX_OFFSET, {"topic": "T"}, b"", now=now, timeout_s=timeout_s,
            done=done or self._done,
        )  # fmt: skip

    def _done(self, reply: Command | None, error: TransportError | None) -> None:
        end = reply or error
        assert end is not None
        self.ends.append(end)

    @property
    def codes(self) -> list[int]:
        """Of the answers."""
        return [end.code for end in self.ends if isinstance(end, Command)]

    def refuse(self, count: int) -> Command:
        """All requests must be signed: returns the request for a session."""
        requests = self.heard()
        assert len(requests) == count
        for request in requests:
            self.answer(request, Response.ESCROW_SIGNATURE_WANTED)
        (greeting,) = self.heard()
        assert greeting.code == Request.ESCROW_SESSION
        return greeting

    def heard(self) -> list[Command]:
        """What the peer was asked since the last call."""
        data = bytes(self._frames)
        self._frames.clear()
        return FrameReader().read_commands(data)

    def answer(self, request: Command, code: int = 0, fields: Fields | None = None) -> None:
        self.dialogue.receive(encode_reply(request, code, ext=fields), 1.0)


def test_an_answer_finds_its_question_and_a_second_one_finds_none() -> None:
    talk = Talk()
    talk.ask()
    talk.ask()
    first, second = talk.heard()
    talk.answer(second, 17)
    talk.answer(second, 18)
    talk.answer(first)
    assert [end.code for end in talk.ends if isinstance(end, Command)] == [17, 0]
    assert talk.dialogue.waiting_count == 0


def test_what_is_not_answered_in_time_ends_and_the_next_look_is_known() -> None:
    talk = Talk()
    talk.ask(now=10.0, timeout_s=3.0)
    talk.ask(now=10.0, timeout_s=5.0)
    assert talk.dialogue.next_expiry == 13.0
    talk.dialogue.expire_requests(13.0)
    assert isinstance(talk.ends[0], RequestTimeout)
    assert "GET_MAX_OFFSET (30) within 3000 ms" in str(talk.ends[0])
    assert talk.dialogue.next_expiry == 15.0
    talk.dialogue.expire_requests(15.0)
    assert talk.dialogue.next_expiry == math.inf


def test_a_lost_connection_answers_everybody_and_takes_nothing_more() -> None:
    talk = Talk()
    talk.ask()
    talk.dialogue.fail_all("it was cut")
    assert "host:1 is gone: it was cut" in str(talk.ends[0])
    with pytest.raises(ConnectionLost, match="it was cut"):
        talk.ask()
    with pytest.raises(ConnectionLost, match="it was cut"):
        talk.dialogue.send_one_way(Request.HEART_BEAT, {}, b"")


def test_requests_of_the_peer_are_served_in_the_order_of_the_stream() -> None:
    talk = Talk()
    talk.ask()
    (asked,) = talk.heard()
    check = encode_request(Request.CHECK_TRANSACTION_STATE, 9, ext={}, body=b"", is_one_way=True)
    talk.dialogue.receive(check + encode_reply(asked, 0), 1.0)
    assert [one.code for one in talk.served] == [Request.CHECK_TRANSACTION_STATE]
    assert len(talk.ends) == 1


def test_nobody_asks_without_bound() -> None:
    talk = Talk()
    for _ in range(REQUESTS_WAITING_MAX):
        talk.ask()
    with pytest.raises(UsageError, match="65535 requests are already waiting for host:1"):
        talk.ask()


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        # PostgreSQL 15's whole answer to a request of ours
        (b"EFATAL:  unsupported frontend protocol 8827.14659: server supports 3.0 to 3.0\n\0",
         "PostgreSQL"),
        (b"E\0\0\0\x6bSFATAL\0VFATAL\0C0A000\0", "PostgreSQL"),
        (b"\x6e\0\0\0\x0a11.8.3-MariaDB\0\x08\0\0\0", "MySQL"),
        (b"-ERR unknown command\r\n", "Redis"),
        (b"AMQP\0\0\x09\x01", "AMQP"),
        (b"220 mail.example.org ESMTP\r\n", "SMTP"),
    ],
)  # fmt: skip
def test_a_peer_that_speaks_something_else_is_named(answer: bytes, name: str) -> None:
    talk = Talk()
    talk.dialogue.receive(answer, 0.0)
    assert talk.dialogue.frame_error(answer).startswith(f"it speaks {name}")
    assert "frame" not in talk.dialogue.frame_error(answer)


def test_bytes_that_no_server_is_known_by_name_none() -> None:
    for answer in (b"", b"abc\0\x09", b"abc\0\x0b", b"HTT"):
        assert recognize_protocol(answer) == ""


def test_a_peer_that_spoke_remoting_before_is_none_of_them() -> None:
    talk = Talk()
    talk.ask()
    talk.answer(talk.heard()[0])
    talk.dialogue.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n", 0.0)
    assert "something that is not a frame" in talk.dialogue.frame_error(
        b"HTTP/1.1 400 Bad Request\r\n\r\n"
    )


def test_who_is_wanted_to_sign_more_asks_for_a_session_once_and_then_again() -> None:
    talk = Talk(WHO)
    talk.ask()
    talk.ask()
    for request in talk.heard():
        talk.answer(request, Response.ESCROW_SIGNATURE_WANTED)
    (greeting,) = talk.heard()
    assert greeting.code == Request.ESCROW_SESSION
    talk.answer(greeting, 0, {SESSION: "5e55"})
    again = talk.heard()
    assert [one.code for one in again] == [Request.GET_MAX_OFFSET] * 2
    for request in again:
        assert is_request_signed(
            request.code, request.ext or {}, b"", secret=WHO.secret_key, session="5e55"
        )
        talk.answer(request)
    assert [end.code for end in talk.ends if isinstance(end, Command)] == [0, 0]
    talk.ask()
    (third,) = talk.heard()
    talk.answer(third, Response.ESCROW_SIGNATURE_WANTED)  # it was: nothing is asked again
    assert not talk.heard()
    assert len(talk.ends) == 3


def test_a_one_way_request_waits_for_nothing() -> None:
    talk = Talk()
    talk.dialogue.send_one_way(Request.END_TRANSACTION, {"a": "b"}, b"x")
    (told,) = talk.heard()
    assert told.flag & Flag.ONE_WAY
    assert talk.dialogue.waiting_count == 0


def test_a_client_without_an_account_is_told_that_it_should_sign() -> None:
    talk = Talk()
    talk.ask()
    (request,) = talk.heard()
    talk.answer(request, Response.ESCROW_SIGNATURE_WANTED)
    assert not talk.heard()
    assert talk.codes == [Response.ESCROW_SIGNATURE_WANTED]


def test_a_request_refused_after_there_is_a_session_is_made_again_at_once() -> None:
    talk = Talk(WHO)
    talk.ask()
    talk.ask()
    early, late = talk.heard()
    talk.answer(early, Response.ESCROW_SIGNATURE_WANTED)
    (greeting,) = talk.heard()
    talk.answer(greeting, 0, {SESSION: "5e55"})
    assert [one.code for one in talk.heard()] == [Request.GET_MAX_OFFSET]
    talk.answer(late, Response.ESCROW_SIGNATURE_WANTED)
    assert [one.code for one in talk.heard()] == [Request.GET_MAX_OFFSET]


@pytest.mark.parametrize("is_lost", [True, False])
def test_without_a_session_the_refusals_are_the_answers(*, is_lost: bool) -> None:
    talk = Talk(WHO)
    talk.ask()
    talk.ask()
    greeting = talk.refuse(2)
    if is_lost:
        talk.dialogue.fail_all("it was cut")
    else:
        talk.answer(greeting, Response.NO_PERMISSION)
    assert not talk.heard()
    assert talk.codes == [Response.ESCROW_SIGNATURE_WANTED] * 2


def test_a_request_whose_time_is_over_is_not_made_again() -> None:
    talk = Talk(WHO)
    talk.ask(timeout_s=1.0)  # answers come when the clock says 1.0
    talk.ask(timeout_s=1.5)
    greeting = talk.refuse(2)
    talk.answer(greeting, 0, {SESSION: "5e55"})
    assert talk.codes == [Response.ESCROW_SIGNATURE_WANTED]
    assert len(talk.heard()) == 1


def test_a_caller_that_ends_the_connection_ends_the_other_requests_too() -> None:
    talk = Talk(WHO)
    talk.ask(timeout_s=1.0, done=lambda *_: talk.dialogue.fail_all("it was closed"))
    talk.ask()
    greeting = talk.refuse(2)
    talk.answer(greeting, 0, {SESSION: "5e55"})
    assert not talk.heard()
    assert talk.codes == [Response.ESCROW_SIGNATURE_WANTED]


def test_no_more_requests_are_made_again_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "REQUESTS_WAITING_MAX", 3)
    talk = Talk(WHO)
    talk.ask()
    talk.ask()
    greeting = talk.refuse(2)
    talk.ask()
    talk.ask()
    talk.heard()
    talk.answer(greeting, 0, {SESSION: "5e55"})
    assert len(talk.heard()) == 1
    assert talk.codes == [Response.ESCROW_SIGNATURE_WANTED]
    assert talk.dialogue.waiting_count == 3
