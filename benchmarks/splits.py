"""Leaks between training, validation and test: near-duplicate queries and shared positives, before and after.

    python -m benchmarks.splits [--sizes 100000 1000000]

Nothing here was used to choose a constant: that a slip needs five letters comes from cleaning, the stop words and stems
from BM25. "Before" is the rule that it replaces: for a log, a side by the hash of a query's set of words; for a build,
whole k-means clusters. Whether two queries are near-duplicates is measured apart from the keys that find them: the same
letters, or a Damerau-Levenshtein distance of 1 between them where both have five and no digit differs. Writes
benchmarks/results/splits.md and splits.json.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import random
import re
import resource
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.collections_io import COLLECTIONS, existing, read_jsonl
from benchmarks.report import machine, markdown_table, write
from benchmarks.zipfian_log import ranks
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.artifacts.tables import scratch
from darklode.pipeline.base.near_duplicates import near_keys
from darklode.pipeline.base.query_normalization import normal_form
from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.splits import MINED_SPLITS, mined_splits
from darklode.pipeline.prepare.cluster_sampling import QueryLsa, k_means, n_clusters
from darklode.pipeline.prepare.split import assign, connected_components
from darklode.schemas.settings import CleanSettings, SplitSettings
from darklode.schemas.tables import TABLES

FIRST = date(2026, 1, 1)
DAYS = 30
SEED = 13
GRADES = {"homedepot": 2}
SLIPPED = 500
Positives = Mapping[int, set[str]]


def collection(name: str) -> tuple[list[str], Positives]:
    """A collection's judged queries, in its order, and each one's relevant documents."""
    texts = {row["_id"]: row["text"] for row in read_jsonl(COLLECTIONS / name / "queries.jsonl")}
    relevant: dict[str, set[str]] = defaultdict(set)
    for part in ("train", "test"):
        file = COLLECTIONS / name / "qrels" / f"{part}.tsv"
        for line in file.read_text(encoding="utf-8").splitlines()[1:] if file.exists() else []:
            query, document, grade = line.split("\t")
            if int(grade) >= GRADES.get(name, 1):
                relevant[query].add(document)
    judged = [query for query in texts if query in relevant]
    return [texts[query] for query in judged], {row: relevant[query] for row, query in enumerate(judged)}


def ubi() -> list[str]:
    """The queries of the UBI sample, in the order of its file."""
    rows = read_jsonl(COLLECTIONS / "ubi-esci-sample" / "ubi_queries.jsonl")
    return distinct([row["user_query"] for row in rows if row.get("user_query")])


def distinct(texts: list[str]) -> list[str]:
    """The first of those with one normal form."""
    forms = normal_form(pa.array(texts)).to_pylist()
    return list(dict(zip(reversed(forms), reversed(texts), strict=True)).values())[::-1]


def sample() -> list[str]:
    """The queries of the sample's log, by the day on which they were first searched."""
    files = "data/sample/impressions/*/*"
    sql = f"SELECT lower(query) FROM read_csv('{files}') GROUP BY 1 ORDER BY min(timestamp), 1"
    return distinct([query for (query,) in duckdb.execute(sql).fetchall()])


def slip(text: str, chance: random.Random) -> str:
    """One letter left out, added, exchanged or moved; a text without letters stays."""
    places = [place for place, letter in enumerate(text) if letter.isalpha()]
    if not places:
        return text
    at, kind, letter = chance.choice(places), chance.randrange(4), chance.choice("abcdefghijklmnopqrstuvwxyz")
    return (
        text[:at] + text[at + 1 :],
        text[:at] + letter + text[at:],
        text[:at] + letter + text[at + 1 :],
        text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :],
    )[kind]


def shuffled(text: str, chance: random.Random) -> str:
    """The same words in another order."""
    words = text.split()
    chance.shuffle(words)
    return " ".join(words)


CHANGES: dict[str, Callable[[str, random.Random], str]] = {
    "a slip": slip,
    "other order": shuffled,
    "a slip in other order": lambda text, chance: slip(shuffled(text, chance), chance),
    "two slips": lambda text, chance: slip(slip(text, chance), chance),
}


