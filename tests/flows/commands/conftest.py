"""What the commands of the judge are tried on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.fake_chat import FakeChat
from helpers.judge_commands import KEY, write_source


@pytest.fixture(scope="module")
def server() -> Iterator[FakeChat]:
    with FakeChat(model="judge", key=KEY) as fake:
        yield fake


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Documents and queries; the user's cache and key are the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("JUDGE_KEY", KEY)
    return write_source(tmp_path / "source")
