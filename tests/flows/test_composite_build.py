"""Retrievers made of others and of models, from the settings to the audit, the evaluation and the search command."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from darklode.flows import open_systems
from darklode.flows.commands.doctor import DoctorRequest, run_examination
from darklode.flows.config import load_settings
from darklode.flows.factories import fetch_models, fetch_ranker, ranker
from darklode.flows.jobs.evaluate_systems import steps as evaluation_steps
from darklode.flows.preflight import build_checks, mining_parts, run_checks
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import MissingPart
from darklode.pipeline.base.models.local import missing_class
from darklode.pipeline.base.types import Rows
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import build_without_prefect
from helpers.composites import tiny_cross_encoder, tiny_multi_vector_encoder, tiny_sparse_encoder
from helpers.subjects import write_subjects
from helpers.tiny_bert import tiny_bert

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None or bool(missing_class("MultiVectorEncoder")),
        reason="sentence-transformers 6 is not installed",
    ),
]
NAMES = ["bm25", "splade", "colbert", "mix", "best"]


@dataclass(frozen=True)
class Source:
    """A source and tiny models in a folder."""

    folder: Path

    def settings(self, *assignments: str) -> Settings:
        models = self.folder / "models"
        return load_settings(
            assignments=[
                "clean.keep_all=true",
                f"pool.retrievers=[{', '.join(NAMES)}]",
                "pool.depth=3",
                "pool.search_depth=5",
                f"encoders.dense={{kind: sentence_transformers, model: {models}/dense, device: cpu}}",
                f"retrievers.splade={{kind: sparse, model: {models}/sparse, device: cpu}}",
                f"retrievers.colbert={{kind: multi_vector, model: {models}/colbert/model, of: mix, device: cpu}}",
                "retrievers.mix={kind: hybrid, of: [bm25, dense], method: weighted}",
                f"retrievers.best={{kind: rerank, of: mix, model: {models}/cross, depth: 4, device: cpu}}",
                f"cache.root={self.folder}/cache",
                "evaluate.n_resamples=20",
                "evaluate.permutations=100",
                *assignments,
            ]
        )

    @property
    def inputs(self) -> tuple[Path, Path]:
        return self.folder / "docs", self.folder / "queries.txt"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = write_subjects(tmp_path_factory.mktemp("source"))
    models = folder / "models"
    models.mkdir()
    tiny_bert(models / "dense")
    tiny_cross_encoder(models / "cross")
    tiny_sparse_encoder(models / "sparse")
    tiny_multi_vector_encoder(models / "colbert")
    return Source(folder)


@pytest.fixture(scope="module")
def built(source: Source) -> Run:
    run, settings = Run(str(source.folder / "run")), source.settings()
    write_run(run, BenchmarkInputs(docs=str(source.inputs[0]), queries=str(source.inputs[1])), settings)
    fetch_models(settings)
    build_without_prefect(run.store.url, *source.inputs, settings)
    return run


def rows(run: Run, sql: str) -> Rows:
    found: Rows = all_tables(run).sql(sql).to_pylist()
    return found


def test_they_are_in_the_pool_and_the_audit_and_stay_when_nothing_changes(source: Source, built: Run) -> None:
    lists = rows(built, "SELECT retriever, max(rank) AS depth FROM rankings GROUP BY retriever ORDER BY retriever")
    assert {row["retriever"]: row["depth"] for row in lists} == dict.fromkeys(NAMES, 5) | {"best": 4}
    audited = rows(built, "SELECT retriever FROM audit_retrievers WHERE tenant IS NULL")
    assert {row["retriever"] for row in audited} == set(NAMES)
    assert build_without_prefect(built.store.url, *source.inputs, source.settings()) == []
    faster = source.settings("retrievers.best.batch_size=1")
    assert build_without_prefect(built.store.url, *source.inputs, faster) == []


def test_they_are_evaluated_and_searched_by_name(source: Source, built: Run) -> None:
    for step in evaluation_steps(source.settings("evaluate.systems=[mix, best, splade]")):
        if step.enabled:
            built.execute(step.plan(built), step.execute)
    systems = rows(built, "SELECT DISTINCT system FROM evaluation ORDER BY system")
    assert [row["system"] for row in systems] == ["best", "mix", "splade"]
    with open_systems.open_index(built.store.url, None, []) as (index, record):
        chosen = open_systems.systems(record.settings, mined=False, encoders=[], retrievers=NAMES, adapters={})
        hits = index.top(chosen, ["how do I rotate the token"], 2).to_pylist()
    assert {row["system"] for row in hits} == set(NAMES)
    assert len(hits) == 2 * len(NAMES)
    assert next(row for row in hits if row["system"] == "bm25")["text_id"].startswith("token.md")


def test_what_a_member_lacks_is_said_before_a_build_and_by_the_doctor(source: Source) -> None:
    def check(settings: Settings) -> list[str]:
        out = str(source.folder / "new")
        return [str(error) for error in run_checks(build_checks(*map(str, source.inputs), out, settings)).errors]

    assert check(source.settings()) == []
    gone = source.settings("pool.retrievers=[best]", f"encoders.dense.model={source.folder}/gone")
    assert check(gone) == [f"dense: model {source.folder}/gone: the folder does not exist"]
    findings = {row["component"]: row for row in run_examination(DoctorRequest("file", gone))[0].to_pylist()}
    states = {name: findings[f"  {name}"]["state"] for name in ("best", "mix", "dense", "bm25")}
    assert states == {"best": "ok", "mix": "ok", "dense": "not ready", "bm25": "ok"}
    with pytest.raises(MissingPart, match="the folder does not exist"):
        fetch_models(gone)


def test_mining_ranks_by_them_too(source: Source) -> None:
    settings = source.settings("relevance.retrievers=[best]", "relevance.ranker=judge")
    fetch_ranker(settings)
    assert {"best", "mix", "bm25", "dense"} <= set(mining_parts(settings))
    assert list(ranker(settings, None).retrievers) == ["best"]
    assert ranker(settings, None).version != ranker(source.settings("relevance.ranker=judge"), None).version
