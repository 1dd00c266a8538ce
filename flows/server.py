"""A Prefect server for the length of one command, where none is configured.

Prefect can start such a server itself, but that one lives on when its parent is killed. This one watches its parent,
and it starts while the rest of Darklode is still being imported.
"""

import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipeline.errors import MissingPart

START_SECONDS = 120

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",  # the command says itself what went wrong, once
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}


@contextmanager
def prefect_server() -> Iterator[Callable[[], None]]:
    """Point Prefect at the configured server, or at one of our own that ends with the block or with the process.

    Yields a function that waits until the server answers.

    Raises:
        MissingPart: the configured server does not answer, or our own did not come up.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from prefect.settings import (  # noqa: PLC0415 (reads the environment above)
        PREFECT_API_URL,
        PREFECT_LOGGING_TO_API_ENABLED,
        temporary_settings,
    )

    if configured := PREFECT_API_URL.value():
        yield lambda: _check(configured)
        return
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "flows.server", str(port), str(os.getpid())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 (our own module)
    try:
        with temporary_settings({PREFECT_API_URL: url, PREFECT_LOGGING_TO_API_ENABLED: False}):
            yield lambda: _wait(url, process)
    finally:
        process.terminate()
        process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):  # noqa: S310 (loopback, our own server)
                return
        except OSError:
            time.sleep(0.05)
    raise MissingPart(f"the Prefect server on {url} did not start; `darklode doctor` looks into it")


def _check(url: str) -> None:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=30):  # noqa: S310 (the user's own server)
            return
    except urllib.error.HTTPError:  # it answers; what it refuses, Prefect explains
        return
    except OSError as error:
        message = "PREFECT_API_URL does not answer; start that server, or unset it for one that lives with the command"
        raise MissingPart(f"{message} ({error.__class__.__name__})") from error


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def serve(port: int, parent: int) -> None:
    """Serve Prefect's API on loopback until the parent process is gone."""
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    os.environ["PREFECT_UI_ENABLED"] = "0"
    import uvicorn  # noqa: PLC0415
    from prefect.server.api.server import create_app  # noqa: PLC0415

    uvicorn.run(create_app(ephemeral=True), host="127.0.0.1", port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
