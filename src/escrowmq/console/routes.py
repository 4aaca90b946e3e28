"""The table of pages: their paths, and the API calls that each makes."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from escrowmq.console.calls import OPERATIONS
from escrowmq.console.operations import PREFIX
from escrowmq.console.problems import Problem
from escrowmq.console.site import Page, Shown
from escrowmq.console.words import as_hex, as_json, as_text, cut_note


async def overview(page: Page) -> Response:
    """Show the state of the cluster."""
    return page.render("overview.html", found=await page.ask("overview.show"))


async def transactions(page: Page) -> Response:
    """Show pending transactions, the oldest first."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group", "state", "broker")}
    which["min_age_ms"] = minutes_as_ms(query.get("older_than", ""))
    found = await page.ask("transactions.list", **which, page=query.get("page", ""))
    counted = await page.ask_soon("transactions.count", **which)
    return page.render("transactions.html", found=found, counted=counted, which=which)


async def transaction(page: Page) -> Response:
    """Show everything known about one transaction."""
    name = page.request.path_params["transaction"]
    fates = await page.ask("transactions.show", transaction=name, topic=page.query.get("topic", ""))
    return page.render("transaction.html", fates=fates, name=name)


async def discarded(page: Page) -> Response:
    """Show discarded transactions."""
    query = page.query
    which = {name: query.get(name, "") for name in ("topic", "group")}
    found = await page.ask("transactions.discarded", **which, page=query.get("page", ""))
    return page.render("discarded.html", found=found, which=which)


async def topics(page: Page) -> Response:
    """Show the list of topics."""
    found = await page.ask("topics.list", **listing(page))
    return page.render("topics.html", found=found)


async def topic(page: Page) -> Response:
    """Show one topic, with its newest messages."""
    name = page.request.path_params["topic"]
    found = await page.ask("topics.show", topic=name)
    newest = await page.ask("messages.tail", topic=name, count=20)
    return page.render("topic.html", found=found, name=name, newest=newest)


async def groups(page: Page) -> Response:
    """Show consumer groups and their lag."""
    found = await page.ask("groups.list", **listing(page))
    return page.render("groups.html", found=found)


async def group(page: Page) -> Response:
    """Show one consumer group, queue by queue."""
    name = page.request.path_params["group"]
    found = await page.ask("groups.show", group=name)
    rest = {key: page.query.get(key, "") for key in ("topic", "page", "sort", "order")}
    queues = await page.ask("groups.lag", group=name, size=64, **rest)
    page.name("history.show", f"/history?of=lag:{name}")
    return page.render("group.html", found=found, name=name, queues=queues)


async def messages(page: Page) -> Response:
    """Show the search box for messages, and what it found."""
    text, topic = page.query.get("text", "").strip(), page.query.get("topic", "").strip()
    found = tail = None
    if text:
        found = await page.ask("messages.search", text=text, topic=topic,
                               **{"as": page.query.get("as", "")})  # fmt: skip
    elif topic:
        tail = await page.ask("messages.tail", topic=topic)
    return page.render("messages.html", found=found, tail=tail, text=text, topic=topic)


async def message(page: Page) -> Response:
    """Show one message, with its body as text, JSON and hex."""
    name, topic = page.request.path_params["id"], page.query.get("topic", "")
    found = await page.ask("messages.show", id=name, topic=topic)
    return page.render(
        "message.html", found=found, name=name, topic=topic, text=as_text(found.body),
        json=as_json(found.body), hex=as_hex(found.body),
        left_out=cut_note(found.body_size),
    )  # fmt: skip


def listing(page: Page) -> dict[str, str]:
    """Return the parameters of a page that shows a list: page number, sort order, filter."""
    wanted = ("part", "system", "page", "sort", "order")
    return {key: page.query[key] for key in wanted if key in page.query}


async def dead_letters(page: Page) -> Response:
    """Show the dead letters of one group."""
    name, topic = page.request.path_params["group"], page.query.get("topic", "")
    number = page.query.get("page", "")
    found = await page.try_ask("dead-letters.list", group=name, topic=topic, page=number)
    problem = found if isinstance(found, Problem) else None
    if problem is not None and problem.refused.code != "not_supported":
        raise problem
    return page.render(
        "dead_letters.html", name=name, topic=topic, found=None if problem else found
    )


async def brokers(page: Page) -> Response:
    """Show all brokers."""
    return page.render("brokers.html", found=await page.ask("brokers.list"))


async def broker(page: Page) -> Response:
    """Show one broker, with its settings."""
    name, query = page.request.path_params["broker"], page.query
    found = await page.ask("brokers.show", broker=name)
    settings = await page.try_ask(
        "brokers.settings", broker=name, part=query.get("part", ""), which=query.get("which", "")
    )
    problem = settings.refused if isinstance(settings, Problem) else None
    return page.render(
        "broker.html", name=name, found=found, settings=[] if problem else settings,
        problem=problem,
    )  # fmt: skip


async def replicas(page: Page) -> Response:
    """Show brokers with their replicas."""
    return page.render("replicas.html", found=await page.ask("replicas.list"))


async def accounts(page: Page) -> Response:
    """Show users, policies, and explanations of what a user may do."""
    query = page.query
    wanted = {key: query.get(key, "") for key in ("user", "action", "resource", "address")}
    verdicts = None
    if wanted["user"] and wanted["action"] and wanted["resource"]:
        verdicts = await page.try_ask("access.explain", **wanted)
    users = await page.try_ask("access.users", part=query.get("part", ""))
    policies = await page.try_ask("access.policies", user=query.get("part", ""))
    return page.render(
        "accounts.html", wanted=wanted,
        verdicts=verdicts, users=users, policies=policies, is_problem=_is_problem,
    )  # fmt: skip


def _is_problem(found: object) -> bool:
    return isinstance(found, Problem)


async def help_page(page: Page) -> Response:
    """Show the keyboard shortcuts, and the calls of the API."""
    return page.render("help.html", calls=OPERATIONS, prefix=PREFIX)


async def jobs(page: Page) -> Response:
    """Show the background jobs."""
    return page.render("jobs.html", found=await page.ask("jobs.list"))


def minutes_as_ms(text: str) -> str:
    """Convert a form's minutes to milliseconds; a text that is no number is returned unchanged, for
    the API to refuse."""
    try:
        return str(int(float(text) * 60_000)) if text else ""
    except (ValueError, OverflowError):
        return text


PAGES: Final[tuple[tuple[str, Shown], ...]] = (
    ("/", overview),
    ("/transactions", transactions),
    ("/transactions/discarded", discarded),
    ("/transactions/{transaction}", transaction),
    ("/topics", topics),
    ("/topics/{topic}", topic),
    ("/groups", groups),
    ("/groups/{group}", group),
    ("/groups/{group}/dead-letters", dead_letters),
    ("/messages", messages),
    ("/messages/{id}", message),
    ("/brokers", brokers),
    ("/brokers/{broker}", broker),
    ("/replicas", replicas),
    ("/accounts", accounts),
    ("/jobs", jobs),
    ("/help", help_page),
)
