"""Which page stands where, and what it asks."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from escrowmq.console.site import Page, Shown


async def overview(page: Page) -> Response:
    """The cluster at a glance."""
    return page.render("overview.html", found=await page.ask("overview.show"))


PAGES: Final[tuple[tuple[str, Shown], ...]] = (("/", overview),)
