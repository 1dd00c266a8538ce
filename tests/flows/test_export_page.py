"""The Python blocks of docs/guides/export.md: other tools read the exports, and give the values of `evaluate`."""

import json
import re
import shutil
from pathlib import Path

import pytest

from helpers.commands import Call, SampleRun
from helpers.runs import REPOSITORY

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.filterwarnings("ignore::ResourceWarning")]  # of beir
PAGE = REPOSITORY / "docs" / "guides" / "export.md"


def test_other_tools_read_the_exports_as_printed(
    call: Call,
    sample_run: SampleRun,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(sample_run.folder, tmp_path / "run")
    for form in ("trec", "beir", "sentence-transformers"):
        assert call("export", "run", "--format", form, "--to", f"out/{form}").code == 0
    evaluated = json.loads(call("evaluate", "run", "--system", "bm25", "--json").out)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)[:3]
    values: dict[str, object] = {}
    capsys.readouterr()
    exec(compile(blocks[0], str(PAGE), "exec"), values)
    (expected,) = (
        row["value"]
        for row in evaluated["evaluation"]
        if (row["tenant"], row["measure"], row["part"], row["system"]) == (None, "nDCG@10", "counted", "bm25")
    )
    assert float(capsys.readouterr().out) == pytest.approx(expected, abs=1e-4)
    exec(compile(blocks[1], str(PAGE), "exec"), values)
    assert isinstance(values["corpus"], dict)
    assert len(values["corpus"]) > 400
    exec(compile(blocks[2], str(PAGE), "exec"), values)
    assert values["train"].column_names == ["anchor", "positive", "negative"]  # type: ignore[attr-defined]
