from itertools import pairwise

from escrowmq.broker.fast.backoff import Backoff


def tries(backoff: Backoff, chances: int, *, has_paid: bool) -> list[int]:
    """Which of so many chances were taken, when each time ends alike."""
    taken = []
    for chance in range(chances):
        if not backoff.skips_attempt():
            taken.append(chance)
            backoff.record_attempt(has_paid=has_paid)
    return taken


def test_what_does_not_pay_is_tried_half_as_often_each_time_up_to_a_bound() -> None:
    taken = tries(Backoff(), 300, has_paid=False)
    gaps = [after - before - 1 for before, after in pairwise(taken)]
    assert gaps == [1, 2, 4, 8, 16, 32, 64, 64, 64]


def test_what_pays_is_tried_each_time_and_forgets_what_was() -> None:
    backoff = Backoff()
    tries(backoff, 100, has_paid=False)
    while backoff.skips_attempt():
        pass
    backoff.record_attempt(has_paid=True)
    assert tries(backoff, 5, has_paid=True) == [0, 1, 2, 3, 4]
    assert tries(backoff, 5, has_paid=False) == [0, 2]
