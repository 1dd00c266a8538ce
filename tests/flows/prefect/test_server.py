"""The server of one command: its port is its own, its death is explained, and nobody else is taken for it."""

import socket
import subprocess
import sys
import textwrap
import urllib.request
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from darklode.flows.prefect.server import SERVER_COMMAND, ConfiguredServer, own_server
from darklode.pipeline.base.errors import MissingPart
from helpers.environment import with_paths

pytestmark = pytest.mark.server

STRANGER = """
    import http.server, socket, sys
    class Everything(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200); self.end_headers(); self.wfile.write(b"true")
        def log_message(self, *_): pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Everything, bind_and_activate=False)
    server.socket = socket.socket(fileno=int(sys.argv[1]))
    server.serve_forever()
"""
"""Answers /health, as any web server may, on the very socket; it knows nothing of the pipe."""


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A Prefect home of one's own."""
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def script(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", textwrap.dedent(text))


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2].removesuffix("/api"))


@pytest.mark.slow
def test_the_port_is_taken_before_the_server_runs_until_it_ends() -> None:
    with own_server() as server:
        url = str(PREFECT_API_URL.value())
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port_of(url)))
        server.wait()
        with urllib.request.urlopen(f"{url}/health", timeout=30) as answer:
            assert answer.read() == b"true"
        assert not server.is_persistent
    assert server.process.returncode is not None
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"{url}/health", timeout=30)


def test_each_server_has_a_port_of_its_own() -> None:
    idle = script("import time; time.sleep(60)")
    with own_server(idle):
        first = port_of(str(PREFECT_API_URL.value()))
        with own_server(idle):
            assert port_of(str(PREFECT_API_URL.value())) != first


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why(home: Path) -> None:
    home.write_text("a file where Prefect wants its folder")
    with own_server(SERVER_COMMAND) as server, pytest.raises(MissingPart) as raised:
        server.wait()
    assert "the temporary Prefect server ended with exit code " in str(raised.value)
    assert "set PREFECT_HOME to a writable folder, or PREFECT_API_URL to a server of yours" in str(raised.value)
    assert "unable to open database file" in str(raised.value).partition("End of its log:")[2]


def test_a_server_that_is_killed_while_it_starts_is_not_waited_for() -> None:
    killed = script("import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    with own_server(killed) as server, pytest.raises(MissingPart, match=r"ended with exit code -9.*\n  \(nothing\)"):
        server.wait()


def test_a_stranger_that_answers_is_not_taken_for_the_server() -> None:
    with own_server(script(STRANGER)) as server:
        with urllib.request.urlopen(f"{PREFECT_API_URL.value()}/health", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(MissingPart, match=r"did not answer within 0\.1 seconds"):
            server.wait(0.1)


def test_no_descriptor_is_left_open() -> None:
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = opened()
    with own_server(script("raise SystemExit(3)")) as server, pytest.raises(MissingPart, match="exit code 3"):
        server.wait()
    assert opened() == before


def test_a_configured_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(MissingPart, match=r"PREFECT_API_URL does not answer \(URLError\); start that server"):
        ConfiguredServer("http://127.0.0.1:9/api").wait()


PROFILES = """
active = "{active}"
[profiles.ephemeral]
PREFECT_SERVER_ALLOW_EPHEMERAL_MODE = true
[profiles.ours]
PREFECT_API_URL = "http://127.0.0.1:9/api"
"""
CONFIGURED = """
import sys
from darklode.flows.prefect.server import configured_server
server = configured_server()
print(server.url if server else None, "prefect" in sys.modules)
"""


@pytest.mark.parametrize(
    ("files", "variables", "wanted"),
    [
        ({}, {}, "None False"),
        ({"home/profiles.toml": PROFILES.format(active="ephemeral")}, {}, "None False"),
        ({"pyproject.toml": "[tool.ruff]"}, {}, "None False"),
        ({"home/profiles.toml": PROFILES.format(active="ours")}, {}, "http://127.0.0.1:9/api True"),
        ({"prefect.toml": '[api]\nurl = "http://127.0.0.1:9/api"'}, {}, "http://127.0.0.1:9/api True"),
        ({".env": "PREFECT_API_URL=http://127.0.0.1:9/api"}, {}, "http://127.0.0.1:9/api True"),
        ({"pyproject.toml": '[tool.prefect.api]\nurl = "http://127.0.0.1:9/api"'}, {}, "http://127.0.0.1:9/api True"),
        ({}, {"PREFECT_API_URL": "http://127.0.0.1:9/api"}, "http://127.0.0.1:9/api True"),
        (
            {"home/profiles.toml": PROFILES.format(active="ephemeral")},
            {"PREFECT_PROFILE": "ours"},
            "http://127.0.0.1:9/api True",
        ),
    ],
)
def test_prefect_is_only_imported_where_a_server_may_be_configured(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], wanted: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    environment = {name: value for name, value in with_paths().items() if not name.startswith("PREFECT_")}
    environment |= {"PREFECT_HOME": str(tmp_path / "home")} | variables
    command = [sys.executable, "-c", CONFIGURED]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, check=True, text=True)
    assert done.stdout.strip() == wanted
