"""What click models gain on logs whose relevant documents are known: benchmarks/made_users.py.

    python -m benchmarks.clicks [--queries 300] [--work DIR]

Every log goes through the stages `click_model`, `click_evidence` and one-hop pairs as in `darklode mine`. The
confidence is chosen on the users who look by place, the figures of the others are not used for it. Writes
benchmarks/results/clicks.md and clicks.json.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.made_users import SHOWN, USERS, World, clicks_of_a_search
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.base.relations import materialize
from darklode.pipeline.mine.click_model import CLICK_MODEL_STAGE, click_model
from darklode.pipeline.mine.evidence import EVIDENCE, evidence
from darklode.pipeline.mine.one_hop import TOTALS, OneHop
from darklode.schemas.mining import ClickSettings, LogSettings
from darklode.schemas.tables import TABLES

BUDGETS = (1, 3, 10, 30, 100, 300)
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
CHOSEN_ON, WANTED, FROM = "by place", 0.85, 10
SAMPLE = 2_000
"""Searches of a log as large as data/sample, whose queries are searched by rank with probability 1 / (rank + 2.7)."""
NEVER = "9999-12-31"


@dataclass(frozen=True)
class Kept:
    """What a model makes of one log.

    Attributes:
        users: who clicked.
        clicks: mean clicks of a query, or that it is as large as the sample.
        model: `click.model`.
        confidence: `click.confidence`; None for the paper.
        positives: pairs of a query and a clicked document.
        relevant: share of relevant ones among them; None: there are none.
        by_clicks: the same of as many pairs of the paper's, those with most clicks.
        negatives: documents that may be drawn as negatives.
        irrelevant: share of irrelevant ones among them.
        by_exposures: the same of as many of the paper's, those shown most.
        with_negative: share of the positives that get one.
    """

    users: str
    clicks: str
    model: str
    confidence: float | None
    positives: int
    relevant: float | None
    by_clicks: float | None
    negatives: int
    irrelevant: float | None
    by_exposures: float | None
    with_negative: float | None


def learned(log: pa.Table, model: str, folder: Path) -> Run:
    """A run with the log, the click model and the evidence."""
    run, click, logs = Run(str(folder)), ClickSettings.model_validate({"model": model}), LogSettings()
    given = Stage("given", 1, (), ("impressions", "relevance_evidence", "log_queries"))

    def fill(_tables: Tables, output: Output) -> None:
        output.write("impressions", log)
        for empty in given.writes[1:]:
            output.write(empty, TABLES[empty].empty())

    run.execute(run.plan(given, {}), fill)
    day, tables = date(1970, 1, 1), run.tables("impressions")
    run.execute(run.plan(CLICK_MODEL_STAGE, {}), lambda _, out: click_model(tables, out, click, logs, through=day))
    run.execute(run.plan(EVIDENCE, {}), lambda read, out: evidence(read, out, click, logs))
    return run


def kept(world: World, run: Run, model: str, level: float) -> dict[str, object]:
    """The figures of `Kept` for a run."""
    click = ClickSettings.model_validate({"model": model, "confidence": level})
    hop = OneHop(click, NEVER, 13)
    with run.tables("click_evidence", "click_prior", "relevance_evidence", "log_queries").connect() as connection:
        queries = materialize(connection, "SELECT DISTINCT tenant, query_id FROM click_evidence")
        pairs = connection.sql(f"SELECT query_id, positive_id, negative_id FROM {hop.pairs(connection, queries).click}")
        positives = pairs.to_arrow_table()
        totals = materialize(connection, TOTALS, {"before": NEVER, "seed": 13}, queries=queries)
        rows = connection.sql(f"SELECT query_id, doc_id, clicks, exposures, looks, lot FROM {totals}").fetchnumpy()
    good = world.relevant[_numbers(rows["query_id"]), _numbers(rows["doc_id"])]
    looks = rows["exposures"] if model == "paper" else np.nan_to_num(np.ma.filled(rows["looks"], np.nan))
    idle = rows["clicks"] == 0
    admitted = idle & (looks >= click.min_exposures)
    found = _relevance(world, positives)
    return {
        "positives": len(found),
        "relevant": _mean(found),
        "by_clicks": _mean(good[_most(rows["clicks"], ~idle, rows["lot"], len(found))]),
        "negatives": int(admitted.sum()),
        "irrelevant": _mean(~good[admitted]),
        "by_exposures": _mean(~good[_most(rows["exposures"], idle, rows["lot"], int(admitted.sum()))]),
        "with_negative": _mean(np.asarray(positives["negative_id"].is_valid())),
    }


def _relevance(world: World, positives: pa.Table) -> NDArray[np.bool_]:
    columns = (_numbers(positives[name].to_numpy()) for name in ("query_id", "positive_id"))
    found: NDArray[np.bool_] = world.relevant[tuple(columns)]
    return found


def _numbers(names: NDArray[np.object_]) -> NDArray[np.int64]:
    """The numbers in names such as q17."""
    return np.array([name[1:] for name in names], dtype=np.int64)


def _most(values: NDArray[np.int64], where: NDArray[np.bool_], lot: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    order = np.lexsort((lot, -np.where(where, values, -1).astype(float)))
    found: NDArray[np.int64] = order[:size]
    return found


def _mean(values: NDArray[np.bool_]) -> float | None:
    return round(float(values.mean()), 3) if len(values) else None


def logs(world: World, users: str) -> Iterator[tuple[str, pa.Table]]:
    """Logs of several sizes: as many searches as give the budget, of queries drawn alike; and one like the sample."""
    each, queries = clicks_of_a_search(world, users), len(world.relevant)
    chance = np.random.default_rng(7)
    for budget in BUDGETS:
        searches = chance.integers(0, queries, max(round(budget * queries / each), 1))
        yield str(budget), world.log(users, searches, budget)
    weights = 1 / (np.arange(queries) + 2.7)
    yield "as data/sample", world.log(users, chance.choice(queries, SAMPLE, p=weights / weights.sum()), 0)


def measured(world: World, users: str, work: Path) -> list[Kept]:
    """All models on all logs of some users."""
    found = []
    for clicks, log in logs(world, users):
        for model in ("paper", "coec", "pbm"):
            run = learned(log, model, work / users / clicks / model)
            for level in (None,) if model == "paper" else LEVELS:
                figures = kept(world, run, model, level or 0.5)
                found.append(Kept(users, clicks, model, level, **figures))  # type: ignore[arg-type]
    return found


def chosen(found: list[Kept]) -> float:
    """The least confidence at which both models' positives are relevant as often as wanted, on average from FROM on."""
    own = [one for one in found if one.users == CHOSEN_ON and one.clicks.isdigit() and int(one.clicks) >= FROM]
    for level in LEVELS:
        shares = [one.relevant or 0.0 for one in own if one.confidence == level]
        if sum(shares) >= WANTED * len(shares):
            return level
    return LEVELS[-1]


