"""The tables that the stage `mined_triplets` reads."""

from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from darklode.pipeline.base.artifacts import Manifest, Run, Stage
from darklode.pipeline.triplets.mined import MINED_TRIPLETS, mined_triplets
from darklode.schemas.mining import MiningSettings
from darklode.schemas.settings import TripletSettings
from darklode.schemas.tables import TABLES
from helpers.runs import execute, put

DAY = date(2026, 3, 1)
Row = dict[str, Any]


def give_pairs(
    run: Run,
    pairs: list[Row],
    docs: list[Row],
    queries: dict[str, str],
    sides: dict[str, str | None] | None = None,
) -> None:
    """Give a run what `mined_triplets` reads: pairs, documents, queries by id, and the split of each (train)."""
    base = {"tenant": "default", "source": "click_one_hop", "date": DAY}
    rows = pa.Table.from_pylist([base | row for row in pairs], TABLES["mined_pairs"].schema)

    def write(_tables: object, output: Any) -> None:
        for day in sorted(set(rows["date"].to_pylist())):
            output.write("mined_pairs", rows.filter(pc.equal(rows["date"], day)))

    execute(run, Stage("given_mined_pairs", 1, (), TABLES["mined_pairs"].files), write)
    filled = [{"tenant": "default", "source": "t", "content_hash": row["text"]} | row for row in docs]
    put(run, "documents", pa.Table.from_pylist(filled, TABLES["documents"].schema))
    tenants = sorted({(base | row)["tenant"] for row in pairs})
    asked = [
        {"tenant": tenant, "query_id": name, "text": text, "normal_form": text, "date": DAY}
        for tenant in tenants
        for name, text in queries.items()
    ]
    put(run, "log_queries", pa.Table.from_pylist(asked, TABLES["log_queries"].schema))
    sided = [
        {key: row[key] for key in ("tenant", "query_id", "date")}
        | {"cluster_id": row["query_id"], "split": (sides or {}).get(row["query_id"], "train")}
        for row in asked
    ]
    put(run, "query_clusters", pa.Table.from_pylist(sided, TABLES["query_clusters"].schema))


def publish_triplets(
    run: Run,
    settings: MiningSettings | None = None,
    passages: TripletSettings | None = None,
    *,
    apart: bool = False,
) -> Manifest:
    """Run the stage."""
    chosen, form = settings or MiningSettings(), passages or TripletSettings()
    return execute(
        run,
        MINED_TRIPLETS,
        lambda tables, output: mined_triplets(tables, output, chosen, form, apart=apart, seed=13),
    )
