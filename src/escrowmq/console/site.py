"""The HTML pages. A page calls the API, shows the answers, and lists the calls in its footer."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from escrowmq.console import charts
from escrowmq.console.account_clients import AccountClients
from escrowmq.console.assets import AssetFiles
from escrowmq.console.audit import write_audit_line
from escrowmq.console.calls import BY_NAME
from escrowmq.console.operations import PREFIX, Caller, Change
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.page_formats import FILTERS, quote_for_url
from escrowmq.console.page_streams import MEDIA_TYPE, PageStreams
from escrowmq.console.password_checks import PasswordChecks
from escrowmq.console.problems import Problem
from escrowmq.console.request_checks import (
    CSRF,
    LIVE,
    check_csrf,
    check_origin,
    find_session,
    read_form,
    sender_address,
)
from escrowmq.console.sessions import AGE_MAX_S, BrowserSession, SessionStore
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

_FOLDER: Final = Path(__file__).parent / "pages"
_LISTED_MAX: Final = 1_000
"""The most items that a form may name."""

_PLACES: Final = (
    ("/", "Overview"), ("/transactions", "Transactions"), ("/topics", "Topics"),
    ("/groups", "Groups"), ("/messages", "Messages"), ("/brokers", "Brokers"),
    ("/replicas", "Replicas"), ("/accounts", "Accounts"), ("/jobs", "Jobs"),
)  # fmt: skip
"""The path and the title of each page in the navigation."""

SEE_OTHER: Final = 303
SOON_S: Final = 0.1
"""The seconds for which a page waits for a value that it can do without."""

Handler = Callable[[Request], Awaitable[Response]]


class PageSource(msgspec.Struct, frozen=True):
    """A call of the API that a page shows."""

    name: str
    url: str


class Page:
    """One request for a page, and the API calls that it makes."""

    def __init__(self, site: PageSite, request: Request, session: BrowserSession) -> None:
        self._site = site
        self.request = request
        self.session = session
        self.caller = site.caller_of(session)
        self.sources: list[PageSource] = []
        self.query = dict(request.query_params)

    async def call_api(self, name: str, **given: object) -> Any:  # noqa: ANN401 - as the call has it
        """Make a call and return its answer; list the call in the footer."""
        operation = BY_NAME[name]
        wanted = {key: value for key, value in given.items() if value not in (None, "")}
        path = operation.path
        for key in operation.path_parameters:
            path = path.replace(f"{{{key}}}", quote_for_url(wanted[key]))
        rest = {key: value for key, value in wanted.items() if key not in operation.path_parameters}
        query = f"?{urlencode(rest)}" if rest else ""
        self.sources.append(PageSource(operation.name, f"{PREFIX}{path}{query}"))
        return await operation(self.caller, wanted)

    async def call_api_soon(self, name: str, **given: object) -> Any:  # noqa: ANN401 - see ask
        """Make a call that may take long, and return its answer; None if it takes longer than
        SOON_S. The call then continues, so that the next rendering finds the answer in the
        cache."""
        task = asyncio.ensure_future(self.call_api(name, **given))
        done, _ = await asyncio.wait({task}, timeout=SOON_S)
        if done:
            return task.result()
        self._site.keep_running(task)
        return None

    async def try_call_api(self, name: str, **given: object) -> Any:  # noqa: ANN401 - see ask
        """Make a call; return its answer, or the Problem that it raised, so that the rest of the
        page can be shown."""
        try:
            return await self.call_api(name, **given)
        except Problem as problem:
            return problem

    def list_source(self, call: str, rest: str) -> None:
        """List in the footer the call that returns the values of a drawn curve."""
        self.sources.append(PageSource(call, PREFIX + rest))

    def metric_history(self, name: str) -> list[float | None]:
        """Return the values of a metric in the last hour, as GET /history does."""
        return self.caller.account_client.collector.rings.newest_values(name)

    def render(self, template: str, status: int = 200, **context: object) -> Response:
        """Render the page."""
        session = self.session
        notice = "" if LIVE in self.request.headers else session.notice
        session.notice = session.notice.removeprefix(notice)
        return self._site.render_html(
            template, status, who=session.who, csrf=session.csrf, notice=notice,
            sources=self.sources, query=self.query, path=_path_of(self.request),
            curve=self.metric_history, **context,
        )  # fmt: skip


Shown = Callable[[Page], Awaitable[Response]]


class PageSite:
    """All pages of the console."""

    def __init__(
        self,
        options: ConsoleOptions,
        account_clients: AccountClients,
        sessions: SessionStore,
        accounts: PasswordChecks,
        *,
        pages: Sequence[tuple[str, Shown]],
        is_ending: Callable[[], bool],
    ) -> None:
        self._pages = pages
        self._streams = PageStreams(is_ending)
        self._options = options
        self._account_clients = account_clients
        self._sessions = sessions
        self._accounts = accounts
        self._clock = SystemClock()
        self._csrf_mark = secrets.token_urlsafe()
        self._assets = AssetFiles()
        self._asked: set[asyncio.Task[Any]] = set()
        self._templates = Environment(
            loader=FileSystemLoader(_FOLDER),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.globals |= {
            "asset": self._assets.asset_url,
            "spark": charts.draw_small_curve,
            "chart": charts.draw_curve,
            "cluster": options.name_servers,
            "login": options.login,
            "places": [place for place in _PLACES if place[0] in {path for path, _ in pages}],
        }

    def keep_running(self, task: asyncio.Task[Any]) -> None:
        """Keep a call running that no page waits for any longer."""
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)
        task.add_done_callback(lambda one: one.cancelled() or one.exception())

    def routes(self) -> list[Route]:
        """Return the routes of the pages, the forms and the assets."""
        shown = [Route(path, self._page_handler(show)) for path, show in self._pages]
        return [
            Route("/login", self._with_error_pages(self._login_page)),
            Route("/login", self._with_error_pages(self._login), methods=["POST"]),
            Route("/logout", self._with_error_pages(self._logout), methods=["POST"]),
            Route("/do/{call}", self._with_error_pages(self._handle_form), methods=["POST"]),
            Route("/static/{name}", self._assets.serve_file),
            *shown,
        ]

    def caller_of(self, session: BrowserSession) -> Caller:
        """Return the caller of the API for a session: its user, and that user's client."""
        client = self._account_clients.client_of(session.who.credentials)
        client.collector.note_viewer()
        return Caller(account_client=client, who=session.who)

    def render_html(self, template: str, status: int, **context: object) -> HTMLResponse:
        """Render a template as a response."""
        text = self._templates.get_template(template).render(now_ms=self._clock.now_ms(), **context)
        return HTMLResponse(text, status)

    async def answer_not_found(self, request: Request, error: Exception) -> Response:
        """Answer with status 404."""
        problem = Problem(404, "no_page", f"there is no page {request.url.path}")
        return self._problem_page(request, problem)

    # -- logging in ------------------------------------------------------------------------------

    async def _login_page(self, request: Request) -> Response:
        back = request.query_params.get("back", "/")
        return self.render_html("login.html", 200, back=_local_path(back), problem=None, name="")

    async def _login(self, request: Request) -> Response:
        check_origin(request)
        form = await read_form(request)
        name, password = _last_value(form, "name"), _last_value(form, "password")
        back = _local_path(_last_value(form, "back"))
        try:
            who = await self._accounts.check_password(name, password, sender_address(request))
        except Problem as problem:
            return self.render_html(
                "login.html", problem.status, back=back, problem=problem.refused, name=name
            )
        write_audit_line("login", who=who.name, peer=sender_address(request))
        answer = RedirectResponse(back, SEE_OTHER)
        answer.set_cookie(
            self._sessions.cookie, self._sessions.open_session(who), max_age=AGE_MAX_S,
            httponly=True, samesite="strict", path="/", secure=_is_secure(request),
        )  # fmt: skip
        return answer

    async def _logout(self, request: Request) -> Response:
        session = find_session(request, self._sessions)
        if session is not None:
            check_csrf(session, _last_value(await read_form(request), CSRF))
            self._sessions.end_session(request.cookies.get(self._sessions.cookie, ""))
        answer = RedirectResponse("/login", SEE_OTHER)
        answer.delete_cookie(self._sessions.cookie, path="/")
        return answer

    # -- deeds -----------------------------------------------------------------------------------

    async def _handle_form(self, request: Request) -> Response:
        """Handle a form that requests a change: preview the change, and make it once the form is
        confirmed."""
        check_origin(request)
        session = find_session(request, self._sessions)
        if session is None:
            return RedirectResponse("/login", SEE_OTHER)
        form = await read_form(request)
        check_csrf(session, _last_value(form, CSRF))
        operation = BY_NAME.get(request.path_params["call"])
        if operation is None or operation.method == "GET":
            raise Problem(404, "no_call", "there is no such operation")
        back = _local_path(_last_value(form, "back"))
        is_confirmed = _last_value(form, "confirmed") == "yes"
        given = _form_parameters(operation.wants, form)
        caller = self.caller_of(session)
        change: Change = await operation(caller, {**given, "dry_run": not is_confirmed})
        if not is_confirmed:
            page = Page(self, request, session)
            hidden = [
                (key, value) for key, values in form.items() for value in values
                if key not in (CSRF, "back", "confirmed", "reason", "password")
            ]  # fmt: skip
            if change.as_of_ms is not None:
                hidden.append(("as_of_ms", str(change.as_of_ms)))
            return page.render(
                "confirm.html", change=change, call=operation, hidden=hidden, back=back
            )
        write_audit_line(
            "deed", who=session.who.name, peer=sender_address(request), call=operation.name,
            said=change.said, reason=_last_value(form, "reason"),
        )  # fmt: skip
        session.notice = change.said
        return RedirectResponse("/jobs" if change.job is not None else back, SEE_OTHER)

    # -- pages -----------------------------------------------------------------------------------

    def _page_handler(self, show: Shown) -> Handler:
        async def serve(request: Request) -> Response:
            session = find_session(request, self._sessions)
            if session is None:
                target = _path_of(request)
                if query := _query_of(request):
                    target += f"?{query}"
                return RedirectResponse(f"/login?{urlencode({'back': target})}", SEE_OTHER)
            if request.headers.get("accept", "") == MEDIA_TYPE:
                check_origin(request)
                return self._stream_page(request, session, show)
            return await self._render_page(Page(self, request, session), show)

        return self._with_error_pages(serve)

    async def _render_page(self, page: Page, show: Shown) -> Response:
        """Render a page. The account's connections stay open until the page's last call has
        ended."""
        with page.caller.account_client.in_use():
            return await show(page)

    def _stream_page(self, request: Request, session: BrowserSession, show: Shown) -> Response:
        """Stream a page. It is rendered once for all browsers of an account, with a placeholder for
        the secrets of each browser's forms."""
        everybody = msgspec.structs.replace(session, csrf=self._csrf_mark, notice="")

        async def draw() -> Response:
            try:
                return await self._render_page(Page(self, request, everybody), show)
            except Problem as problem:
                return Response(status_code=problem.status)
            except Exception:  # noqa: BLE001 - one page; logged with its trace
                _log.exception("%s could not be rendered again", request.url.path)
                return Response(status_code=500)

        return self._streams.open_stream(
            (session.who, _path_of(request), _query_of(request)),
            draw,
            session=session.csrf,
            is_over=lambda: find_session(request, self._sessions) is None,
            finish=lambda text: text.replace(self._csrf_mark, session.csrf),
        )

    def _with_error_pages(self, serve: Handler) -> Handler:
        async def guarded(request: Request) -> Response:
            try:
                return await serve(request)
            except Problem as problem:
                return self._problem_page(request, problem)
            except Exception:  # noqa: BLE001 - one page; logged with its trace
                _log.exception("%s %s failed", request.method, request.url.path)
                said = Problem(500, "failed", "this page has failed", "the console's log says how")
                return self._problem_page(request, said)

        return guarded

    def _problem_page(self, request: Request, problem: Problem) -> Response:
        session = find_session(request, self._sessions)
        try:
            page = None if session is None else Page(self, request, session)
        except Problem:  # too many accounts are at work
            page = None
        if page is None:
            return self.render_html("stranger.html", problem.status, problem=problem.refused)
        return page.render("problem.html", problem.status, problem=problem.refused)


