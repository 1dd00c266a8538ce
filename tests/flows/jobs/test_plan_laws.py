"""laws plan: tables, page and batch in the folder, by what the command is told, by a file and by the runs of a grid."""

import csv
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from darklode.flows.cli import app
from darklode.flows.jobs.fit_laws import fit_laws
from darklode.flows.jobs.plan_laws import NEXT_QUERIES_FILE, plan_laws
from darklode.flows.report import write_report
from darklode.flows.runs import write_inputs, write_run
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.judge.stage import JUDGE
from darklode.pipeline.laws import fit_stage
from darklode.pipeline.laws.grid_stage import GRID_STAGE
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.pipeline.laws.plan_stage import PLAN_STAGE
from darklode.pipeline.train.data.pairs import PAIRS_STAGE
from darklode.schemas.law_tables import LAW_POINTS
from darklode.schemas.run_inputs import BenchmarkInputs, LawsInputs
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.planned import TENANT, built, reviewed
from helpers.report_runs import figures, parsed, rows_of
from helpers.runs import execute, put, read

SIZES = 2 ** np.arange(6, 11)


def points(measure: str, change: float = 1.0) -> list[dict[str, object]]:
    draws = np.random.default_rng(0)
    losses = [
        (int(size), seed, change * ((300 / size) ** 0.5 + 0.9) * np.exp(draws.normal(0, 0.002)))
        for size in SIZES
        for seed in range(3)
    ]
    about = {"measure": measure, "source": "labels"}
    rising = measure != "contrastive_entropy"
    return [
        about | {"size": size, "seed": seed, "value": float(1 - loss if rising else loss)}
        for size, seed, loss in losses
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    root = tmp_path_factory.mktemp("plan")
    lines = [
        "size,value,seed",
        *(f"{row['size']},{row['value']},{row['seed']}" for row in points("contrastive_entropy")),
    ]
    (root / "points.csv").write_text("\n".join(lines) + "\n")
    return fit_laws(str(root / "points.csv"), str(root / "laws")).store.url


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """What `laws run` leaves of a judged and reviewed build; its points are planted."""
    root = tmp_path_factory.mktemp("grid")
    source, run = built(root / "run"), Run(str(root / "laws"))
    execute(source, Stage(JUDGE.name, 1, (), ()), lambda _tables, _output: None)
    for name in ("triplets", "chunks"):
        put(source, name, TABLES[name].empty())
    reviewed(source)
    write_run(source, BenchmarkInputs(docs="docs", queries="queries"), Settings())
    write_inputs(run, LawsInputs(runs=[source.store.url], encoders=["e"]))

    def tenant(_tables: Tables, output: Output) -> None:
        output.facts["tenant"] = TENANT

    def trained(_tables: Tables, output: Output) -> None:
        output.write("law_points", pa.Table.from_pylist(points("nDCG@10", 0.1), schema=LAW_POINTS.schema))
        output.facts["models"] = [
            {"name": "a", "parameters": 1e6, "texts": 7200, "texts_per_second": 2.0, "seconds": 1800.0}
        ]

    execute(run, Stage(PAIRS_STAGE.name, 1, (), ()), tenant)
    execute(run, Stage(GRID_STAGE.name, 1, (), GRID_STAGE.writes), trained)
    return run


@pytest.mark.slow
def test_without_a_price_money_is_not_told(folder: str) -> None:
    found = CliRunner().invoke(app, ["laws", "plan", folder, "--budget", "300"], catch_exceptions=False)
    said = " ".join(found.stdout.split())
    assert "contrastive_entropy, labels, 1,024 labelled queries: the next 0.1 takes" in said
    assert "give --per-label" in said
    assert "300 buys" not in said


@pytest.mark.slow
def test_a_budget_buys_labels_and_a_file_becomes_a_batch_that_build_reads(folder: str, tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('query_id,query\na,reset a password\nb,"invoice, overdue"\nc,cluster upgrade\n')
    wanted, files = PlanRequest(budget=300, per_label=0.6), [str(tmp_path / "log.csv")]
    run = plan_laws(folder, wanted, batch=2, queries=files)
    rows = {row["option"]: row for row in read(run, "law_plan")}
    assert rows["budget"]["amount"] == pytest.approx(500)
    assert rows["budget"]["gain"] == pytest.approx((300 / 1024) ** 0.5 - (300 / 1524) ** 0.5, abs=0.01)
    with Path(run.store.path(NEXT_QUERIES_FILE)).open(newline="") as file:
        chosen = list(csv.DictReader(file))
    assert len(chosen) == 2
    assert chosen[0].keys() == {"query_id", "query", "tenant"}
    before = run.manifest(PLAN_STAGE)
    assert plan_laws(folder, wanted, batch=2, queries=files).manifest(PLAN_STAGE) == before


@pytest.mark.slow
def test_a_plan_that_is_asked_again_judges_no_point_anew(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fit_stage, "find_law")
    (row,) = (
        row for row in read(plan_laws(folder, PlanRequest(budget=90, per_label=0.9)), "law_plan") if row["money"] == 90
    )
    assert row["amount"] == pytest.approx(100)


@pytest.mark.slow
def test_costs_and_candidates_are_those_of_the_runs(grid: Run) -> None:
    run = plan_laws(grid.store.url, PlanRequest(budget=10.0, per_hour=20.0, per_gpu_hour=3.0))
    planned = {row["option"]: row for row in read(run, "law_plan")}
    costs = {row["item"]: row["value"] for row in read(run, "law_costs")}
    per_label = 20 / 60 * 0.5 * 6
    assert costs["a person's minutes for a query"] == 3
    assert costs["hours of a"] == 1.5
    assert planned["budget"]["amount"] == pytest.approx(10 / per_label)
    assert planned["next step"]["money"] == pytest.approx(planned["next step"]["amount"] * per_label)
    assert planned["judge deeper"]["amount"] == 72
    assert "takes 72 calls: the 36 calls at ranks 3 to 4 found no positive" in str(planned["judge deeper"]["advice"])
    assert len(read(run, "depth_costs")) == 4
    assert [row["query_id"] for row in read(run, "next_queries")] == ["left2", "left3", "left0", "left1"]
    root = parsed(Path(write_report(run)).read_bytes())
    assert {"law-plan", "law-costs", "law-depths", "law-next"} <= set(figures(root))
    assert rows_of(root, "law-next")[0]["query"] == "kubernetes cluster upgrade tomorrow"


def test_a_folder_without_points_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="no points"):
        plan_laws(str(tmp_path), PlanRequest())
