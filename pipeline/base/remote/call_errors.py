"""What can go wrong with a call, told apart in one place.

`Passing`: the call is sent again.
    408, 409, 425, 429, 5xx; connections refused, reset or broken; timeouts; a name that does not resolve for now;
    `BadReply`: a reply with status 200 that is not what was asked for.
`Refused`: this call never succeeds, others may.
    400, 413, 422.
`DarklodeError`: no call will succeed, which is said at once.
    401, 403, 407; 402, and 429 for want of credit; 404; redirects; any other status; a wrong certificate, an unknown
    host, a bad address.
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

LONGEST_RETRY_AFTER = 120.0
NAME_SECONDS = 5.0
"""A resolver that fails for now is waited for so long: longer, and it is the network or the name."""

_PASSING = frozenset({408, 409, 425, 429, *range(500, 600)})
_REFUSED = frozenset({400, 413, 422})
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""OpenAI's codes for a 429 that no waiting mends."""
_LENGTH = re.compile(
    r"context.{0,3}(length|window|size)|too (long|large|many tokens)|max(imum)?[ _](model_len|input|prompt)|exceed",
    re.I,
)


_LONE = re.compile("[\ud800-\udfff]")


def sanitize(text: str) -> str:
    """A server's text without lone surrogates: JSON can hold them, and no file or screen."""
    return _LONE.sub("\ufffd", text)


class Passing(Exception):
    """A failure that may pass.

    Attributes:
        reason: what the server did, as the end of a sentence.
        status: of the reply; 0 where there was none.
        retry_after: seconds that the server asks to wait; 0: it does not.
        billed: whether the call may have been billed.
        overload: whether the server turned the call away, or was too slow: it may have too much to do.
        patience: seconds after which it is waited for no longer, however long others are.
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


class ServerError(Passing):
    """500 or 501, with which some servers answer parameters that they do not know."""


class BadReply(Passing):
    """A reply with status 200 that is not what was asked for.

    Attributes:
        wrong: what is wrong with it, as the end of a sentence.
        name: of the part of the call that it fails for; empty: the whole call.
        healthy: whether the server that gives it is up; a sign-in page comes from something else.
    """

    def __init__(self, wrong: str, name: str = "", *, healthy: bool = True) -> None:
        super().__init__(f"answered 200, but the reply {wrong}", status=200, billed=True)
        self.wrong, self.name, self.healthy = wrong, name, healthy


class Indigestible(BadReply):
    """A whole reply that no reader can take in: nested thousands deep, or with a number of thousands of digits."""


class Refused(Exception):
    """This call will not be answered, whenever it is sent; the message says why.

    Attributes:
        too_long: whether it is about length.
        failure: the last one of a call that failed so often that it may itself be to blame; None: the server said so.
    """

    def __init__(self, message: str, *, too_long: bool = False, failure: Passing | None = None) -> None:
        super().__init__(message)
        self.too_long, self.failure = too_long, failure


class Stopped(Exception):
    """A call gave up because another one failed: the failure to report is the other's."""


@dataclass(frozen=True)
class Response:
    """Status, what the headers retry-after and location say, and the body."""

    status: int
    retry_after: str | None
    content: bytes
    location: str | None = None


def fault_of_response(response: Response, key: str, key_env: str, section: str) -> Exception:
    """The fault behind a status that is not 200; no message holds the key.

    Args:
        response: of any other status.
        key: that was sent; empty: none.
        key_env: the variable that holds it; empty: none is sent.
        section: of the settings, for advice.
    """
    status, (message, code) = response.status, _error(response.content, key)
    if status == 402 or code in _NO_CREDIT:
        return MissingPart(f"answered {status} for want of credit: top it up, or use another key. It said: {message}")
    if status in _PASSING:
        kind = ServerError if status in {500, 501} else Passing
        wait = seconds_of(response.retry_after) or 0.0
        wait_text = f" and asked to wait (Retry-After: {sanitize(response.retry_after or '')[:40]})" if wait > 1 else ""
        return kind(f"answered {status}{wait_text}", status=status, retry_after=wait, overload=status in {429, 503})
    if status in _REFUSED:
        return Refused(f"status {status}: {message}", too_long=status == 413 or bool(_LENGTH.search(message)))
    return _end(response, message, key_env, section)


def _end(response: Response, message: str, key_env: str, section: str) -> DarklodeError:
    """The error behind a status after which no call can succeed."""
    status = response.status
    if status in {401, 403, 407}:
        key_name = f"the key in {key_env}" if key_env else f"a call without a key ({section}.api_key_env is empty)"
        return MissingPart(f"refused {key_name}, status {status}: check the key and what it may use")
    if status == 404:
        return MissingPart(f"answered 404: check {section}.model and base_url. It said: {message}")
    if 300 <= status < 400:
        to = (host_and_path(response.location or "") or "elsewhere").rpartition("@")[2]  # without user and password
        return DarklodeError(
            f"answered {status}, a redirect to {to}, which is not followed, since it could carry the key away: "
            f"set {section}.base_url to where the server is"
        )
    return DarklodeError(f"answered {status}: check {section}.base_url. It said: {message}")


def fault_of_connection(error: Exception, timeout: float, section: str) -> Exception:
    """The fault behind a call without a whole reply.

    Args:
        error: what aiohttp raised.
        timeout: seconds for a whole call, for the message.
        section: of the settings, for advice.
    """
    import aiohttp

    if isinstance(error, TimeoutError):
        return Passing(f"gave no answer in {timeout:g} s", billed=True, overload=True)
    if isinstance(error, aiohttp.ClientConnectorError):
        return _connection_error(error, section)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _certificate_error(error.certificate_error, section)
    if isinstance(error, aiohttp.InvalidURL | ValueError | OverflowError):
        return DarklodeError(f"is no address that can be called: check {section}.base_url")
    return Passing(f"broke the connection ({type(error).__name__})", billed=True)


def _connection_error(error: aiohttp.ClientConnectorError, section: str) -> Exception:
    """The fault behind a connection that did not come about."""
    cause = error.os_error
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):  # that one: it was coming up
        return _certificate_error(cause, section)
    if isinstance(cause, socket.gaierror) and cause.errno != socket.EAI_AGAIN:
        return DarklodeError(f"cannot be found, its name is unknown ({cause.strerror}): check {section}.base_url")
    if isinstance(cause, socket.gaierror):
        return Passing(f"cannot be found for now ({cause.strerror})", patience=NAME_SECONDS)
    return Passing(f"cannot be reached ({type(error).__name__})")


def _certificate_error(error: Exception, section: str) -> DarklodeError:
    message = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
    return DarklodeError(
        f"cannot be trusted, there is no TLS connection ({message}): check {section}.base_url and the server's "
        "certificate (SSL_CERT_FILE names a file of authorities of one's own)"
    )


def seconds_of(retry_after: str | None) -> float | None:
    """Seconds to wait, at most two minutes, from a header that holds seconds or an HTTP date; None if neither."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER) if math.isfinite(seconds) else None


def _error(content: bytes, key: str) -> tuple[str, str | None]:
    """What the server said, in one line of at most 300 characters without the key, and its code for it."""
    code = None
    try:
        body = json.loads(content)
        error = body.get("error", body)
        message, code = str(error.get("message", error)), error.get("code")
    except (ValueError, AttributeError, RecursionError):
        message = content[:2000].decode("utf-8", "replace")
    line = " ".join(sanitize(message).split())
    return (line.replace(key, "(the key)") if key else line)[:300], code if isinstance(code, str) else None
