"""The test queries: asked once, and found by the vectors that are handed over."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from darklode.flows.jobs.adapt_encoder import steps
from darklode.pipeline.base.artifacts import Output, Run
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.pairs import PAIRS_STAGE
from darklode.pipeline.train.data.system_names import ADAPTED, TERMS
from darklode.pipeline.train.release.evaluation import (
    ADAPTER_TEST_STAGE,
    CONTROL,
    DEPTH,
    SYSTEMS,
    compared_pairs,
)
from helpers.adapted import SIDES, base_for, build_to_adapt
from helpers.runs import execute, read

from ..conftest import QUICK, Adapted


def test_lists_are_of_the_test_queries_alone(adapted: Adapted) -> None:
    rows = read(adapted.out, "test_rankings")
    assert {str(row["query_id"]).partition("-")[0] for row in rows} == {"test"}
    names = ({*SYSTEMS} if adapted.out.tables().rows("control_weights") else {*SYSTEMS} - {CONTROL}) - {TERMS}
    assert {row["system"] for row in rows} == names
    lengths = {(row["system"], row["query_id"]) for row in rows}
    assert len(lengths) == len(names) * SIDES["test"]
    assert max(int(str(row["rank"])) for row in rows) <= DEPTH


@pytest.mark.slow
def test_term_vectors_are_learned_and_compared_where_they_are_asked_for(adapted: Adapted, tmp_path: Path) -> None:
    settings = adapted.settings.model_copy(update={"adapt": QUICK.model_copy(update={"init": "term_vectors"})})
    out = Run(str(tmp_path / "out"))
    for step in steps(adapted.base, settings):
        out.execute(step.plan(out), step.execute)
    assert out.tables().rows("term_vectors") > 0 == adapted.out.tables().rows("term_vectors")
    assert TERMS in {row["system"] for row in read(out, "test_rankings")}


def test_each_system_is_compared_with_the_base_and_the_adapted_one_with_each(adapted: Adapted) -> None:
    rows = read(adapted.out, "evaluation_pairs")
    pairs = [(row["system"], row["other"]) for row in rows if row["measure"] == "nDCG@10" and row["part"] == "counted"]
    assert pairs == compared_pairs([name for name in SYSTEMS if ("adapted", name) in pairs or name == ADAPTED])
    assert len({*pairs}) == len(pairs)
    assert ("BM25 + adapted, RRF", "BM25 + base, RRF") in pairs


@pytest.mark.slow
def test_being_asked_again_is_counted(adapted: Adapted, tmp_path: Path) -> None:
    assert adapted.out.manifests()["adapter_test"].facts["asked"] == 1
    out = Run(str(tmp_path / "out"))
    for rates in ((1e-4,), (3e-3,)):
        given = QUICK.model_copy(update={"learning_rates": rates, "max_steps": 50})
        for step in steps(adapted.base, adapted.settings.model_copy(update={"adapt": given})):
            if not (plan := step.plan(out)).is_up_to_date:
                out.execute(plan, step.execute)
    manifest = out.manifest(ADAPTER_TEST_STAGE)
    assert manifest is not None
    assert manifest.facts["asked"] == 2


@pytest.mark.slow
def test_without_a_test_query_no_lift_can_be_shown(adapted: Adapted, tmp_path: Path) -> None:
    source = build_to_adapt(tmp_path / "run", {"train": 6, "validation": 3, "test": 1})
    base = base_for(source, root=adapted.root)
    out = Run(str(tmp_path / "out"))
    *before, fourth = steps(base, adapted.settings)[:6]
    for step in before:
        out.execute(step.plan(out), step.execute)
    tables = out.tables(*ADAPTER_TEST_STAGE.reads)
    rows = tables.read("adaptation_queries")
    kept = rows.filter(pc.not_equal(rows["split"], "test"))
    labels, texts = tables.read("adaptation_labels"), tables.read("adaptation_texts")

    def untested(_: object, output: Output) -> None:
        for name, found in zip(PAIRS_STAGE.writes, (kept, labels, texts), strict=True):
            output.write(name, found)

    execute(out, PAIRS_STAGE, untested)
    with pytest.raises(ArtifactError, match="no test query has a positive"):
        out.execute(fourth.plan(out), fourth.execute)
