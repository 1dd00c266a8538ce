"""Runs to report on, and what a reader finds on their pages."""

import random
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from darklode.flows.config import load_settings
from darklode.flows.jobs import build_benchmark, mine_logs
from darklode.flows.jobs.job import stages
from darklode.flows.runs import folder_kind
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.report.figure import FilledFigure
from darklode.pipeline.report.page import filled_sections, page
from darklode.pipeline.report.source import ReportSource, open_source
from darklode.schemas.settings import Settings
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.runs import put
from helpers.training_labels import put_training_labels

HOSTILE = (
    "<script>window.harmed = true</script></style></title></textarea>--><img src=x onerror='window.harmed = 1'>\"' "
    "{{ 7 * 7 }} {% raw %} &lt; \u202egnp.exe \x00\x07\x1b[31m\ufffe "
)
POISONED = {
    "raw_queries": ("text",),
    "cleaned_queries": ("text", "language"),
    "queries": ("text", "language"),
    "verdicts": ("judge_id", "error"),
    "triplets": ("query", "positive", "negatives", "source"),
    "audit_retrievers": ("retriever",),
    "audit_overlap": ("retriever", "other"),
}
RETRIEVERS = ("bm25", "dense", "sparse")
THRESHOLD = 0.5


def opened(run: Run, settings: Settings | None = None) -> AbstractContextManager[ReportSource]:
    """What the run's page is made from."""
    chosen = settings or Settings()
    if "impressions" in run.parts():
        return open_source(run, chosen, stages(mine_logs.steps(run, "logs", "docs", chosen)))
    if folder_kind(run) not in {None, "benchmark"}:
        return open_source(run, chosen, {})
    return open_source(run, chosen, stages(build_benchmark.steps("docs", "queries", load_settings())))


def rendered(run: Run, settings: Settings | None = None) -> bytes:
    """The run's page."""
    with opened(run, settings) as given:
        return page(given)


def parsed(html: bytes) -> ET.Element:
    """The page, read as strictly as XML is."""
    return ET.fromstring(html)


def text_of(element: ET.Element) -> str:
    """All text of an element, white space evened out."""
    return " ".join("".join(element.itertext()).split())


def figure(root: ET.Element, key: str) -> ET.Element:
    """A figure of the page by its key."""
    (found,) = [one for one in root.iter("figure") if one.get("aria-labelledby") == key]
    return found


def figures(root: ET.Element) -> list[str]:
    """The keys of the page's figures, in order."""
    return [one.get("aria-labelledby", "") for one in root.iter("figure")]


def rows_of(root: ET.Element, key: str) -> list[dict[str, str]]:
    """The numbers of a figure: its table that is no matrix, a dictionary a row."""
    (table,) = [one for one in figure(root, key).iter("table") if one.get("class") != "matrix"]
    names = [text_of(cell) for cell in table.iter("th")]
    body = table.find("tbody")
    assert body is not None
    return [dict(zip(names, map(text_of, row), strict=True)) for row in body]


def shown(run: Run, settings: Settings | None = None) -> dict[str, FilledFigure]:
    """The run's figures by key."""
    with opened(run, settings) as given:
        return {one.figure.key: one for _, figures in filled_sections(given) for one in figures}


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    """Which query a row is of."""
    return row["tenant"], row["query_id"]


def comma(number: int) -> str:
    """A whole number as the page shows it."""
    return f"{number:,}"


