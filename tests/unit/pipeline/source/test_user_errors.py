from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator

import pytest

from escrowmq.errors import RouteMissing
from escrowmq.pipeline.source.user_errors import shorten_traceback


class Reader:
    @shorten_traceback
    def partitions(self, topic: str) -> list[str]:
        """What there is."""
        return self._deep(topic, 9)

    @shorten_traceback
    def read(self, topic: str) -> Iterator[str]:
        yield "first"
        yield from self._deep(topic, 9)

    def _deep(self, topic: str, depth: int) -> list[str]:
        if depth:
            return self._deep(topic, depth - 1)
        if topic == "gone":
            raise RouteMissing("no name server knows the topic 'gone'")
        return [str(1 // len(topic))]


def test_what_is_ours_is_told_without_the_way_that_it_came() -> None:
    asks: list[Callable[[], object]] = [
        lambda: Reader().partitions("gone"),
        lambda: [*Reader().read("gone")],
    ]
    for ask in asks:
        with pytest.raises(RouteMissing) as raised:
            ask()
        text = "".join(traceback.format_exception(raised.value))
        assert "_deep" not in text
        assert text.endswith("RouteMissing: no name server knows the topic 'gone'\n")


def test_what_is_a_mistake_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        Reader().partitions("")
    assert "_deep" in "".join(traceback.format_exception(raised.value))


def test_answers_and_names_are_those_of_the_method() -> None:
    assert Reader().partitions("T") == ["1"]
    assert [*Reader().read("T")] == ["first", "1"]
    assert Reader.partitions.__doc__ == "What there is."
