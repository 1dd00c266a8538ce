"""The configured Prefect server; without one, a temporary server for a command whose job needs Prefect.

Prefect's own temporary server survives if its parent is killed. This one watches its parent, and starts while the rest
of Darklode is imported. Its socket is opened here and passed on, so that no other process can take the port; it reports
through a pipe when it is ready.
"""

import os
import selectors
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from darklode.pipeline.base.errors import MissingPart

START_SECONDS = 120
LOG_LINES = 5

QUIET_VARIABLES = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the command reports errors itself
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}
OWN_SERVER_VARIABLES = {
    "PREFECT_UI_ENABLED": "0",
    "PREFECT_API_BLOCKS_REGISTER_ON_START": "0",  # takes a second, for block types that are not used
}
"""Disabled in the server of one command."""


class Server(Protocol):
    """A Prefect server that flows run against.

    Attributes:
        is_persistent: it still runs when the command has ended.
    """

    @property
    def is_persistent(self) -> bool: ...

    def wait(self) -> None:
        """Wait until it answers.

        Raises:
            MissingPart: it does not answer.
        """


def configured_server() -> "ConfiguredServer | None":
    """The configured server, if any. Also sets Prefect's logging to quiet, before Prefect is imported."""
    if not may_be_configured():
        return None
    for name, value in QUIET_VARIABLES.items():
        os.environ.setdefault(name, value)
    from prefect.settings import PREFECT_API_URL

    configured = PREFECT_API_URL.value()
    return ConfiguredServer(configured) if configured else None


def may_be_configured() -> bool:
    """Whether to ask Prefect for its server; False if no setting can name one.

    Importing Prefect takes longer than most nights of mining, so its sources of settings are looked at first.
    """
    variables = ("PREFECT_API_URL", "PREFECT_PROFILE", "PREFECT_PROFILES_PATH")
    if "prefect.settings" in sys.modules or any(name in os.environ for name in variables):
        return True
    home = os.environ.get("PREFECT_HOME")
    profiles = (Path(home) if home else Path.home() / ".prefect") / "profiles.toml"
    try:
        if Path("prefect.toml").exists() or ("PREFECT_" in _text(Path(".env"))):
            return True
        if "prefect" in tomllib.loads(_text(Path("pyproject.toml"))).get("tool", {}):
            return True
        content = tomllib.loads(_text(profiles))
        return "PREFECT_API_URL" in content.get("profiles", {}).get(content.get("active"), {})
    except (OSError, ValueError):  # unreadable: Prefect says why
        return True


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


@dataclass(frozen=True)
class ConfiguredServer:
    """The user's server."""

    url: str
    is_persistent: bool = True

    def wait(self, seconds: float = 30) -> None:
        """Fail at once if it does not answer."""
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=seconds):  # noqa: S310 (the user's server)
                return
        except urllib.error.HTTPError:  # it answers; Prefect explains what it rejects
            return
        except (OSError, ValueError) as error:  # ValueError: invalid address
            message = "start that server, or unset PREFECT_API_URL to use a temporary one"
            raise MissingPart(f"PREFECT_API_URL does not answer ({error.__class__.__name__}); {message}") from error


ANSWER_SECONDS = 2.0


def check_configured() -> list[str]:
    """Check that a server in the environment answers.

    Raises:
        MissingPart: it does not answer.
    """
    url = os.environ.get("PREFECT_API_URL")
    if url:
        ConfiguredServer(url).wait(ANSWER_SECONDS)
    return []


SERVER_COMMAND = (sys.executable, "-m", "darklode.flows.prefect.server")


@contextmanager
def own_server(command: Sequence[str] = SERVER_COMMAND) -> Iterator["OwnServer"]:
    """Start a server, point Prefect to it, and end it with the block.

    Args:
        command: takes the file descriptors of the listening socket and the pipe, and the parent's process id.
    """
    from prefect.settings import PREFECT_API_URL, PREFECT_LOGGING_TO_API_ENABLED, temporary_settings

    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as pipe, tempfile.TemporaryFile() as log, socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/api"
        process = subprocess.Popen(  # noqa: S603 (our own module)
            [*command, str(listening.fileno()), str(write_end), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(listening.fileno(), write_end),
            start_new_session=True,
        )
        os.close(write_end)
        listening.close()
        try:
            with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
                yield OwnServer(process, pipe, log)
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True)
class OwnServer:
    """The temporary server of this command.

    Attributes:
        pipe: receives a line when it is ready, and is closed when it ends.
        log: its output.
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
        advice = "set PREFECT_HOME to a writable folder, or PREFECT_API_URL to a server of yours"
        return MissingPart(f"the temporary Prefect server {how}; {advice}. End of its log:\n  {last}")


def _exit_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def serve(listening: int, ready: int, parent: int) -> None:
    """Serve Prefect's API until the parent process ends.

    Args:
        listening: file descriptor of the listening socket.
        ready: file descriptor of the pipe that receives a line when the server is ready.
        parent: process id.
    """
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    os.environ.update(OWN_SERVER_VARIABLES)
    import uvicorn
    from prefect.server.api.server import create_app

    class ReportingServer(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                os.write(ready, b"ready\n")

    config = uvicorn.Config(create_app(ephemeral=True), log_level="error", lifespan="on", access_log=False)
    ReportingServer(config).run(sockets=[socket.socket(fileno=listening)])


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
