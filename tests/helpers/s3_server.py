"""An S3 server on loopback; `s3_bucket` has a fixture with an empty bucket."""

import http.client
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Lock
from typing import Any

import pyarrow.fs as pafs
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.server import ThreadedMotoServer

UNSET = ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN")
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATHISISNOTAREALKEY", "AWS_SECRET_ACCESS_KEY": "this/is+not/a+real/secret/but+long"}
REGION = {"AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}


@contextmanager
def s3_server(*buckets: str) -> Iterator[dict[str, str]]:
    """A server with these buckets, empty ones; yields the variables that lead a user's environment to it.

    All servers of a process have the same buckets: each empties those that it was asked for when it ends.
    """
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        environment = KEYS | REGION | {"AWS_ENDPOINT_URL": f"http://{host}:{port}"}
        for name in buckets:
            make_bucket(environment, name)
        yield environment
        for name in buckets:
            filesystem(environment).delete_dir_contents(name)
    finally:
        moto.stop()


@contextmanager
def asked() -> Iterator[list[tuple[str, str]]]:
    """Requests to this process's servers while the block lasts: LIST, GET, HEAD, PUT, POST or DELETE, and the path."""
    seen: list[tuple[str, str]] = []
    answer = DomainDispatcherApplication.__call__

    def noting(self: Any, environ: Any, start: Any) -> Any:
        lists = "list-type" in environ.get("QUERY_STRING", "")
        seen.append(("LIST" if lists else environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return answer(self, environ, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DomainDispatcherApplication, "__call__", noting)
        yield seen


@contextmanager
def held(*patterns: str) -> Iterator[Callable[[str], None]]:
    """Keep who writes a file whose path matches one of these patterns waiting; yields what lets those of one go on."""
    gates, answer = {pattern: Event() for pattern in patterns}, DomainDispatcherApplication.__call__

    def waiting(self: Any, environ: Any, start: Any) -> Any:
        for pattern, gate in gates.items():
            if environ["REQUEST_METHOD"] == "PUT" and re.search(pattern, environ["PATH_INFO"]):
                gate.wait()
        return answer(self, environ, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DomainDispatcherApplication, "__call__", waiting)
        try:
            yield lambda pattern: gates[pattern].set()
        finally:
            for gate in gates.values():
                gate.set()


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Answer requests one after the other: moto checks a condition and writes in two steps, S3 in one."""
    mutex, answer = Lock(), DomainDispatcherApplication.__call__

    def alone(self: Any, environ: Any, start: Any) -> Any:
        with mutex:
            return answer(self, environ, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DomainDispatcherApplication, "__call__", alone)
        yield


@contextmanager
def without_conditions(*, refusing: bool) -> Iterator[None]:
    """A server that knows no conditional writes: it ignores the headers, or refuses them."""
    answer = DomainDispatcherApplication.__call__

    def older(self: Any, environ: Any, start: Any) -> Any:
        conditions = [environ.pop(name, None) for name in ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH")]
        if refusing and any(conditions):
            start("501 Not Implemented", [("Content-Type", "application/xml")])
            return [b"<Error><Code>NotImplemented</Code><Message>A header you provided is unknown.</Message></Error>"]
        return answer(self, environ, start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(DomainDispatcherApplication, "__call__", older)
        yield


def make_bucket(environment: dict[str, str], name: str) -> None:
    """Make an empty bucket."""
    connection = http.client.HTTPConnection(environment["AWS_ENDPOINT_URL"].removeprefix("http://"))
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()


def filesystem(environment: dict[str, str]) -> pafs.S3FileSystem:
    """The server's files, for a test that looks at them."""
    return pafs.S3FileSystem(
        endpoint_override=environment["AWS_ENDPOINT_URL"],
        access_key=KEYS["AWS_ACCESS_KEY_ID"],
        secret_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        region=REGION["AWS_REGION"],
    )


def enter(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    """Set the variables for the length of a test."""
    for name in UNSET:
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
