"""A small finished run of two tenants, with ids and texts that break careless readers and writers."""

from collections.abc import Mapping

import pyarrow as pa

from darklode.pipeline.base.artifacts import FunnelStep, Output, Run, Stage, Tables
from darklode.schemas.tables import TABLES

TENANTS = ("acme", "b/i rch")
CHUNK_IDS = ("guide/My page.md#1", "../x\ty#2", 'naïve "q"\u00a0☃#3', "plain#4")
QUERY_IDS = ("q 1", 'q"2"', "q%3", "q\n4")
QUERY_TEXTS = ("reset\tthe\nkey", 'say "hello"', "where, then?", "ünïcode\u2028line")
SPLITS = ("train", "train", "validation", "test")
RETRIEVERS = ("bm25", "../dense one")
JUDGE_ID = "embedded-1"

# Chunks by rank for every query: with JUDGED, bm25 has nDCG@3 = (1/log2 3 + 1/log2 4) / (1 + 1/log2 3) = 0.6934.
ORDERS = {"bm25": (1, 0, 2), "../dense one": (0, 2, 3)}
JUDGED = {0: 1, 1: 0, 2: 1, 3: 0}
WITHOUT_POSITIVES = 1
FUSED = {0: 0.4, 1: 0.3, 2: 0.2, 3: 0.1}

Rows = list[dict[str, object]]


def finished_run(url: str, tenants: tuple[str, ...] = TENANTS, *, folders: bool = False) -> Run:
    """Build the run; every stage of a build but `funnel` has its tables, its manifest and a funnel step.

    Args:
        url: where.
        tenants: of it.
        folders: whether each split has its own, as the stages write them.
    """
    run = Run(url)
    n = len(tenants)
    filled = {name: [row for tenant in tenants for row in rows(tenant)] for name, rows in _ROWS.items()}
    filled |= {name: [] for name in ("panel_verdicts", "human_labels", "calibration", "reliability")}
    filled |= {"audit_retrievers": _audit(), "audit_overlap": _overlap()}
    for stage, (tables, step) in _STAGES.items():
        counted = FunnelStep(stage, step[0], step[1] * n, step[2], step[3] * n, {k: v * n for k, v in step[4].items()})
        _stage(run, stage, {name: filled[name] for name in tables}, counted, folders=folders)
    return run


def _stage(run: Run, name: str, tables: Mapping[str, Rows], step: FunnelStep, *, folders: bool) -> None:
    def work(_tables: Tables, output: Output) -> None:
        for table, rows in tables.items():
            for folder, some in _by_split(table, rows).items() if folders else [("", rows)]:
                output.write(table, pa.Table.from_pylist(some, schema=TABLES[table].schema), folder)
        output.count(step)

    run.execute(run.plan(Stage(name, 1, (), tuple(tables)), {}), work)


def _by_split(table: str, rows: Rows) -> dict[str, Rows]:
    """Rows by the folder that the stages give them: that of their query's split."""
    if table not in {"queries", "qrels", "training_labels", "triplets"}:
        return {"": rows}
    of = dict(zip(QUERY_IDS, SPLITS, strict=True))
    return {split: [row for row in rows if of[str(row["query_id"])] == split] for split in dict.fromkeys(SPLITS)}


_Step = tuple[str, int, str, int, dict[str, int]]
_STAGES: dict[str, tuple[tuple[str, ...], _Step]] = {
    "ingest_documents": (("documents",), ("documents", 2, "documents", 2, {})),
    "ingest_queries": (("raw_queries",), ("queries", 4, "queries", 4, {})),
    "clean": (("cleaned_queries",), ("queries", 6, "queries", 4, {"too long": 1, "not en": 1, "noise": 0})),
    "split": (("queries",), ("queries", 4, "queries", 4, {})),
    "chunk": (("chunks",), ("documents", 2, "chunks", 4, {})),
    "search": (("rankings",), ("queries", 4, "ranked chunks", 24, {})),
    "pool": (("pool",), ("queries", 4, "candidates", 16, {})),
    "calibrate": (("human_labels", "calibration", "reliability"), ("rows", 2, "rows", 2, {})),
    "judge": (("verdicts", "panel_verdicts"), ("pairs", 17, "verdicts", 17, {})),
    "label": (("qrels", "training_labels"), ("verdicts", 17, "labels", 16, {"unreadable": 1})),
    "triplets": (("triplets",), ("positives", 6, "triplets", 4, {"test": 2})),
    "held_out": (("held_out",), ("held-out queries with a positive", 2, "queries", 2, {})),
    "audit": (("audit_retrievers", "audit_overlap"), ("positives", 6, "positives", 6, {})),
}


def _documents(tenant: str) -> Rows:
    row = {"tenant": tenant, "title": "Guide", "text": "one\ntwo", "source": "test", "content_hash": "h", "url": None}
    return [row | {"doc_id": chunk_id.split("#")[0]} for chunk_id in CHUNK_IDS[:2]]


def _chunks(tenant: str) -> Rows:
    texts = ("one\n\n- a list\ttab", 'He said "no"', "naïve ☃ \\n", "plain")
    headings = ("Keys › Reset", None, "Top", None)
    titles = ("Guide", "Guide", None, None)
    return [
        {
            "tenant": tenant,
            "chunk_id": chunk_id,
            "doc_id": chunk_id.split("#")[0],
            "position": place,
            "start": 0,
            "end": len(texts[place]),
            "text": texts[place],
            "title": titles[place],
            "heading": headings[place],
            "content_hash": f"h{place}",
        }
        for place, chunk_id in enumerate(CHUNK_IDS)
    ]


