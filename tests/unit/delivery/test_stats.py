from __future__ import annotations

from escrowmq.delivery.stats import SAMPLE_MS, Stats


def test_meter_tells_sum_and_rate_of_its_spans() -> None:
    stats = Stats()
    stats.count_puts("T", 0, 0)
    for number in range(400):
        stats.wake(number * SAMPLE_MS)
        stats.count_puts("T", 10, 100)
    meter = stats.meter("TOPIC_PUT_NUMS", "T")
    assert meter is not None
    assert meter.total == 4_000
    minute = meter.minute()
    assert (minute.sum, minute.tps, minute.avgpt) == (60, 1.0, 10.0)
    assert meter.hour().sum == 3_600
    assert meter.tps(1) == 1.0
    assert stats.meter("TOPIC_PUT_SIZE", "T") is not None
    assert stats.meter("TOPIC_PUT_NUMS", "U") is None


def test_topic_that_is_gone_leaves_no_meters() -> None:
    stats = Stats()
    stats.count_puts("T", 1, 1)
    stats.count_gets("G", "T", 1, 1)
    stats.note_sent_back("G", "T")
    stats.count_gets("G", "U", 1, 1)
    stats.forget_topic("T")
    assert stats.meter("TOPIC_PUT_NUMS", "T") is None
    assert stats.meter("GROUP_GET_NUMS", "T@G") is None
    assert stats.meter("GROUP_GET_NUMS", "U@G") is not None
    stats.count_puts("T", 1, 1)
    found = stats.meter("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.total == 1


def test_group_that_is_gone_leaves_the_meters_of_topics() -> None:
    stats = Stats()
    stats.count_puts("G", 1, 1)  # a topic of that name
    stats.count_gets("G", "T", 1, 1)
    stats.count_gets("H", "T", 1, 1)
    stats.forget_group("G")
    assert stats.meter("GROUP_GET_NUMS", "T@G") is None
    assert stats.meter("GROUP_GET_NUMS", "T@H") is not None
    assert stats.meter("TOPIC_PUT_NUMS", "G") is not None
    stats.forget_topic("")
    assert stats.meter("BROKER_PUT_NUMS", "") is not None
