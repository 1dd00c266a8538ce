"""The stage `mined_triplets`: join texts to mined pairs; one folder per tenant, day, source and split."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import date
from itertools import groupby
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, digest, key_of
from darklode.pipeline.base.artifacts.stage import partition_name
from darklode.pipeline.base.relations import Relation, view
from darklode.pipeline.mine.days import chain_fingerprints, digests
from darklode.pipeline.mine.tiers import MEDIAN_TIER_SHARE, N_HASH_VALUES, SMALL_TIER_SHARE, tier_of
from darklode.pipeline.triplets.placement import TRIPLET_ID_SQL
from darklode.schemas.mined_tables import MINED_PAIRS
from darklode.schemas.mining import MiningSettings
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import TRIPLETS

MINED_TRIPLETS = Stage(
    "mined_triplets", 11, ("mined_pairs", "log_queries", "query_clusters", "documents"), TRIPLETS.files
)

TEXT_BLOCK_ROWS = 1 << 14
"""Triplets whose texts are joined at a time: sorting ids needs little memory, sorting texts much more."""

SPLITS = ("train", "validation", "test")

TEXTS_SQL = """
    CREATE TEMP TABLE document_texts AS
    SELECT tenant, doc_id, CASE WHEN $with_title THEN concat_ws(chr(10), title, body) ELSE body END AS text
    FROM (SELECT tenant, doc_id, title, left(text, $max_characters) AS body FROM documents)
"""

# By day, a hash of the texts of all documents and queries that its pairs mention; the XOR does not depend on the order.
TEXT_HASHES_BY_DAY_SQL = """
    WITH mentioned_documents AS (
        SELECT date, tenant, positive_id AS doc_id FROM mined_pairs
        UNION SELECT date, tenant, negative_id FROM mined_pairs
    ), text_hashes AS (
        SELECT date, md5_number_lower(concat_ws(chr(0), tenant, doc_id, content_hash)) AS text
        FROM mentioned_documents JOIN documents USING (tenant, doc_id)
        UNION ALL
        SELECT p.date, md5_number_lower(concat_ws(chr(0), tenant, query_id, text))
        FROM (SELECT DISTINCT date, tenant, query_id FROM mined_pairs) p JOIN log_queries USING (tenant, query_id)
    )
    SELECT CAST(date AS VARCHAR) AS day, CAST(bit_xor(text) AS VARCHAR) AS texts FROM text_hashes GROUP BY date
"""

REJECTED_PAIRS_SQL = """
    CREATE TEMP TABLE rejected_pairs AS
    SELECT DISTINCT tenant, query_id, positive_id FROM {verdicts} WHERE relevant IS false
"""
NO_VERDICTS_SQL = "(SELECT tenant, query_id, positive_id, NULL AS relevant FROM mined_pairs LIMIT 0)"

# A positive belongs to the split of the first query that had it, so that later pairs cannot change earlier triplets.
OWNERS_SQL = """
    CREATE TEMP TABLE owners AS
    SELECT p.tenant, p.positive_id, arg_min(c.split, {{'date': p.date, 'query': p.query_id}}) AS owning_split
    FROM mined_pairs p JOIN query_clusters c USING (tenant, query_id)
    WHERE {enabled} AND c.split IS NOT NULL GROUP BY p.tenant, p.positive_id
"""
OWNERS_BY_DAY_SQL = """
    SELECT CAST(p.date AS VARCHAR) AS day,
           CAST(bit_xor(md5_number_lower(concat_ws(chr(0), p.tenant, p.positive_id, o.owning_split))) AS VARCHAR)
               AS owners
    FROM {pairs} p JOIN owners o USING (tenant, positive_id) GROUP BY p.date
"""

CHECKED_PAIRS_SQL = """
    CREATE OR REPLACE TEMP TABLE checked_pairs AS
    SELECT p.*, c.split,
           CASE WHEN r.query_id IS NOT NULL THEN 'rejected by the judge'
                WHEN c.split IS NULL THEN 'near-duplicate of queries in both splits'
                WHEN o.owning_split <> c.split THEN 'positive of the other split' END AS reason
    FROM {pairs} p JOIN query_clusters c USING (tenant, query_id)
    LEFT JOIN owners o USING (tenant, positive_id)
    LEFT JOIN rejected_pairs r USING (tenant, query_id, positive_id)
