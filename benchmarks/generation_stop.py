"""What more queries would add.

`generate` estimates it from clusters of similar queries: the share of the next queries that are unlike all earlier ones
(Good-Turing), and the clusters that as many queries again would bring (Chao 1). Here the estimates after 256 to 2,048
queries are compared with what came next. The queries are real ones in random order (homedepot's logged queries,
insuranceqa's and stackfaq's questions), which stand in for a generator's, and `ict` sentences of random texts. Two
queries are similar from the median cosine on that queries have with their nearest other one, fitted to 500 queries that
are left out (of `ict`, to 500 other sentences). "Last batch" assumes that the share of new queries in the last 256
continues.

Then the stop: after how many queries `generate.min_new_share` ends the stream, and which share of all its clusters the
queries until then have. No t5 or llm generator's queries are measured: their models are not at hand.

    python -m benchmarks.generation_stop [--quick] [--only COLLECTION ...] [--collections FOLDER]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.collections_io import options, present, read_jsonl
from benchmarks.report import ResultTable, publish
from darklode.pipeline.base.segmentation import draw_long_sentence
from darklode.pipeline.generate.saturation import BATCH, EarlyStop, QueryClusters, saturation_curve, usual_similarity

REAL, TEXTS = ("homedepot", "insuranceqa", "stackfaq"), ("cranfield", "vaswani", "homedepot")
SEED, N_FITTED, MAX_QUERIES = 13, 500, 4608
SIZES = (256, 512, 1024, 2048)
MINIMUMS = (0.5, 0.3, 0.1)


def streams(root: Path, names: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Name and queries of each stream, in random order."""
    random = np.random.default_rng(SEED)
    for name in names:
        if name in REAL:
            queries = [row["text"] for row in read_jsonl(root / name / "queries.jsonl")]
            yield f"{name}, real queries", [queries[row] for row in random.permutation(len(queries))]
        if name in TEXTS:
            texts = [row["text"] for row in read_jsonl(root / name / "corpus.jsonl") if row["text"].strip()]
            chosen = random.permutation(len(texts))[: MAX_QUERIES + N_FITTED]
            yield f"{name}, ict sentences", [draw_long_sentence(texts[row], random.random()) for row in chosen]


def estimate_rows(name: str, queries: Sequence[str], similarity: float) -> Iterator[list[object]]:
    """Estimates after each size, and what came next."""
    curve = {row["queries"]: row for row in saturation_curve(queries, similarity)}
    for size in SIZES:
        now, next_batch, doubled = (curve.get(n) for n in (size, size + BATCH, 2 * size))
        if not (now and next_batch and doubled):
            continue
        last = 1 - float(now["repeated_share"] or 0)
        reached = int(doubled["clusters"] or 0) - int(now["clusters"] or 0)
        shares = [float(now["new_share"] or 0), last, 1 - float(next_batch["repeated_share"] or 0)]
        yield [name, size, now["clusters"], *shares, float(now["doubling"] or 0), last * size, reached]


def stop_rows(name: str, queries: Sequence[str], similarity: float) -> Iterator[list[object]]:
    """Where each minimum stops the stream."""
    whole = QueryClusters(similarity)
    whole.add(queries)
    for minimum in MINIMUMS:
        stop, clusters, n = EarlyStop(similarity, minimum), QueryClusters(similarity), 0
        while n < len(queries) and not stop.is_reached:
            batch = queries[n : n + BATCH]
            stop.add(batch)
            clusters.add(batch)
            n += len(batch)
        covered = sum(whole.sizes[: len(clusters.sizes)]) / len(queries)
        yield [name, len(queries), minimum, n, n / len(queries), len(clusters.sizes) / len(whole.sizes), covered]


def error_rows(estimates: Sequence[Sequence[object]]) -> list[list[object]]:
    """Mean absolute errors of the estimates and of the baseline."""
    figures = np.array([row[3:] for row in estimates], np.float64)
    good, last, share, doubling, continued, reached = figures.T
    named = {"Good-Turing and Chao 1": (good, doubling), "last batch": (last, continued)}
    return [
        [name, float(np.abs(of_share - share).mean()), float((np.abs(of_doubling - reached) / reached).mean())]
        for name, (of_share, of_doubling) in named.items()
    ]


def main() -> None:
    """Measure, print and save."""
    names = tuple(dict.fromkeys((*REAL, *TEXTS)))
    arguments = options(__doc__, names).parse_args()
    chosen = ["stackfaq"] if arguments.quick else arguments.only
    estimates: list[list[object]] = []
    stops: list[list[object]] = []
    for name, queries in streams(arguments.collections, present(chosen, arguments.collections)):
        fitted, stream = queries[:N_FITTED], queries[N_FITTED:][:MAX_QUERIES]
        similarity = usual_similarity(fitted, [str(number) for number in range(len(fitted))])
        estimates += estimate_rows(name, stream, similarity)
        stops += stop_rows(name, stream, similarity)
    columns = {"queries of": "", "after": ",d", "clusters": ",d", "new share, estimated": ".3f", "last batch": ".3f"}
    columns |= {"in the next batch": ".3f", "new clusters with as many again, estimated": ",.0f"}
    columns |= {"last batch continued": ",.0f", "reached": ",d"}
    stopping = {"queries of": "", "queries": ",d", "min_new_share": "", "stopped after": ",d", "of all": ".0%"}
    stopping |= {"clusters": ".0%", "queries in these clusters": ".0%"}
    errors = {"estimate": "", "of the share in the next batch": ".3f", "of the new clusters, relative": ".2f"}
    tables = [
        ResultTable("Estimates and what came next", columns, estimates),
        ResultTable("Mean absolute errors", errors, error_rows(estimates)),
        ResultTable("Early stop", stopping, stops),
    ]
    publish("generation_stop", tables, quick=arguments.quick)


if __name__ == "__main__":
    main()
