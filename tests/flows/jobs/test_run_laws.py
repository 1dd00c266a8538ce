"""laws run: its steps, and what the command turns into settings."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from darklode.flows import launch
from darklode.flows.cli import app
from darklode.flows.jobs import run_laws
from darklode.flows.jobs.plan_laws import plan_laws
from darklode.flows.report import write_report
from darklode.flows.runs import read_run, write_inputs
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.errors import ArtifactError, SettingsError
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.schemas.run_inputs import GeneratedInputs, LawsInputs
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.adapted import build_to_adapt, model_in
from helpers.dual import build_with_documents
from helpers.runs import put, read

QUERIES = """
    SELECT tenant, chunk_id AS triplet_id, 'generated-' || chunk_id AS query_id, text AS query, chunk_id AS positive_id,
           '' AS positive, CAST([] AS VARCHAR[]) AS negative_ids, CAST([] AS VARCHAR[]) AS negatives,
           CAST([] AS FLOAT[]) AS negative_scores, 'generated' AS source, 'train' AS split
    FROM chunks WHERE chunk_id LIKE '%#1' ORDER BY chunk_id
"""


def test_options_become_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[Any, ...]] = []
    monkeypatch.setattr(launch, "launch", lambda body, _reporter, *args: kept.append((body, *args)))
    words = (
        "laws run runs/a --encoder e --out o --size 0 --size 100 --source ict --seeds 2 --set adapt.max_steps=5".split()
    )
    assert CliRunner().invoke(app, words).exit_code == 0
    laws = {"train_sizes": [0, 100], "label_sources": ["ict"], "n_seeds": 2}
    assert kept == [(run_laws.run_laws, ["runs/a"], ["e"], "o", {"adapt": {"max_steps": 5}, "laws": laws})]
    Settings.model_validate(kept[0][4])


def test_a_folder_of_laws_is_no_run(tmp_path: Path) -> None:
    run = Run(str(tmp_path / "laws"))
    write_inputs(run, LawsInputs(runs=["runs/a"]))
    with pytest.raises(ArtifactError, match="holds scaling laws"):
        read_run(run)


def generated(source: Run, folder: Path) -> str:
    """A folder as `darklode generate` leaves it: a query for each text that is judged not to answer its own."""
    made = Run(str(folder))
    write_inputs(made, GeneratedInputs(source=source.store.url))
    chunks = source.tables("chunks").read("chunks")
    put(made, "chunks", chunks)
    rows = made.tables("chunks").sql(QUERIES)
    put(made, "triplets", TABLES["triplets"].rows(dict(zip(rows.column_names, rows.columns, strict=True))))
    return made.store.url


def test_from_a_run_to_a_plan(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers")
    source = build_to_adapt(tmp_path / "run")
    model_in(tmp_path)
    adapt = {"method": "linear", "max_steps": 5, "learning_rates": [1e-3], "init": "base", "batch_size": 8}
    settings: dict[str, Any] = {"adapt": adapt, "laws": {"train_sizes": [10, 20, 40], "n_seeds": 1}}
    with pytest.raises(SettingsError, match="size 40: there are only 39 training queries"):
        run_laws.run_laws([source.store.url], [str(tmp_path / "model")], str(tmp_path / "laws"), settings)
    settings["laws"] = {"label_sources": ["people"]}
    with pytest.raises(SettingsError, match="people is not one of labels, bm25"):
        run_laws.run_laws([source.store.url], [str(tmp_path / "model")], str(tmp_path / "laws"), settings)
    made = generated(source, tmp_path / "made")
    settings["laws"] = {"train_sizes": [10, 20, 30], "n_seeds": 1, "label_sources": ["labels", made]}
    said = run_laws.run_laws([source.store.url], [str(tmp_path / "model")], str(tmp_path / "laws"), settings)
    assert said.count("labels: ") == said.count(f"{made}: ") == 3
    assert "# Laws" in (tmp_path / "laws" / "laws.md").read_text()
    planned = read(plan_laws(str(tmp_path / "laws"), PlanRequest(budget=10, per_label=1)), "law_plan")
    assert {row["measure"] for row in planned} == {"contrastive_entropy", "nDCG@10", "R@1000"}
    assert {row["option"] for row in planned} == {"label first", "another source"}
    assert "## The plan" in (tmp_path / "laws" / "laws.md").read_text()


@pytest.mark.slow
def test_towers_are_a_trainer(tmp_path: Path) -> None:
    """Texts show their topics to towers, and the page says what was trained."""
    pytest.importorskip("sentence_transformers")
    source, model = build_with_documents(tmp_path / "run"), model_in(tmp_path).model
    dual = {"max_steps": 2, "batch_size": 8, "matryoshka_dims": [4, 8]}
    settings: dict[str, Any] = {"dual": dual, "laws": {"trainer": "towers", "train_sizes": [10, 20], "n_seeds": 1}}
    run_laws.run_laws([source.store.url], [model], str(tmp_path / "laws"), settings)
    out = Run(str(tmp_path / "laws"))
    assert {row["trainer"] for row in read(out, "law_points")} == {"towers"}
    content = {row["positive_id"]: row["content"] for row in read(out, "tower_triplets")}
    assert str(content["train-004#0"]).startswith("a subject\n")
    page = (tmp_path / "laws" / "laws.md").read_text()
    assert "## Trained encoders" in page
    assert f"| towers | {model} |" in page
    written = Path(write_report(out)).read_text()
    assert "law-trained" in written
