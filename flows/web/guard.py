"""What stands before the pages: who may ask, how much may be sent, and what browsers are told."""

import secrets
from collections.abc import Sequence
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

BODY_BYTES = 1 << 16
NOWHERE = "/nowhere"


class Guard:
    """Answers what is asked below the token only, bounds what is sent, and adds headers to every reply.

    Args:
        app: the pages, which do not know the token; they have none at NOWHERE.
        token: the first part of every path, a secret.
        policy: the Content-Security-Policy.
        free: paths that are answered without the token, too.
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
        """Pass a request on, as one for the path below the token."""

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._headers)
            await send(message)

        token, slash, remaining_path = scope["path"].removeprefix("/").partition("/")
        ours = secrets.compare_digest(token.encode(errors="surrogateescape"), self._token.encode())
        path = f"/{remaining_path}" if ours else scope["path"] if scope["path"] in self._free else NOWHERE
        within = dict(scope) | {"path": path, "raw_path": quote(path).encode()}
        app = self._app if slash or not ours else RedirectResponse(f"{self._token}/")  # links are relative to it
        await app(within, _limit_body(scope, receive), answer)


def _limit_body(scope: Scope, receive: Receive) -> Receive:
    """Refuse a body of more than BODY_BYTES, announced or not, when somebody reads it."""
    announced = Headers(scope=scope).get("content-length", "0")
    read = 0

    async def receive_limited() -> Message:
        nonlocal read
        message = await receive() if int(announced) <= BODY_BYTES else {"body": b""}
        read += len(message.get("body", b""))
        if max(read, int(announced)) > BODY_BYTES:
            raise HTTPException(413)
        return message

    return receive_limited


def policy(style: str, script: str) -> str:
    """A Content-Security-Policy under which these two run, and nothing else, and nothing is fetched from elsewhere.

    Args:
        style: SHA-256 of the style sheet, in Base64.
        script: of the script.
    """
    return (
        f"default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; img-src data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
