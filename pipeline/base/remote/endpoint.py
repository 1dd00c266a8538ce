"""Where a remote model is: its addresses, its key, and posting calls to it."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass, urlopen

from darklode.pipeline.base.errors import DarklodeError, MissingPart, SettingsError
from darklode.pipeline.base.remote.call_errors import BadReply, Response, fault_of_connection
from darklode.schemas.section import holds_secret, host_and_path

CONNECT_SECONDS = 2.0


@dataclass(frozen=True)
class Portion:
    """What one of several workers may use of limits that hold for all of them.

    Attributes:
        tokens: of prompts and completions together; None: no limit.
        money: None: no limit.
    """

    tokens: int | None
    money: float | None


@dataclass(frozen=True)
class Endpoint:
    """A model behind one server or several alike, and what may be asked of them.

    Attributes:
        section: of the settings, for messages: judge, planner, encoder.
        model: its name at the servers.
        base_urls: of the servers.
        path: of the calls below them, such as /chat/completions.
        key_env: environment variable with the key; empty: none is sent.
        max_in_flight: most calls under way at once, for each server.
        timeout: seconds for a whole call.
        give_up_after: seconds without an answer after which work stops.
        requests_per_minute: rate limit, for all servers together; None: none.
        prompt_price, completion_price: of a million tokens.
        spending_limit: money; None: no limit.
        token_limit: of prompts and completions together; None: no limit.
        portion: what a client may use of both, whatever others leave; None: all.

    Raises:
        SettingsError: an address that cannot be used.
    """

    section: str
    model: str
    base_urls: tuple[str, ...]
    path: str
    key_env: str
    max_in_flight: int
    timeout: float
    give_up_after: float
    requests_per_minute: int | None = None
    prompt_price: float = 0.0
    completion_price: float = 0.0
    spending_limit: float | None = None
    token_limit: int | None = None
    portion: Portion | None = None

    def __post_init__(self) -> None:
        for base_url in self.base_urls:
            address(base_url, self.key_env)

    @property
    def has_limit(self) -> bool:
        """Whether what is spent has a limit."""
        return self.token_limit is not None or self.spending_limit is not None

    @property
    def name(self) -> str:
        """Model and addresses, for messages."""
        return f"{self.model} at {', '.join(address(url, self.key_env) for url in self.base_urls)}"

    @property
    def account(self) -> str:
        """Whom its use is counted for: settings that change neither model nor servers count together."""
        return f"{self.section} {self.name}"

    def key(self) -> str:
        """The key from the environment; empty where none is to be sent.

        Raises:
            MissingPart: the variable is not set.
        """
        return key_from(self.key_env, f"model {self.name}")


def address(base_url: str, key_env: str) -> str:
    """Host, port and path of a server, for ids and messages.

    Raises:
        SettingsError: another scheme, no host, or a user name, password or query in it; the message doesn't show it.
    """
    if holds_secret(base_url):
        raise SettingsError(
            "base_url must not hold a user name, password or query: put the key into the environment variable that "
            f"api_key_env names ({key_env or 'none now'})"
        )
    parts = host_and_path(base_url)
    if parts is None:
        raise SettingsError(f"base_url {base_url!r} must be an address such as https://api.openai.com/v1")
    return parts


def key_from(key_env: str, needed_by: str) -> str:
    """The key from the environment; empty where none is to be sent.

    Raises:
        MissingPart: the variable is not set.
    """
    key = os.environ.get(key_env, "").strip() if key_env else ""
    if key_env and not key:
        raise MissingPart(f"{needed_by} needs a key: set the environment variable {key_env}")
    return key


def lacks_server(base_urls: Iterable[str], key_env: str, model: str) -> list[str]:
    """What calling a model needs and does not find, a phrase each: an address, a key, a server that has the model.

    Servers with a key are not asked what they have: some list less than they serve.

    Args:
        base_urls: of its servers.
        key_env: environment variable with their key; empty: none is sent.
        model: its name there.
    """
    try:
        places = {url: address(url, key_env) for url in base_urls}
        key_from(key_env, f"model {model} at {', '.join(places.values())}")
    except DarklodeError as error:
        return [str(error)]
    problems = [_server_problem(url, setting, None if key_env else model) for url, setting in places.items()]
    return [phrase for phrase in problems if phrase]


def _server_problem(base_url: str, setting: str, model: str | None) -> str:
    if not is_listening(base_url):
        return f"no server answers at {setting}; start it, or correct base_url"
    served = _models(base_url) if model else []
    if not served or model in served:
        return ""
    return f"the server at {setting} serves {', '.join(served)}, and no {model}; correct model"


def _models(base_url: str) -> list[str]:
    """What a server says that it serves; nothing where it does not say."""
    try:
        with urlopen(f"{base_url.rstrip('/')}/models", timeout=CONNECT_SECONDS) as answer:  # noqa: S310 (http, see address)
            return sorted(str(model["id"]) for model in json.load(answer)["data"])
    except (OSError, ValueError, LookupError, TypeError):
        return []


def is_listening(base_url: str) -> bool:
    """Whether anything takes a connection there, in seconds; nothing is sent. What lies behind a proxy is taken to."""
    if _is_proxied(base_url):
        return True
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(_connects(parts.hostname or "", port)), daemon=True)
    thread.start()
    thread.join(CONNECT_SECONDS)  # to look up a name takes as long as the resolver likes
    return any(outcomes)


def _connects(host: str, port: int) -> bool:
    try:
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return True
    except OSError:
        return False


class Http:
    """Posts and gets JSON, as often at once as it is called; used in one event loop and closed there.

    It takes the environment's proxies, and follows no redirects, which could carry the key away.

    Args:
        urls: calls go there.
        headers: sent with every call.
        timeout: seconds for a whole call.
        section: of the settings, for messages.
    """

    def __init__(self, urls: tuple[str, ...], headers: Mapping[str, str], timeout: float, section: str) -> None:
        import aiohttp

        from darklode.pipeline.base.remote.connections import CheckedRequest, CheckedResponse, RepliesSeen

        self._timeout, self._section, self._replies_seen = timeout, section, RepliesSeen()

        def session(*, keep_alive: bool) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, force_close=not keep_alive),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Content-Type": "application/json", **headers},
                timeout=aiohttp.ClientTimeout(total=timeout),
                trust_env=any(map(_is_proxied, urls)),  # it looks at the environment with every call
                request_class=CheckedRequest,
                response_class=CheckedResponse,
            )

        self._pooled, self._single = session(keep_alive=True), session(keep_alive=False)

    async def post_json(self, url: str, content: bytes) -> Response:
        """Send one call; see `get`."""
        return await self._send("POST", url, content)

    async def get(self, url: str) -> Response:
        """What an address shows.

        Raises:
            Passing: there was no whole answer.
            DarklodeError: there never will be one.
        """
        return await self._send("GET", url, None)

    async def _send(self, method: str, url: str, content: bytes | None) -> Response:
        import aiohttp

        from darklode.pipeline.base.remote.connections import OutOfStep

        while True:
            try:
                return await self._exchange(method, url, content)
            except OutOfStep:  # nothing was sent, and the connection is gone
                continue
            except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
                raise fault_of_connection(error, self._timeout, self._section) from None

    async def _exchange(self, method: str, url: str, content: bytes | None) -> Response:
        single = url in self._replies_seen.repeating
        session = self._single if single else self._pooled
        async with session.request(method, url, data=content, allow_redirects=False) as answer:
            head, body = answer.headers, await answer.read()
        judged = method == "POST" and answer.status == 200 and not single
        if judged and self._replies_seen.is_repeated(url, answer, body):
            raise BadReply("has the bytes of an earlier one on its connection: it may have been sent twice")
        return Response(answer.status, head.get("retry-after"), body, head.get("location"))

    async def close(self) -> None:
        """Close its connections."""
        await self._pooled.close()
        await self._single.close()


def _is_proxied(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.hostname or "")
