"""The pages of `serve`, `browse` and `review`, served from a thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from darklode.api.launching import Names, Overrides, changes_of, names_of
from darklode.api.pages import WebPages
from darklode.api.views import Location, url_of
from darklode.flows.commands.options import LOOPBACK
from darklode.flows.web.server import ListenAddress, new_token, token_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp


def serve(
    index: Location,
    *,
    encoder: Names = (),
    tenant: str | None = None,
    config: Location | None = None,
    settings: Overrides | None = None,
    port: int = 0,
    host: str = LOOPBACK,
    allow_host: Sequence[str] = (),
) -> WebPages:
    """Serve an index, or a run, over HTTP and on a web page, as `darklode serve` does, for trying it out.

    Args:
        index: output of `index`, or a run.
        encoder: at most two query encoders: `base` (the default), encoders from the settings, sentence-transformers
            models, or outputs of `adapt`.
        tenant: tenant to serve; required if there are several.
        config: YAML file with settings.
        settings: overrides of the settings.
        port: port to listen on; 0 picks a free one.
        host: address to bind to.
        allow_host: names under which browsers may reach the server.

    Returns:
        The pages; they are served until `stop()`, or to the end of a `with` block.
    """
    from darklode.flows.commands.serve import open_console
    from darklode.flows.web.search import search_app

    values, token = changes_of(config, settings), new_token()

    @contextmanager
    def open_app(hosts: list[str]) -> Iterator[ASGIApp]:
        with open_console(url_of(index), names_of(encoder), tenant, values) as console:
            yield search_app(console, token, hosts)

    return WebPages(open_app, ListenAddress(host, port, tuple(allow_host)), token)


def browse(run: Location, *, port: int = 0) -> WebPages:
    """Explore a run in the browser, as `darklode browse` does: search queries, pairs, triplets and rejects; read-only.

    Args:
        run: the run.
        port: port to listen on; 0 picks a free one.

    Returns:
        The pages; they are served until `stop()`, or to the end of a `with` block.
    """
    from darklode.flows.commands.browse import open_browser_pages
    from darklode.flows.runs import existing
    from darklode.flows.web.browse import browse_app

    opened_run, token = existing(url_of(run)), new_token()

    @contextmanager
    def open_app(hosts: list[str]) -> Iterator[ASGIApp]:
        with open_browser_pages(opened_run) as browser:
            yield browse_app(browser, token, hosts)

    return WebPages(open_app, ListenAddress(LOOPBACK, port, ()), token)


def review(
    run: Location,
    *,
    port: int = 0,
    host: str = LOOPBACK,
    allow_host: Sequence[str] = (),
    max_grade: int | None = None,
    for_: str | None = None,
    new_sample: bool = False,
    until: float = 0.05,
    settings: Overrides | None = None,
) -> WebPages:
    """Let people label a sample of a run's pairs in the browser, as `darklode review` does.

    Args:
        run: a benchmark.
        port: port to listen on; 0 picks a free one.
        host: address to bind to.
        allow_host: names under which browsers may reach the server.
        max_grade: give grades from 0 to this one; None: the judge's grades.
        for_: purpose of the labels: validate, evaluate, calibrate or teach; None: that of the run's sample.
        new_sample: draw the sample of another purpose although pairs are labelled.
        until: the pages say to stop when the 95 % interval is this narrow, in both directions.
        settings: overrides of the run's settings.

    Returns:
        The pages; they are served until `stop()`, or to the end of a `with` block.
    """
    from darklode.flows.commands.review import lock_review, open_review, set_purpose
    from darklode.flows.runs import existing
    from darklode.flows.web.review import review_app

    opened_run, values = existing(url_of(run)), changes_of(None, settings)
    set_purpose(opened_run, for_, new_sample=new_sample)
    token = token_of(opened_run.store)

    @contextmanager
    def open_app(hosts: list[str]) -> Iterator[ASGIApp]:
        with lock_review(opened_run), open_review(opened_run, values, max_grade, until) as pages:
            yield review_app(pages, token, hosts)

    return WebPages(open_app, ListenAddress(host, port, tuple(allow_host)), token)
