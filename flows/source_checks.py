"""Checks of the documents and queries of a build, of what their readers alone do not see."""

from __future__ import annotations

from collections.abc import Sequence

from darklode.flows.sources import InputPreview
from darklode.pipeline.base.errors import DarklodeError, InputError
from darklode.pipeline.ingest.input_check import check_documents, check_queries, first_queries
from darklode.pipeline.prepare.language import languages_of
from darklode.schemas.settings import IngestSettings, Settings


def check_not_swapped(docs: InputPreview, queries: InputPreview, settings: IngestSettings) -> list[str]:
    """Check that `--docs` and `--queries` are not swapped; sources that are no local files are not checked.

    Raises:
        InputError: both are readable only as the other.
    """
    if docs.is_fetched or queries.is_fetched:
        return []

    def are_readable(documents: str, query_log: str) -> bool:
        try:
            check_documents(documents, settings)
            check_queries(query_log, settings)
        except (DarklodeError, OSError):
            return False
        return True

    if are_readable(docs.path, queries.path) or not are_readable(queries.path, docs.path):
        return []
    raise InputError(f"--docs and --queries look swapped: {queries.path} reads as documents, {docs.path} as queries")


def check_languages(queries: str, settings: Settings) -> list[str]:
    """A note on languages of many queries that cleaning drops."""
    languages = settings.clean.languages
    if settings.clean.keep_all or not languages:
        return []
    shares = languages_of(first_queries(queries, settings.ingest))
    dropped = {language: share for language, share in shares.items() if language not in languages}
    if not dropped:
        return []
    detected = ", ".join(f"{share:.0%} {language}" for language, share in dropped.items())
    proposed = language_setting([*(name for name in languages if name in shares), *dropped])
    return [
        f"{queries}: detected {detected} among the queries, but clean.language keeps only "
        f"{', '.join(languages)}; to keep those too: --set clean.language={proposed}, or null for every language"
    ]


def language_setting(languages: Sequence[str]) -> str:
    """The value of `clean.language` that keeps these languages, in the syntax of `--set`."""
    return languages[0] if len(languages) == 1 else f"[{', '.join(languages)}]"