def main() -> None:
    """Measure, and write what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--work", type=Path)
    given = parser.parse_args()
    world, found = World.made(given.queries, 0), []
    for users in USERS:
        with tempfile.TemporaryDirectory(dir=given.work) as work:
            found += measured(world, users, Path(work))
    level = chosen(found)
    figures = {"machine": machine(), "confidence": level, "found": [asdict(one) for one in found]}
    write("clicks", _markdown(world, found, level), figures)


def _markdown(world: World, found: list[Kept], level: float) -> str:
    order = np.argsort(-world.scores, axis=1)[:, :SHOWN]
    precision = np.take_along_axis(world.relevant, order, axis=1).mean()
    lines = [
        "# Click models on logs whose relevant documents are known",
        f"{machine()}; DuckDB {duckdb.__version__}. {len(world.relevant)} queries, {SHOWN} documents shown, "
        f"{precision:.0%} of them relevant. Confidence {level}: the least at which {WANTED:.0%} of the positives are "
        f"relevant, on average from {FROM} clicks a query on, with users who look {CHOSEN_ON}. The other users had no "
        "say in it.",
    ]
    head = (
        *("clicks a query", "model", "positives", "relevant", "paper's as many by clicks", "with a negative"),
        *("negatives", "irrelevant", "paper's as many by exposures"),
    )
    for users in USERS:
        own = [one for one in found if one.users == users and one.confidence in (None, level)]
        lines.append(f"## Users who look {users}" if users != "trusting" else "## Users who are trusting")
        lines.append(markdown_table(head, [_row(one) for one in own]))
    lines.append("## Every confidence, 100 clicks a query")
    of_levels = [one for one in found if one.clicks == "100" and one.confidence]
    rows = [(one.users, one.model, one.confidence, one.positives, _said(one.relevant)) for one in of_levels]
    lines.append(markdown_table(("users", "model", "confidence", "positives", "relevant"), rows))
    return "\n\n".join(lines)


def _row(one: Kept) -> tuple[object, ...]:
    shares = [one.relevant, one.by_clicks, one.with_negative, one.irrelevant, one.by_exposures]
    relevant, by_clicks, with_negative, irrelevant, by_exposures = map(_said, shares)
    first = (one.clicks, one.model, one.positives, relevant, by_clicks, with_negative)
    return (*first, one.negatives, irrelevant, by_exposures)


def _said(share: float | None) -> str:
    return "–" if share is None else f"{share:.3f}"


if __name__ == "__main__":
    main()
