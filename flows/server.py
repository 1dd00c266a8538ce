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
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START_SECONDS = 120

QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}


@contextmanager
def prefect_server() -> Iterator[Callable[[], None]]:
    """Point Prefect at the configured server, or at one of our own that ends with the block or with the process.

    Yields a function that waits until the server answers.

    Raises:
        RuntimeError: our own server did not come up.
    """
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    from prefect.settings import PREFECT_API_URL, temporary_settings  # noqa: PLC0415 (reads the environment above)

    if PREFECT_API_URL.value():
        yield lambda: None
        return
    port = _free_port()
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "flows.server", str(port)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)  # noqa: S603 (our own module)
    try:
        with temporary_settings({PREFECT_API_URL: url}):
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
    raise RuntimeError(f"the Prefect server on {url} did not start; `darklode doctor` looks into it")


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def serve(port: int) -> None:
    """Serve Prefect's API on loopback until the parent process is gone."""
    os.environ["PREFECT_UI_ENABLED"] = "0"
    import uvicorn  # noqa: PLC0415
    from prefect.server.api.server import create_app  # noqa: PLC0415

    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    uvicorn.run(create_app(ephemeral=True), host="127.0.0.1", port=port, log_level="error", lifespan="on")


if __name__ == "__main__":
    serve(int(sys.argv[1]))
