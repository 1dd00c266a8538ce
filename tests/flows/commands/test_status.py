import json
import re
import shutil
from pathlib import Path

import pytest
import yaml

from darklode.flows.config import load_settings
from darklode.pipeline.base.artifacts import Run
from helpers.commands import STAGES, Call, SampleRun
from helpers.runs import SAMPLE

pytestmark = pytest.mark.server


def test_status_of_a_run_that_stands(call: Call, sample_run: SampleRun) -> None:
    shown = call("status", sample_run.folder)
    assert (shown.code, shown.err) == (0, "")
    assert str(sample_run.folder) in shown.out
    for stage in STAGES:
        assert re.search(rf"^{stage} +up to date +\S.* \d+\.\d{{3}}$", shown.out, re.M), stage


def test_status_names_the_setting_that_changed(call: Call, copied: Path) -> None:
    chosen = yaml.safe_load((copied / "settings.yaml").read_text())
    chosen["evaluate"]["n_resamples"] = 77
    (copied / "settings.yaml").write_text(yaml.safe_dump(chosen))
    out = call("status", copied).out
    assert re.search(r"^audit +n_resamples: 1000 → 77 ", out, re.M)
    assert len(re.findall(r" up to date ", out)) == len(STAGES) - 1


def test_status_after_a_document_changed(call: Call, copied: Path, tmp_path: Path) -> None:
    docs = Path(shutil.copytree(SAMPLE / "documents", tmp_path / "docs"))
    (copied / "inputs.json").write_text(json.dumps({"kind": "benchmark", "docs": str(docs), "queries": str(SAMPLE)}))
    assert re.search(r"^ingest_documents +the documents' files changed ", call("status", copied).out, re.M)
    shutil.rmtree(docs)
    assert re.search(r"^ingest_documents +\S*docs does not exist", call("status", copied).out, re.M)


def test_status_names_a_part_that_is_gone(call: Call, copied: Path) -> None:
    part = next((copied / "tables" / "pool").iterdir())
    part.unlink()
    assert re.search(rf"^pool +tables/pool/{part.name} is missing or damaged", call("status", copied).out, re.M)


def test_status_states_yield_and_precision_of_the_labels(call: Call, sample_run: SampleRun) -> None:
    shown = call("status", sample_run.folder, "--json")
    label_sets = {row["labels"]: row for row in json.loads(shown.out)["label_sets"]}
    assert label_sets.keys() == {"test labels", "training triplets"}
    for row in label_sets.values():
        assert 0 < row["with_positive"] <= row["queries"]
        assert 0 < row["precision"] < 1


def test_status_of_labels_that_are_gone_shows_the_rest(call: Call, copied: Path) -> None:
    for part in (copied / "tables" / "qrels").rglob("*.parquet"):
        part.unlink()
    shown = call("status", copied, "--json")
    assert (shown.code, "label_sets" in json.loads(shown.out)) == (0, False)


def test_the_settings_in_force_are_a_settings_file(call: Call, sample_run: SampleRun, tmp_path: Path) -> None:
    shown = call("status", sample_run.folder, "--settings")
    file = tmp_path / "in force.yaml"
    file.write_text(shown.out)
    assert (shown.code, shown.err) == (0, "")
    assert load_settings(config=file) == load_settings()


def test_status_of_days_that_cannot_be_read_names_the_file(call: Call, mined_run: SampleRun, tmp_path: Path) -> None:
    run = Run(str(shutil.copytree(mined_run.folder, tmp_path / "run")))
    part = Path(run.store.path(run.parts()["log_days"][0].file))
    data = part.read_bytes()
    part.write_bytes(data[: len(data) // 2] + b"?" + data[len(data) // 2 + 1 :])
    shown = call("status", run.store.url)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[-1].startswith(f"{part} is missing or damaged; run the command")
    assert re.search(rf"^admit_days +tables/log_days/{part.name} is missing or damaged ", shown.out, re.M)
