"""Each rival is trained with each seed, and one that validation does not prefer to the base is the base."""

from functools import partial
from pathlib import Path

import pyarrow.compute as pc
import pytest

from darklode.pipeline.base.agreement import FOLDS
from darklode.pipeline.base.artifacts import Output, Run, Tables
from darklode.pipeline.base.errors import ArtifactError
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.term_vectors import TERM_VECTORS_STAGE, write_term_vectors
from darklode.pipeline.train.release.ablation import ABLATION_STAGE, compare
from darklode.schemas.adaptation import AdaptSettings
from helpers.runs import execute, read

from ..conftest import QUICK, Adapted

STILL = QUICK.model_copy(update={"learning_rates": (1e-12,), "max_steps": 10, "init": "base"})


@pytest.mark.slow
def test_what_moves_nothing_finds_what_the_base_does(adapted: Adapted, tmp_path: Path) -> None:
    out = Run(str(tmp_path / "out"))
    sources = adapted.base.sources
    execute(out, PAIRS_STAGE, lambda _tables, output: adaptation_pairs(sources, output, AdaptSettings()))
    execute(out, TERM_VECTORS_STAGE, partial(write_term_vectors, base=adapted.base, enabled=True, seed=0))
    execute(
        out,
        ABLATION_STAGE,
        lambda tables, output: compare(tables, output, STILL, adapted.base, methods=["linear"], seeds=2),
    )
    rows = read(out, "comparison_lists")
    found = {(row["system"], row["seed"], row["query_id"], row["rank"]): row["text_id"] for row in rows}
    for system in ("linear", "linear, labels: shuffled"):
        mine = {key: text for key, text in found.items() if key[0] == system}
        assert {seed for _, seed, *_ in mine} == {0, 1}
        assert all(text == found["base", 0, query, rank] for (_, _, query, rank), text in mine.items())
        assert len(mine) == 2 * sum(system == "base" for system, *_ in found)
    facts = [unit["facts"] for unit in out.manifests()["adapt_compare"].units.values() if unit["facts"]]
    assert {one["chosen"] for one in facts} == {"base"}
    assert {(one["folds"], one["on_queries"]) for one in facts} == {(FOLDS, 51)}, "12 validation queries do not do"
    assert out.manifests()["adapt_compare"].facts["asked"] == len(facts) == 5 * 2
    assert all(one["peak_mb"] is None or 0 <= one["peak_mb"] < 500 for one in facts)


def test_without_a_test_query_nothing_is_compared(adapted: Adapted, tmp_path: Path) -> None:
    out, tables = Run(str(tmp_path / "out")), adapted.out.tables()
    rows = tables.read("adaptation_queries")
    kept = rows.filter(pc.not_equal(rows["split"], "test"))

    def untested(_: object, output: Output) -> None:
        for name, found in zip(PAIRS_STAGE.writes, (kept, *map(tables.read, PAIRS_STAGE.writes[1:])), strict=True):
            output.write(name, found)

    def work(given: Tables, output: Output) -> None:
        compare(given, output, STILL, adapted.base, methods=["linear"], seeds=1)

    execute(out, PAIRS_STAGE, untested)
    execute(out, TERM_VECTORS_STAGE, partial(write_term_vectors, base=adapted.base, enabled=False, seed=0))
    with pytest.raises(ArtifactError, match="no test query has a positive"):
        execute(out, ABLATION_STAGE, work)
