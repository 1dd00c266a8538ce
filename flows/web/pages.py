"""Templates, links and error pages shared by all web pages."""

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

EXCERPT_CHARACTERS = 240
"""Characters of a text shown before it is expanded."""

ErrorMessages = Mapping[int, tuple[str, str]]
"""Heading and sentence of the error page for each HTTP status; others use those of 400."""


class Pages:
    """Templates of one site; all its pages contain the same style sheet and script.

    Args:
        title: default page title.
        styles: files in `templates/` or the report's templates, concatenated.
        scripts: likewise.
    """

    def __init__(self, title: str, styles: Sequence[str], scripts: Sequence[str]) -> None:
        self._templates = Environment(
            loader=ChoiceLoader([PackageLoader(name) for name in ("darklode.flows.web", "darklode.pipeline.report")]),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            finalize=_finalize,
        )
        style, script = self._concatenate(styles), self._concatenate(scripts)
        self.policy = policy(policy_hash(style), policy_hash(script))
        self._templates.globals |= {"style": style, "script": script, "site": title}
        self._templates.filters |= {"number": number, "only": pick_values}
        self._templates.tests["web"] = is_web
        self._templates.globals["link"] = link

    def _concatenate(self, files: Sequence[str]) -> Markup:
        """Contents of our own files, which need no escaping."""
        return Markup("").join(Markup(self._templates.get_template(file).render()) for file in files)  # noqa: S704

    def render(self, template: str, **values: Any) -> str:
        """Render a template."""
        return self._templates.get_template(template).render(**values)


def link(path: str, parameters: Mapping[str, object] | None = None, **more: object) -> str:
    """Relative URL with query parameters; null and empty values are omitted."""
    query_parameters = {
        name: value for name, value in {**(parameters or {}), **more}.items() if value is not None and value != ""
    }
    return f"{path}?{urlencode(query_parameters)}" if query_parameters else path


def pick_values(row: Mapping[str, object], names: Sequence[str]) -> dict[str, object]:
    """Select some of a row's values."""
    return {name: row[name] for name in names}


def passage(row: Mapping[str, Any], highlighter: Highlighter) -> dict[str, Any]:
    """A row with highlighted title, heading and text; long texts are also given as an excerpt.

    Args:
        row: title, heading, text, and `fenced`: whether the text begins inside a fenced code block.
    """
    clipped, full_blocks = highlighter.collapse(row["text"], EXCERPT_CHARACTERS, fenced=row["fenced"])
    return {
        **row,
        "heading": highlighter.pieces(row.get("heading") or ""),
        "title": highlighter.pieces(row["title"] or ""),
        "clipped": clipped,
        "full": full_blocks,
    }


def _finalize(value: object) -> object:
    """Replace characters that HTML does not allow."""
    return clean(value) if type(value) is str else value


def is_web(url: str | None) -> bool:
    """Whether a URL is http or https; others, such as `javascript:`, must not become links."""
    try:
        return url is not None and urlsplit(url.strip()).scheme.lower() in ("http", "https")
    except ValueError:
        return False


@dataclass(frozen=True)
class Site:
    """A web site with its error pages.

    Attributes:
        pages: the templates.
        messages: texts of the error pages.
        back: relative URL of the link on an error page.
        back_label: text of this link.
    """

    pages: Pages
    messages: ErrorMessages
    back: Callable[[Request], str]
    back_label: str

    def error_page(self, request: Request, status: int, detail: str = "") -> Response:
        """Render an error page; `detail` replaces the status's sentence."""
        heading, sentence = self.messages.get(status, self.messages[HTTPStatus.BAD_REQUEST])
        back = None if status == HTTPStatus.NOT_FOUND else self.back(request)
        page = self.pages.render(
            "error.html", heading=heading, message=detail or sentence, back=back, back_label=self.back_label
        )
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
        """Create an app that serves the routes below `/{token}/`.

        Args:
            routes: the pages.
            handlers: additional exception handlers.
            token: secret first part of every path.
            hosts: allowed Host headers (IPv6 addresses in brackets). Others are rejected so that no web site can
                reach a loopback server under its own name (DNS rebinding).
            free: paths also served without the token.
        """
        default_handlers = {
            HTTPException: self._handle_http_error,
            ClientDisconnect: self._handle_http_error,
            Exception: self._handle_unexpected_error,
        }
        trusted_hosts = Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts), www_redirect=False)
        all_handlers = {**default_handlers, **handlers}
        app = Starlette(routes=list(routes), middleware=[trusted_hosts], exception_handlers=all_handlers)
        app.router.redirect_slashes = False  # the redirect would drop the token
        return Guard(app, token=token, policy=self.pages.policy, free=free)

    async def _handle_http_error(self, request: Request, error: Exception) -> Response:
        return self.error_page(request, error.status_code if isinstance(error, HTTPException) else 400)

    async def _handle_unexpected_error(self, request: Request, _error: Exception) -> Response:
        return self.error_page(request, 500)