"""
LEFT_OUT_PAIRS_SQL = """
    SELECT CAST(date AS VARCHAR), reason, count(*) FROM checked_pairs WHERE reason IS NOT NULL GROUP BY date, reason
    ORDER BY date, reason
"""

PAIR_TRIPLET_ID_SQL = TRIPLET_ID_SQL.format(of="p.")

TRIPLETS_OF_BLOCK_SQL = f"""
    WITH block AS (FROM accepted_pairs WHERE number >= $first AND number < $first + $rows),
    block_queries AS (SELECT tenant, query_id, text AS query FROM log_queries SEMI JOIN block USING (tenant, query_id))
    SELECT {PAIR_TRIPLET_ID_SQL} AS triplet_id,
           p.tenant, p.query_id, q.query, p.positive_id, d.text AS positive,
           CASE WHEN n.text IS NULL THEN [] ELSE [p.negative_id] END AS negative_ids,
           CASE WHEN n.text IS NULL THEN [] ELSE [n.text] END AS negatives, p.positive_score,
           CASE WHEN n.text IS NULL THEN [] ELSE [p.negative_score] END AS negative_scores,
           CAST(NULL AS FLOAT) AS weight,
           p.source, p.via_query_id, p.date,
           {tier_of("p")} AS tier, p.split, p.number
    FROM block p
    JOIN block_queries q USING (tenant, query_id)
    JOIN document_texts d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
    LEFT JOIN document_texts n ON n.tenant = p.tenant AND n.doc_id = p.negative_id AND n.text <> d.text
"""

ACCEPTED_PAIRS_SQL = """
    CREATE OR REPLACE TEMP TABLE accepted_pairs AS
    SELECT *, row_number() OVER (ORDER BY date, tenant, source, query_id, positive_id) - 1 AS number
    FROM checked_pairs WHERE reason IS NULL
"""

SORTED_TRIPLETS_SQL = f"SELECT {', '.join(TRIPLETS.schema.names)} FROM ({TRIPLETS_OF_BLOCK_SQL}) ORDER BY number"

# Ids of the triplets that the days' files have for these pairs.
TRIPLET_IDS_SQL = f"""
    SELECT p.tenant, {PAIR_TRIPLET_ID_SQL} AS triplet_id, p.date FROM accepted_pairs p
    SEMI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
    ORDER BY date, tenant, triplet_id