def _raw_queries(tenant: str) -> Rows:
    return [
        {"tenant": tenant, "query_id": query_id, "text": text, "timestamp": None, "count": 1}
        for query_id, text in zip(QUERY_IDS, QUERY_TEXTS, strict=True)
    ]


def _cleaned(tenant: str) -> Rows:
    known = {"n_words": 3, "language": "en", "language_score": 0.9, "cluster_id": 0, "n_represented": 1}
    named = zip(QUERY_IDS, QUERY_TEXTS, strict=True)
    return [{"tenant": tenant, "query_id": query_id, "text": text} | known for query_id, text in named]


def _queries(tenant: str) -> Rows:
    return [row | {"split": split} for row, split in zip(_cleaned(tenant), SPLITS, strict=True)]


def _rankings(tenant: str) -> Rows:
    return [
        {
            "tenant": tenant,
            "query_id": query_id,
            "retriever": retriever,
            "rank": rank,
            "chunk_id": CHUNK_IDS[chunk],
            "score": 1 / rank,
        }
        for query_id in QUERY_IDS
        for retriever in RETRIEVERS
        for rank, chunk in enumerate(ORDERS[retriever], 1)
    ]


def _pairs(tenant: str) -> list[tuple[dict[str, object], int, int]]:
    """Key, query and chunk of every candidate: each query with each chunk."""
    return [
        ({"tenant": tenant, "query_id": QUERY_IDS[query], "chunk_id": CHUNK_IDS[chunk]}, query, chunk)
        for query in range(len(QUERY_IDS))
        for chunk in range(len(CHUNK_IDS))
    ]


def _pool(tenant: str) -> Rows:
    found = {chunk: sorted(name for name in RETRIEVERS if chunk in ORDERS[name][:2]) for chunk in JUDGED}
    return [
        key | {"retrievers": found[chunk], "best_rank": 1 + chunk, "fused_score": FUSED[chunk]}
        for key, _, chunk in _pairs(tenant)
    ]


def _relevance(query: int, chunk: int) -> int:
    return 0 if query == WITHOUT_POSITIVES else JUDGED[chunk]


def _verdicts(tenant: str) -> Rows:
    return [
        key | {"judge_id": JUDGE_ID, "relevant": _relevance(query, chunk) > 0, "probability": 0.7}
        for key, query, chunk in _pairs(tenant)
    ]


def _qrels(tenant: str) -> Rows:
    label = {"source": "judge", "weight": 0.7}
    return [key | label | {"relevance": _relevance(query, chunk)} for key, query, chunk in _pairs(tenant)]


def _training_labels(tenant: str) -> Rows:
    splits = dict(zip(QUERY_IDS, SPLITS, strict=True))
    return [row for row in _qrels(tenant) if splits[str(row["query_id"])] != "test"]


def _triplets(tenant: str) -> Rows:
    """The positives 0 and 2 of the first train and the validation query; the latter's second has one negative only."""
    texts = [str(row["text"]) for row in _chunks(tenant)]
    return [
        {
            "triplet_id": f"{tenant}-{query}-{positive}",
            "tenant": tenant,
            "query_id": QUERY_IDS[query],
            "query": QUERY_TEXTS[query],
            "positive_id": CHUNK_IDS[positive],
            "positive": texts[positive],
            "negative_ids": [CHUNK_IDS[chunk] for chunk in negatives],
            "negatives": [texts[chunk] for chunk in negatives],
            "positive_score": FUSED[positive],
            "negative_scores": [FUSED[chunk] for chunk in negatives],
            "weight": 0.7,
            "source": "pooled",
            "via_query_id": None,
            "split": SPLITS[query],
        }
        for query, positive, negatives in ((0, 0, (1, 3)), (0, 2, (1, 3)), (2, 0, (1, 3)), (2, 2, (3,)))
    ]


def _held_out(tenant: str) -> Rows:
    """The validation and the test query: both have the training query's positives."""
    return [
        {"tenant": tenant, "query_id": QUERY_IDS[query], "split": SPLITS[query], "shares_positive": True}
        for query in (2, 3)
    ]


def _audit() -> Rows:
    low_high = {"recall_low": 0.5, "recall_high": 1.0, "leave_one_out_low": 0.5, "leave_one_out_high": 1.0}
    counts = {"unique_positives": 1, "positives": 12, "queries": 6}
    known = {"recall": 1.0, "recall_at_depth": 1.0, "leave_one_out": 0.75} | low_high | counts
    return [{"tenant": tenant, "retriever": name} | known for tenant in (None, *TENANTS) for name in RETRIEVERS]


def _overlap() -> Rows:
    pairs = [(one, other) for one in RETRIEVERS for other in RETRIEVERS]
    return [{"retriever": one, "other": two, "shared": 12, "found": 12, "jaccard": 1.0} for one, two in pairs]


_ROWS = {
    "documents": _documents,
    "chunks": _chunks,
    "raw_queries": _raw_queries,
    "cleaned_queries": _cleaned,
    "queries": _queries,
    "rankings": _rankings,
    "pool": _pool,
    "verdicts": _verdicts,
    "qrels": _qrels,
    "training_labels": _training_labels,
    "triplets": _triplets,
    "held_out": _held_out,
}
