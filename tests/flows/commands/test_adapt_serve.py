"""darklode adapt check and swap: exit codes, one line, JSON, and what stands."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from helpers.adapted import word
from helpers.commands import Call, one_line


@pytest.mark.slow
def test_an_adapter_that_fits_and_one_that_was_touched(shipped: Path, tmp_path: Path, call: Call) -> None:
    shown = call("adapt", "check", shipped / "adapter", "--index", shipped / "run")
    assert (shown.code, shown.err) == (0, "")
    assert "cosine with the index's vectors at least 1.00000" in shown.out
    assert f"{shipped / 'adapter'} fits {shipped / 'run'}." in shown.out
    touched = shutil.copytree(shipped / "adapter", tmp_path / "adapter")
    (touched / "query_encoder" / "modules.json").write_text("[]")
    refused = call("adapt", "check", touched, "--index", shipped / "run", "--json")
    one_line(refused, "does not fit .*run: files of the adapter: .* recorded ", 3)
    told = json.loads(refused.out)
    assert (told["fits"], [one["fits"] for one in told["findings"]]) == (False, [False])
    one_line(call("adapt", "check", tmp_path, "--index", shipped / "run"), "contains no finished adapter")


@pytest.mark.slow
def test_what_a_swap_changes_is_told_written_and_stands(shipped: Path, tmp_path: Path, call: Call) -> None:
    adapter = Path(shutil.copytree(shipped / "adapter", tmp_path / "adapter"))
    shown = call("adapt", "preview", adapter, "--index", shipped / "run")
    assert (shown.code, shown.err) == (0, "")
    assert "67 queries: " in shown.out
    assert "Queries that change most" in (adapter / "report.html").read_text()
    manifest = (adapter / "manifests" / "encoder_swap.json").read_bytes()
    assert call("adapt", "preview", adapter, "--index", shipped / "run").code == 0
    assert (adapter / "manifests" / "encoder_swap.json").read_bytes() == manifest
    live = tmp_path / "live.csv"
    live.write_text(f"query,count\nhow {word(7)},3\nhow {word(14)},1\n")
    told = json.loads(call("adapt", "preview", adapter, "--index", shipped / "run", "--queries", live, "--json").out)
    assert {row["query"]: row["searches"] for row in told["queries"]} == {f"how {word(7)}": 3, f"how {word(14)}": 1}
    assert sum(row["queries"] for row in told["overlap"]) == 2


@pytest.mark.slow
def test_the_texts_vectors_are_looked_for_where_adapt_put_them(shipped: Path, tmp_path: Path, call: Call) -> None:
    """`adapt --set cache.root=…` embeds the run's texts into another cache than the run's own settings name."""
    run = Path(shutil.copytree(shipped / "run", tmp_path / "run"))
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    elsewhere = {"cache": settings["cache"] | {"root": str(tmp_path / "empty")}}
    (run / "settings.yaml").write_text(yaml.safe_dump(settings | elsewhere))
    shown = call("adapt", "check", shipped / "adapter", "--index", run)
    assert (shown.code, shown.err) == (0, "")
    refused = call("adapt", "check", shipped / "adapter", "--index", run, "--set", f"cache.root={tmp_path / 'empty'}")
    one_line(refused, "texts have none in .*empty; set their cache with --set cache.root", 3)
    file = tmp_path / "darklode.yaml"
    file.write_text(yaml.safe_dump({"cache": {"root": settings["cache"]["root"]}}))
    assert call("adapt", "check", shipped / "adapter", "--index", run, "--config", file).code == 0
