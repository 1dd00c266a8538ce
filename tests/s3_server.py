"""An S3 server on loopback with an empty bucket, taken by `pytest_plugins = ["s3_server"]`."""

import http.client
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A prefix in the bucket; the environment names the server and its keys."""
    moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    moto.start()
    try:
        host, port = moto.get_host_and_port()
        for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        connection = http.client.HTTPConnection(host, port)
        connection.request("PUT", "/bucket")
        assert connection.getresponse().status == 200
        connection.close()
        yield "s3://bucket/some/prefix"
    finally:
        moto.stop()
