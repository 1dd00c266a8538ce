"""From pairs to triplets: the texts joined in, one folder for each tenant, day and source."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.artifacts import FunnelStep, Output, Stage, Tables, digest, key_of
from pipeline.artifacts.tables import pieces
from pipeline.mining.days import by_day, digests
from schemas.mining import MiningSettings
from schemas.tables import TRIPLETS

MINED_TRIPLETS = Stage("mined_triplets", 1, ("mined_pairs", "log_queries", "documents"), ("triplets",))

ROWS = 1 << 16
_LOTS = 2**64

TEXTS = """
    CREATE TEMP TABLE texts AS
    SELECT tenant, doc_id, concat_ws(chr(10), title, left(text, $characters)) AS text FROM documents
"""

MENTIONED = """
    SELECT bit_xor(md5_number_lower(concat_ws(chr(0), tenant, doc_id, content_hash)))
    FROM documents SEMI JOIN (
        SELECT tenant, positive_id AS doc_id FROM mined_pairs UNION SELECT tenant, negative_id FROM mined_pairs
    ) USING (tenant, doc_id)
"""

REFUTED = """
    CREATE TEMP TABLE refuted AS SELECT tenant, query_id, positive_id FROM {verdicts} WHERE relevant IS false
"""
NO_VERDICTS = "(SELECT tenant, query_id, positive_id, NULL AS relevant FROM mined_pairs LIMIT 0)"
REFUTED_OF_A_DAY = "SELECT count(*) FROM that_day SEMI JOIN refuted USING (tenant, query_id, positive_id)"

# A query's side hangs on its words alone, in whatever order: neither a new night nor a new planner moves it.
TRIPLETS_OF_A_DAY = """
    WITH asked AS (
        SELECT tenant, query_id, text, array_to_string(list_sort(list_distinct(string_split(text, ' '))), ' ') AS words
        FROM log_queries SEMI JOIN that_day USING (tenant, query_id)
    ), sides AS (
        SELECT tenant, query_id, text,
               md5_number_lower(concat_ws(chr(0), $seed, 'split', tenant, words)) / $lots AS side,
               md5_number_lower(concat_ws(chr(0), $seed, 'tier', tenant, query_id)) / $lots AS lot
        FROM asked
    )
    SELECT substr(sha256(concat_ws(chr(0), p.tenant, p.query_id, p.positive_id, p.source)), 1, 24) AS triplet_id,
           p.tenant, p.query_id, q.text AS query, p.positive_id, d.text AS positive,
           CASE WHEN n.text IS NULL THEN [] ELSE [p.negative_id] END AS negative_ids,
           CASE WHEN n.text IS NULL THEN [] ELSE [n.text] END AS negatives, p.positive_score,
           CASE WHEN n.text IS NULL THEN [] ELSE [p.negative_score] END AS negative_scores,
           p.source, p.via_query_id, p.date,
           CASE WHEN q.lot < $small THEN 'small' WHEN q.lot < $median THEN 'median' ELSE 'large' END AS tier,
           CASE WHEN q.side < $validation THEN 'validation' ELSE 'train' END AS split
    FROM that_day p
    ANTI JOIN refuted USING (tenant, query_id, positive_id)
    JOIN sides q USING (tenant, query_id)
    JOIN texts d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
    LEFT JOIN texts n ON n.tenant = p.tenant AND n.doc_id = p.negative_id
    ORDER BY p.tenant, p.source, p.query_id, p.positive_id
