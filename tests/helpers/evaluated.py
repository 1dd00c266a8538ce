"""A small build of two tenants with test queries, made table by table."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from darklode.pipeline.base.artifacts import Manifest, Run
from darklode.pipeline.evaluate.rankings import CHUNK_RANKINGS_STAGE, rank_all
from darklode.pipeline.evaluate.test_queries import BUILD_STAGE, of_a_build
from darklode.pipeline.retrieve.retrievers.kinds import RetrieverKind
from darklode.pipeline.triplets.held_out import HELD_OUT, held_out
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put
from helpers.training_labels import put_training_labels

TOPICS = "password invoice webhook export refund login billing token".split()
TENANTS = ("acme", "b/irch")


def build_of(folder: Path) -> Run:
    """Each tenant has a chunk a topic and one more; a test query a topic, whose chunk alone is relevant.

    The queries of the first two topics share their positives with training; that of the last has none.
    """
    run = Run(str(folder))
    chunks = [
        {
            "tenant": tenant, "chunk_id": f"{topic}#1", "doc_id": topic, "position": 0, "start": 0, "end": 9,
            "text": f"to handle {topic} quickly", "title": topic, "heading": None, "content_hash": f"{tenant}{n:030}",
        }
        for tenant in TENANTS
        for n, topic in enumerate([*TOPICS, "nothing"])
    ]  # fmt: skip
    queries = [
        {
            "tenant": tenant, "query_id": f"{split} {topic}", "text": f"{topic} {word}", "n_words": 2, "language": "en",
            "language_score": 1.0, "cluster_id": n // 2, "n_represented": 1, "split": split,
        }
        for tenant in TENANTS
        for split, word in (("train", "please"), ("test", "now"))
        for n, topic in enumerate(TOPICS if split == "test" else TOPICS[:2])
    ]  # fmt: skip
    qrels = [
        {"tenant": tenant, "query_id": f"{split} {topic}", "chunk_id": f"{other}#1", "relevance": n, "source": "judge"}
        for tenant in TENANTS
        for split, last in (("train", 2), ("test", 7))
        for topic in TOPICS[:last]
        for other, n in ((topic, 1), ("nothing", 0))
    ]  # fmt: skip
    triplets = [
        {
            "tenant": tenant, "triplet_id": topic, "query_id": f"train {topic}", "query": topic, "split": "train",
            "positive_id": f"{topic}#1", "positive": f"to handle {topic} quickly", "negative_ids": [], "negatives": [],
            "negative_scores": [], "source": "pooled",
        }
        for tenant in TENANTS
        for topic in TOPICS[:2]
    ]  # fmt: skip
    for name, rows in (("chunks", chunks), ("queries", queries), ("qrels", qrels), ("triplets", triplets)):
        put(run, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
    put_training_labels(run)
    execute(run, HELD_OUT.reading("queries", "qrels", "training_labels", "chunks"), held_out)
    execute(run, BUILD_STAGE, of_a_build)
    return run


def ranked(run: Run, systems: Mapping[str, RetrieverKind], *files: Path, depth: int = 5) -> Manifest:
    """Search the run's test queries with retrievers, and take run files."""
    given = {name: one.identity for name, one in systems.items()}
    names = [str(file) for file in files]
    return execute(
        run,
        CHUNK_RANKINGS_STAGE,
        lambda tables, output: rank_all(
            tables, output, depth=depth, systems=systems, identities=given, run_files=names
        ),
    )
