from math import log2
from pathlib import Path

import ir_measures
import pyarrow as pa
import pytest
from ir_measures import Judged, R, nDCG

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.export.formats import export
from darklode.schemas.label_tables import QRELS
from darklode.schemas.tables import RANKINGS
from helpers.finished_run import CHUNK_IDS, JUDGED, QUERY_IDS, TENANTS, finished_run
from helpers.runs import put


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    export(finished_run(str(tmp_path / "run")), "trec", tmp_path / "out")
    return tmp_path / "out"


def measure(folder: Path, split: str, retriever: str) -> dict[object, float]:
    qrels = list(ir_measures.read_trec_qrels(str(folder / f"qrels.{split}.txt")))
    served = {qrel.query_id for qrel in qrels}
    found = ir_measures.read_trec_run(str(folder / "runs" / f"{retriever}.txt"))
    run = [scored for scored in found if scored.query_id in served]
    measured: dict[object, float] = ir_measures.calc_aggregate([nDCG @ 3, R @ 3, Judged @ 3], qrels, run)
    return measured


def test_ir_measures_reads_what_the_hand_computes(folder: Path) -> None:
    bm25 = measure(folder, "validation", "bm25")
    assert bm25[nDCG @ 3] == pytest.approx((1 / log2(3) + 1 / log2(4)) / (1 + 1 / log2(3)))
    assert (bm25[R @ 3], bm25[Judged @ 3]) == (1, 1)
    assert measure(folder, "test", "..%2Fdense%20one")[nDCG @ 3] == pytest.approx(1)


def test_judged_zeros_are_kept(folder: Path) -> None:
    qrels = list(ir_measures.read_trec_qrels(str(folder / "qrels.train.txt")))
    assert len(qrels) == len(TENANTS) * 2 * len(JUDGED)
    assert [qrel.relevance for qrel in qrels].count(0) == len(TENANTS) * 6


def test_every_line_has_six_words_and_ranks_follow_scores(folder: Path) -> None:
    files = sorted((folder / "runs").iterdir())
    assert [file.name for file in files] == ["..%2Fdense%20one.txt", "bm25.txt"]
    for file in files:
        lines = [line.split() for line in file.read_text(encoding="utf8").split("\n")[:-1]]
        assert {len(line) for line in lines} == {6}
        assert [int(rank) for _, _, _, rank, _, _ in lines] == [1, 2, 3] * len(TENANTS) * len(QUERY_IDS)
        assert all(float(line[4]) == pytest.approx(1 / int(line[3])) for line in lines)


def test_a_query_is_one_line(folder: Path) -> None:
    lines = (folder / "queries.tsv").read_text(encoding="utf8").split("\n")[:-1]
    texts = dict(line.split("\t") for line in lines)
    assert len(texts) == len(lines) == len(TENANTS) * len(QUERY_IDS)
    assert texts["acme/q%201"] == "reset the key"
    assert texts["acme/q%0A4"] == "ünïcode line"
    assert texts["acme/q%222%22"] == 'say "hello"'


def test_a_retrievers_name_is_neither_path_nor_sql(tmp_path: Path) -> None:
    name = "../../x'; DROP VIEW rankings; --"
    run, model = Run(str(tmp_path / "run")), finished_run(str(tmp_path / "model"), ("t",))
    for table in ("chunks", "queries", "qrels"):
        put(run, table, model.tables().read(table))
    row = {"tenant": ["t"], "query_id": ["q 1"], "chunk_id": [CHUNK_IDS[0]], "rank": [1], "score": [1.0]}
    put(run, "rankings", RANKINGS.rows(row | {"retriever": [name]}))
    files = [path for path in export(run, "trec", tmp_path / "out") if path.parent.name == "runs"]
    assert [file.parent for file in files] == [tmp_path / "out" / "runs"]
    assert len(files[0].read_text().split()) == 6


def test_uncertain_labels_are_no_judgments(tmp_path: Path) -> None:
    run, model = Run(str(tmp_path / "run")), finished_run(str(tmp_path / "model"))
    for table in ("chunks", "queries", "rankings"):
        put(run, table, model.tables().read(table))
    rows = [row | {"relevance": row["relevance"] or None} for row in model.tables().read("qrels").to_pylist()]
    put(run, "qrels", pa.Table.from_pylist(rows, schema=QRELS.schema))
    export(run, "trec", tmp_path / "out")
    qrels = list(ir_measures.read_trec_qrels(str(tmp_path / "out" / "qrels.train.txt")))
    assert qrels
    assert all(qrel.relevance > 0 for qrel in qrels)
