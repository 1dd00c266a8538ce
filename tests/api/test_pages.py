"""Pages served from a thread: an address, an end, and errors where they belong."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from darklode.api.pages import WebPages
from darklode.flows.web.server import ListenAddress
from darklode.pipeline.base.errors import ArtifactError, MissingPart

ADDRESS = ListenAddress("127.0.0.1", 0, ())
closed: list[str] = []


@contextmanager
def open_app(hosts: list[str]) -> Iterator[ASGIApp]:
    try:
        yield Starlette(routes=[Route("/secret/", lambda _: PlainTextResponse(f"{threading.current_thread().name}"))])
    finally:
        closed.append(hosts[0])


def test_pages_answer_until_they_are_stopped() -> None:
    closed.clear()
    with WebPages(open_app, ADDRESS, "secret") as pages:
        assert urllib.request.urlopen(pages.url).status == 200
        assert f'href="{pages.url}"' in pages._repr_html_()
        assert repr(pages) == f"<pages at {pages.url}>"
        assert not closed
    assert closed == ["127.0.0.1"]
    assert "Stopped" in pages._repr_html_()
    pages.stop()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(pages.url)


def test_what_cannot_be_opened_is_raised_to_the_caller() -> None:
    @contextmanager
    def refuse(hosts: list[str]) -> Iterator[ASGIApp]:
        raise ArtifactError("there is no run")
        yield

    with pytest.raises(ArtifactError, match="there is no run"):
        WebPages(refuse, ADDRESS, "secret")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(MissingPart, match="another program may use this port"):
            WebPages(open_app, ListenAddress("127.0.0.1", taken.getsockname()[1], ()), "secret")
    assert "pages" not in {thread.name for thread in threading.enumerate()}
