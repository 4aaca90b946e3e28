from __future__ import annotations

import pytest

from escrowmq.console.paging import Paging, cut_page, sort_items
from escrowmq.errors import UsageError


def test_pages_cover_the_list_once() -> None:
    items = list(range(101))
    pages = [cut_page(items, Paging(page=page, size=50)) for page in (1, 2, 3, 4)]
    assert [len(page.items) for page in pages] == [50, 50, 1, 0]
    assert [page.has_more for page in pages] == [True, True, False, False]
    assert pages[0].pages == 3
    assert [item for page in pages for item in page.items] == items
    assert cut_page([], Paging()).pages == 1


@pytest.mark.parametrize(("order", "expected"), [("up", [1, 2, None]), ("down", [2, 1, None])])
def test_what_is_unknown_comes_last_in_either_order(order: str, expected: list[int | None]) -> None:
    items: list[int | None] = [2, None, 1]
    wanted = Paging(order="up" if order == "up" else "down")
    assert sort_items(items, wanted, {"value": lambda item: item}, "value") == expected


def test_a_column_that_there_is_not_is_told() -> None:
    with pytest.raises(UsageError, match="one of name is expected"):
        sort_items(["a"], Paging(sort="size"), {"name": lambda item: item}, "name")
