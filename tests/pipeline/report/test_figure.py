"""The numbers of the page against the same numbers computed another way."""

import hashlib
from collections import Counter
from statistics import median
from typing import Any

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.report.figure import FilledFigure
from darklode.pipeline.report.page import filled_sections
from darklode.pipeline.report.sections import triplets as doubts
from darklode.schemas.settings import JudgeSettings, Settings
from darklode.schemas.tables import TABLES
from helpers.finished_run import finished_run
from helpers.report_runs import RETRIEVERS, THRESHOLD, figure, opened, parsed, random_run, rendered, rows_of, text_of
from helpers.runs import put, read
from helpers.small_log import mine, random_log

SEEDS = range(3)


def shown(run: Run, settings: Settings | None = None) -> dict[str, FilledFigure]:
    """The run's figures by key."""
    with opened(run, settings) as given:
        return {one.figure.key: one for _, figures in filled_sections(given) for one in figures}


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["tenant"], row["query_id"]


def comma(number: int) -> str:
    return f"{number:,}"


@pytest.fixture(params=SEEDS)
def chance_run(request: pytest.FixtureRequest, run: Run) -> Run:
    return random_run(run.store.url, request.param)


def test_positives_per_query(chance_run: Run) -> None:
    queries, qrels = read(chance_run, "queries"), read(chance_run, "qrels")
    found = Counter(key_of(row) for row in qrels if row["relevance"])
    counts = Counter(min(31, found[key_of(row)]) for row in queries)
    root = parsed(rendered(chance_run))
    rows = rows_of(root, "positives-per-query")
    assert [(row["positives"], row["queries"]) for row in rows] == [
        (str(value), comma(counts[value])) for value in sorted(counts)
    ]
    assert f"{counts[0]} without any" in text_of(figure(root, "positives-per-query"))
    without = rows_of(root, "queries-without-positives") if counts[0] else []
    assert len(without) == min(10, counts[0])


def test_probabilities_of_the_verdicts(chance_run: Run) -> None:
    verdicts = [row for row in read(chance_run, "verdicts") if row["probability"] is not None]
    counts = Counter((int(row["probability"] * 20) / 20, row["relevant"]) for row in verdicts)
    rows = rows_of(parsed(rendered(chance_run)), "verdict-probabilities")
    told = {
        (float(row["probability from"]), relevant): int(row["relevant" if relevant else "not relevant"])
        for row in rows
        for relevant in (True, False)
    }
    assert {key: count for key, count in told.items() if count} == counts


def test_the_threshold_is_drawn_where_it_is(chance_run: Run) -> None:
    settings = Settings(judge=JudgeSettings(threshold=0.35))
    drawn = figure(parsed(rendered(chance_run, settings)), "verdict-probabilities")
    lines = [line.get("x1") for line in drawn.iter("line") if line.get("class") == "rule"]
    assert set(lines) == {"35.0%"}
    assert "threshold 0.35" in text_of(drawn)


def test_verdicts_that_could_not_be_read(chance_run: Run) -> None:
    verdicts = read(chance_run, "verdicts")
    errors = Counter(row["error"] for row in verdicts if row["relevant"] is None)
    rows = shown(chance_run)["unreadable"].table.to_pylist()
    assert rows[0]["verdicts"] == errors.total()
    assert rows[0]["share"] == errors.total() / len(verdicts)
    assert {row["error"]: row["verdicts"] for row in rows[1:]} == errors


def test_sizes_of_the_pools(chance_run: Run) -> None:
    sizes = Counter(key_of(row) for row in read(chance_run, "pool"))
    each = [sizes[key_of(row)] for row in read(chance_run, "queries")]
    found = shown(chance_run)
    (summary,) = found["pool-sizes"].table.to_pylist()
    assert (summary["min"], summary["max"], summary["median"]) == (min(each), max(each), median(each))
    rows = found["pool-histogram"].table.to_pylist()
    for row in rows:
        assert row["queries"] == sum(row["candidates_from"] <= n <= row["candidates_to"] for n in each)
    assert sum(row["queries"] for row in rows) == len(each)


