"""Web server of the pages: address, secret token and shutdown."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import string
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
    """Address to listen on.

    Attributes:
        host: name or address to bind to.
        port: 0 picks a free port.
        names: names under which browsers may reach the server, besides loopback names and `host`.

    Raises:
        CommandLineError: an invalid name, or a wildcard host without an allowed name.
    """

    host: str
    port: int
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.names:
            if _address(name) is None and (not name or set("*/:@[] ") & set(name)):
                raise CommandLineError(f"--allow-host {name!r} must be a host name or address, without port or pattern")
        if self._is_wildcard and not self.names:
            raise CommandLineError(
                f"--host {self.host} requires --allow-host NAME: this machine's name as other machines see it"
            )

    @property
    def allowed_hosts(self) -> list[str]:
        """Allowed Host headers."""
        return [*LOOPBACK, *self._reachable_hosts]

    def addresses(self, opened: socket.socket, token: str) -> list[str]:
        """URLs to open in a browser."""
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
    """Open a listening socket.

    Raises:
        MissingPart: the port is in use, or this machine does not have the address.
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
        message = f"{where}: {error}; another program may use this port. --port 0 picks a free one"
        raise MissingPart(message) from error
    return opened


class PageServer(uvicorn.Server):
    """A uvicorn server that calls `ready` once it accepts requests."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start serving, then call `ready`."""
        await super().startup(sockets)
        self._ready()


def server(app: ASGIApp, ready: Callable[[], None]) -> PageServer:
    """Create the server; `run(sockets=…)` serves until it is stopped."""
    config = uvicorn.Config(
        app,
        access_log=False,  # it would contain the token
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
    """Serve until Ctrl-C or SIGTERM, then finish open requests; calls `ready` once requests are accepted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server(app, ready).run(sockets=[opened])
    except KeyboardInterrupt:  # the normal way to stop
        return
    finally:
        signal.signal(signal.SIGTERM, before)


def show_addresses(addresses: Sequence[str], *, open_browser: bool) -> None:
    """Print the URLs of the pages and optionally open the first one in this machine's browser."""
    for address in addresses:
        console.print(printable(address), soft_wrap=True)
    if open_browser:
        typer.launch(addresses[0])


def new_token() -> str:
    """Create a secret for a URL."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def token_of(store: Store) -> str:
    """Token of a review, stored in a local run (readable by its owner only) so that open pages survive a restart.

    On S3, where others may read the file, each start has a new token.
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
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as stream:
        stream.write(token)
    return token


_TOKEN_CHARACTERS = frozenset(string.ascii_letters + string.digits + "-_")


def _bracket_ipv6(host: str) -> str:
    address = _address(host)
    return f"[{address}]" if isinstance(address, IPv6Address) else host


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host.strip("[]"))
    except ValueError:
        return None
