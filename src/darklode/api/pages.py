"""Web pages served from a thread, so that a notebook stays usable."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from html import escape
from types import TracebackType
from typing import TYPE_CHECKING, Self

from darklode.flows.web.server import ListenAddress, PageServer, listen, server

if TYPE_CHECKING:
    from starlette.types import ASGIApp

OpenApp = Callable[[list[str]], AbstractContextManager["ASGIApp"]]
"""Opens the app, given the host names under which browsers may reach it."""


class WebPages:
    """Web pages that are served until `stop` is called or the process ends; also a context manager.

    Attributes:
        url: address to open in a browser.
        urls: all addresses.

    Args:
        open_app: opens the app, in the thread that serves it.
        address: address to listen on.
        token: secret in the address.

    Raises:
        DarklodeError: the app cannot be opened, or the port is in use.
    """

    def __init__(self, open_app: OpenApp, address: ListenAddress, token: str) -> None:
        self._socket = listen(address)
        self.urls = address.addresses(self._socket, token)
        self.url = self.urls[0]
        self._settled, self._stopped = threading.Event(), False
        self._server: PageServer | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, args=(open_app, address), name="pages", daemon=True)
        self._thread.start()
        try:
            self._settled.wait()
        except KeyboardInterrupt:
            self.stop()
            raise
        if self._error:
            raise self._error

    def _serve(self, open_app: OpenApp, address: ListenAddress) -> None:
        try:
            with self._socket, open_app(address.allowed_hosts) as app:
                self._server = server(app, self._settled.set)
                self._server.should_exit = self._stopped
                self._server.run(sockets=[self._socket])
        except BaseException as error:
            self._error = error
        finally:
            self._settled.set()

    def __repr__(self) -> str:
        return f"<{'pages at' if self._thread.is_alive() else 'stopped:'} {self.url}>"

    def _repr_html_(self) -> str:
        if not self._thread.is_alive():
            return f"<p>Stopped: {escape(self.url)}</p>"
        return f'<p><a href="{escape(self.url)}" target="_blank" rel="noopener">{escape(self.url)}</a></p>'

    def stop(self) -> None:
        """Finish open requests and stop."""
        self._stopped = True
        if self._server:
            self._server.should_exit = True
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()
