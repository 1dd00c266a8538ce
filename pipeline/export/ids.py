"""Ids that every reader of a format splits in the same places, and texts that are one line."""

from pathlib import Path

import duckdb

from pipeline.export.writing import JSON_LINES, any_row, copy

# All that str.split() splits at, the quote that csv readers swallow, and the escape itself.
_UNSAFE = r"[\p{Cc}\p{Z}\x22%]"

_SAFE_ID = f"""
    CREATE TEMP MACRO safe_id(id) AS CASE
        WHEN NOT regexp_matches(id, '{_UNSAFE}') THEN id
        ELSE array_to_string(list_transform(
            string_split(id, ''), lambda c: CASE WHEN regexp_matches(c, '{_UNSAFE}') THEN url_encode(c) ELSE c END), '')
    END
"""

_ONE_LINE = r"CREATE TEMP MACRO one_line(text) AS trim(regexp_replace(text, '[\p{Cc}\p{Z}]+', ' ', 'g'))"

LABELLED = """
    SELECT 'query' AS kind, tenant, query_id AS id FROM queries UNION ALL
    SELECT 'chunk' AS kind, tenant, chunk_id AS id FROM chunks
"""
"""The ids of a benchmark."""

TRAINED = """
    SELECT DISTINCT 'query' AS kind, tenant, query_id AS id FROM triplets UNION ALL
    SELECT DISTINCT 'passage' AS kind, tenant, unnest([positive_id] || negative_ids) AS id FROM triplets
"""
"""The ids of triplets, whatever their passages are: chunks or documents."""

_MAP = """
    SELECT kind, exported(tenant, id) AS exported, tenant, id FROM ids
    WHERE exported(tenant, id) <> id ORDER BY kind, tenant, id
"""


def define_ids(connection: duckdb.DuckDBPyConnection, ids: str = LABELLED) -> None:
    """Define the SQL macros `safe_id(id)`, `exported(tenant, id)` and `one_line(text)`, and the view `ids`.

    The view has the columns kind, tenant and id.

    White space, control characters, `"` and `%` become `%XX` of their UTF-8 bytes. Ids are unique within a tenant
    only: where the ids are of several tenants, an id becomes `tenant/id`, with any `/` of the tenant
    as `%2F`. `urllib.parse.unquote` undoes both.
    """
    connection.execute(_SAFE_ID)
    connection.execute(_ONE_LINE)
    connection.execute(f"CREATE TEMP VIEW ids AS {ids}")
    tenants = connection.execute("SELECT DISTINCT tenant FROM ids LIMIT 2").fetchall()
    several = "replace(safe_id(tenant), '/', '%2F') || '/' || safe_id(id)"
    exported = several if len(tenants) > 1 else "safe_id(id)"
    connection.execute(f"CREATE TEMP MACRO exported(tenant, id) AS {exported}")


def write_id_map(connection: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write `id_map.jsonl` {kind, exported, tenant, id} with every id that had to change; no file if none had to."""
    if any_row(connection, "FROM ids WHERE exported(tenant, id) <> id"):
        copy(connection, _MAP, folder / "id_map.jsonl", JSON_LINES)
