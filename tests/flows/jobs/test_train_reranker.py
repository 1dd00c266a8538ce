"""train-reranker on a whole run: from a cross-encoder, its control, a refusal, and use as retriever and judge."""

import json
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

from darklode.flows.jobs.train_reranker import train_reranker
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import DoesNotFit, NoLift
from darklode.pipeline.base.models.cross_encoder import CrossEncoderModel
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.retrieve.retrievers.fusion import weighted_scores
from darklode.schemas.pooling import LocalModel
from darklode.schemas.settings import Settings
from helpers.adapted import TENANT
from helpers.commands import build_without_prefect
from helpers.composites import opened
from helpers.reranked import RerankedRun, cross_encoder, quick_settings, reranked_run
from helpers.runs import read

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def reranked(tmp_path_factory: pytest.TempPathFactory) -> RerankedRun:
    return reranked_run(tmp_path_factory.mktemp("job"))


@pytest.mark.slow
def test_a_cross_encoder_is_a_bound_itself_and_a_control_has_its_own_list(reranked: RerankedRun) -> None:
    model = cross_encoder(reranked.root / "cross")
    paths = [str(reranked.root / "run")], str(model), str(reranked.root / "refused")
    few = quick_settings(reranked.root, max_steps=1)
    with pytest.raises(NoLift, match="releases no reranker"):
        train_reranker(*paths, few, str(reranked.root / "bi"), 5, control=True)
    out = Run(paths[2])
    assert not (reranked.root / "refused" / "reranker").exists()
    assert out.store.read_object("reranker.json")["shipped"] == "none"
    systems = {row["system"] for row in read(out, "test_rankings")}
    assert {"base reranker", "reranked, labels: shuffled"} <= systems
    trial = read(out, "reranker_trials")[0]
    assert trial["base"] is not None
    assert read(out, "reranker_log")[0]["validation"] == trial["base"]
    assert "The trained weights are in the table `adapter_weights`" in (out.store.read("README.md") or b"").decode()


def using(reranked: RerankedRun, folder: Path) -> Settings:
    """Settings with the released folder as retriever and as judge."""
    return Settings.model_validate(
        {
            "cache": {"root": str(reranked.root / "cache")},
            "retrievers": {"best": {"kind": "rerank", "of": "bm25", "model": str(folder), "device": "cpu", "depth": 5}},
            "pool": {"retrievers": ["bm25", "best"], "depth": 3},
            "judge": {"kind": "cross_encoder", "model": str(folder), "device": "cpu"},
        }
    )


def chunks(reranked: RerankedRun, tenant: str) -> TenantChunks:
    return TenantChunks(Run(str(reranked.root / "run")).tables("chunks"), tenant)


def test_the_folder_is_a_retriever_with_the_selected_weight(reranked: RerankedRun, tmp_path: Path) -> None:
    run, settings = Run(str(reranked.root / "run")), using(reranked, reranked.root / "out")
    query = read(run, "queries")[0]["text"]
    bm25, best = (
        opened(run, settings, name, tmp_path / name, TENANT).search([str(query)], 5) for name in ("bm25", "best")
    )
    assert sorted(best.rows[0].tolist()) == sorted(bm25.rows[0].tolist())
    weight = reranked.out.store.read_object("reranker.json")["weight"]
    model = CrossEncoderModel(LocalModel(model=str(reranked.root / "out"), device="cpu"))
    texts = [text for batch in chunks(reranked, TENANT).batches() for text in batch]
    found = bm25.rows[0][bm25.rows[0] >= 0]
    scores = model.scores([(str(query), texts[row]) for row in found.tolist()], as_probabilities=False).round(4)
    expected = weighted_scores(np.zeros(len(found), np.int64), bm25.scores[0][: len(found)], scores, weight)
    np.testing.assert_allclose(best.scores[0][: len(found)], np.sort(expected)[::-1], atol=1e-5)


def test_another_tenant_may_not_use_it(reranked: RerankedRun, tmp_path: Path) -> None:
    settings = using(reranked, reranked.root / "out" / "reranker")
    with pytest.raises(DoesNotFit, match=f"was trained for tenant {TENANT}, not for other"):
        opened(Run(str(reranked.root / "run")), settings, "best", tmp_path / "best", "other")
    judges = Judges.from_settings(settings)
    assert "reranker@files-" in judges(chunks(reranked, TENANT)).judge_id
    with pytest.raises(DoesNotFit, match=f"was trained for tenant {TENANT}, not for other"):
        judges(chunks(reranked, "other"))


def test_training_does_not_start_from_another_tenants_reranker(reranked: RerankedRun, tmp_path: Path) -> None:
    theirs = Path(copytree(reranked.root / "out" / "reranker", tmp_path / "theirs"))
    record = json.loads((theirs / "reranker.json").read_text())
    (theirs / "reranker.json").write_text(json.dumps(record | {"tenant": "other"}))
    paths = [str(reranked.root / "run")], str(theirs), str(tmp_path / "out")
    with pytest.raises(DoesNotFit, match=f"was trained for tenant other, not for {TENANT}"):
        train_reranker(*paths, quick_settings(reranked.root), str(reranked.root / "bi"), 5)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_build_ranks_and_judges_with_the_folder(reranked: RerankedRun, tmp_path: Path) -> None:
    rows = read(Run(str(reranked.root / "run")), "chunks")
    with (tmp_path / "documents.jsonl").open("w") as documents:
        documents.writelines(json.dumps({"doc_id": row["doc_id"], "text": row["text"]}) + "\n" for row in rows[:60])
    queries = [str(row["text"]) for row in read(Run(str(reranked.root / "run")), "queries")]
    (tmp_path / "queries.txt").write_text("\n".join(queries))
    chosen = using(reranked, reranked.root / "out")
    more = {"ingest": chosen.ingest.model_copy(update={"tenant": TENANT})}
    settings = chosen.model_copy(update=more | {"clean": chosen.clean.model_copy(update={"keep_all": True})})
    build_without_prefect(str(tmp_path / "built"), tmp_path / "documents.jsonl", tmp_path / "queries.txt", settings)
    built = Run(str(tmp_path / "built"))
    assert {row["retriever"] for row in read(built, "rankings")} == {"bm25", "best"}
    judge_ids = {str(row["judge_id"]) for row in read(built, "verdicts")}
    assert all(judge_id.startswith("cross_encoder") and "reranker@files-" in judge_id for judge_id in judge_ids)
    assert judge_ids
