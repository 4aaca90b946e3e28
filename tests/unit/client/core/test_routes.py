from __future__ import annotations

import pytest

from escrowmq.client.core import routes
from escrowmq.client.core.routes import (
    ADDRESSES_MAX,
    BROKERS_MAX,
    ROUTE_QUEUES_MAX,
    MessageQueue,
    RouteBook,
    cut_to_limits,
    read_queues,
    template_route,
)
from escrowmq.codec.routes import BrokerData, QueueData, TopicRoute


def route(
    *brokers: tuple[str, dict[int, str]], perm: int = 6, count: int = 1, order: str | None = None
) -> TopicRoute:
    return TopicRoute(
        broker_datas=[BrokerData(addresses, name, "c") for name, addresses in brokers],
        queue_datas=[
            QueueData(name, perm=perm, read_queue_nums=count + 1, write_queue_nums=count)
            for name, _ in brokers
        ],
        order_topic_conf=order,
    )


def test_masters_with_write_permission_take_messages_in_the_order_of_their_names() -> None:
    book = RouteBook()
    book.put("T", route(("b", {0: "h:1"}), ("a", {0: "h:2"}), ("slave", {1: "h:3"})))
    assert book.write_queues("T") == (MessageQueue("T", "a", 0), MessageQueue("T", "b", 0))
    names = {queue.broker_name for queue in book.read_queues("T")}
    assert names == {"a", "b", "slave"}
    book.put("T", route(("a", {0: "h:2"}), perm=4))
    assert book.write_queues("T") == ()
    assert len(book.read_queues("T")) == 2
    book.put("T", route(("a", {0: "h:2"}), perm=2))
    assert book.read_queues("T") == ()
    assert book.write_queues("other") == book.read_queues("other") == ()


def test_an_ordered_topics_own_list_comes_first() -> None:
    book = RouteBook()
    book.put("T", route(("a", {0: "h:1"}), order="b:2; a:1;broken;c:x"))
    assert [(queue.broker_name, queue.queue_id) for queue in book.write_queues("T")] == [
        ("b", 0),
        ("b", 1),
        ("a", 0),
    ]


def test_a_route_that_is_the_same_is_no_news() -> None:
    book = RouteBook()
    assert book.put("T", route(("a", {0: "h:1"})))
    assert not book.put("T", route(("a", {0: "h:1"})))
    assert book.put("T", route(("a", {0: "h:2"})))


def test_brokers_are_known_as_long_as_a_route_or_the_cluster_names_them() -> None:
    book = RouteBook()
    book.put("T", route(("a", {0: "h:1", 1: "h:2"})))
    book.put("U", route(("b", {0: "h:3"})))
    assert book.all_addresses(masters_only=True) == ["h:1", "h:3"]
    assert book.all_addresses(masters_only=False) == ["h:1", "h:2", "h:3"]
    assert (book.address("a"), book.address("a", 1), book.address("z")) == ("h:1", "h:2", None)
    assert book.addresses("a") == {0: "h:1", 1: "h:2"}
    book.drop("U")
    book.drop("U")
    assert (book.broker_names(), book.topics()) == (["a"], ["T"])
    book.replace_brokers({"c": BrokerData({0: "h:4"}, "c")})
    book.put("T", route(("a", {0: "h:9"})))
    assert (book.address("a"), book.address("c")) == ("h:9", "h:4")
    book.replace_brokers({})
    assert book.address("c") is None


def test_brokers_are_collected_anew_only_when_they_may_be_others() -> None:
    """Thousands of topics were gone through for each that was made."""
    collected = 0

    class Counting(RouteBook):
        def _routed_broker_names(self) -> set[str]:
            nonlocal collected
            collected += 1
            return super()._routed_broker_names()

    book = Counting()
    listed = {"a": BrokerData({0: "h:1"}, "a", "c"), "b": BrokerData({0: "h:2"}, "b", "c")}
    book.replace_brokers(listed)
    for number in range(100):
        book.replace_brokers(listed)
        book.put(f"T{number}", route(("a", {0: "h:1"}), ("b", {0: "h:2"})))
        book.put(f"T{number}", route(("a", {0: "h:1"}), ("b", {0: "h:2"}), count=2))
    book.drop("T7")
    assert collected == 0
    assert book.broker_names() == ["a", "b"]
    book.put("T8", route(("a", {0: "h:1"}), ("c", {0: "h:3", 1: "h:4"})))
    assert book.addresses("c") == {0: "h:3", 1: "h:4"}
    book.put("T8", route(("a", {0: "h:1"}), ("c", {1: "h:4"})))
    assert book.addresses("c") == {1: "h:4"}
    book.drop("T8")
    assert book.broker_names() == ["a", "b"]
    book.replace_brokers({"a": listed["a"]})
    assert book.address("b") == "h:2", "a route names it still"


