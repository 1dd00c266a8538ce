"""darklode verify: one line for each file that is not what was written."""

import re
import shutil
from pathlib import Path

import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.commands import Call, one_line
from helpers.finished_run import finished_run
from helpers.mined_tables import give_pairs, publish_triplets
from helpers.old_triplets import to_old_layout

NOTES = {
    "inputs.json": rb'{"docs": "here", "queries": "there", "sha256": "x"}',
    "settings.yaml": b"a: [",
    "review/answers/00000000000000000001-0123456789abcdef0123456789abcdef.json": b'{"relevance": 1}',
    "days.json": b"[",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(finished_run(str(tmp_path / "run")).store.url)


def test_a_whole_run_is_said_to_be_whole(call: Call, folder: Path) -> None:
    shown = call("verify", folder)
    assert (shown.code, shown.err) == (0, "")
    assert re.fullmatch(rf"{folder}: 30 files, \d\.\d MB, hold what was written\n", shown.out), shown.out


def test_each_damaged_file_is_a_line(call: Call, folder: Path) -> None:
    part = next((folder / "tables" / "pool").iterdir())
    part.write_bytes(part.read_bytes()[:-1] + b"!")
    (folder / "manifests" / "chunk.json").write_text("{}")
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 2 damaged files, named above")
    first, second = shown.out.splitlines()
    assert first.startswith(f"{folder}/manifests/chunk.json is damaged (no manifest: ")
    assert second == f"{part} is damaged; delete it and run the command that made it again"


@pytest.mark.parametrize("name", NOTES)
def test_notes_are_read_too(call: Call, folder: Path, name: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(NOTES[name])
    shown = call("verify", folder)
    one_line(shown, f"{folder} has 1 damaged file, named above")
    assert shown.out.startswith(str(path))
    assert len(shown.out.splitlines()) == 1


def test_where_no_run_is_it_says_so(call: Call, tmp_path: Path) -> None:
    one_line(call("verify", tmp_path), "holds no run")


def test_triplets_in_another_tenants_folder_are_named(call: Call, tmp_path: Path) -> None:
    run = Run(str(tmp_path / "run"))
    tenants = ("acme", "beta")
    pairs = [{"tenant": tenant, "query_id": "q", "positive_id": "d"} for tenant in tenants]
    give_pairs(run, pairs, [{"tenant": tenant, "doc_id": "d", "text": "x"} for tenant in tenants], {"q": "x"})
    publish_triplets(run)
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
    one_line(call("verify", copied), "has 1 damaged file")
    assert re.search(rf"^judge +tables/verdicts/{part.name} is missing or damaged ", call("status", copied).out, re.M)
    one_line(call("query", copied, "SELECT count(*) FROM verdicts"), f"{part.name} is missing or damaged; run the")
    shutil.rmtree(copied / "verified", ignore_errors=True)
    one_line(call("report", copied), f"{part.name} is missing or damaged")
