"""darklode adapt nightly: what it refuses before a night begins; the night itself is in tests/flows."""

from pathlib import Path

import pytest

from helpers.commands import Call, one_line

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tenants", "all", "--share-with", "birch"], "each tenant gets its own head"),
        (
            ["--set", "adapt.method=lora"],
            "adapt.method lora always starts from the base; --warm-start supports linear and ffn",
        ),
        ([], "say where mined is, or name a config file with paths.mined"),
    ],
)
def test_what_cannot_be_is_said_before_anything_is_mined(
    call: Call, tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "night.yaml").write_text("" if not options else "paths: {logs: log, docs: docs, mined: mined}\n")
    command = ("adapt", "nightly", "--config", tmp_path / "night.yaml", "--encoder", "any", "--out", tmp_path / "out")
    one_line(call(*command, "--registry", tmp_path / "adapters", *options), message, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["night.yaml"]
