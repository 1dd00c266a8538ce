"""The server of pages: its address, its token, and its end."""

from __future__ import annotations

import os
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address

import typer
import uvicorn
from starlette.types import ASGIApp

from darklode.flows.console import console, printable
from darklode.pipeline.base.artifacts import Store
from darklode.pipeline.base.errors import CommandLineError, MissingPart

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
TOKEN_FILE = "review/token"  # noqa: S105 (a file's name)
TOKEN_BYTES = 24
GRACE_SECONDS = 5


@dataclass(frozen=True)
class ListenAddress:
    """Where the page is to be found.

    Attributes:
        host: name or address to bind to.
        port: 0 takes a free one.
        names: under which browsers may reach it, besides loopback's and the address itself.

    Raises:
        CommandLineError: a name is none, or the host stands for all of the machine's addresses and no name is allowed.
    """

    host: str
    port: int
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.names:
            if _address(name) is None and (not name or set("*/:@[] ") & set(name)):
                raise CommandLineError(
                    f"--allow-host {name!r} must be a host's name or address, without port or pattern"
                )
        if self._is_wildcard and not self.names:
            raise CommandLineError(
                f"--host {self.host} needs --allow-host NAME: what browsers elsewhere call this machine"
            )

    @property
    def allowed_hosts(self) -> list[str]:
        """The Host headers that are answered."""
        return [*LOOPBACK, *self._reachable_hosts]

    def addresses(self, opened: socket.socket, token: str) -> list[str]:
        """What to open in a browser."""
        port = opened.getsockname()[1]
        return [f"http://{host}:{port}/{token}/" for host in self._reachable_hosts]

    @property
    def _reachable_hosts(self) -> list[str]:
        return list(dict.fromkeys(map(_bracket_ipv6, ([] if self._is_wildcard else [self.host]) + [*self.names])))

    @property
    def _is_wildcard(self) -> bool:
        bound = _address(self.host)
        return bound is not None and bound.is_unspecified


def listen(listen_address: ListenAddress) -> socket.socket:
    """A socket that listens there.

    Raises:
        MissingPart: the port is taken, or this machine does not have the host's address.
    """
    try:
        address_infos = socket.getaddrinfo(
            listen_address.host.strip("[]"), listen_address.port, type=socket.SOCK_STREAM
        )
        family, kind, protocol, _, address = address_infos[0]
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            opened.bind(address)
            opened.listen()
        except OSError:
            opened.close()
            raise
    except (OSError, UnicodeError) as error:
        where = f"{listen_address.host}, port {listen_address.port}"
        message = f"{where}: {error}; is something else there? --port 0 takes a free port"
        raise MissingPart(message) from error
    return opened


class PageServer(uvicorn.Server):
    """Says when it answers, and Ctrl-C is its own to take."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup(sockets)
        self._ready()


def server(app: ASGIApp, ready: Callable[[], None]) -> PageServer:
    """The server of the pages; `run(sockets=…)` calls `ready`, and answers until it is told to end."""
    config = uvicorn.Config(
        app,
        access_log=False,  # it would hold the token
        log_level="warning",
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    return PageServer(config, ready)


def serve(app: ASGIApp, opened: socket.socket, ready: Callable[[], None]) -> None:
    """Call `ready`, and answer requests until Ctrl-C or SIGTERM; then let those under way end."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server(app, ready).run(sockets=[opened])
    except KeyboardInterrupt:  # how it ends
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def show_addresses(addresses: Sequence[str], *, open_browser: bool) -> None:
    """Print where the pages are, and open the first of them in this machine's browser if that is wanted."""
    for address in addresses:
        console.print(printable(address), soft_wrap=True)
    if open_browser:
        typer.launch(addresses[0])


def new_token() -> str:
    """A secret for an address, which nobody can guess."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_of(store: Store) -> str:
    """The secret of a review's address: of a run in a folder it is kept there, for its owner alone to read.

    So a page that is open goes on after a restart. On S3 others may read what is kept: each start has a new one.
    """
    if store.local is None:
        return new_token()
    file = store.local / TOKEN_FILE
    if file.is_file() and not file.stat().st_mode & 0o077:
        stored_token = file.read_text(encoding="ascii", errors="replace").strip()
        if len(stored_token) >= TOKEN_BYTES and set(stored_token) <= _TOKEN_CHARACTERS:
            return stored_token
    token = new_token()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as kept_file:
        kept_file.write(token)
    return token


_TOKEN_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def _bracket_ipv6(host: str) -> str:
    ip_address = _address(host)
    return f"[{ip_address}]" if isinstance(ip_address, IPv6Address) else host


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
