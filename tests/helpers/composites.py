"""A small run of two tenants for retrievers that are made of others or of models; tiny models at random weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from darklode.flows.config import load_settings
from darklode.flows.factories import retrievers
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.base.chunk_texts import TenantChunks
from darklode.pipeline.retrieve.retrievers.corpus import Corpus
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.schemas.settings import Settings
from darklode.schemas.tables import CHUNKS
from helpers.hash_encoder import content_hash
from helpers.runs import put, read
from helpers.searching import queries, searching
from helpers.tiny_bert import tiny_bert

TEXTS = {
    "acme": [
        "open the box",
        "reset the router with the button",
        "billing starts on the first day",
        "how to reset the password",
        "shipping takes two days",
        "the router has two lights",
        "open the billing page",
    ],
    "zeta": ["reset the clock", "open the door", "billing of zeta"],
}
QUERIES = [
    ("acme", "q1", "reset the router"),
    ("acme", "q2", "open billing"),
    ("acme", "q3", " "),
    ("zeta", "q1", "reset the router"),
]


def composite_run(folder: Path) -> Run:
    """The run; a chunk's id is its tenant and number."""
    run = Run(str(folder))
    rows = [(tenant, f"{tenant}-{number}", text) for tenant in TEXTS for number, text in enumerate(TEXTS[tenant])]
    tenants, ids, texts = ([row[column] for row in rows] for column in range(3))
    places = {"position": [0] * len(rows), "start": [0] * len(rows), "end": [len(text) for text in texts]}
    hashes = {"content_hash": [content_hash(text) for text in texts]}
    columns = {"tenant": tenants, "chunk_id": ids, "doc_id": ids, "text": texts}
    put(run, "chunks", CHUNKS.rows(columns | places | hashes))
    put(run, "queries", queries(QUERIES))
    return run


def composite_settings(cache: Path, *names: str, **kinds: str) -> Settings:
    """Settings with retrievers of these kinds, as YAML, by name, of which `names` are in the pool."""
    chosen = [f"retrievers.{name}={kind}" for name, kind in kinds.items()]
    return load_settings(
        assignments=[f"pool.retrievers=[{', '.join(names)}]", f"cache.root={cache}", "pool.depth=1", *chosen]
    )


def opened(run: Run, settings: Settings, name: str, scratch: Path, tenant: str = "acme") -> Retriever:
    """A retriever of the settings on a tenant's chunks."""
    chunks = TenantChunks(run.tables("chunks"), tenant)
    scratch.mkdir(exist_ok=True)
    return retrievers(settings)[name](Corpus(chunks.batches, chunks.n, scratch, None, chunks))


def rankings(run: Run, settings: Settings, depth: int = 420) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Run the search stage; (chunk id, score) of each list, by retriever, then `tenant/query`."""
    searching(run, retrievers(settings), depth)
    found: dict[str, dict[str, list[tuple[str, float]]]] = defaultdict(dict)
    for row in read(run, "rankings"):
        name = f"{row['tenant']}/{row['query_id']}"
        found[str(row["retriever"])].setdefault(name, []).append((str(row["chunk_id"]), float(str(row["score"]))))
    return dict(found)


def ids(ranking: Sequence[tuple[str, float]]) -> list[str]:
    """The chunk ids of a list."""
    return [chunk_id for chunk_id, _ in ranking]


def tiny_cross_encoder(folder: Path, labels: int = 1) -> Path:
    """A cross-encoder in a new folder."""
    return tiny_bert(folder, "BertForSequenceClassification", num_labels=labels, initializer_range=1.0)


def tiny_sparse_encoder(folder: Path) -> Path:
    """A SPLADE model in a new folder."""
    return tiny_bert(folder, "BertForMaskedLM", initializer_range=1.0)


def tiny_multi_vector_encoder(folder: Path) -> Path:
    """A ColBERT model in a new folder, of 128 dimensions."""
    import torch
    from sentence_transformers import MultiVectorEncoder

    folder.mkdir()
    bert = tiny_bert(folder / "bert", "BertModel", initializer_range=1.0)
    torch.manual_seed(7)
    MultiVectorEncoder(str(bert), device="cpu").save_pretrained(str(folder / "model"))
    return folder / "model"
