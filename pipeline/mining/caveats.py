"""What whoever uses a mined run must know, read off its tables."""

from pipeline.artifacts import Tables

NO_NEGATIVE = "SELECT count(*) FILTER (len(negative_ids) = 0) AS n FROM triplets"
STRANGERS = """
    SELECT positive_id FROM mined_pairs p ANTI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
    ORDER BY positive_id LIMIT 1
"""


def caveats(tables: Tables) -> list[str]:
    """Sentences for the card and the screen; none where there is nothing to say.

    Args:
        tables: `views.all_tables` of a mined run.
    """
    found = [_without_text(tables), _without_negative(tables)]
    return [sentence for sentence in found if sentence]


def _without_text(tables: Tables) -> str:
    pairs = tables.rows("mined_pairs")
    missing = pairs - tables.rows("triplets")
    strangers = tables.sql(STRANGERS)["positive_id"].to_pylist()
    if not missing or not strangers:
        return ""
    which = (
        f"None of {pairs:,} pairs has a triplet" if missing == pairs else f"{missing:,} of {pairs:,} pairs have none"
    )
    return (
        f"{which}: the documents hold no text for their positives, such as {strangers[0]!r}. The log's ids must be the "
        "documents' doc_id (ingest.documents.columns.doc_id, logs.columns.doc_id)."
    )


def _without_negative(tables: Tables) -> str:
    short = int(tables.sql(NO_NEGATIVE)["n"][0].as_py())
    return f"{short:,} triplets have no negative; none was made up." if short else ""
