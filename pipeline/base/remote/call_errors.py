"""Classification of call failures.

`TransientError`: the call is sent again.
    408, 409, 425, 429, 5xx; connections refused, reset or broken; timeouts; temporary DNS failures;
    `BadReply`: status 200 with an invalid body.
`RequestRejected`: this call never succeeds, others may.
    400, 413, 422.
`DarklodeError`: no call can succeed; raised immediately.
    401, 403, 407; 402, and 429 without credit; 404; redirects; any other status; certificate errors, unknown hosts,
    invalid URLs.
"""

from __future__ import annotations

import json
import math
import re
import socket
import ssl
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from darklode.pipeline.base.errors import DarklodeError, MissingPart
from darklode.schemas.section import host_and_path

if TYPE_CHECKING:
    import aiohttp

MAX_RETRY_AFTER = 120.0
NAME_SECONDS = 5.0
"""Seconds to retry a temporary DNS failure; if it lasts longer, the network or the host name is wrong."""

_TRANSIENT_STATUSES = frozenset({408, 409, 425, 429, *range(500, 600)})
_REJECTED_STATUSES = frozenset({400, 413, 422})
_NO_CREDIT_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""OpenAI's codes of a 429 that waiting does not resolve."""
_TOO_LONG_MESSAGE = re.compile(
    r"context.{0,3}(length|window|size)|too (long|large|many tokens)|max(imum)?[ _](model_len|input|prompt)|exceed",
    re.I,
)


_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def sanitize(text: str) -> str:
    """Replace lone surrogates, which are valid in JSON but cannot be encoded as UTF-8."""
    return _LONE_SURROGATES.sub("\ufffd", text)


class TransientError(Exception):
    """A failure that may not recur; the call is sent again.

    Attributes:
        reason: what the server did, as a predicate for messages.
        status: HTTP status; 0 without a reply.
        retry_after: seconds requested by the server; 0: none.
        billed: whether the call may have been billed.
        overload: whether the server rejected the call for load, or was too slow.
        patience: maximum seconds of retries for this kind of failure.
    """

    def __init__(
        self,
        reason: str,
        *,
        status: int = 0,
        retry_after: float = 0.0,
        billed: bool = False,
        overload: bool = False,
        patience: float = math.inf,
    ) -> None:
        super().__init__(reason)
        self.reason, self.status, self.retry_after = reason, status, retry_after
        self.billed, self.overload, self.patience = billed, overload, patience


class ServerError(TransientError):
    """Status 500 or 501, with which some servers reject unknown parameters."""


class BadReply(TransientError):
    """A reply with status 200 and an invalid body.

    Attributes:
        problem: what is wrong, as a predicate for messages.
        name: name of the affected part of the call; empty: the whole call.
        healthy: whether the server is up; a sign-in page comes from something else.
    """

    def __init__(self, problem: str, name: str = "", *, healthy: bool = True) -> None:
        super().__init__(f"answered 200, but the reply {problem}", status=200, billed=True)
        self.problem, self.name, self.healthy = problem, name, healthy


class UnparsableReply(BadReply):
    """A complete reply that the JSON parser cannot handle: too deeply nested, or a number with too many digits."""


class RequestRejected(Exception):
    """The call cannot succeed; the message is the reason.

    Attributes:
        too_long: whether the request is too long.
        failure: the last failure of a call that failed so often that it is probably the cause itself; else None.
    """

    def __init__(self, message: str, *, too_long: bool = False, failure: TransientError | None = None) -> None:
        super().__init__(message)
        self.too_long, self.failure = too_long, failure


class Stopped(Exception):
    """A call stopped because another one failed; report that failure instead."""


@dataclass(frozen=True)
class Response:
    """Status, the headers retry-after and location, and the body."""

    status: int
    retry_after: str | None
    content: bytes
    location: str | None = None


