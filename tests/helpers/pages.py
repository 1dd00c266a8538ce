"""Pages that are served on loopback, and looked at in a browser where they may make no noise."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from darklode.flows.web.server import server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext
    from playwright.sync_api import Page as Tab

WIDE = {"width": 1280, "height": 800}
OPEN = "html[data-open]"


@contextmanager
def serving(app: ASGIApp, bound: socket.socket) -> Iterator[None]:
    """Answer at an open socket until the block ends."""
    running = server(app, lambda: None)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [bound]})
    thread.start()
    try:
        yield
    finally:
        running.should_exit = True
        thread.join()


@contextmanager
def quiet(browser: Browser) -> Iterator[Callable[..., Tab]]:
    """Opens an address as a user of its own. The page may say nothing to the console, and ask nothing of other hosts.

    Options are those of a browser's context.
    """
    contexts: list[BrowserContext] = []
    noise: list[str] = []

    def open_tab(url: str, **options: object) -> Tab:
        context = browser.new_context(**{"viewport": WIDE} | options)
        contexts.append(context)
        own = urlsplit(url).netloc
        context.on("console", lambda message: noise.append(message.text))
        context.on("dialog", lambda dialog: (noise.append(dialog.message), dialog.dismiss()))
        context.on("weberror", lambda error: noise.append(str(error.error)))
        context.on("request", lambda asked: noise.append(asked.url) if urlsplit(asked.url).netloc != own else None)
        context.on("requestfailed", lambda asked: noise.append(f"{asked.url}: {asked.failure}"))
        tab = context.new_page()
        tab.goto(url)
        if options.get("java_script_enabled", True):
            tab.wait_for_selector(OPEN)
        return tab

    yield open_tab
    for context in contexts:
        context.close()
    assert noise == []
