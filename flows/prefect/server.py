"""A Prefect server for the length of one command, where none is configured.

Prefect can start such a server itself, but that one lives on when its parent is killed. This one watches its parent,
and it starts while the rest of Darklode is still being imported. Its socket is opened here and handed over, so that
nobody else can take the port; that it answers it says through a pipe, which nobody else holds.
"""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Protocol

from darklode.pipeline.base.errors import MissingPart

START_SECONDS = 120
LOG_LINES = 5

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the command says itself what went wrong, once
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}
SPARE = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "0",  # a second of every start, for types of blocks that we have none of
}
"""What the server of one command does without."""


class Server(Protocol):
    """A Prefect server that flows run against.

    Attributes:
        is_persistent: it is there when the command has ended.
    """

    @property
    def is_persistent(self) -> bool: ...

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            MissingPart: it does not.
        """


@contextmanager
def prefect_server() -> Iterator[Server]:
    """Point Prefect at the configured server, or at one of our own that ends with the block or with the process."""
    if configured := configured_server():
        yield configured
        return
    with own_server() as server:
        yield server


def configured_server() -> "ConfiguredServer | None":
    """The user's own server; None: none is configured. Prefect is told to be quiet, before it is imported."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from prefect.settings import PREFECT_API_URL

    configured = PREFECT_API_URL.value()
    return ConfiguredServer(configured) if configured else None


@dataclass(frozen=True)
class ConfiguredServer:
    """The user's own server."""

    url: str
    is_persistent: bool = True

    def wait(self, seconds: float = 30) -> None:
        """See `Server`: it is there, or it is not."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=seconds):  # noqa: S310 (the user's own server)
                return
        except urllib.error.HTTPError:  # it answers; what it refuses, Prefect explains
            return
        except (OSError, ValueError) as error:  # ValueError: it is no address
            message = (
                "PREFECT_API_URL does not answer; start that server, or unset it for one that lives with the command"
            )
            raise MissingPart(f"{message} ({error.__class__.__name__})") from error


ANSWER_SECONDS = 2.0


def check_configured() -> list[str]:
    """See that the server that the environment names answers; without one there is nothing to find.

    Raises:
        MissingPart: it does not.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        ConfiguredServer(url).wait(ANSWER_SECONDS)
    return []


COMMAND = (sys.executable, "-m", "darklode.flows.prefect.server")


@contextmanager
def own_server(command: Sequence[str] = COMMAND) -> Iterator["OwnServer"]:
    """Start a server, point Prefect at it, and end it with the block.

    Args:
        command: takes the file descriptors of the listening socket and of the pipe, and the parent's process id.
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    ready, tell = os.pipe()
    with os.fdopen(ready, "rb") as pipe, tempfile.TemporaryFile() as log, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [*command, str(listening.fileno()), str(tell), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(listening.fileno(), tell),
            start_new_session=True,
        )
        os.close(tell)
        listening.close()
        try:
            with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
                yield OwnServer(process, pipe, log)
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True)
class OwnServer:
    """A server of this command.

    Attributes:
        pipe: it writes a line to it when it answers, and closes it when it dies.
        log: what it says.
    """

    process: subprocess.Popen[bytes]
    pipe: IO[bytes]
    log: IO[bytes]
    is_persistent: bool = False

    def wait(self, seconds: float = START_SECONDS) -> None:
        with selectors.DefaultSelector() as waiting:
            waiting.register(self.pipe, selectors.EVENT_READ)
            if not waiting.select(seconds):
                raise self._missing(f"did not answer within {seconds:g} seconds")
        if not self.pipe.readline():
            raise self._missing(f"ended with exit code {self.process.wait()}")

    def _missing(self, how: str) -> MissingPart:
        self.log.seek(0)
        log_lines = self.log.read().decode(errors="replace").split("\n")
        last = "\n  ".join([line for line in log_lines if line.strip()][-LOG_LINES:] or ["(nothing)"])
        advice = "name a folder that can be written (PREFECT_HOME), or a server of yours (PREFECT_API_URL)"
        return MissingPart(f"the Prefect server that this command started {how}; {advice}. Its last words:\n  {last}")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def serve(listening: int, tell: int, parent: int) -> None:
    """Serve Prefect's API on a listening socket until the parent process is gone; say so when it answers.

    Args:
        listening: the socket's file descriptor.
        tell: that of the pipe to say it through.
        parent: process id.
    """
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.environ.update(SPARE)
    import uvicorn
    from prefect.server.api.server import create_app

    class Telling(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(tell, b"ready\n")

    config = uvicorn.Config(create_app(ephemeral=True), log_level="error", lifespan="on", access_log=False)
    Telling(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
