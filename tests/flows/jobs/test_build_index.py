"""build-index and update-index: the same bytes whatever was killed, and what a full fill would find."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from darklode.flows.jobs import build_index as flow
from darklode.flows.jobs.build_index import build_index, update_index
from darklode.flows.open_systems import open_index_check
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit
from darklode.pipeline.index import shard
from darklode.pipeline.index.faiss_io import from_bytes, one_thread, to_bytes
from darklode.pipeline.index.probes import lists_of, vectors_of
from darklode.pipeline.index.searcher import VectorSearcher
from helpers.adapted import TENANT, model_in
from helpers.elsewhere import Elsewhere
from helpers.indexed import IDS, clustered, copied, files_of, put_vectors, settings_in


class Killed(BaseException):
    """As if the process had gone."""


def changed(tmp_path: Path) -> tuple[str, list[str], np.ndarray]:
    """Texts that went, one that changed, and some that came."""
    vectors, ids = (
        np.concatenate([clustered()[15:], clustered(20, seed=9)]),
        [*IDS[15:], *(f"x{n:02}" for n in range(20))],
    )
    vectors[3] = vectors[4]
    return put_vectors(tmp_path / "now.parquet", ids, vectors), ids, vectors


def test_a_build_that_was_killed_gives_the_same_bytes(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_in(tmp_path)
    run_step, source = flow.run_step, str(indexed / "vectors.parquet")
    arguments = (source, str(indexed / "model"), str(tmp_path / "index"), settings_in(indexed))
    for doomed in ("semantic_ids", "index_probes"):

        def dies(run: Run, step: flow.Step, doomed: str = doomed) -> None:
            run_step(run, step)
            if step.stage.name == doomed:
                raise Killed

        monkeypatch.setattr(flow, "run_step", dies)
        with pytest.raises(Killed):
            build_index(*arguments)
    monkeypatch.setattr(flow, "run_step", run_step)
    build_index(*arguments)
    assert files_of(tmp_path / "index") == files_of(indexed / "index")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ivfpq", "ivfpq_fastscan"])
def test_codes_made_elsewhere_give_the_same_bytes(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(shard, "VECTORS_PER_BLOCK", 256)
    source, model = str(indexed / "vectors.parquet"), str(indexed / "model")
    settings = settings_in(indexed, kind=kind)
    build_index(source, model, str(tmp_path / "here"), settings)
    elsewhere = Elsewhere(Run(str(tmp_path / "far")).store, 2)
    monkeypatch.setattr(flow, "spread_over", lambda *_: nullcontext(elsewhere))
    build_index(source, model, str(tmp_path / "far"), settings)
    assert files_of(tmp_path / "far") == files_of(tmp_path / "here")
    cuts = [(0, 255), (256, 767), (768, 1023), (1024, 1499)]
    stages = ["semantic_ids", "index"]
    assert elsewhere.names == [f"{stage} of texts {low} to {high}" for stage in stages for low, high in cuts]


def test_what_stands_is_left_alone_and_what_is_missing_is_made_again(indexed: Path, tmp_path: Path) -> None:
    folder = copied(indexed / "index", tmp_path / "index")
    arguments = (str(indexed / "vectors.parquet"), str(indexed / "model"), str(folder), settings_in(indexed))
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.faiss")}
    build_index(*arguments)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    whole = files_of(folder)
    (folder / "index.faiss").write_bytes(b"half")
    build_index(*arguments)
    assert files_of(folder) == whole


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flat", "ivfpq", "ivfpq_fastscan"])
def test_an_update_finds_what_a_full_fill_with_the_same_codes_finds(indexed: Path, tmp_path: Path, kind: str) -> None:
    bytes_ = {} if kind == "flat" else {"code_size": 8}
    if kind == "ivfpq":
        folder = copied(indexed / "index", tmp_path / "index")
    else:
        settings = settings_in(indexed)
        settings["index"] = {"kind": kind, "tuning_queries": 20, **bytes_}
        folder = tmp_path / "index"
        build_index(str(indexed / "vectors.parquet"), str(indexed / "model"), str(folder), settings)
    source, ids, vectors = changed(tmp_path)
    update_index(str(folder), source)
    with VectorSearcher(str(folder)) as searcher:
        found = searcher.search(vectors, 10)
        facts, texts = searcher.facts, searcher.texts
        assert texts["text_id"].to_pylist() == ids
        with one_thread():
            full = from_bytes(bytes(to_bytes(searcher._finder.index)), "")
            full.reset()
            full.add_with_ids(vectors, texts["number"].to_numpy())
        numbers, scores = replace(searcher._finder, index=full, current=None).find(vectors, 10, facts["effort"])
    np.testing.assert_allclose(found.scores, scores, atol=1e-6)
    near = np.sort(np.where(scores > scores[:, -1:] + 1e-6, texts["number"].to_numpy()[found.rows], -1), axis=1)
    np.testing.assert_array_equal(near, np.sort(np.where(scores > scores[:, -1:] + 1e-6, numbers, -1), axis=1))
    assert facts["at training"]["count"] == len(IDS)
    assert facts["count"] == len(ids)


def test_an_update_that_was_killed_goes_on_to_the_same_bytes(
    indexed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _, _ = changed(tmp_path)
    whole = copied(indexed / "index", tmp_path / "whole")
    update_index(str(whole), source)
    folder, write = copied(indexed / "index", tmp_path / "killed"), Run(str(tmp_path)).store.__class__.write
    for last in range(1, 40, 3):
        left = [last]

        def dies(self: object, name: str, data: bytes, left: list[int] = left) -> None:
            if not left[0]:
                raise Killed
            left[0] -= 1
            write(self, name, data)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(Run(str(tmp_path)).store.__class__, "write", dies)
            try:
                update_index(str(folder), source)
                break
            except Killed:
                continue
    assert files_of(folder) == files_of(whole)
    assert {**json.loads((folder / "index.json").read_text()), "queries per second": 0} == {
        **json.loads((whole / "index.json").read_text()),
        "queries per second": 0,
    }


def test_an_updated_index_has_the_record_that_a_check_recomputes(indexed: Path, tmp_path: Path) -> None:
    folder = copied(indexed / "index", tmp_path / "index")
    source, _, vectors = changed(tmp_path)
    update_index(str(folder), source)
    with open_index_check(str(folder)) as check:
        assert [finding for finding in check.findings() if not finding.fits] == []
    tables = Run(str(folder)).tables()
    queries = vectors_of(tables.read("index_queries"), "base")
    lists = lists_of(tables.read("index_probes"), "base", len(queries))
    np.testing.assert_allclose(lists.scores[:, :100], -np.sort(-(queries @ vectors.T), axis=1)[:, :100], atol=1e-6)


def test_a_build_and_its_adapted_queries(shipped: Path, tmp_path: Path) -> None:
    arguments = (str(shipped / "run"), "tiny", str(tmp_path / "index"), {"index": {"tuning_queries": 20}})
    build_index(*arguments, adapter=str(shipped / "adapter"))
    facts = json.loads((tmp_path / "index" / "index.json").read_text())
    assert set(facts["recall"]) == {"base", "adapted"}
    assert facts["tenants"] == [TENANT]
    assert (facts["kind"], facts["built"], facts["count"]) == ("ivfpq_fastscan", "flat", 204)
    assert facts["recall"]["adapted"]["100"]["recall"] == 1
    with VectorSearcher(str(tmp_path / "index")) as searcher:
        by_text = searcher.search(["how", " "], 3)
        assert len(by_text.ids(0)) == 3
        assert by_text.ids(1) == []
    page = (tmp_path / "index" / "README.md").read_text()
    assert "| adapted | held out | 100 | 1 |" in page


def test_an_adapter_of_another_encoder_is_refused(shipped: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = model_in(tmp_path / "other")
    with pytest.raises(DoesNotFit, match="was adapted from"):
        build_index(str(shipped / "run"), other.model, str(tmp_path / "index"), {}, adapter=str(shipped / "adapter"))


def test_a_folder_of_something_else_is_refused(indexed: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("x")
    with pytest.raises(ArtifactError, match=r"holds mine\.txt and no run"):
        build_index(str(indexed / "vectors.parquet"), str(indexed / "model"), str(tmp_path), settings_in(indexed))