def test_what_only_one_retriever_found(chance_run: Run) -> None:
    positive = {(*key_of(row), row["chunk_id"]) for row in read(chance_run, "qrels") if row["relevance"]}
    pool = [(row["retrievers"], (*key_of(row), row["chunk_id"]) in positive) for row in read(chance_run, "pool")]
    rows = {row["retriever"]: row for row in shown(chance_run)["only-one-found"].table.to_pylist()}
    for name in RETRIEVERS:
        mine_ = [(found, good) for found, good in pool if name in found]
        assert rows[name] == {
            "retriever": name,
            "positives_it_alone_found": sum(good for found, good in mine_ if len(found) == 1),
            "positives": sum(good for _, good in mine_),
            "candidates_it_alone_found": sum(len(found) == 1 for found, _ in mine_),
            "candidates": len(mine_),
        }


@pytest.mark.parametrize("first_look", [1, doubts.FIRST_LOOK])
def test_the_most_doubtful_triplets_are_those_of_the_smallest_margins(
    chance_run: Run, first_look: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By brute force: every text of every triplet with the distance of its probability from the threshold."""
    monkeypatch.setattr(doubts, "FIRST_LOOK", first_look)
    said = {(*key_of(row), row["chunk_id"]): row for row in read(chance_run, "verdicts")}
    margins = {}
    for triplet in read(chance_run, "triplets"):
        for chunk in [triplet["positive_id"], *triplet["negative_ids"]]:  # type: ignore[misc]
            verdict = said[*key_of(triplet), chunk]
            margins[*key_of(triplet), chunk] = abs(verdict["probability"] - THRESHOLD)  # type: ignore[operator]
    nearest = sorted(margins, key=lambda pair: (margins[pair], pair))[:10]
    rows = shown(chance_run)["doubtful-triplets"].table.to_pylist()
    assert [(row["tenant"], row["query_id"], row["chunk_id"]) for row in rows] == nearest
    for row in rows:
        assert (row["doubtful"] == "positive") == (row["probability"] >= THRESHOLD)
        assert (row["negative"] is None) == (row["doubtful"] == "positive")
        assert row["negative" if row["negative"] else "positive"] == f"text of {row['chunk_id']}"


def test_a_label_on_the_wrong_side_of_the_threshold_is_the_most_doubtful(chance_run: Run) -> None:
    """A higher threshold than that of the labels: the positives below it contradict it most where they lie lowest."""
    positives = {(*key_of(row), row["positive_id"]) for row in read(chance_run, "triplets")}
    said = {(*key_of(row), row["chunk_id"]): row["probability"] for row in read(chance_run, "verdicts")}
    lowest = sorted(positives, key=lambda pair: said[pair])[:10]  # type: ignore[arg-type,return-value]
    settings = Settings(judge=JudgeSettings(threshold=0.99))
    rows = shown(chance_run, settings)["doubtful-triplets"].table.to_pylist()
    assert [(row["tenant"], row["query_id"], row["chunk_id"]) for row in rows] == lowest


def test_the_random_triplets_hang_on_the_seed(chance_run: Run) -> None:
    triplets = read(chance_run, "triplets")

    def place(row: dict[str, object], seed: int) -> str:
        return hashlib.md5("\0".join([str(seed), str(row["tenant"]), str(row["triplet_id"])]).encode()).hexdigest()

    drawn = []
    for seed in (13, 14):
        expected = sorted(triplets, key=lambda row, seed=seed: place(row, seed))[:10]  # type: ignore[misc]
        rows = shown(chance_run, Settings(seed=seed))["random-triplets"].table.to_pylist()
        drawn.append([(*key_of(row), row["positive_id"]) for row in rows])
        assert drawn[-1] == [(*key_of(row), row["positive_id"]) for row in expected]
    assert drawn[0] != drawn[1]


def test_tokens_are_added_up_and_cost_is_known_only_with_a_price(chance_run: Run) -> None:
    verdicts = read(chance_run, "verdicts")
    prompt, completion = (sum(row[name] for row in verdicts) for name in ("prompt_tokens", "completion_tokens"))  # type: ignore[misc]
    (free,) = rows_of(parsed(rendered(chance_run)), "cost")
    assert (free["prompt tokens"], free["completion tokens"]) == (comma(prompt), comma(completion))
    assert free["cost"] == "unknown"
    model = {"kind": "llm", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    priced = model | {"prompt_price_per_million": 2.0, "completion_price_per_million": 8.0}
    (row,) = shown(chance_run, Settings.model_validate({"judge": priced}))["cost"].table.to_pylist()
    assert row["cost"] == pytest.approx((2 * prompt + 8 * completion) / 1e6)


def test_tokens_that_nobody_counted_are_unknown(run: Run) -> None:
    (row,) = rows_of(parsed(rendered(finished_run(run.store.url))), "cost")
    assert (row["prompt tokens"], row["completion tokens"], row["cost"]) == ("unknown",) * 3


def test_query_lengths_before_and_after_cleaning(run: Run) -> None:
    """Cluster sampling comes last, so what it dropped had passed the rest."""
    raw = {"tenant": "a", "timestamp": None, "count": 1}
    texts = {"q1": "one", "q2": "two  words", "q3": "three words here", "q4": "w " * 50}
    rows = [raw | {"query_id": name, "text": text} for name, text in texts.items()]
    put(run, "raw_queries", pa.Table.from_pylist(rows, TABLES["raw_queries"].schema))
    kept = {"tenant": "a", "query_id": "q2", "text": "two words", "n_words": 2, "language": "en"}
    kept |= {"language_score": 0.5, "cluster_id": 4, "n_represented": 2}
    put(run, "cleaned_queries", pa.Table.from_pylist([kept], TABLES["cleaned_queries"].schema))
    dropped = [
        {"table": "raw_queries", "tenant": "a", "id": name, "stage": stage, "reason": reason, "represented_by": by}
        | {"payload": texts[name]}
        for name, stage, reason, by in (
            ("q1", "clean.length", "too short", None),
            ("q3", "clean.diversity", "cluster sampling", "q2"),
            ("q4", "clean.language", "language fr", None),
        )
    ]
    put(run, "rejects", pa.Table.from_pylist(dropped, TABLES["rejects"].schema))
    found = shown(run)
    assert found["query-length"].table.to_pylist() == [
        {"words": 1, "raw": 1, "cleaned": 0, "kept": 0},
        {"words": 2, "raw": 1, "cleaned": 1, "kept": 1},
        {"words": 3, "raw": 1, "cleaned": 1, "kept": 0},
        {"words": 31, "raw": 1, "cleaned": 0, "kept": 0},
    ]
    assert found["languages"].table.to_pylist() == [
        {"language": "en", "kept": 1, "dropped": 0},
        {"language": "fr", "kept": 0, "dropped": 1},
    ]
    (cluster,) = found["largest-clusters"].table.to_pylist()
    assert (cluster["raw_queries"], cluster["examples"]) == (2, ["two words", "three words here"])


def test_a_mined_run_has_its_days_and_sources(run: Run) -> None:
    log = random_log(7)
    mine(run, log)
    root = parsed(rendered(run))
    rows = rows_of(root, "nights")
    assert [row["date"] for row in rows] == sorted(map(str, log))
    pairs = Counter(str(row["source"]) for row in read(run, "mined_pairs"))
    for name, count in pairs.items():
        assert sum(int(row[name.replace("_", " ")]) for row in rows) == count
    by_source = Counter[str]()
    for row in rows_of(root, "mined-triplets"):
        by_source[row["source"]] += int(row["triplets"])
    assert by_source == Counter(str(row["source"]) for row in read(run, "triplets"))
    by_tenant = {row["tenant"]: int(row["pairs"]) for row in rows_of(root, "mined-tenants")}
    assert by_tenant == Counter(str(row["tenant"]) for row in read(run, "mined_pairs"))


def test_mined_positives_that_the_judge_doubts_come_lowest_first(run: Run) -> None:
    mine(run, random_log(7))
    pairs = read(run, "mined_pairs")[:15]
    verdicts = [
        {name: row[name] for name in ("tenant", "query_id", "positive_id", "source")}
        | {"relevant": place % 2 == 0, "probability": (place * 7 % 15) / 15, "judge_id": "embedded-1"}
        for place, row in enumerate(pairs)
    ]
    put(run, "mined_verdicts", pa.Table.from_pylist(verdicts, TABLES["mined_verdicts"].schema))
    rows = shown(run)["doubtful-mined-triplets"].table.to_pylist()
    lowest = sorted(verdicts, key=lambda row: row["probability"])[:10]  # type: ignore[arg-type,return-value]
    assert [(*key_of(row), row["chunk_id"]) for row in rows] == [(*key_of(row), row["positive_id"]) for row in lowest]


def test_two_tenants_stand_apart(run: Run) -> None:
    root = parsed(rendered(finished_run(run.store.url)))
    assert [row["tenant"] for row in rows_of(root, "sizes")] == ["acme", "b/i rch"]
    groups = [text_of(one) for one in figure(root, "audit-retrievers").iter("h5")]
    assert groups == ["all tenants", "acme", "b/i rch"] * 2


def test_the_heat_map_holds_the_overlaps(run: Run) -> None:
    pairs = {("a", "b"): 0.25, ("a", "c"): 0.5, ("b", "c"): 0.75}
    rows = [
        {
            "retriever": one,
            "other": two,
            "shared": 1,
            "found": 1,
            "jaccard": pairs.get((min(one, two), max(one, two)), 1),
        }
        for one in "cab"
        for two in "bca"
    ]
    put(run, "audit_overlap", pa.Table.from_pylist(rows, TABLES["audit_overlap"].schema))
    (matrix,) = [one for one in figure(parsed(rendered(run)), "audit-overlap").iter("table") if one.get("class")]
    drawn = [[(text_of(cell), cell.get("class")) for cell in row.iter("td")] for row in matrix.iter("tr")][1:]
    assert drawn == [
        [("1.00", "none"), ("0.25", "h0"), ("0.50", "h5")],
        [("0.25", "h0"), ("1.00", "none"), ("0.75", "h9")],
        [("0.50", "h5"), ("0.75", "h9"), ("1.00", "none")],
    ]


def test_each_tenant_has_the_threshold_that_was_fitted_for_it(chance_run: Run) -> None:
    fitted = {"tenant 0": 0.25, "tenant 1": 0.75}
    counts = "labels unreadable true_positives false_positives false_negatives true_negatives probabilities".split()
    known = dict.fromkeys(counts, 9) | {"judge_id": "llm-1"}
    rows = [known | {"tenant": tenant, "fitted_threshold": threshold} for tenant, threshold in fitted.items()]
    put(chance_run, "calibration", pa.Table.from_pylist(rows, schema=TABLES["calibration"].schema))
    settings = Settings(judge=JudgeSettings(threshold="fitted", human="labels.csv"))
    root = parsed(rendered(chance_run, settings))
    rules = {
        line.get("x1") for line in figure(root, "verdict-probabilities").iter("line") if line.get("class") == "rule"
    }
    assert rules == {"25.0%", "75.0%"}
    for row in shown(chance_run, settings)["doubtful-triplets"].table.to_pylist():
        assert row["threshold"] == fitted[row["tenant"]]
        side = 1 if row["doubtful"] == "positive" else -1
        assert row["margin"] == pytest.approx(side * (row["probability"] - row["threshold"]))


def test_the_reliability_curve_is_drawn_where_it_is(run: Run) -> None:
    bins = [{"bin": place, "labels": 9, "lowest": 0.0, "highest": 1.0} for place in range(2)]
    places = [(0.125, 0.25, 0.125, 0.5), (0.875, 0.75, 0.5, 0.875)]
    names = ("mean_probability", "relevant_share", "share_low", "share_high")
    rows = [
        {"tenant": "a"} | one | dict(zip(names, place, strict=True)) for one, place in zip(bins, places, strict=True)
    ]
    put(run, "reliability", pa.Table.from_pylist(rows, schema=TABLES["reliability"].schema))
    drawn = figure(parsed(rendered(run)), "reliability")
    assert [(dot.get("cx"), dot.get("cy")) for dot in drawn.iter("circle")] == [("12.5%", "75.0%"), ("87.5%", "25.0%")]
    whiskers = [line for line in drawn.iter("line") if line.get("class") == "whisker"]
    assert [(line.get("y1"), line.get("y2")) for line in whiskers] == [("87.5%", "50.0%"), ("50.0%", "12.5%")]
