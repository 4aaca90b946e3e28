"""The table of pages: their paths, and the API calls that each makes."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from escrowmq.console.calls import OPERATIONS
from escrowmq.console.operations import PREFIX
from escrowmq.console.page_formats import (
    decode_as_text,
    describe_cut,
    format_as_hex,
    format_as_json,
)
from escrowmq.console.problems import Problem
from escrowmq.console.site import Page, Shown


async def overview_page(page: Page) -> Response:
    """Show the state of the cluster."""
    return page.render("overview.html", found=await page.call_api("overview.show"))


async def transactions_page(page: Page) -> Response:
    """Show pending transactions, the oldest first."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group", "state", "broker")}
    which["min_age_ms"] = minutes_as_ms(query.get("older_than", ""))
    found = await page.call_api("transactions.list", **which, page=query.get("page", ""))
    counted = await page.call_api_soon("transactions.count", **which)
    return page.render("transactions.html", found=found, counted=counted, which=which)


async def transaction_page(page: Page) -> Response:
    """Show everything known about one transaction."""
    name = page.request.path_params["transaction"]
    fates = await page.call_api(
        "transactions.show", transaction=name, topic=page.query.get("topic", "")
    )
    return page.render("transaction.html", fates=fates, name=name)


async def discarded_page(page: Page) -> Response:
    """Show discarded transactions."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group")}
    found = await page.call_api("transactions.discarded", **which, page=query.get("page", ""))
    return page.render("discarded.html", found=found, which=which)


async def topics_page(page: Page) -> Response:
    """Show the list of topics."""
    found = await page.call_api("topics.list", **list_parameters(page))
    return page.render("topics.html", found=found)


async def topic_page(page: Page) -> Response:
    """Show one topic, with its newest messages."""
    name = page.request.path_params["topic"]
    found = await page.call_api("topics.show", topic=name)
    newest = await page.call_api("messages.tail", topic=name, count=20)
    return page.render("topic.html", found=found, name=name, newest=newest)


async def groups_page(page: Page) -> Response:
    """Show consumer groups and their lag."""
    found = await page.call_api("groups.list", **list_parameters(page))
    return page.render("groups.html", found=found)


async def group_page(page: Page) -> Response:
    """Show one consumer group, queue by queue."""
    name = page.request.path_params["group"]
    found = await page.call_api("groups.show", group=name)
    rest = {key: page.query.get(key, "") for key in ("topic", "page", "sort", "order")}
    queues = await page.call_api("groups.lag", group=name, size=64, **rest)
    page.list_source("history.show", f"/history?of=lag:{name}")
    return page.render("group.html", found=found, name=name, queues=queues)


async def messages_page(page: Page) -> Response:
    """Show the search box for messages, and what it found."""
    text, topic = page.query.get("text", "").strip(), page.query.get("topic", "").strip()
    found = tail = None
    if text:
        found = await page.call_api("messages.search", text=text, topic=topic,
                               **{"as": page.query.get("as", "")})  # fmt: skip
    elif topic:
        tail = await page.call_api("messages.tail", topic=topic)
    return page.render("messages.html", found=found, tail=tail, text=text, topic=topic)


async def message_page(page: Page) -> Response:
    """Show one message, with its body as text, JSON and hex."""
    name, topic = page.request.path_params["id"], page.query.get("topic", "")
    found = await page.call_api("messages.show", id=name, topic=topic)
    return page.render(
        "message.html", found=found, name=name, topic=topic, text=decode_as_text(found.body),
        json=format_as_json(found.body), hex=format_as_hex(found.body),
        left_out=describe_cut(found.body_size),
    )  # fmt: skip


def list_parameters(page: Page) -> dict[str, str]:
    """Return the parameters of a page that shows a list: page number, sort order, filter."""
    wanted = ("part", "system", "page", "sort", "order")
    return {key: page.query[key] for key in wanted if key in page.query}


async def dead_letters_page(page: Page) -> Response:
    """Show the dead letters of one group."""
    name, topic = page.request.path_params["group"], page.query.get("topic", "")
    number = page.query.get("page", "")
    found = await page.try_call_api("dead-letters.list", group=name, topic=topic, page=number)
    problem = found if isinstance(found, Problem) else None
    if problem is not None and problem.refused.code != "not_supported":
        raise problem
    return page.render(
        "dead_letters.html", name=name, topic=topic, found=None if problem else found
    )


async def brokers_page(page: Page) -> Response:
    """Show all brokers."""
    return page.render("brokers.html", found=await page.call_api("brokers.list"))


async def broker_page(page: Page) -> Response:
    """Show one broker, with its settings."""
    name, query = page.request.path_params["broker"], page.query
    found = await page.call_api("brokers.show", broker=name)
    settings = await page.try_call_api(
        "brokers.settings", broker=name, part=query.get("part", ""), which=query.get("which", "")
    )
    problem = settings.refused if isinstance(settings, Problem) else None
    return page.render(
        "broker.html", name=name, found=found, settings=[] if problem else settings,
        problem=problem,
    )  # fmt: skip


async def replicas_page(page: Page) -> Response:
    """Show brokers with their replicas."""
    return page.render("replicas.html", found=await page.call_api("replicas.list"))


async def accounts_page(page: Page) -> Response:
    """Show users, policies, and explanations of what a user may do."""
    query = page.query
    wanted = {key: query.get(key, "") for key in ("user", "action", "resource", "address")}
    verdicts = None
    if wanted["user"] and wanted["action"] and wanted["resource"]:
        verdicts = await page.try_call_api("access.explain", **wanted)
    users = await page.try_call_api("access.users", part=query.get("part", ""))
    policies = await page.try_call_api("access.policies", user=query.get("part", ""))
    return page.render(
        "accounts.html", wanted=wanted,
        verdicts=verdicts, users=users, policies=policies, is_problem=_is_problem,
    )  # fmt: skip


def _is_problem(found: object) -> bool:
    return isinstance(found, Problem)


async def help_page(page: Page) -> Response:
    """Show the keyboard shortcuts, and the calls of the API."""
    return page.render("help.html", calls=OPERATIONS, prefix=PREFIX)


async def jobs_page(page: Page) -> Response:
    """Show the background jobs."""
    return page.render("jobs.html", found=await page.call_api("jobs.list"))


def minutes_as_ms(text: str) -> str:
    """Convert a form's minutes to milliseconds; a text that is no number is returned unchanged, for
    the API to refuse."""
    try:
        return str(int(float(text) * 60_000)) if text else ""
    except (ValueError, OverflowError):
        return text


PAGES: Final[tuple[tuple[str, Shown], ...]] = (
    ("/", overview_page),
    ("/transactions", transactions_page),
    ("/transactions/discarded", discarded_page),
    ("/transactions/{transaction:path}", transaction_page),
    ("/topics", topics_page),
    ("/topics/{topic}", topic_page),
    ("/groups", groups_page),
    ("/groups/{group}", group_page),
    ("/groups/{group}/dead-letters", dead_letters_page),
    ("/messages", messages_page),
    ("/messages/{id:path}", message_page),
    ("/brokers", brokers_page),
    ("/brokers/{broker}", broker_page),
    ("/replicas", replicas_page),
    ("/accounts", accounts_page),
    ("/jobs", jobs_page),
    ("/help", help_page),
)