def _last_value(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[-1]


def _form_parameters(
    wants: type[msgspec.Struct], form: Mapping[str, list[str]]
) -> dict[str, object]:
    """Return a call's parameters from a form. Parameters that may have several values are lists."""
    found: dict[str, object] = {}
    for field in msgspec.structs.fields(wants):
        values = form.get(field.encode_name, [])
        is_list = isinstance(field.default_factory, type) and field.default_factory is list
        if is_list:
            if len(values) > _LISTED_MAX:
                raise Problem(400, "bad_request", f"more than {_LISTED_MAX} items are selected")
            found[field.encode_name] = [value for value in values if value]
        elif values and values[-1] != "":
            found[field.encode_name] = values[-1]
    return found


def _path_of(request: Request) -> str:
    """Return the path of a request as in its URL. Names of groups may have percent signs, and ids
    that producers choose question marks and hashes, at which `request.url` would end the path."""
    return quote(request.scope["path"])


def _query_of(request: Request) -> str:
    """Return the query of a request as in its URL; empty if it has none."""
    return str(request.scope["query_string"].decode("latin-1"))


def _local_path(target: str) -> str:
    """Return the target if it is a path of this console, otherwise `/`."""
    is_local = (
        target.startswith("/") and not target.startswith(("//", "/\\")) and "\n" not in target
    )
    return target if is_local and target.isprintable() else "/"


def _is_secure(request: Request) -> bool:
    """Whether the browser uses TLS, to this server or to a proxy in front of it."""
    return "https" in (request.url.scheme, request.headers.get("x-forwarded-proto", ""))
