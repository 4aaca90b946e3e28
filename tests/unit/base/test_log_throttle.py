from escrowmq.base.log_throttle import OTHERS, LogThrottle, RepeatedErrors


def make(kinds_max: int = 10) -> LogThrottle:
    return LogThrottle(lines_max=2, span_ms=100, kinds_max=kinds_max)


def test_a_kind_has_so_many_lines_in_a_span_and_the_rest_is_counted() -> None:
    seldom = make()
    assert [seldom.may_write("a", now_ms) for now_ms in (0, 10, 20, 99)] == [
        True,
        True,
        False,
        False,
    ]
    assert seldom.may_write("b", 50)
    assert seldom.wake_at_ms() == 100
    assert seldom.take_suppressed(99) == []
    assert seldom.take_suppressed(100) == [("a", 2)]
    assert seldom.may_write("a", 100)


def test_nothing_is_told_of_kinds_of_which_nothing_was_left_out() -> None:
    seldom = make()
    assert seldom.wake_at_ms() is None
    assert seldom.may_write("a", 0)
    assert seldom.take_suppressed(1_000) == []
    assert seldom.wake_at_ms() is None


def test_more_kinds_than_are_remembered_count_as_one() -> None:
    seldom = make(kinds_max=2)
    said = [seldom.may_write(f"kind {number}", 0) for number in range(9)]
    assert said == [True, True, True, True] + [False] * 5
    assert seldom.take_suppressed(100) == [(OTHERS, 5)]


def test_what_is_repeated_is_said_at_once_and_then_once_in_a_span_with_its_number() -> None:
    repeats = RepeatedErrors(span_ms=100)
    assert [repeats.suppressed_note("a", now_ms) for now_ms in (0, 1, 50, 99)] == [
        "",
        None,
        None,
        None,
    ]
    assert repeats.suppressed_note("b", 50) == ""
    assert repeats.suppressed_note("a", 100) == " (and 3 times since that was said last)"
    assert repeats.suppressed_note("a", 199) is None
    assert repeats.suppressed_note("a", 300) == " (and 1 times since that was said last)"
    assert repeats.suppressed_note("a", 500) == ""


def test_kinds_beyond_so_many_share_their_lines() -> None:
    """Each was written: the oldest kind was forgotten for it. A client that has many groups could
    fill the disk with lines about them."""
    repeats = RepeatedErrors(span_ms=100, kinds_max=2)
    for kind in ("a", "b", "c"):
        assert repeats.suppressed_note(kind, 0) == ""
    for kind in ("d", "a", "c"):
        assert repeats.suppressed_note(kind, 1) is None
    for kind in ("e", "f", "g"):
        assert repeats.suppressed_note(kind, 100) == "", "the spans of the others are over"
    written = [repeats.suppressed_note(f"g{number}", 150) for number in range(1_000)]
    assert written == [None] * 1_000
    assert repeats.suppressed_note("g1000", 250) == ""
    assert len(repeats._kinds) <= 3
