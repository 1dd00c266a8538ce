"""darklode verify: one line for each file that is not what was written."""

import re
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from darklode.flows.runs import check_record, write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.validate.labels import REVIEWS_STAGE, write_reviews
from darklode.pipeline.validate.review.journal import AnswerJournal, ReviewAnswer
from darklode.schemas.run_inputs import BenchmarkInputs, MinedInputs
from darklode.schemas.settings import Settings
from helpers.commands import Call, one_line
from helpers.finished_run import finished_run
from helpers.mined_tables import give_pairs, publish_triplets
from helpers.old_triplets import to_old_layout

NOTES = {
    "inputs.json": rb'{"kind": "benchmark", "docs": "here", "queries": "there", "sha256": "x"}',
    "settings.yaml": b"a: [",
    "review/answers/00000000000000000001-0123456789abcdef0123456789abcdef.json": b'{"relevance": 1}',
    "days.json": b"[",
}


STAGES = ("ingest_documents", "chunk", "pool", "judge", "audit")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = finished_run(str(tmp_path / "run"))
    write_run(run, BenchmarkInputs(docs="handbook", queries="queries.csv"), Settings())
    return Path(run.store.url)


def test_a_whole_run_is_said_to_be_whole(call: Call, folder: Path) -> None:
    shown = call("verify", folder)
    assert (shown.code, shown.err) == (0, "")
    assert re.fullmatch(rf"{folder}: 31 files, \d\.\d MB, all intact\n", shown.out), shown.out


def test_each_damaged_file_is_a_line(call: Call, folder: Path) -> None:
    part = next((folder / "tables" / "pool").iterdir())
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    (folder / "manifests" / "chunk.json").write_text("{}")
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 2 damaged or missing files, listed above")
    first, second = shown.out.splitlines()
    assert first.startswith(f"{folder}/manifests/chunk.json is damaged (invalid manifest: ")
    assert second == f"{part} is damaged; delete it and run the command that wrote it again"


@pytest.mark.parametrize("name", NOTES)
def test_notes_are_read_too(call: Call, folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(NOTES[name])
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 1 damaged or missing file, listed above")
    assert shown.out.startswith(str(path))
    assert len(shown.out.splitlines()) == 1


@pytest.mark.parametrize("name", ["inputs.json", "settings.yaml"])
def test_missing_notes_are_named(call: Call, folder: Path, name: str) -> None:
    (folder / name).unlink()
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 1 damaged or missing file, listed above")
    assert shown.out == f"{folder / name} is missing; run the command that made the run again\n"


@pytest.mark.parametrize("name", STAGES)
def test_a_missing_manifest_is_named(call: Call, folder: Path, name: str) -> None:
    (folder / "manifests" / f"{name}.json").unlink()
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 1 damaged or missing file, listed above")
    why = "is missing (deleted or interrupted), but its files are in tables/"
    assert shown.out.startswith(f"{folder}/manifests/{name}.json {why}")


def test_laws_of_a_file_have_no_settings(folder: Path) -> None:
    (folder / "settings.yaml").unlink()
    (folder / "inputs.json").write_bytes(b'{"kind": "laws", "points": "points.csv"}')
    check_record(Run(str(folder)))
    (folder / "inputs.json").write_bytes(b'{"kind": "laws", "runs": ["run"], "encoders": ["base"]}')
    with pytest.raises(ArtifactError, match=r"settings\.yaml is missing"):
        check_record(Run(str(folder)))


def test_missing_answers_are_named(call: Call, folder: Path) -> None:
    run, began = Run(str(folder)), datetime.now(UTC)
    journal = AnswerJournal(run.store)
    for number in range(4):
        at = began + timedelta(seconds=number)
        journal.append(ReviewAnswer("acme", "q", f"c{number % 3}", "ann", 1, at))
    run.execute(run.plan(REVIEWS_STAGE, {}), lambda _, output: write_reviews(run.store, output))
    assert call("verify", folder).code == 0
    replaced, *others = sorted((folder / "review" / "answers").iterdir())
    for path, missing in ((replaced, 1), (others[0], 2), (others[1], 3)):
        path.unlink()
        shown = call("verify", folder)
        one_line(shown, f"{folder} has 1 damaged or missing file, listed above")
        assert f"/review/answers is missing {missing} of 4 validated answers; restore the folder" in shown.out
    for number in range(3):  # what is answered since does not make up for it
        journal.append(ReviewAnswer("acme", "q", f"new{number}", "ann", 1, began))
    assert "/review/answers is missing 2 of 4 validated answers" in call("verify", folder).out


def test_where_no_run_is_it_says_so(call: Call, tmp_path: Path) -> None:
    one_line(call("verify", tmp_path), "holds no run")


def test_triplets_in_another_tenants_folder_are_named(call: Call, tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    tenants = ("acme", "beta")
    pairs = [{"tenant": tenant, "query_id": "q", "positive_id": "d"} for tenant in tenants]
    give_pairs(run, pairs, [{"tenant": tenant, "doc_id": "d", "text": "x"} for tenant in tenants], {"q": "x"})
    publish_triplets(run)
    write_run(run, MinedInputs(docs="handbook", logs="log"), Settings())
    assert call("verify", run.store.url).code == 0
    to_old_layout(run, wrong=dict(zip(tenants, reversed(tenants), strict=True)))
    shown = call("verify", run.store.url)
    one_line(shown, "2 triplets belong to another tenant, source, split or day than their folder")
    assert "run `darklode mine` on this run again" in shown.err
    assert [re.findall(r"tenant=\w+", line) for line in shown.out.splitlines()] == [["tenant=beta"], ["tenant=acme"]]


@pytest.mark.server
def test_a_run_that_a_flow_made_is_whole_and_mends_itself_when_copied_with_a_fault(call: Call, copied: Path) -> None:
    assert call("verify", copied).code == 0
    part = next((copied / "tables" / "verdicts").iterdir())
    data = part.read_bytes()
    part.write_bytes(data[:200] + bytes([data[200] ^ 4]) + data[201:])
    one_line(call("verify", copied), "has 1 damaged or missing file")
    assert re.search(rf"^judge +tables/verdicts/{part.name} is missing or damaged ", call("status", copied).out, re.M)
    one_line(call("query", copied, "SELECT count(*) FROM verdicts"), f"{part.name} is missing or damaged; run the")
    shutil.rmtree(copied / "verified", ignore_errors=True)
    one_line(call("report", copied), f"{part.name} is missing or damaged")