def rewrite(run: Run, stage: str, change: Callable[[str, list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Do a complete stage again, its rows changed."""
    manifest = run.manifests()[stage]
    tables = {name: run.tables(name).read(name).to_pylist() for name in manifest.outputs}

    def work(_tables: Tables, output: Output) -> None:
        for name, rows in tables.items():
            output.write(name, pa.Table.from_pylist(change(name, rows), schema=TABLES[name].schema))
        for step in manifest.funnel:
            output.count(step)

    run.execute(run.plan(Stage(stage, 1, (), tuple(tables)), {"changed": True}), work)


def hostile_run(url: str) -> Run:
    """A finished run whose every text from outside means harm."""
    run = finished_run(url, ("acme", HOSTILE))
    for stage in ("ingest_queries", "clean", "split", "judge", "triplets", "audit"):
        rewrite(run, stage, _poisoned)
    return run


def _poisoned(table: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    columns = POISONED.get(table, ())
    return [row | {name: _poison(row[name], name == "error") for name in columns} for row in rows]


def _poison(value: Any, null: bool) -> Any:
    if isinstance(value, list):
        return [HOSTILE * 9 + str(one) for one in value]
    return None if null else HOSTILE + str(value)


def random_run(url: str, seed: int, tenants: int = 2, judge_id: str = "llm-1") -> Run:
    """Queries, a pool, verdicts, labels and triplets by chance; ids are the same in all tenants."""
    chance, run = random.Random(seed), Run(url)
    queries, pool, verdicts, qrels, triplets = [], [], [], [], []
    for tenant in (f"tenant {number}" for number in range(tenants)):
        for number in range(chance.randint(15, 25)):
            key = {"tenant": tenant, "query_id": f"q{number}"}
            split = chance.choice(["train", "train", "validation", "test"])
            queries.append(key | _query(chance, split))
            pairs = [key | {"chunk_id": f"c{chunk}"} for chunk in chance.sample(range(40), chance.randint(0, 25))]
            judged = [pair | _verdict(chance, judge_id) for pair in pairs]
            pool += [pair | _candidate(chance) for pair in pairs]
            verdicts += judged
            known = [one for one in judged if one["relevant"] is not None]
            qrels += [_label(one) for one in known]
            if split != "test":
                triplets += _triplets(key, split, known)
    for name, rows in {
        "queries": queries,
        "pool": pool,
        "verdicts": verdicts,
        "qrels": qrels,
        "triplets": triplets,
    }.items():
        put(run, name, pa.Table.from_pylist(rows, schema=TABLES[name].schema))
    put_training_labels(run)
    return run


def _query(chance: random.Random, split: str) -> dict[str, Any]:
    words = chance.randint(1, 40)
    known = {"language": chance.choice(["en", "de"]), "language_score": 0.9, "cluster_id": chance.randrange(9)}
    return known | {"text": "word " * words, "n_words": words, "n_represented": chance.randint(1, 30), "split": split}


def _candidate(chance: random.Random) -> dict[str, Any]:
    found = sorted(chance.sample(RETRIEVERS, chance.randint(1, len(RETRIEVERS))))
    return {"retrievers": found, "best_rank": 1, "fused_score": 0.1}


def _verdict(chance: random.Random, judge_id: str) -> dict[str, Any]:
    tokens = {"prompt_tokens": chance.randint(1, 500), "cached_tokens": 0, "completion_tokens": chance.randint(1, 9)}
    if chance.random() < 0.1:
        error = chance.choice(["no JSON", "two labels"])
        return {"judge_id": judge_id, "relevant": None, "probability": None, "error": error} | tokens
    probability = chance.random()
    return {"judge_id": judge_id, "relevant": probability >= THRESHOLD, "probability": probability} | tokens


def _label(verdict: Mapping[str, Any]) -> dict[str, Any]:
    label = {"relevance": int(verdict["relevant"]), "weight": verdict["probability"], "source": "judge"}
    return _only(verdict) | label


def _only(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("tenant", "query_id", "chunk_id")}


def _triplets(key: Mapping[str, Any], split: str, judged: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each positive with the first negatives."""
    negatives = [one["chunk_id"] for one in judged if not one["relevant"]][:5]
    return [
        {
            "triplet_id": f"{key['query_id']}-{one['chunk_id']}",
            **key,
            "query": f"query of {key['query_id']}",
            "positive_id": one["chunk_id"],
            "positive": f"text of {one['chunk_id']}",
            "negative_ids": negatives,
            "negatives": [f"text of {chunk}" for chunk in negatives],
            "negative_scores": [0.1 for _ in negatives],
            "source": "pooled",
            "split": split,
        }
        for one in judged
        if one["relevant"]
    ]
