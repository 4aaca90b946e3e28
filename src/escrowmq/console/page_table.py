"""Which page stands where, and what it asks."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from escrowmq.console.site import Page, Shown


async def overview(page: Page) -> Response:
    """The cluster at a glance."""
    return page.render("overview.html", found=await page.ask("overview.show"))


async def transactions(page: Page) -> Response:
    """What is pending, the oldest first."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group", "state", "broker")}
    which["min_age_ms"] = minutes_as_ms(query.get("older_than", ""))
    found = await page.ask("transactions.list", **which, page=query.get("page", ""))
    counted = await page.ask("transactions.count", **which)
    return page.render("transactions.html", found=found, counted=counted, which=which)


async def transaction(page: Page) -> Response:
    """The life of one."""
    name = page.request.path_params["transaction"]
    fates = await page.ask("transactions.show", transaction=name, topic=page.query.get("topic", ""))
    return page.render("transaction.html", fates=fates, name=name)


async def discarded(page: Page) -> Response:
    """What was given up."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group")}
    found = await page.ask("transactions.discarded", **which, page=query.get("page", ""))
    return page.render("discarded.html", found=found, which=which)


async def jobs(page: Page) -> Response:
    """What is done in the background."""
    return page.render("jobs.html", found=await page.ask("jobs.list"))


def minutes_as_ms(text: str) -> str:
    """Minutes of a form as the API wants them; what is no number is for the API to refuse."""
    try:
        return str(int(float(text) * 60_000)) if text else ""
    except (ValueError, OverflowError):
        return text


PAGES: Final[tuple[tuple[str, Shown], ...]] = (
    ("/", overview),
    ("/transactions", transactions),
    ("/transactions/discarded", discarded),
    ("/transactions/{transaction}", transaction),
    ("/jobs", jobs),
)
