"""Caveats of a mined run (triplets from a search log), the most important first."""

from darklode.pipeline.base.artifacts import Tables
from darklode.pipeline.mine.admission.held_days import held_days
from darklode.pipeline.report.caveat import FAVORED_SYSTEMS, Caveat, with_text
from darklode.pipeline.report.statistic import Statistic
from darklode.schemas.settings import Settings

NO_NEGATIVE_COUNT = Statistic("SELECT count(*) FILTER (len(negative_ids) = 0) AS n FROM triplets")
MISSING_DOCUMENTS = Statistic("""
    SELECT count(*) AS pairs, min(positive_id) AS example FROM mined_pairs p
    ANTI JOIN documents d ON d.tenant = p.tenant AND d.doc_id = p.positive_id
""")


CLICK_LABELS = Caveat(
    "Clicks are not relevance judgments",
    "A positive is a document that was clicked, that a ranker put first, or that comes from an associated query; a "
    "negative was shown but never clicked, or ranked lower. Nobody has read them.",
    "mined-triplets",
)


def ranked_mined_caveats(tables: Tables, settings: Settings) -> list[Caveat]:
    """Caveats of a mined run, the most important first.

    Args:
        tables: `duckdb_views.all_tables` of a mined run.
        settings: the settings of that run: its encoders, ranker and judge.
    """
    from darklode.pipeline.report.favored_systems import favored_systems  # slow to import

    return with_text(
        [
            _missing_documents_caveat(tables),
            Caveat("Days of the log wait for your decision", _held_days_caveat(tables), "log-days"),
            *(Caveat(FAVORED_SYSTEMS, text, "evaluation") for text in favored_systems(tables, settings)),
            Caveat("The ranker is not a language model", weak_ranker(settings), "mined-triplets"),
            CLICK_LABELS,
            Caveat("Some triplets have no negative", _no_negative_caveat(tables), "mined-triplets"),
            Caveat("Days of the log were discarded", _discarded_days_caveat(tables), "log-days"),
        ]
    )


WEAK_RANKER_CAVEAT = (
    "The ranker is the embedded scorer, which is not a language model: on labelled collections its first document is "
    "relevant for 31 to 73 % of the queries. Disable it (relevance.ranker: none), or use a cross-encoder."
)


def weak_ranker(settings: Settings) -> str:
    """Caveat if the embedded scorer ranks the documents of relevance mining; otherwise empty."""
    return WEAK_RANKER_CAVEAT if settings.relevance.ranker == "judge" and settings.judge.kind == "embedded" else ""


def _missing_documents_caveat(tables: Tables) -> Caveat:
    """Caveat on mined pairs whose positive is not among the ingested documents, with an example."""
    n_pairs = tables.rows("mined_pairs")
    (missing,) = MISSING_DOCUMENTS(tables).to_pylist()
    counts = f"{missing['pairs']:,} of {n_pairs:,}"
    text = (
        f"{counts} pairs have no triplet because their positives are not among the "
        f"documents, e.g. {missing['example']!r}. The log's ids must equal the documents' doc_id "
        "(ingest.documents.columns.doc_id, logs.columns.doc_id)."
    )
    return Caveat(f"{counts} positives are not among the documents", text if missing["pairs"] else "", "funnel")


def _no_negative_caveat(tables: Tables) -> str:
    """Caveat on triplets without a negative."""
    n_triplets = int(NO_NEGATIVE_COUNT(tables)["n"][0].as_py())
    return f"{n_triplets:,} triplets have no negative." if n_triplets else ""


N_HELD_DAYS = 3
"""Number of held days named in the card."""
DISCARDED_DAYS_SQL = "SELECT count(DISTINCT date) FROM log_days WHERE state = 'discarded'"


def _held_days_caveat(tables: Tables) -> str:
    """Caveat on days of the log that the admission stage holds back."""
    days = held_days(tables)
    option = "darklode mine {} {}"
    sentences = [
        f"{day.sentence(option.format('--accept-day', day.name), option.format('--discard-day', day.name))}."
        for day in days[:N_HELD_DAYS]
    ]
    more = [f"{len(days) - N_HELD_DAYS:,} more days are held back."] if len(days) > N_HELD_DAYS else []
    return " ".join([*sentences, *more])


def _discarded_days_caveat(tables: Tables) -> str:
    """Caveat on days of the log that an operator discarded."""
    n_discarded = tables.sql(DISCARDED_DAYS_SQL)[0][0].as_py() if "log_days" in tables else 0
    return f"{n_discarded:,} days of the log were discarded." if n_discarded else ""