"""


def mined_triplets(
    tables: Tables, output: Output, settings: MiningSettings, passages: TripletSettings, *, apart: bool, seed: int
) -> None:
    """Write a triplet for each pair whose positive has a text; unchanged days are kept.

    A document is its title and the beginning of its text. Negatives without a text, or with the positive's text, are
    dropped and not replaced. The patch of the pairs becomes the patch of the triplets.

    Args:
        tables: the tables that the stage reads; with `mined_verdicts`, a pair that the judge rejected makes no triplet.
        output: receives `triplets`, in folders `tenant-…/date-…/source-…/split-…`, and its patch.
        settings: settings of mining, for the text length.
        passages: whether a text begins with its title (`text_form`).
        apart: whether a positive makes triplets in one split only, that of the first query that had it.
        seed: random seed of the tiers.
    """
    parameters = {
        "seed": seed,
        "n_hashes": N_HASH_VALUES,
        "small": SMALL_TIER_SHARE,
        "median": MEDIAN_TIER_SHARE,
    }
    days = tables.by_day("mined_pairs")
    left_out = Counter[str]()
    files = tables.with_parts("mined_pairs", tables.parts("mined_pairs"))
    is_verified = "mined_verdicts" in tables
    fingerprints = _text_fingerprints(tables, output, digest(tables.parts("mined_verdicts")) if is_verified else "")
    with tables.connect() as connection:
        connection.execute(REJECTED_PAIRS_SQL.format(verdicts="mined_verdicts" if is_verified else NO_VERDICTS_SQL))
        connection.execute(OWNERS_SQL.format(enabled=apart))
        owners = (
            connection.sql(OWNERS_BY_DAY_SQL.format(pairs=view(connection, files, "mined_pairs"))) if apart else None
        )
        fingerprints = _add_split_fingerprints(tables, fingerprints, dict(owners.fetchall()) if owners else {})
        title_setting = {"with_title": passages.text_form == "title_heading_text"}
        connection.execute(TEXTS_SQL, title_setting | {"max_characters": settings.text_characters})
        missing_parts = [
            part
            for day, fingerprint in fingerprints.items()
            if not output.is_done(day, fingerprint)
            for part in days[day]
        ]
        missing_pairs = view(connection, tables.with_parts("mined_pairs", missing_parts), "mined_pairs")
        missing = _TripletsByDay(connection, missing_pairs, parameters)
        for number, (day, fingerprint) in enumerate(fingerprints.items()):
            with output.unit(day, fingerprint) as unit:
                if not unit.done:
                    unit.facts |= missing.left_out[day]
                    _write_day(output, missing.runs(day))
            left_out.update(unit.facts)
            output.progress(number + 1, len(days), day)
        left_out.update(_write_patch(connection, output, parameters))
    n_pairs = tables.rows("mined_pairs")
    n_triplets = output.rows("triplets")
    dropped = dict(sorted(left_out.items())) | {"no document of that id": n_pairs - n_triplets - left_out.total()}
    dropped = {reason: rows for reason, rows in dropped.items() if rows}
    output.count(FunnelStep("mined_triplets", "pairs", n_pairs, "pairs", n_triplets, dropped))


def _text_fingerprints(tables: Tables, output: Output, verdicts: str) -> dict[str, str]:
    """Compute a fingerprint of what each day's triplets depend on: its pairs, the texts they mention, and all verdicts.

    A query's text is that of its first day, so a day's pairs mention no later query.
    """
    days, corpus = tables.by_day("mined_pairs"), digest(tables.parts("documents"))
    earlier_mentions: Mapping[str, Any] = output.earlier_facts.get("mentioned", {})
    query_fingerprints = chain_fingerprints(digests(tables.by_day("log_queries")))
    last_query_day = {day: max((first for first in query_fingerprints if first <= day), default="") for day in days}
    base_parts = {
        day: [pairs, corpus, query_fingerprints.get(last_query_day[day], "")] for day, pairs in digests(days).items()
    }
    changed_parts = [
        part for day in days for part in days[day] if earlier_mentions.get(day, {}).get("of") != base_parts[day]
    ]
    text_hashes = (
        tables.with_parts("mined_pairs", changed_parts).sql(TEXT_HASHES_BY_DAY_SQL).to_pylist() if changed_parts else []
    )
    new_hashes = {row["day"]: row["texts"] for row in text_hashes}
    recorded_hashes = {
        day: earlier_mentions[day]["texts"]
        for day in days
        if earlier_mentions.get(day, {}).get("of") == base_parts[day]
    }
    texts = dict.fromkeys(days, "") | recorded_hashes | new_hashes
    output.facts["mentioned"] = {day: {"of": base_parts[day], "texts": texts[day]} for day in days}
    return {day: key_of(base_parts[day][0], texts[day], verdicts) for day in days}


def _add_split_fingerprints(tables: Tables, bases: Mapping[str, str], owners: Mapping[str, str]) -> dict[str, str]:
    """Add the inputs of the splits: clusters up to the day and, with `apart`, owners of positives."""
    chain = chain_fingerprints(digests(tables.by_day("query_clusters")))
    split_fingerprints = {day: chain[max(chain_day for chain_day in chain if chain_day <= day)] for day in bases}
    return {day: key_of(basis, split_fingerprints[day], owners.get(day, "")) for day, basis in bases.items()}


Run = tuple[tuple[str, str, date], pa.Table]
"""Consecutive triplets of one tenant, source and day."""


class _TripletsByDay:
    """The triplets of some days, joined together; days must be requested in ascending order.

    Attributes:
        left_out: pairs that make no triplet, by day and reason.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, pairs: Relation, parameters: Mapping[str, object]
    ) -> None:
        self.left_out = _check_pairs(connection, str(pairs))
        runs = (run for rows in _joined_rows(connection, parameters) for run in _split_runs(rows))
        self._days = groupby(runs, lambda run: run[0][2].isoformat())
        self._next = next(self._days, None)

    def runs(self, day: str) -> Iterator[Run]:
        """The triplets of a day."""
        if self._next and self._next[0] == day:
            yield from self._next[1]
            self._next = next(self._days, None)


