"""Warnings on measured systems with the model of the judge, or of the pool's only neural retriever."""

from datetime import date

import pyarrow as pa

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.duckdb_views import all_tables
from darklode.pipeline.report.caveats import caveats
from darklode.pipeline.report.favored_systems import favored_systems, systems_with_judge_models
from darklode.schemas.evaluation_tables import EVALUATION
from darklode.schemas.label_tables import QRELS, VERDICTS
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.runs import put

MINILM = "sentence-transformers/all-MiniLM-L6-v2"
JUDGE = f"encoder-1:sentence_transformers:{MINILM}@{'c' * 40}:prompts=none:kept=float16:0:0.5"
ENCODERS = {
    "minilm": {"kind": "sentence_transformers", "model": MINILM},
    "prompted": {"kind": "sentence_transformers", "model": "all-MiniLM-L6-v2", "query_prompt": "query: "},
    "bge": {"kind": "sentence_transformers", "model": "BAAI/bge-small-en-v1.5"},
}


def evaluated(run: Run, *systems: str, judge_id: str = "llm-1:m", source: str = "judge") -> Run:
    key = {"tenant": "t", "query_id": "q", "chunk_id": "c"}
    verdict = key | {"judge_id": judge_id, "relevant": True}
    put(run, "verdicts", pa.Table.from_pylist([verdict], schema=VERDICTS.schema))
    put(run, "qrels", pa.Table.from_pylist([key | {"relevance": 1, "source": source}], schema=QRELS.schema))
    row = {"tenant": None, "part": "counted", "measure": "nDCG@10", "value": 1.0, "ceiling": 1.0, "queries": 1}
    rows = [row | {"system": system} for system in systems]
    put(run, "evaluation", pa.Table.from_pylist(rows, schema=EVALUATION.schema))
    return run


def settings(*pool: str) -> Settings:
    return Settings.model_validate({"encoders": ENCODERS, "pool": {"retrievers": ["bm25", *pool]}})


def test_systems_with_the_judges_model_are_named_with_it(run: Run) -> None:
    evaluated(run, "bm25", "bge", "minilm", "prompted", judge_id=JUDGE)
    (warning,) = favored_systems(all_tables(run), settings("minilm", "bge"))
    assert warning.startswith(f"minilm, prompted share their model with the judge ({MINILM}): ")
    assert warning in caveats(all_tables(run), settings("minilm", "bge"))


def test_a_system_with_the_model_of_the_pools_only_neural_retriever_is_favoured(run: Run) -> None:
    evaluated(run, "bm25", "bge", "prompted")
    (warning,) = favored_systems(all_tables(run), settings("minilm"))
    assert warning.startswith(f"prompted shares its model with minilm ({MINILM}), the only neural retriever")
    assert favored_systems(all_tables(run), settings("minilm", "bge")) == []
    assert favored_systems(all_tables(run), settings()) == []
    (own_warning,) = favored_systems(all_tables(evaluated(run, "bm25", "bge")), settings("bge"))
    assert own_warning.startswith("bge (BAAI/bge-small-en-v1.5) is the only neural retriever of the pool: ")


def test_both_reasons_are_given(run: Run) -> None:
    evaluated(run, "minilm", judge_id=JUDGE)
    assert len(favored_systems(all_tables(run), settings("minilm"))) == 2


def test_other_systems_and_labels_of_people_have_no_warning(run: Run) -> None:
    evaluated(run, "bm25", "bge", judge_id=JUDGE)
    assert favored_systems(all_tables(run), settings("minilm", "bge")) == []
    evaluated(run, "minilm", judge_id=JUDGE, source="human")
    assert favored_systems(all_tables(run), settings("minilm", "bge")) == []


def test_a_run_that_was_not_evaluated_has_no_warning(run: Run) -> None:
    evaluated(run, judge_id=JUDGE)
    assert favored_systems(all_tables(run), settings("minilm")) == []


def test_the_ranker_of_a_mined_test_favours_its_encoder(run: Run) -> None:
    row = {"tenant": None, "part": "counted", "measure": "nDCG@10", "value": 1.0, "ceiling": 1.0, "queries": 1}
    put(run, "evaluation", pa.Table.from_pylist([row | {"system": "prompted"}], schema=EVALUATION.schema))
    key = {"tenant": "t", "query_id": "q", "query": "a", "doc_id": "d", "kind": "unseen", "shares_positive": False}

    def warnings(source: str, ranker: str) -> list[str]:
        pair = key | {"source": source, "date": date(2026, 3, 2)}
        put(run, "mined_test", pa.Table.from_pylist([pair], schema=TABLES["mined_test"].schema))
        judge = {"kind": "encoder", "encoder": "minilm"}
        chosen = {"encoders": ENCODERS, "judge": judge, "relevance": {"ranker": ranker}}
        shared = systems_with_judge_models(all_tables(run), Settings.model_validate(chosen))
        texts = favored_systems(all_tables(run), Settings.model_validate(chosen))
        assert shared == (["prompted"] if texts else [])
        return texts

    (warning,) = warnings("relevance_one_hop", "judge")
    assert warning.startswith(f"prompted shares its model with the judge ({MINILM})")
    assert warnings("click_one_hop", "judge") == warnings("relevance_one_hop", "none") == []


def test_rerankers_and_hybrids_with_the_judges_model_are_named_with_it(run: Run) -> None:
    cross = "cross-encoder/ms-marco-MiniLM-L6-v2"
    kinds = {
        "best": {"kind": "rerank", "of": "bm25", "model": cross},
        "other": {"kind": "rerank", "of": "bm25", "model": "cross-encoder/other"},
        "mix": {"kind": "hybrid", "of": ["bm25", "minilm"]},
        "outer": {"kind": "rerank", "of": "mix", "model": cross},
    }
    chosen = Settings.model_validate({"encoders": ENCODERS, "retrievers": kinds, "pool": {"retrievers": ["bm25"]}})

    def warnings(judge_id: str) -> list[str]:
        return favored_systems(all_tables(evaluated(run, "bm25", *kinds, judge_id=judge_id)), chosen)

    (warning,) = warnings(f"cross_encoder:{cross}@{'c' * 40}:tokens=all:dtype=float32:threshold=0.5")
    assert warning.startswith(f"best, outer share their model with the judge ({cross}): ")
    (warning,) = warnings(JUDGE)
    assert warning.startswith(f"mix, outer share their model with the judge ({MINILM}): ")
    assert warnings("llm-1:m") == []