def response_error(response: Response, key: str, api_key_env: str, section: str) -> Exception:
    """The error for a status other than 200; no message contains the key.

    Args:
        response: with any other status.
        key: key that was sent; empty: none.
        api_key_env: environment variable of the key; empty: none is sent.
        section: settings section, for advice.
    """
    status, (message, code) = response.status, _error_message(response.content, key)
    if status == 402 or code in _NO_CREDIT_CODES:
        return MissingPart(f"answered {status}, no credit: top it up, or use another key. Server message: {message}")
    if status in _TRANSIENT_STATUSES:
        kind = ServerError if status in {500, 501} else TransientError
        wait = parse_retry_after(response.retry_after) or 0.0
        wait_text = f" and asked to wait (Retry-After: {sanitize(response.retry_after or '')[:40]})" if wait > 1 else ""
        return kind(f"answered {status}{wait_text}", status=status, retry_after=wait, overload=status in {429, 503})
    if status in _REJECTED_STATUSES:
        return RequestRejected(
            f"status {status}: {message}", too_long=status == 413 or bool(_TOO_LONG_MESSAGE.search(message))
        )
    return _permanent_error(response, message, api_key_env, section)


def _permanent_error(response: Response, message: str, api_key_env: str, section: str) -> DarklodeError:
    """The error for a status after which no call can succeed."""
    status = response.status
    if status in {401, 403, 407}:
        key_name = (
            f"the key in {api_key_env}" if api_key_env else f"a call without a key ({section}.api_key_env is empty)"
        )
        return MissingPart(f"rejected {key_name}, status {status}: check the key and its permissions")
    if status == 404:
        return MissingPart(f"answered 404: check {section}.base_url and the model or index. Server message: {message}")
    if 300 <= status < 400:
        location = host_and_path(response.location or "") or "elsewhere"
        to = location.rpartition("@")[2]  # without user name and password
        return DarklodeError(
            f"answered {status}, a redirect to {to}, which is not followed because it could leak the key: "
            f"set {section}.base_url to the server's URL"
        )
    return DarklodeError(f"answered {status}: check {section}.base_url. Server message: {message}")


def connection_error(error: Exception, timeout: float, section: str) -> Exception:
    """The error for a call without a complete reply.

    Args:
        error: raised by aiohttp.
        timeout: timeout of a call in seconds, for the message.
        section: settings section, for advice.
    """
    import aiohttp

    if isinstance(error, TimeoutError):
        return TransientError(f"did not answer within {timeout:g} s", billed=True, overload=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _connection_error(error, section)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate_error(error.certificate_error, section)
    if isinstance(error, aiohttp.InvalidURL | ValueError | OverflowError):
        return DarklodeError(f"is not a valid URL: check {section}.base_url")
    return TransientError(f"broke the connection ({type(error).__name__})", billed=True)


def _connection_error(error: aiohttp.ClientConnectorError, section: str) -> Exception:
    """The error for a failed connection."""
    cause = error.os_error
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):  # EOF: a starting server
        return _certificate_error(cause, section)
    if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
        return DarklodeError(f"has an unknown host name ({cause.strerror}): check {section}.base_url")
    if isinstance(cause, socket.gaierror):
        return TransientError(f"cannot be resolved at the moment ({cause.strerror})", patience=NAME_SECONDS)
    return TransientError(f"cannot be reached ({type(error).__name__})")


def _certificate_error(error: Exception, section: str) -> DarklodeError:
    message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return DarklodeError(
        f"has an invalid TLS certificate ({message}): check {section}.base_url and the certificate (set SSL_CERT_FILE "
        "for a private certificate authority)"
    )


def parse_retry_after(retry_after: str | None) -> float | None:
    """Seconds to wait from a Retry-After header (seconds or HTTP date), at most two minutes; None if invalid."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER) if math.isfinite(seconds) else None


def _error_message(content: bytes, key: str) -> tuple[str, str | None]:
    """The server's error message in one line of at most 300 characters, without the key, and its error code."""
    code = None
    try:
        body = json.loads(content)
        error = body.get("error", body)
        keys = ("message", "reason", "msg")  # OpenAI and others; OpenSearch and Elasticsearch; Solr
        message = str(next((error[key] for key in keys if key in error), error))
        code = error.get("code")
    except (ValueError, AttributeError, RecursionError):
        message = content[:2000].decode("utf-8", "replace")
    line = " ".join(sanitize(message).split())
    return (line.replace(key, "(the key)") if key else line)[:300], code if isinstance(code, str) else None