def keys_of(texts: Sequence[str]) -> list[set[int]]:
    """Each text's keys."""
    with scratch() as connection:
        rows = {"n": np.arange(len(texts)), "tenant": pa.repeat("t", len(texts)), "text": pa.array(texts, pa.string())}
        connection.register("given", pa.table(rows))
        found: list[set[int]] = [set() for _ in texts]
        for n, key in connection.sql(f"FROM {near_keys(connection, materialize(connection, 'FROM given'))}").fetchall():
            found[n].add(key)
        return found


def minhash(texts: Sequence[str], threshold: float) -> list[Any]:
    """MinHash of each text's character 3-grams, and an index that finds those of at least `threshold` in common."""
    from datasketch import MinHash, MinHashLSH

    index, hashes = MinHashLSH(threshold=threshold, num_perm=128), []
    for number, text in enumerate(texts):
        one, plain = MinHash(num_perm=128), " ".join(["", *re.findall(r"[^\W_]+", text.lower()), ""])
        one.update_batch([plain[at : at + 3].encode() for at in range(len(plain) - 2)])
        hashes.append(one)
        index.insert(number, one)
    return [set(index.query(one)) for one in hashes]


def sharing(pairs: set[tuple[int, int]], relevant: Positives) -> float | None:
    return sum(bool(relevant[a] & relevant[b]) for a, b in pairs) / len(pairs) if pairs else None


