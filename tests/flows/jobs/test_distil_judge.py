"""judge distil on a whole run: its folder as a judge alone and in a cascade, and refusals."""

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from darklode.flows.jobs.build_benchmark import is_probed
from darklode.flows.jobs.distil_judge import distil_judge
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.base.errors import ArtifactError, DoesNotFit, NoLift, SettingsError
from darklode.pipeline.base.kinds import as_kind
from darklode.pipeline.judge.factory import Judges
from darklode.pipeline.judge.kinds import JudgeKind
from darklode.pipeline.judge.kinds.cascade import CascadeSettings
from darklode.pipeline.judge.llm.settings import LlmSettings
from darklode.pipeline.judge.probe.stage import no_new_texts
from darklode.pipeline.judge.stage import JUDGE, judge
from darklode.schemas.settings import Settings
from helpers.adapted import TENANT
from helpers.distilled import DistilledRun, distilled_run, judged_build
from helpers.reranked import bi_encoder, quick_settings
from helpers.runs import execute, read

pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> DistilledRun:
    return distilled_run(tmp_path_factory.mktemp("distilled"))


def judged(distilled: DistilledRun, settings: dict[str, Any], out: Path) -> tuple[Run, dict[str, Any]]:
    """The run's pool judged with these settings, and the stage's facts."""
    source = Run(str(distilled.root / "run"))
    resolved = Settings.model_validate({"cache": {"root": str(distilled.root / "cache")}, "judge": settings})
    run, judges = Run(str(out)), Judges.from_settings(resolved)
    tables = source.tables("queries", "chunks", "pool")
    manifest = execute(run, replace(JUDGE, reads=()), lambda _t, o: judge(tables, o, resolved.judge, judge_for=judges))
    return run, manifest.facts


def test_the_verdict_names_kappas_and_speed(distilled: DistilledRun) -> None:
    assert "Kappa with people's 120 labels: teacher" in distilled.verdict
    assert "the teacher's speed is unknown" in distilled.verdict
    record = distilled.out.store.read_object("reranker.json")
    assert record["tenant"] == TENANT
    assert record["calibrated on"] == "people's labels"
    card = (distilled.out.store.read("README.md") or b"").decode()
    assert "distilled from `llm-1:teacher`" in card
    assert "## Cascade" in card


def test_the_folder_judges_with_its_own_threshold_and_calibration(distilled: DistilledRun, tmp_path: Path) -> None:
    settings = {"kind": "cross_encoder", "model": str(distilled.out.store.url), "device": "cpu"}
    run, facts = judged(distilled, settings, tmp_path / "judged")
    threshold = distilled.out.store.read_object("reranker.json")["threshold"]
    (judge_id,) = facts["judge_ids"]
    assert f"threshold={threshold}" in judge_id
    predictions = {(row["query_id"], row["chunk_id"]): row for row in read(distilled.out, "distilled_predictions")}
    rows = [row for row in read(run, "verdicts") if (row["query_id"], row["chunk_id"]) in predictions]
    assert len(rows) == len(predictions)
    for row in rows:
        assert row["relevant"] == predictions[row["query_id"], row["chunk_id"]]["people"]
        assert (float(str(row["probability"])) >= threshold - 1e-4) == row["relevant"]


def test_a_set_threshold_replaces_the_models(distilled: DistilledRun) -> None:
    values = {"kind": "cross_encoder", "model": str(distilled.out.store.url), "threshold": 0.9}
    assert Settings.model_validate({"judge": values}).judge.cut == 0.9
    assert Settings.model_validate({"judge": values | {"threshold": None, "model": "owner/other"}}).judge.cut == 0.5


def test_a_cascade_asks_the_large_judge_for_the_rest_and_names_who_answered(
    distilled: DistilledRun, tmp_path: Path
) -> None:
    verdicts = read(Run(str(distilled.root / "run")), "verdicts")
    with (tmp_path / "verdicts.csv").open("w") as file:
        rows = csv.writer(file)
        rows.writerow(["query_id", "chunk_id", "relevant"])
        rows.writerows([row["query_id"], row["chunk_id"], row["relevant"]] for row in verdicts)
    settings = {
        "kind": "cascade",
        "small": str(distilled.out.store.url),
        "large": {"kind": "recorded", "verdicts": str(tmp_path / "verdicts.csv")},
        "agreement": 0.9,
    }
    run, facts = judged(distilled, settings, tmp_path / "judged")
    by_judge = {str(row["judge_id"]).split("-")[0].split(":")[0]: 0 for row in read(run, "verdicts")}
    assert set(by_judge) == {"cross_encoder", "recorded"}
    assert len(facts["judge_ids"]) == 2
    table = run.tables("verdicts").read("verdicts")
    n_small = pc.sum(pc.starts_with(table["judge_id"], "cross_encoder")).as_py()
    assert facts["answered_small"] == n_small
    assert facts["answered_small"] + facts["answered_large"] == len(verdicts)
    assert facts["recorded"] == facts["answered_large"]
    agreeing = {(row["query_id"], row["chunk_id"]): row["relevant"] for row in verdicts}
    for row in read(run, "verdicts"):
        if str(row["judge_id"]).startswith("recorded"):
            assert row["relevant"] == agreeing[row["query_id"], row["chunk_id"]]


