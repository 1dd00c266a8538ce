"""HTTP servers of the tests on loopback: quiet, and open for the length of a block."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class LoopbackServer:
    """Serves requests by a handler while its context is open.

    Attributes:
        address: base URL of the server, without a path.
        closing: set when the context closes, for handlers that wait.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self.closing = threading.Event()
        self._server = _Server(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error here."""


class JsonHandler(BaseHTTPRequestHandler):
    """Reads JSON bodies and answers with content as JSON; prints nothing."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the tests' output is theirs."""

    def do_GET(self) -> None:
        self.serve_get()

    def do_POST(self) -> None:
        self.serve_post(json.loads(self.rfile.read(int(self.headers["content-length"]))))

    def serve_get(self) -> None:
        self.answer(404, b"{}")

    def serve_post(self, body: dict[str, Any]) -> None:
        raise NotImplementedError

    def lower_headers(self) -> dict[str, str]:
        """The request's headers, names in lower case."""
        return {name.lower(): value for name, value in self.headers.items()}

    def answer(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in ({"content-length": str(len(content))} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(content)
