"""An S3 server on loopback with an empty bucket, taken by `pytest_plugins = ["s3_bucket"]`."""

from collections.abc import Iterator

import pytest

from helpers.s3_server import enter, s3_server


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix in a bucket; the environment names the server and its keys."""
    with s3_server("bucket") as environment:
        enter(monkeypatch, environment)
        yield "s3://bucket/some/prefix"
