"""Rows in pages: what they take, and that pages of few rows do not pile up."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from escrowmq.txn.pending_columns import PAGE_SIZE, RowPage, RowPages


def filled(count: int, *, size: int = PAGE_SIZE) -> RowPages:
    pages = RowPages(size=size)
    for number in range(count):
        pages.append(number, 100 * number, 0, 0, 1, 0)
    return pages


def taken(pages: RowPages) -> int:
    """Bytes of all columns."""
    return sum(
        column.buffer_info()[1] * column.itemsize for page in pages for column in page.columns()
    )


def test_a_row_takes_38_bytes() -> None:
    pages = filled(3 * PAGE_SIZE)
    assert taken(pages) == 38 * pages.count
    by_run = RowPages()
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
    assert sorted(leaving[:400]) == list(pages.offsets_after(-1))
    assert taken(pages) <= 38 * 4 * (400 + 64)
    assert len(list(pages)) <= 60


def test_pages_whose_rows_are_all_gone_are_gone() -> None:
    pages = filled(1_000, size=64)
    for number in range(1_000):
        assert pages.oldest_offset() == number
        pages.remove(*pages.find(number))
    assert pages.oldest_offset() is None
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
    assert list(pages.offsets_after(-1)) == list(range(200))
    assert taken(pages) == 38 * 200
    page, at = pages.find(120)
    assert page.log_offsets[at] == 7


def test_how_many_are_older_is_counted_by_the_ends_of_pages() -> None:
    chance = random.Random(7)
    pages = RowPages(size=16)
    stored = sorted(chance.choices(range(400), k=300))
    for number, stored_ms in enumerate(stored):
        pages.append(number, 100 * number, stored_ms, 0, 1, 0)
    alive = dict(enumerate(stored))
    for number in chance.sample(range(300), 150):
        pages.remove(*pages.find(number))
        del alive[number]
    for moment_ms in (0, *range(-1, 402, 7), 10_000):
        expected = sum(each < moment_ms for each in alive.values())
        assert pages.count_stored_before(moment_ms) == expected, moment_ms
    assert RowPages().count_stored_before(5) == 0


def test_a_row_is_inserted_behind_all_others_of_its_page() -> None:
    page = RowPage(5)
    for queue_offset in (5, 9, 7):
        page.insert((queue_offset, 0, 0, 0, 1, 0))
    assert list(page.live_offsets()) == [5, 7, 9]


@pytest.mark.parametrize(("left", "kept"), [(16, 64), (15, 15)])
def test_a_page_that_lost_most_rows_while_it_was_the_last_is_compacted_when_another_follows(
    left: int, kept: int
) -> None:
    pages = filled(64, size=64)
    for number in range(64 - left):
        pages.remove(*pages.find(number))
    pages.append(64, 1, 0, 0, 1, 0)
    assert [len(page.offsets) for page in pages] == [kept, 1]
    assert list(pages.offsets_after(-1)) == list(range(64 - left, 65))


def test_small_neighbours_become_one_page_until_it_is_half_full() -> None:
    pages = filled(6 * 8 + 1, size=8)
    for number in range(6 * 8):
        if number % 8:
            pages.remove(*pages.find(number))
    assert [len(page.offsets) for page in pages] == [4, 2, 1]
    assert list(pages.offsets_after(-1)) == list(range(0, 49, 8))


REMOVE: dict[str, Callable[[RowPages, int], object]] = {
    "remove": lambda pages, number: pages.remove(*pages.find(number)),
    "take": lambda pages, number: pages.remove_rows([number]),
}


@pytest.mark.parametrize("how", REMOVE)
def test_a_page_is_compacted_once_most_of_its_rows_are_gone_and_not_before(how: str) -> None:
    pages, removed = filled(200, size=64), 0
    before = list(pages)
    while next(iter(pages)) is before[0]:
        assert list(pages) == before
        REMOVE[how](pages, removed)
        removed += 1
    assert removed > 32
    assert list(pages.offsets_after(-1)) == list(range(removed, 200))


def test_halves_are_counted_up_to_the_first_that_is_not_where_it_is_said_to_be() -> None:
    chance = random.Random(5)
    pages, there = RowPages(size=8), dict[int, int]()
    for number in chance.sample(range(150), 100):
        there[number] = 1_000 + number
    for number in sorted(there):
        pages.append(number, there[number], 0, 0, 1, 0)
    for number in chance.sample(sorted(there), 40):
        pages.remove(*pages.find(number))
        del there[number]
    for number in there:
        assert pages.count_pending_at([number], [there[number]]) == 1
    for number in {*range(151)} - there.keys():
        for log_offset in (1_000 + number, *there.values()):
            assert pages.count_pending_at([number], [log_offset]) == 0, number
    some = chance.sample(sorted(there), 20)
    wrong = [there[number] for number in some]
    assert pages.count_pending_at(some, wrong) == 20
    for nth in reversed(range(20)):
        wrong[nth] += chance.choice([-1, 1])
        assert pages.count_pending_at(some, wrong) == nth


def test_rows_that_are_gone_are_not_found() -> None:
    page = RowPage(5)
    for queue_offset in (5, 7, 9):
        page.insert((queue_offset, 0, 3, 0, 1, 0))
    page.remove(page.index_of(7))
    for sources in (None, {1}):
        assert page.rows_after(-1, 9, sources, range(10)) == ([(5, 1, 3), (9, 1, 3)], 2, 9)
        assert page.rows_after(5, 9, sources, range(10)) == ([(9, 1, 3)], 1, 9)
