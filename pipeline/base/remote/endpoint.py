"""Address, key and HTTP connection of a remote model."""

from __future__ import annotations

import json
import os
import socket
import threading
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass, urlopen

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.remote.call_errors import BadReply, Response, connection_error
from darklode.schemas.section import holds_secret, host_and_path

CONNECT_SECONDS = 2.0  # for checks before a run


@dataclass(frozen=True)
class Portion:
    """One worker's share of limits that apply to all workers together.

    Attributes:
        tokens: prompt and completion tokens; None: no limit.
        money: cost; None: no limit.
    """

    tokens: int | None
    money: float | None


@dataclass(frozen=True)
class Endpoint:
    """A model on one or several equal servers, with its limits.

    Attributes:
        section: settings section, for messages: judge, encoder and others.
        model: model name on the servers.
        base_urls: URLs of the servers.
        path: path of the calls, such as /chat/completions.
        api_key_env: environment variable with the key; empty: no key is sent.
        max_concurrency: maximum concurrent calls per server.
        timeout: seconds for a call.
        retry_timeout: seconds without an answer after which the run stops.
        requests_per_minute: rate limit of all servers together; None: no limit.
        prompt_price, completion_price: price of a million tokens.
        spending_limit: maximum cost; None: no limit.
        token_limit: maximum prompt and completion tokens; None: no limit.
        portion: this client's share of both limits; None: all.
        auth_header: header that carries the key, with `{key}`.
        basic_auth: a key of the form `user:password` is sent as HTTP basic authentication instead.

    Raises:
        SettingsError: an invalid URL.
    """

    section: str
    model: str
    base_urls: tuple[str, ...]
    path: str
    api_key_env: str
    max_concurrency: int
    timeout: float
    retry_timeout: float
    requests_per_minute: int | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0
    spending_limit: float | None = None
    token_limit: int | None = None
    portion: Portion | None = None
    auth_header: str = "Authorization: Bearer {key}"
    basic_auth: bool = False

    def __post_init__(self) -> None:
        for base_url in self.base_urls:
            address(base_url, self.api_key_env)

    @property
    def has_limit(self) -> bool:
        """Whether there is a spending or token limit."""
        return self.token_limit is not None or self.spending_limit is not None

    @property
    def name(self) -> str:
        """Model and servers, for messages."""
        return f"{self.model} at {', '.join(address(url, self.api_key_env) for url in self.base_urls)}"

    @property
    def account(self) -> str:
        """Account of its spending: section, model and servers; other settings do not matter."""
        return f"{self.section} {self.name}"

    def key(self) -> str:
        """The key from the environment; empty if none is to be sent.

        Raises:
            MissingPart: the variable is not set.
        """
        return key_from(self.api_key_env, f"model {self.name}")

    def headers(self, key: str) -> dict[str, str]:
        """Headers of every call; none without a key."""
        if not key:
            return {}
        if self.basic_auth and ":" in key:
            return {"Authorization": f"Basic {b64encode(key.encode()).decode()}"}
        name, _, value = self.auth_header.partition(":")
        return {name: value.strip().replace("{key}", key)}


def address(base_url: str, api_key_env: str) -> str:
    """Host, port and path of a server, for ids and messages.

    Raises:
        SettingsError: another scheme, no host, or it contains a user name, password or query, which are not shown.
    """
    if holds_secret(base_url):
        raise SettingsError(
            "base_url must not contain a user name, password or query: set the environment variable in api_key_env "
            f"({api_key_env or 'none is set'}) to the key"
        )
    parts = host_and_path(base_url)
    if parts is None:
        raise SettingsError(f"base_url {base_url!r} must be a URL such as https://api.openai.com/v1")
    return parts


def key_from(api_key_env: str, needed_by: str) -> str:
    """The key from the environment; empty if none is to be sent.

    Raises:
        MissingPart: the variable is not set.
    """
    key = os.environ.get(api_key_env, "").strip() if api_key_env else ""
    if api_key_env and not key:
        raise MissingPart(f"{needed_by} needs a key: set the environment variable {api_key_env}")
    return key


def server_problems(base_urls: Iterable[str], api_key_env: str, model: str) -> list[str]:
    """Reasons why a model cannot be called: invalid URL, missing key, no server, or another model.

    Servers with a key are not asked for their models, because some list only part of them.

    Args:
        base_urls: URLs of its servers.
        api_key_env: environment variable with the key; empty: no key is sent.
        model: model name.
    """
    try:
        places = {url: address(url, api_key_env) for url in base_urls}
        key_from(api_key_env, f"model {model} at {', '.join(places.values())}")
    except DarklodeError as error:
        return [str(error)]
    problems = [_server_problem(url, setting, None if api_key_env else model) for url, setting in places.items()]
    return [phrase for phrase in problems if phrase]