def test_the_newest_answer_says_where_a_broker_is_whatever_topic_it_was_about() -> None:
    """Its master was replaced, and the routes of other topics name the former one still."""
    book = RouteBook()
    for topic in ("T1", "T2", "T3"):
        book.put(topic, route(("a", {0: "h:1", 1: "h:2"})))
    book.put("T1", route(("a", {0: "h:2", 1: "h:1"})))
    assert book.addresses("a") == {0: "h:2", 1: "h:1"}
    book.drop("T3")
    assert book.address("a") == "h:2"
    book.replace_brokers({"a": BrokerData({0: "h:3"}, "a", "c")})
    assert book.addresses("a") == {0: "h:3"}
    book.put("T2", route(("a", {0: "h:3"})))
    assert book.address("a") == "h:3"


def test_a_template_gives_no_more_queues_than_asked_for() -> None:
    borrowed = template_route(route(("a", {0: "h:1"}), count=8), queues_max=4)
    assert len(read_queues("T", borrowed)) == 4


def test_what_no_cluster_has_is_not_believed() -> None:
    book = RouteBook()
    many = [(f"b{number}", {0: f"h:{number}"}) for number in range(BROKERS_MAX + 500)]
    book.put("T", route(*many))
    assert len(book.broker_names()) == len(book.all_addresses(masters_only=False)) == BROKERS_MAX
    book.put("T", route(*many[:3], count=2_000_000_000))
    assert 0 < len(book.read_queues("T")) <= ROUTE_QUEUES_MAX
    book.put("T", route(*many[:100], count=65_000))
    assert 0 < len(book.read_queues("T")) <= ROUTE_QUEUES_MAX
    assert 0 < len(book.write_queues("T")) <= ROUTE_QUEUES_MAX
    book.put("T", route(("b", dict.fromkeys(range(10_000), "h:1"))))
    assert len(book.addresses("b")) == ADDRESSES_MAX
    book.put("T", route(*many[:2], order=";".join(["b1:999999999999999999999"] * 100)))
    assert len(book.write_queues("T")) <= ROUTE_QUEUES_MAX


def test_a_route_within_the_bounds_is_taken_as_it_is() -> None:
    given = route(*((f"b{number}", {0: "h:1", 1: "h:2"}) for number in range(BROKERS_MAX)))
    assert cut_to_limits(given) is given
    assert cut_to_limits(TopicRoute()) == TopicRoute()


@pytest.fixture(name="narrow")
def make_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("BROKERS_MAX", 2), ("ADDRESSES_MAX", 2), ("ROUTE_QUEUES_MAX", 10),
                        ("TOPIC_QUEUES_MAX", 8)):  # fmt: skip
        monkeypatch.setattr(routes, name, value)


def wide(addresses_count: int, *counts: int) -> TopicRoute:
    """A broker for each number of queues."""
    addresses = dict.fromkeys(range(addresses_count), "h:1")
    return TopicRoute(
        broker_datas=[BrokerData(addresses, f"b{n}", "c") for n in range(len(counts))],
        queue_datas=[
            QueueData(f"b{n}", perm=6, read_queue_nums=count, write_queue_nums=1)
            for n, count in enumerate(counts)
        ],
    )


@pytest.mark.usefixtures("narrow")
def test_each_bound_holds_by_itself_and_what_it_allows_is_taken() -> None:
    assert cut_to_limits(given := wide(2, 8, 2)) is given
    for odd, kept in (
        (wide(2, 4, 4, 1), [4, 4]), (wide(3, 8, 2), [8, 2]), (wide(2, 8, 3), [8]),
        (wide(3, 8, 3), [8]),
    ):  # fmt: skip
        few = cut_to_limits(odd)
        assert [data.read_queue_nums for data in few.queue_datas or ()] == kept
        assert len(few.broker_datas or ()) == 2
        assert {len(data.broker_addrs) for data in few.broker_datas or ()} == {2}


def test_a_route_that_names_nothing_has_no_queues() -> None:
    book, empty = RouteBook(), TopicRoute()
    book.put("T", empty)
    book.put("U", route(("a", {0: "h:1"})))
    book.put("U", route(("b", {0: "h:1"})))
    assert book.broker_names() == ["b"], "a is named by nobody now"
    assert book.write_queues("T") == book.read_queues("T") == ()
    assert template_route(empty, queues_max=4).queue_datas == []


def test_a_master_has_number_0() -> None:
    book = RouteBook()
    book.put("T", route(("a", {0: "h:1", 1: "h:2", -1: "h:3"})))
    assert book.all_addresses(masters_only=True) == ["h:1"]


def test_an_order_without_a_broker_or_a_number_names_no_queue() -> None:
    book = RouteBook()
    book.put("T", route(("a", {0: "h:1"}), order=":2;a:;a:-1;b:000000002"))
    assert book.write_queues("T") == (MessageQueue("T", "b", 0), MessageQueue("T", "b", 1))
