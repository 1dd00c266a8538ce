"""ASGI middleware of the web pages: secret token, body limit and security headers."""

import secrets
from collections.abc import Sequence
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES = 1 << 16
UNKNOWN_PATH = "/nowhere"  # requests without the token get the error page of a missing page


class Guard:
    """Serves paths below the token only, limits request bodies, and adds security headers to every response.

    Args:
        app: the pages, without the token in their paths; must have no page at UNKNOWN_PATH.
        token: secret first part of every path.
        policy: the Content-Security-Policy.
        free: paths also served without the token.
    """

    def __init__(self, app: ASGIApp, *, token: str, policy: str, free: Sequence[str] = ()) -> None:
        self._app = app
        self._token = token
        self._free = frozenset(free)
        self._headers = {
            "Content-Security-Policy": policy,
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cache-Control": "no-store",
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request with the token removed from its path."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        token, slash, remaining_path = scope["path"].removeprefix("/").partition("/")
        ours = secrets.compare_digest(token.encode(errors="surrogateescape"), self._token.encode())
        path = f"/{remaining_path}" if ours else scope["path"] if scope["path"] in self._free else UNKNOWN_PATH
        within = dict(scope) | {"path": path, "raw_path": quote(path).encode()}
        app = self._app if slash or not ours else RedirectResponse(f"{self._token}/")  # links are relative to it
        await app(within, _limit_body(scope, receive), answer)


def _limit_body(scope: Scope, receive: Receive) -> Receive:
    """Reject bodies over MAX_BODY_BYTES, by the Content-Length header or while reading."""
    content_length = int(Headers(scope=scope).get("content-length", "0"))
    read = 0

    async def receive_limited() -> Message:
        nonlocal read
        message = await receive() if content_length <= MAX_BODY_BYTES else {"body": b""}
        read += len(message.get("body", b""))
        if max(read, content_length) > MAX_BODY_BYTES:
            raise HTTPException(413)
        return message

    return receive_limited


def policy(style: str, script: str) -> str:
    """Content-Security-Policy that allows one inline style sheet and one inline script, given by Base64 SHA-256."""
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