def _write_day(output: Output, runs: Iterator[Run]) -> None:
    """Write the triplets of a day."""
    for (tenant, source, day), group in groupby(runs, itemgetter(0)):
        shared = {"tenant": tenant, "date": day, "source": source}
        folders = {split: partition_name(shared | {"split": split}) for split in SPLITS}
        with output.packed_writer("triplets", *folders.values()) as write_part:
            for _, run in group:
                for split, folder in folders.items():
                    write_part(run.filter(pc.equal(run["split"], split)), folder)


def _write_patch(
    connection: duckdb.DuckDBPyConnection, output: Output, parameters: Mapping[str, object]
) -> dict[str, int]:
    """Write the triplets for the pairs' patch; returns dropped pairs by reason, minus those removed.

    Pairs are selected as for whole days, so that a patched day equals a rewritten one.
    """
    left_out = sum(_check_pairs(connection, MINED_PAIRS.changed_column).values(), Counter[str]())
    for rows in _joined_rows(connection, parameters):
        output.write(TRIPLETS.changed_column, rows)
    left_out.subtract(sum(_check_pairs(connection, MINED_PAIRS.removed_column).values(), Counter[str]()))
    output.write_answer(TRIPLETS.removed_column, connection, TRIPLET_IDS_SQL, {})
    return left_out


def _check_pairs(connection: duckdb.DuckDBPyConnection, pairs: str) -> Mapping[str, Counter[str]]:
    """Select the pairs that make triplets (`accepted_pairs`); returns the numbers of the others by day and reason."""
    for statement in (CHECKED_PAIRS_SQL, ACCEPTED_PAIRS_SQL):
        connection.execute(statement.format(pairs=pairs))
    left_out = defaultdict[str, Counter[str]](Counter)
    for day, reason, n_pairs in connection.sql(LEFT_OUT_PAIRS_SQL).fetchall():
        left_out[day][reason] = n_pairs
    return left_out


def _joined_rows(connection: duckdb.DuckDBPyConnection, parameters: Mapping[str, object]) -> Iterator[pa.Table]:
    """Yield the triplets of the accepted pairs in order, `TEXT_BLOCK_ROWS` at a time."""
    (total,) = connection.sql("SELECT count(*) FROM accepted_pairs").fetchall()[0]
    for first in range(0, total, TEXT_BLOCK_ROWS):
        joined = connection.sql(
            SORTED_TRIPLETS_SQL, params={**parameters, "first": first, "rows": TEXT_BLOCK_ROWS}
        ).to_arrow_table()
        yield TRIPLETS.rows(dict(zip(joined.column_names, joined.columns, strict=True)))


def _split_runs(rows: pa.Table) -> Iterator[Run]:
    """Yield runs of consecutive rows with the same tenant, source and day; the order of `group_by` would be
    undefined.
    """
    if not rows.num_rows:
        return
    keys = [rows[name] for name in ("tenant", "source", "date")]
    differs = np.zeros(rows.num_rows - 1, bool)
    for key in keys:
        differs |= pc.not_equal(key[1:], key[:-1]).to_numpy(zero_copy_only=False)
    starts = [0, *(np.flatnonzero(differs) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], rows.num_rows], strict=True):
        tenant, source, day = (key[start].as_py() for key in keys)
        yield (tenant, source, day), rows.slice(start, end - start)
