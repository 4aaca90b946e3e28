"""Rows in pages: what they take, and that pages of few rows do not pile up."""

from __future__ import annotations

import random

from escrowmq.txn.pending_columns import PAGE_SIZE, Pages


def filled(count: int, *, size: int = PAGE_SIZE) -> Pages:
    pages = Pages(size=size)
    for number in range(count):
        pages.append(number, 100 * number, 0, 0, 1, 0)
    return pages


def taken(pages: Pages) -> int:
    """Bytes of all columns."""
    return sum(
        column.buffer_info()[1] * column.itemsize for page in pages for column in page.columns()
    )


def test_a_row_takes_38_bytes() -> None:
    pages = filled(3 * PAGE_SIZE)
    assert taken(pages) == 38 * pages.count
    by_run = Pages()
    columns = [[*range(3 * PAGE_SIZE)], *([[1] * 3 * PAGE_SIZE] * 5)]
    by_run.extend(columns)
    assert taken(by_run) == 38 * by_run.count
    assert len(list(by_run)) == 3


def test_what_a_few_that_stay_take_is_bounded_whatever_has_left() -> None:
    chance = random.Random(1)
    pages = filled(40_000, size=64)
    leaving = list(range(40_000))
    chance.shuffle(leaving)
    for number in leaving[400:]:
        page, at = pages.find(number)
        pages.remove(page, at)
    assert pages.count == 400
    assert sorted(leaving[:400]) == list(pages.behind(-1))
    assert taken(pages) <= 38 * 4 * (400 + 64)
    assert len(list(pages)) <= 60


def test_pages_whose_rows_are_all_gone_are_gone() -> None:
    pages = filled(1_000, size=64)
    for number in range(1_000):
        assert pages.oldest() == number
        pages.remove(*pages.find(number))
    assert pages.oldest() is None
    assert len(list(pages)) == 1
    assert pages.find(5)[1] == -1
    pages.append(2_000, 1, 0, 0, 1, 0)
    assert pages.find(2_000)[1] >= 0


def test_a_row_that_comes_back_is_at_its_place() -> None:
    pages = filled(200, size=64)
    for number in range(0, 200, 2):
        pages.remove(*pages.find(number))
    for number in range(198, -2, -2):
        pages.insert((number, 7, 0, 0, 1, 0))
    assert list(pages.behind(-1)) == list(range(200))
    page, at = pages.find(120)
    assert page.log_offsets[at] == 7


def test_how_many_are_older_is_counted_by_the_ends_of_pages() -> None:
    chance = random.Random(7)
    pages = Pages(size=16)
    stored = sorted(chance.choices(range(400), k=300))
    for number, stored_ms in enumerate(stored):
        pages.append(number, 100 * number, stored_ms, 0, 1, 0)
    alive = dict(enumerate(stored))
    for number in chance.sample(range(300), 150):
        pages.remove(*pages.find(number))
        del alive[number]
    for moment_ms in (0, *range(-1, 402, 7), 10_000):
        expected = sum(each < moment_ms for each in alive.values())
        assert pages.stored_before(moment_ms) == expected, moment_ms
    assert Pages().stored_before(5) == 0
