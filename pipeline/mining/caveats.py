"""What whoever uses a mined run must know, read off its tables."""

from pipeline.artifacts import Tables

NO_NEGATIVE = "SELECT count(*) FILTER (len(negative_ids) = 0) AS n FROM triplets"
STRANGERS = """
    SELECT count(*) AS pairs, min(positive_id) AS example FROM mined_pairs p
    ANTI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
"""


def caveats(tables: Tables) -> list[str]:
    """Sentences for the card and the screen; none where there is nothing to say.

    Args:
        tables: `views.all_tables` of a mined run.
    """
    found = [_without_text(tables), _without_negative(tables)]
    return [sentence for sentence in found if sentence]


def _without_text(tables: Tables) -> str:
    pairs, (strangers,) = tables.rows("mined_pairs"), tables.sql(STRANGERS).to_pylist()
    missing = strangers["pairs"]
    if not missing:
        return ""
    all_of_them = f"None of {pairs:,} pairs has a triplet"
    which = all_of_them if missing == pairs else f"{missing:,} of {pairs:,} pairs have no triplet"
    return (
        f"{which}: the documents hold no text for their positives, such as {strangers['example']!r}. The log's ids "
        "must be the documents' doc_id (ingest.documents.columns.doc_id, logs.columns.doc_id)."
    )


def _without_negative(tables: Tables) -> str:
    short = int(tables.sql(NO_NEGATIVE)["n"][0].as_py())
    return f"{short:,} triplets have no negative; none was made up." if short else ""
