"""Interceptors that misbehave: nobody who sends or consumes feels it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

import pytest

from escrowmq.client.core.hooks import Interceptor
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import SendResult
from escrowmq.client.interceptors import InterceptorCalls

MESSAGES = [ReceivedMessage("T", b"x")]


class Around(Interceptor):
    """Its manager fails as a test wants it."""

    def __init__(self, fails: str, told: list[str]) -> None:
        self._fails = fails
        self._told = told

    def around_consume(self, messages: Sequence[ReceivedMessage]) -> AbstractContextManager[object]:
        if self._fails == "make":
            raise ValueError("planted")
        return self._around()

    @contextlib.contextmanager
    def _around(self) -> Iterator[None]:
        if self._fails == "enter":
            raise ValueError("planted")
        try:
            yield
        except KeyError:
            self._told.append(f"{self._fails} saw it")
            if self._fails != "swallow":
                raise
        if self._fails == "leave":
            raise ValueError("planted")


@pytest.mark.parametrize("fails", ["make", "enter", "leave", "swallow"])
def test_a_manager_that_fails_harms_neither_the_handler_nor_the_next_manager(fails: str) -> None:
    told: list[str] = []
    watch = InterceptorCalls([Around(fails, told), Around("", told)])
    with watch.around_consume(MESSAGES):
        told.append("handled")
    assert told == ["handled"]
    with pytest.raises(KeyError), watch.around_consume(MESSAGES):
        raise KeyError("the handler's")
    assert told[1] == " saw it"


def test_what_is_not_overridden_hears_of_each_message() -> None:
    class Seen(Interceptor):
        def __init__(self) -> None:
            self.told: list[tuple[str, object]] = []

        def before_send(self, message: Message) -> None:
            message.properties["seen"] = "1"

        def after_send(
            self, message: Message, result: SendResult | None, error: BaseException | None
        ) -> None:
            self.told.append((message.topic, error))

    seen = Seen()
    watch, error = InterceptorCalls([seen]), OSError()
    messages = [Message("A", b"x"), Message("B", b"x")]
    watch.before_send(messages, is_batch=True)
    watch.after_send_many(messages, (), error)
    assert seen.told == [("A", error), ("B", error)]
    assert [message.properties for message in messages] == [{"seen": "1"}] * 2
    assert bool(watch)
    assert not InterceptorCalls(())
