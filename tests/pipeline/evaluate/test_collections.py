"""A real collection, measured whole: the same figures as ir_measures on the collection's own judgments."""

from pathlib import Path

import pytest

from benchmarks.collections_io import read_qrels
from darklode.pipeline.retrieve.retrievers.kinds.bm25 import Bm25Kind
from darklode.schemas.evaluation import EvaluateSettings
from helpers.collection_runs import collection_run, evaluate_run, ir_measures_values
from helpers.runs import SHARED, read

CRANFIELD = SHARED / "collections" / "cranfield"


@pytest.mark.slow
@pytest.mark.skipif(not CRANFIELD.exists(), reason="the shared collections are not beside the repository")
def test_figures_are_those_of_ir_measures_on_the_collections_own_files(tmp_path: Path) -> None:
    run, settings = collection_run(CRANFIELD, tmp_path / "run"), EvaluateSettings(n_resamples=20, permutations=100)
    evaluate_run(run, {"bm25": Bm25Kind(), "plain": Bm25Kind(stemmer=None)}, settings)
    rows = {(row["system"], row["measure"]): row for row in read(run, "evaluation")}
    qrels = read_qrels(CRANFIELD / "qrels" / "test.tsv")
    for system in ("bm25", "plain"):
        wanted = ir_measures_values(run, qrels, system, settings.measures)
        found = {measure: rows[system, measure]["value"] for measure in settings.measures}
        assert found == pytest.approx(wanted, abs=1e-12)
    assert 0.3 < float(str(rows["bm25", "nDCG@10"]["value"])) < 0.6
    assert rows["bm25", "nDCG@10"]["queries"] == 225
