"""What whoever uses a run must know, read off its tables."""

from pipeline import statistics
from pipeline.artifacts import Tables
from pipeline.raters import MIN_LABELS, MIN_OF_EACH
from schemas.settings import Settings

FEW_TEST_QUERIES = 50

SMALL_TENANTS = """
    SELECT tenant, count(*) AS chunks FROM chunks GROUP BY tenant
    HAVING count(*) <= 2 * $1 ORDER BY tenant
"""


def caveats(tables: Tables, settings: Settings) -> list[str]:
    """Sentences for the card and the screen; none where there is nothing to say.

    Args:
        tables: `views.all_tables` of a finished run.
        settings: the run's settings.
    """
    found = [
        _small(tables, settings.pool.search_depth),
        _labels(tables),
        _unreadable(tables),
        _unjudged(tables),
        _uncalibrated(tables),
        _shown(tables),
        _short(tables, settings.triplets.negatives),
    ]
    return [sentence for sentence in found if sentence]


def _small(tables: Tables, depth: int) -> str:
    tenants = tables.sql(SMALL_TENANTS, [depth])["tenant"].to_pylist()
    if not tenants:
        return ""
    named = ", ".join(tenants[:5]) + (" …" if len(tenants) > 5 else "")
    return f"Lists of {depth} hold half or more of the chunks of {named}: recall at that depth says little there."


def _labels(tables: Tables) -> str:
    rows = {row["split"]: row for row in statistics.labels(tables).to_pylist()}
    if "all" not in rows:
        return ""
    without, everything = rows["all"]["without_positives"], rows["all"]["queries"]
    test = rows["test"]["with_positives"] if "test" in rows else 0
    said = f"{without:,} of {everything:,} queries have no positive." if without else ""
    few = f"Only {test} test queries have a positive: differences between systems will be noise."
    return f"{said} {few}".strip() if test < FEW_TEST_QUERIES else said


def _unreadable(tables: Tables) -> str:
    unreadable = sum(statistics.judges(tables)["unreadable"].to_pylist())
    return (
        f"{unreadable:,} pairs have no readable verdict; they are neither positives nor negatives."
        if unreadable
        else ""
    )


def _unjudged(tables: Tables) -> str:
    rows = [row for row in statistics.stopping(tables).to_pylist() if row["judged"] < row["pairs"]]
    if not rows:
        return ""
    left = sum(row["pairs"] - row["judged"] for row in rows)
    worst = max(rows, key=lambda row: row["missed_high"])
    interval = f"{worst['missed_low']:.1%} to {worst['missed_high']:.1%}"
    return (
        f"{left:,} pairs of the pool were not judged: neither positives nor negatives, so no metric may count them as "
        f"not relevant. Missed there: an estimated {worst['missed_share']:.1%} of the positives of tenant "
        f"{worst['tenant']} (95 % interval {interval}); in no tenant is that bound higher. The audit knows the found "
        "positives only, which favour what several retrievers rank high."
    )


def _uncalibrated(tables: Tables) -> str:
    few = [row["tenant"] for row in statistics.calibration(tables).to_pylist() if row["ece"] is None]
    if not few:
        return ""
    named = ", ".join(few[:5]) + (" …" if len(few) > 5 else "")
    return (
        f"Too few human labels of {named} for a reliability curve or a fitted threshold: {MIN_LABELS} with a "
        f"probability are needed, {MIN_OF_EACH} of them relevant and {MIN_OF_EACH} not."
    )


def _shown(tables: Tables) -> str:
    rows = tables.sql("SELECT labelled, shown FROM validation WHERE tenant IS NULL AND retriever IS NULL").to_pylist()
    if not rows or not rows[0]["shown"]:
        return ""
    return (
        f"Of {rows[0]['labelled']:,} pairs that people reviewed they could see the judge's verdict of "
        f"{rows[0]['shown']:,}: such labels flatter the judge."
    )


def _short(tables: Tables, wanted: int) -> str:
    short = sum(statistics.triplets(tables, wanted)["short_rows"].to_pylist())
    return f"{short:,} triplets have fewer than {wanted} negatives; none were made up." if short else ""