def found_pairs(keys: Sequence[set[int]], n: int) -> set[tuple[int, int]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for row in range(n):
        for key in keys[row]:
            groups[key].append(row)
    return {pair for group in groups.values() for pair in itertools.combinations(group, 2)}


def finding(name: str, texts: list[str], relevant: Positives) -> list[dict[str, Any]]:
    """How many changed queries are found near to what they were, and what else is found: by keys, and by MinHash."""
    chance, base = random.Random(SEED), texts[:SLIPPED]
    changed = {kind: [change(text, chance) for text in base] for kind, change in CHANGES.items()}
    every = [*texts, *itertools.chain(*changed.values())]
    rows = []
    for method, threshold in (("shared keys", 0.0), ("MinHash, 0.5", 0.5)):
        began = time.perf_counter()
        found = minhash(every, threshold) if threshold else keys_of(every)
        seconds = time.perf_counter() - began
        said: dict[str, Any] = {"queries": name, "found by": method, "seconds": round(seconds, 1)}
        for number, kind in enumerate(changed):
            starts = len(texts) + number * len(base)
            near = [
                row in found[starts + row] if threshold else bool(found[row] & found[starts + row])
                for row in range(len(base))
            ]
            said[kind] = round(sum(near) / len(base), 3)
        pairs = (
            {(a, b) for a in range(len(texts)) for b in found[a] if a < b < len(texts)}
            if threshold
            else found_pairs(found, len(texts))
        )
        shared = sharing(pairs, relevant)
        rows.append(said | {"pairs among the given": len(pairs), "of them sharing a positive": shared})
    return rows


def letters(text: str) -> str:
    return "".join(re.findall(r"[^\W_]+", text.lower()))


def near_pairs(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Near-duplicates by definition, one pair after the other."""
    rows = pa.table({"n": np.arange(len(texts)), "letters": [letters(text) for text in texts]})
    sql = """
        SELECT a.n, b.n FROM given a JOIN given b
        ON a.n < b.n AND (a.letters = b.letters OR (
            length(a.letters) > 4 AND length(b.letters) > 4 AND abs(length(a.letters) - length(b.letters)) < 2
            AND regexp_replace(a.letters, '[^0-9]', '', 'g') = regexp_replace(b.letters, '[^0-9]', '', 'g')
            AND damerau_levenshtein(a.letters, b.letters) = 1))
    """
    with duckdb.connect() as connection:
        connection.register("given", rows)
        return connection.sql(sql).fetchall()


def by_words(text: str) -> str:
    """The former side of a log's query: the hash of its set of words."""
    words = " ".join(sorted(set(text.split(" "))))
    lot = hashlib.md5("\0".join([str(SEED), "split", "t", words]).encode()).digest()[8:]
    return "validation" if int.from_bytes(lot, "little") / 2**64 < 0.1 else "train"


def split_log(run: Run, days: Sequence[Sequence[str]]) -> float:
    """Give a run a log's queries, whose ids are numbers, day by day, and split it; seconds."""

    def log(_tables: Tables, output: Output) -> None:
        start = 0
        for number, texts in enumerate(days):
            n = len(texts)
            ids = pa.array([f"{row:09d}" for row in range(start, start + n)])
            day = pa.repeat(pa.scalar(FIRST + timedelta(number), pa.date32()), n)
            spelled = pa.array(texts, pa.string())
            rows = {"tenant": pa.repeat("t", n), "query_id": ids, "text": spelled, "date": day}
            rows["normal_form"] = normal_form(spelled)
            output.write("log_queries", TABLES["log_queries"].rows(rows))
            start += n

    given = Stage("given", 1, (), ("log_queries",))
    run.execute(run.plan(given, {}), log)
    began = time.perf_counter()
    run.execute(
        run.plan(MINED_SPLITS, {}),
        lambda tables, output: mined_splits(tables, output, validation_share=0.1, test_from=None, seed=SEED),
    )
    return time.perf_counter() - began


def a_log(name: str, texts: list[str]) -> dict[str, Any]:
    """Near-duplicates on both sides of a log's training data, before and after; a day holds a tenth."""
    size = -(-len(texts) // 10)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder)
        split_log(run, [texts[start : start + size] for start in range(0, len(texts), size)])
        rows = run.tables("query_clusters").read("query_clusters").sort_by("query_id")
    after, clusters = rows["split"].to_pylist(), Counter(rows["cluster_id"].to_pylist())
    before, pairs = [by_words(text) for text in texts], near_pairs(texts)
    same = [(a, b) for a, b in pairs if letters(texts[a]) == letters(texts[b])]
    across = {
        f"{what}, {when}": sum({sides[a], sides[b]} == {"train", "validation"} for a, b in some)
        for what, some in (("variants", same), ("near-duplicates", pairs))
        for when, sides in (("before", before), ("after", after))
    }
    largest = clusters.most_common(1)[0][1] / len(texts)
    named = {"log": name, "queries": len(texts), "pairs": len(pairs)}
    return (
        named
        | across
        | {
            "on neither side": after.count(None) / len(texts),
            "in validation": after.count("validation") / len(texts),
            "largest cluster": largest,
        }
    )


def components(relevant: Positives) -> float:
    """Share of the queries in the largest component that shared positives make."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    names = {name: at for at, name in enumerate(sorted({doc for docs in relevant.values() for doc in docs}))}
    edges = [(row, len(relevant) + names[doc]) for row, docs in relevant.items() for doc in docs]
    size = len(relevant) + len(names)
    graph = coo_matrix((np.ones(len(edges)), tuple(zip(*edges, strict=True))), (size, size))
    labels = connected_components(graph, directed=False)[1][: len(relevant)]
    return float(np.bincount(labels).max() / len(relevant))


def a_build(name: str, texts: list[str], relevant: Positives) -> dict[str, Any]:
    """What is on two sides of a build, and what each setting of `split.by` leaves."""
    vectors = QueryLsa.fit(texts, SEED).encode_queries(texts)
    clusters, _ = k_means(vectors, n_clusters(len(texts), CleanSettings()), SEED)
    queries = pa.table({"tenant": pa.repeat("t", len(texts)), "text": texts, "cluster_id": clusters})
    whole = connected_components(queries)
    before = assign(clusters, SplitSettings(), SEED)
    after = assign(whole, SplitSettings(), SEED)
    pairs = near_pairs(texts)
    held = {side: {doc for row in _rows(after, side) for doc in relevant[row]} for side in set(after)}
    trained = [(row, doc) for row in _rows(after, "train") for doc in relevant[row]]
    out = held["test"] | held["validation"]
    lost = sum(doc in out for _, doc in trained) / len(trained)
    kept = {row for row, doc in trained if doc not in out}
    test = _rows(after, "test")
    return {
        "collection": name,
        "queries": len(texts),
        "near-duplicates across, before": sum(before[a] != before[b] for a, b in pairs),
        "after": sum(after[a] != after[b] for a, b in pairs),
        "largest joined cluster": np.bincount(whole).max() / len(texts),
        "largest component by positives": components(relevant),
        "test queries that share a positive, cluster": sum(bool(relevant[row] & held["train"]) for row in test)
        / len(test),
        "training positives left out, cluster_and_positives": lost,
        "training queries left without one": 1 - len(kept) / np.count_nonzero(after == "train"),
    }


def _rows(sides: NDArray[Any], side: str) -> list[int]:
    found: list[int] = np.flatnonzero(sides == side).tolist()
    return found


def words() -> list[str]:
    """Words of real documents, the most frequent first."""
    text = existing(COLLECTIONS / "opensearch-docs" / "corpus.jsonl").read_text(encoding="utf-8").lower()
    return [word for word, _ in Counter(re.findall(r"[a-z]{3,14}", text)).most_common()]


def made_up(size: int) -> list[list[str]]:
    """A log of `size` queries in 30 days: two to five words of documents by rank; one in ten has a slip."""
    generator, chance, known = np.random.default_rng(SEED), random.Random(SEED), words()
    drawn = ranks(generator, size * 5, len(known)).reshape(size, 5)
    lengths = generator.integers(2, 6, size)
    texts = [" ".join(known[at] for at in row[:n]) for row, n in zip(drawn, lengths, strict=True)]
    for row in range(1, size):
        if chance.random() < 0.1:
            texts[row] = slip(texts[chance.randrange(row)], chance)
    texts = list(dict.fromkeys(texts))
    cut = -(-len(texts) // DAYS)
    return [texts[start : start + cut] for start in range(0, len(texts), cut)]


def at_size(size: int) -> dict[str, Any]:
    """Seconds of all days at once and of the last night, and how large clusters become."""
    days = made_up(size)
    with tempfile.TemporaryDirectory() as folder:
        once, nightly = Run(f"{folder}/once"), Run(f"{folder}/nightly")
        everything = split_log(once, days)
        split_log(nightly, days[:-1])
        night = split_log(nightly, days)
        rows = once.tables("query_clusters").read("query_clusters")
        outputs = [run.manifest(MINED_SPLITS) for run in (once, nightly)]
    sizes = Counter(rows["cluster_id"].to_pylist())
    return {
        "queries": rows.num_rows,
        "all days, s": round(everything, 1),
        "last night, s": round(night, 1),
        "same bytes": outputs[0].outputs == outputs[1].outputs,  # type: ignore[union-attr]
        "peak memory, MiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "largest cluster": sizes.most_common(1)[0][1] / rows.num_rows,
        "on neither side": rows["split"].null_count / rows.num_rows,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    def said(value: Any) -> object:
        return "–" if value is None else f"{value:.3f}" if isinstance(value, float) else value

    return markdown_table(list(rows[0]), [[said(value) for value in row.values()] for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 1_000_000])
    sizes = parser.parse_args().sizes
    judged = {name: collection(name) for name in ("stackfaq", "homedepot", "insuranceqa", "cranfield")}
    logs = {"sample": sample(), "ubi-esci-sample": ubi()} | {name: texts for name, (texts, _) in judged.items()}
    figures: dict[str, Any] = {
        "Finding near-duplicates": [row for name, (texts, rel) in judged.items() for row in finding(name, texts, rel)],
        "Logs": [a_log(name, texts) for name, texts in logs.items()],
        "Builds": [a_build(name, texts, relevant) for name, (texts, relevant) in judged.items()],
        "Size": [at_size(size) for size in sizes],
    }
    text = "\n\n".join(f"## {title}\n\n{table(rows)}" for title, rows in figures.items())
    write("splits", f"# Splits\n\n{machine()}\n\n{text}", figures)


if __name__ == "__main__":
    main()