"""


def mined_triplets(
    tables: Tables, output: Output, settings: MiningSettings, *, validation_share: float, seed: int
) -> None:
    """Write a triplet for each pair whose positive has a text; a day in which nothing changed is kept as it is.

    A document stands for its title and the beginning of its text. A negative without a text is left out; a shortfall
    is never filled.

    Args:
        tables: what the stage reads; with `mined_verdicts`, a pair that the judge refuted makes no triplet.
        output: takes `triplets`, in folders `tenant=…/date=…/source=…`.
        settings: how long texts are, and the tiers.
        validation_share: share of the queries used for validation (ScalingNote, 4.1: 9:1).
        seed: of the split and the tiers.
    """
    given = {
        "seed": seed,
        "lots": _LOTS,
        "small": settings.small_share,
        "median": settings.median_share,
        "validation": validation_share,
    }
    days, written, refuted = by_day(tables, "mined_pairs"), 0, 0
    verified = "mined_verdicts" in tables
    bases = _bases(tables, output, digest(tables.parts("mined_verdicts")) if verified else "")
    with tables.connect() as connection:
        if not all(output.stands(day, basis) for day, basis in bases.items()):
            connection.execute(TEXTS, {"characters": settings.text_characters})
        connection.execute(REFUTED.format(verdicts="mined_verdicts" if verified else NO_VERDICTS))
        for number, (day, basis) in enumerate(bases.items()):
            with output.unit(day, basis) as unit:
                if not unit.done:
                    tables.of("mined_pairs", days[day]).view(connection, "that_day", "mined_pairs")
                    unit.facts["triplets"] = _day(connection, output, given)
                    unit.facts["refuted"] = connection.sql(REFUTED_OF_A_DAY).fetchall()[0][0]
            written += unit.facts["triplets"]
            refuted += unit.facts["refuted"]
            output.progress(number + 1, len(days), day)
    pairs = tables.rows("mined_pairs")
    dropped = {"no document of that id": pairs - written - refuted, "refuted by the judge": refuted}
    dropped = {reason: rows for reason, rows in dropped.items() if rows}
    output.count(FunnelStep("mined_triplets", "pairs", pairs, "pairs", written, dropped))


def _bases(tables: Tables, output: Output, verdicts: str) -> dict[str, str]:
    """What each day's triplets depend on: its pairs, the documents that these mention, and all verdicts."""
    days, corpus = by_day(tables, "mined_pairs"), digest(tables.parts("documents"))
    known: Mapping[str, Any] = output.earlier_facts.get("mentioned", {})
    mentioned = {}
    for day, pairs in digests(days).items():
        same = known.get(day, {}).get("of") == [pairs, corpus]
        found = known[day]["documents"] if same else _mentioned(tables.of("mined_pairs", days[day]))
        mentioned[day] = {"of": [pairs, corpus], "documents": found}
    output.facts["mentioned"] = mentioned
    return {day: key_of(facts["of"][0], facts["documents"], verdicts) for day, facts in mentioned.items()}


def _mentioned(tables: Tables) -> str:
    return str(tables.sql(MENTIONED).column(0)[0].as_py())


def _day(connection: duckdb.DuckDBPyConnection, output: Output, given: Mapping[str, object]) -> int:
    rows = 0
    for some in pieces(connection, TRIPLETS_OF_A_DAY, given, ROWS):
        found = TRIPLETS.rows(dict(zip(some.column_names, some.columns, strict=True)))
        rows += found.num_rows
        for folder, part in _split(found):
            output.write("triplets", part, folder)
    return rows


def _split(rows: pa.Table) -> list[tuple[str, pa.Table]]:
    """The rows of each partition, in order; they come sorted by tenant and source, and are of one day."""
    partitions = rows.group_by(["tenant", "source", "date"], use_threads=False).aggregate([]).to_pylist()
    return [(_folder(one), rows.filter(_mask(rows, one))) for one in partitions]


def _mask(rows: pa.Table, one: Mapping[str, Any]) -> pa.ChunkedArray:
    return pc.and_(pc.equal(rows["tenant"], one["tenant"]), pc.equal(rows["source"], one["source"]))


def _folder(one: Mapping[str, Any]) -> str:
    """Hive's way to write a partition; a tenant's name may hold anything."""
    return f"tenant={quote(one['tenant'], safe='')}/date={one['date'].isoformat()}/source={one['source']}"
