"""What a place in the list is worth: its share of clicks (COEC), or the chance that a user looks there (PBM)."""

from datetime import date

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import Output, Stage, Tables, digest
from darklode.pipeline.base.relations import view
from darklode.pipeline.mine.days import digests, until
from darklode.pipeline.mine.evidence import Exposures
from darklode.schemas.mining import ClickSettings, LogSettings
from darklode.schemas.tables import TABLES

CLICK_MODEL_STAGE = Stage("click_model", 1, (), ("click_model",), consults=("impressions",))

MOST_ROWS = 2_000_000
"""Distinct (query, document, place) that the position-based model is fitted on: the most shown ones of a tenant."""

ROUNDS = 50

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]

SEEN = """
    CREATE TEMP TABLE seen (tenant VARCHAR, query_id VARCHAR, doc_id VARCHAR, position INTEGER,
                            exposures BIGINT, clicks BIGINT)
"""

SEEN_OF_A_DAY = """
    INSERT INTO seen
    SELECT tenant, query_id, doc_id, position, count(*), count(*) FILTER (clicked)
    FROM {people} WHERE position IS NOT NULL GROUP BY ALL
"""

SHARES = """
    SELECT tenant, position, round(sum(clicks) / sum(exposures), 6) AS expected,
           CAST(sum(exposures) AS BIGINT) AS exposures
    FROM seen GROUP BY tenant, position ORDER BY tenant, position
"""

MOST_SHOWN = """
    WITH found AS (
        SELECT query_id, doc_id, position, sum(exposures) AS exposures, sum(clicks) AS clicks
        FROM seen WHERE tenant = $tenant GROUP BY query_id, doc_id, position
        ORDER BY exposures DESC, query_id, doc_id, position LIMIT $most
    )
    SELECT dense_rank() OVER (ORDER BY query_id, doc_id) - 1 AS pair, position,
           CAST(exposures AS BIGINT) AS exposures, CAST(clicks AS BIGINT) AS clicks
    FROM found ORDER BY pair, position
"""


def click_model(
    tables: Tables, output: Output, click: ClickSettings, logs: LogSettings, *, through: date | None
) -> None:
    """Learn what each place is worth from the impressions up to a day; nothing for the model `paper`.

    Args:
        tables: holds `impressions`.
        output: takes `click_model`.
        click: which model.
        logs: whose searches count.
        through: the last day to learn from; None: no day is settled yet, and every place is worth the same.

    Source: COEC: Zhang and Jones (2007); PBM by expectation maximisation: Chuklin, Markov and de Rijke (2015), 4.2.
    """
    if click.model == "paper":
        return
    days = tables.by_day("impressions", "timestamp")
    with tables.connect() as connection:
        connection.execute(SEEN)
        for day in until(digests(days), through):
            impressions = view(connection, tables.of("impressions", days[day]), "impressions")
            exposures = Exposures.of(connection, impressions, logs)
            connection.execute(SEEN_OF_A_DAY.format(people=exposures.people))
            exposures.drop(connection)
        shares: pa.Table = connection.sql(SHARES).to_arrow_table()
        if click.model == "pbm":
            shares = _looked_at(connection, shares)
    output.write("click_model", shares.cast(TABLES["click_model"].schema))
    version = digest(output.parts["click_model"])
    output.facts |= {"version": f"{click.model}:{version}", "through": through and through.isoformat()}


def _looked_at(connection: duckdb.DuckDBPyConnection, shares: pa.Table) -> pa.Table:
    """The places' shares of clicks replaced by what a user who looks there would click on, on average."""
    tenants = pc.unique(shares["tenant"]).to_pylist()
    return pa.concat_tables([shares.slice(0, 0), *(_of_tenant(connection, shares, tenant) for tenant in tenants)])


def _of_tenant(connection: duckdb.DuckDBPyConnection, shares: pa.Table, tenant: str) -> pa.Table:
    own = shares.filter(pc.equal(shares["tenant"], tenant))
    given = {"tenant": tenant, "most": MOST_ROWS}
    rows = connection.sql(MOST_SHOWN, params=given).fetchnumpy()
    positions = own["position"].to_numpy()
    place = np.searchsorted(positions, rows["position"])
    looked = examination(rows["pair"], place, rows["exposures"], rows["clicks"], own["expected"].to_numpy())
    shown = own["exposures"].to_numpy()
    clicks = own["expected"].to_numpy() @ shown
    expected = np.round(looked * clicks / max(looked @ shown, 1e-9), 6)
    return own.set_column(own.schema.get_field_index("expected"), "expected", pa.array(expected))


def examination(pair: _Ints, place: _Ints, exposures: _Ints, clicks: _Ints, first: _Floats) -> _Floats:
    """How likely a user looks at each place, relative to the likeliest: shape (n_places,), 0 to 1.

    A click needs a look at the place and an attractive document: P(click) = examination · attractiveness. Both are
    fitted by expectation maximisation.

    Args:
        pair: number of the query and document, shape (n_rows,).
        place: number of the place, shape (n_rows,).
        exposures: how often the pair was shown at the place, shape (n_rows,).
        clicks: how often it was clicked there, shape (n_rows,).
        first: where examination starts from, above 0, shape (n_places,).
    """
    looked = np.clip(first / max(first.max(initial=0), 1e-9), 1e-3, 1)
    drawn = np.full(int(pair.max(initial=-1)) + 1, 0.5)
    shown_at, shown_of = np.bincount(place, exposures, len(looked)), np.bincount(pair, exposures, len(drawn))
    for _ in range(ROUNDS):
        theta, alpha = looked[place], drawn[pair]
        passed = (exposures - clicks) / np.maximum(1 - theta * alpha, 1e-9)
        seen = clicks + passed * theta * (1 - alpha)
        liked = clicks + passed * alpha * (1 - theta)
        looked = np.bincount(place, seen, len(looked)) / np.maximum(shown_at, 1)
        drawn = np.bincount(pair, liked, len(drawn)) / np.maximum(shown_of, 1)
    relative: _Floats = looked / max(looked.max(initial=0), 1e-9)
    return relative
