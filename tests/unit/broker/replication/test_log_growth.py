"""How fast a log grows, and when it had grown so far."""

from escrowmq.broker.replication.log_growth import LogGrowth


def test_the_rate_is_that_of_at_least_a_second() -> None:
    growth = LogGrowth()
    assert growth.rate(5_000, 100) == 0
    growth.add_sample(1_000, 100)
    assert growth.rate(1_500, 200) == 500, "not 5,000 a second, because of a tenth of it"
    assert growth.rate(5_000, 2_100) == 2_000


def test_an_end_was_reached_when_the_last_sample_before_it_was_taken() -> None:
    growth = LogGrowth()
    assert growth.time_reached_ms(10) == 0
    growth.add_sample(10, 100)
    growth.add_sample(20, 149)  # too soon after the last sample
    growth.add_sample(30, 150)
    growth.add_sample(30, 500)  # nothing new
    assert [growth.time_reached_ms(end) for end in (9, 10, 29, 30, 99)] == [0, 100, 100, 150, 150]