def test_settings_of_a_cascade_survive_the_settings_file(distilled: DistilledRun) -> None:
    large = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1", "prompt_price_per_million": 2.0}
    values = {"judge": {"kind": "cascade", "small": str(distilled.out.store.url), "large": large}}
    settings = Settings.model_validate(values)
    again = Settings.model_validate(settings.model_dump(mode="json"))
    assert Judges.from_settings(again).identity == Judges.from_settings(settings).identity
    assert again.judge.prices() == (2.0, 0.0)
    changed = {"judge": values["judge"] | {"large": large | {"max_chunk_tokens": 77}}}
    assert Judges.from_settings(Settings.model_validate(changed)).identity != Judges.from_settings(settings).identity


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"small": "x"}, "needs judge.small, a folder of `judge distil`, and judge.large"),
        ({"small": "x", "large": {"kind": "none"}}, "cannot be of kind none"),
        ({"small": "x", "large": {"kind": "embedded", "threshold": "fitted"}}, "needs a number as threshold"),
    ],
)
def test_a_cascade_that_cannot_be(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Settings.model_validate({"judge": {"kind": "cascade"} | values})


def test_another_tenant_may_not_use_it(distilled: DistilledRun) -> None:
    values = {"kind": "cascade", "small": str(distilled.out.store.url), "large": {"kind": "embedded"}}
    judges = Judges.from_settings(Settings.model_validate({"judge": values}))
    with pytest.raises(DoesNotFit, match="was trained for tenant acme, not for other"):
        judges(TenantChunks(Run(str(distilled.root / "run")).tables("chunks"), "other"))


@pytest.mark.slow
def test_a_judge_that_learned_nothing_is_saved_and_refused(distilled: DistilledRun, tmp_path: Path) -> None:
    judged_build(tmp_path / "run", people=False)
    few = quick_settings(tmp_path, max_steps=1)
    paths = str(tmp_path / "run"), str(distilled.root / "bi"), str(tmp_path / "out")
    with pytest.raises(NoLift, match="must not replace its teacher: "):
        distil_judge(*paths, few)
    assert (tmp_path / "out" / "reranker" / "model.safetensors").exists()
    assert "It must not replace its teacher" in (tmp_path / "out" / "README.md").read_text()


def test_runs_that_cannot_teach(tmp_path: Path) -> None:
    run = judged_build(tmp_path / "run")
    model = str(bi_encoder(tmp_path / "bi"))
    with pytest.raises(ArtifactError, match="has no pool of the tenant other"):
        distil_judge(run.store.url, model, str(tmp_path / "out"), {"adapt": {"tenant": "other"}})
    settings = (tmp_path / "run" / "settings.yaml").read_text()
    cascade = "judge:\n  kind: cascade\n  small: x\n  large: {kind: embedded}\n"
    kept = "".join(line for line in settings.splitlines(keepends=True) if line.startswith("cache") or "root:" in line)
    (tmp_path / "run" / "settings.yaml").write_text(kept + cascade)
    with pytest.raises(SettingsError, match="was judged by a cascade"):
        distil_judge(run.store.url, model, str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_cascade_is_probed_as_its_judges_are(distilled: DistilledRun, tmp_path: Path) -> None:
    llm = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    recorded = {"kind": "recorded", "verdicts": str(tmp_path / "verdicts.csv")}

    def cascade(large: dict[str, Any]) -> Judges:
        values = {"kind": "cascade", "small": str(distilled.out.store.url), "large": large}
        return Judges.from_settings(Settings.model_validate({"judge": values}))

    assert is_probed(cascade(llm))
    assert no_new_texts(cascade(llm)) is None
    assert not is_probed(cascade({"kind": "embedded"}))
    assert no_new_texts(cascade(recorded)) == "judge.kind recorded cannot judge texts that the run does not have"
    reversed_examples = as_kind(cascade(llm).settings, JudgeKind).with_reversed_examples()
    assert isinstance(reversed_examples, CascadeSettings)
    assert isinstance(reversed_examples.large, LlmSettings)
    assert reversed_examples.large.reverses_examples