def connection_problems(base_url: str, api_key_env: str, needed_by: str) -> list[str]:
    """Reasons why a server cannot be called: invalid URL, missing key, or no server.

    Args:
        base_url: its URL.
        api_key_env: environment variable with the key; empty: no key is sent.
        needed_by: what needs the key, for messages.
    """
    try:
        setting = address(base_url, api_key_env)
        key_from(api_key_env, needed_by)
    except DarklodeError as error:
        return [str(error)]
    problem = _server_problem(base_url, setting, None)
    return [problem] if problem else []


def _server_problem(base_url: str, setting: str, model: str | None) -> str:
    if not is_listening(base_url):
        return f"no server at {setting}; start it, or correct base_url"
    served = _models(base_url) if model else []
    if not served or model in served:
        return ""
    return f"the server at {setting} serves {', '.join(served)}, not {model}; correct model"


def _models(base_url: str) -> list[str]:
    """Models that a server lists; empty if it lists none."""
    try:
        with urlopen(f"{base_url.rstrip('/')}/models", timeout=CONNECT_SECONDS) as answer:  # noqa: S310 (http or https, checked by `address`)
            return sorted(str(model["id"]) for model in json.load(answer)["data"])
    except (OSError, ValueError, LookupError, TypeError):
        return []


def is_listening(base_url: str) -> bool:
    """Whether a server accepts connections; nothing is sent. True for URLs behind a proxy."""
    if _is_proxied(base_url):
        return True
    parts = urlsplit(base_url)
    return can_connect(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))


def can_connect(host: str, port: int) -> bool:
    """Whether a server accepts connections within `CONNECT_SECONDS`; nothing is sent."""
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(_can_connect(host, port)), daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)  # a thread, because name resolution has no timeout
    return any(outcomes)


def _can_connect(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


class Http:
    """HTTP connections for concurrent calls in one event loop.

    Proxies of the environment are used. Redirects are not followed, because they could leak the key.

    Args:
        urls: URLs of the servers.
        headers: headers of every call.
        timeout: seconds for a call.
        section: settings section, for messages.
    """

    def __init__(self, urls: tuple[str, ...], headers: Mapping[str, str], timeout: float, section: str) -> None:
        import aiohttp

        from darklode.pipeline.base.remote.connections import CheckedRequest, CheckedResponse, ReplyHistory

        self._timeout, self._section, self._reply_history = timeout, section, ReplyHistory()

        def session(*, keep_alive: bool) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=not keep_alive),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json", **headers},
                timeout=aiohttp.ClientTimeout(total=timeout),
                trust_env=any(map(_is_proxied, urls)),  # if true, aiohttp reads the environment for each call
                request_class=CheckedRequest,
                response_class=CheckedResponse,
            )

        self._pooled, self._single = session(keep_alive=True), session(keep_alive=False)

    async def post_json(self, url: str, content: bytes) -> Response:
        """POST a JSON body; raises the same errors as `get`."""
        return await self._send("POST", url, content)

    async def delete(self, url: str, content: bytes) -> Response:
        """DELETE with a JSON body; raises the same errors as `get`."""
        return await self._send("DELETE", url, content)

    async def get(self, url: str) -> Response:
        """GET a URL.

        Raises:
            TransientError: there was no complete response.
            DarklodeError: no call can succeed.
        """
        return await self._send("GET", url, None)

    async def _send(self, method: str, url: str, content: bytes | None) -> Response:
        import aiohttp

        from darklode.pipeline.base.remote.connections import OutOfStep

        while True:
            try:
                return await self._exchange(method, url, content)
            except OutOfStep:  # the request was not sent, and the connection is closed
                continue
            except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
                raise connection_error(error, self._timeout, self._section) from None

    async def _exchange(self, method: str, url: str, content: bytes | None) -> Response:
        single = url in self._reply_history.repeating
        session = self._single if single else self._pooled
        async with session.request(method, url, data=content, allow_redirects=False) as answer:
            head, body = answer.headers, await answer.read()
        is_checked = method == "POST" and answer.status == 200 and not single
        if is_checked and self._reply_history.is_repeated(url, answer, body):
            raise BadReply("has the bytes of an earlier reply on its connection: it may have been sent twice")
        return Response(answer.status, head.get("retry-after"), body, head.get("location"))

    async def close(self) -> None:
        """Close all connections."""
        await self._pooled.close()
        await self._single.close()


def _is_proxied(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
