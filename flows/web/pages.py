"""What all pages for people share: templates with one style and script a kind, addresses, and replies to what fails."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.flows.web.guard import Guard, policy
from darklode.pipeline.base.highlighting import Highlighter
from darklode.pipeline.report.formatting import clean, number
from darklode.pipeline.report.page import policy_hash

EXCERPT = 240
"""Characters of a text that are shown at once."""

Said = Mapping[int, tuple[str, str]]
"""Heading and sentence of the page for each status; 400 stands for all that have none."""


class Pages:
    """The templates of one kind of pages, which all carry the same style sheet and script.

    Args:
        title: of pages that have none of their own.
        styles: files of `templates/`, or of the report's, one after the other.
        scripts: the same.
    """

    def __init__(self, title: str, styles: Sequence[str], scripts: Sequence[str]) -> None:
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in ("darklode.flows.web", "darklode.pipeline.report")]),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            finalize=_plain,
        )
        style, script = self._concatenate(styles), self._concatenate(scripts)
        self.policy = policy(policy_hash(style), policy_hash(script))
        self._templates.globals |= {"style": style, "script": script, "site": title}
        self._templates.filters |= {"number": number, "only": pick_values}
        self._templates.tests["web"] = is_web
        self._templates.globals["link"] = link

    def _concatenate(self, files: Sequence[str]) -> Markup:
        """Our own files, which need no escaping."""
        return Markup("").join(Markup(self._templates.get_template(file).render()) for file in files)  # noqa: S704

    def render(self, page: str, **values: Any) -> str:
        """A page of a template."""
        return self._templates.get_template(page).render(**values)


def link(path: str, parameters: Mapping[str, object] | None = None, **more: object) -> str:
    """An address below the token; what is null or empty is left out."""
    query_parameters = {
        name: value for name, value in {**(parameters or {}), **more}.items() if value is not None and value != ""
    }
    return f"{path}?{urlencode(query_parameters)}" if query_parameters else path


def pick_values(row: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """Some of a row's values, by name."""
    return {name: row[name] for name in names}


def passage(row: Mapping[str, Any], marker: Highlighter) -> dict[str, Any]:
    """A row's title, heading and text with the words marked, and of a long text what is shown at once.

    Args:
        row: title, heading, text, and `fenced`: whether the text begins within fenced code.
        marker: knows the words.
    """
    clipped, full_blocks = marker.collapse(row["text"], EXCERPT, fenced=row["fenced"])
    return {
        **row,
        "heading": marker.pieces(row.get("heading") or ""),
        "title": marker.pieces(row["title"] or ""),
        "clipped": clipped,
        "whole": full_blocks,
    }


def _plain(value: object) -> object:
    """What a page prints: texts without what no page can hold."""
    return clean(value) if type(value) is str else value


def is_web(url: str | None) -> bool:
    """Whether a document's address may become a link: `javascript:` and the like may not."""
    try:
        return url is not None and urlsplit(url.strip()).scheme.lower() in ("http", "https")
    except ValueError:
        return False


@dataclass(frozen=True)
class Site:
    """Pages to be served.

    Attributes:
        pages: their templates.
        messages: what is said of what fails.
        back: where one goes on after a request that failed, below the token.
        on_label: what the link to there says.
    """

    pages: Pages
    messages: Said
    back: Callable[[Request], str]
    on_label: str

    def error_page(self, request: Request, status: int, detail: str = "") -> Response:
        """The page for what went wrong; `detail` in the place of the usual sentence."""
        heading, sentence = self.messages.get(status, self.messages[HTTPStatus.BAD_REQUEST])
        back = None if status == HTTPStatus.NOT_FOUND else self.back(request)
        page = self.pages.render("error.html", heading=heading, what=detail or sentence, back=back, on=self.on_label)
        return HTMLResponse(page, status)

    def app(
        self,
        routes: Sequence[Route],
        handlers: Mapping[Any, Any],
        token: str,
        hosts: Sequence[str],
        *,
        free: Sequence[str] = (),
    ) -> ASGIApp:
        """The pages below `/{token}/`, for requests to one of these hosts.

        Args:
            routes: the pages.
            handlers: of errors of their own.
            token: the first part of every path, a secret.
            hosts: names and addresses, an IPv6 address in brackets; any other is refused, so that no web site can
                reach a server on loopback under a name of its own (DNS rebinding).
            free: paths that are answered without the token, too.
        """
        ours = {
            HTTPException: self._handle_refusal,
            ClientDisconnect: self._handle_refusal,
            Exception: self._handle_crash,
        }
        trusted_hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
        app = Starlette(routes=list(routes), middleware=[trusted_hosts], exception_handlers={**ours, **handlers})
        app.router.redirect_slashes = False  # it would lead out of the token
        return Guard(app, token=token, policy=self.pages.policy, free=free)

    async def _handle_refusal(self, request: Request, error: Exception) -> Response:
        return self.error_page(request, error.status_code if isinstance(error, HTTPException) else 400)

    async def _handle_crash(self, request: Request, _error: Exception) -> Response:
        return self.error_page(request, 500)
