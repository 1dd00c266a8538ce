"""Checks of documents and queries before a build: swapped inputs, and languages that cleaning drops."""

from pathlib import Path

import pytest

from darklode.flows.source_checks import check_languages, check_not_swapped, language_setting
from darklode.flows.sources import InputPreview
from darklode.pipeline.base.errors import InputError
from darklode.schemas.settings import Settings

GERMAN = ["wie setze ich mein passwort zurück", "wann kommt meine rechnung für den monat"] * 10
ENGLISH = ["how do i reset my password today", "when does the invoice for the month come"] * 10


def write_inputs(folder: Path) -> tuple[str, str]:
    """A table of documents, which has no queries, and one of queries, which has no documents."""
    docs, queries = folder / "docs.csv", folder / "queries.csv"
    docs.write_text("doc_id,body\nd1,Reset the router.\n")
    queries.write_text("qid,user_query\nq1,reset\n")
    return str(docs), str(queries)


def check_swapped(docs: str, queries: str) -> list[str]:
    settings = Settings()
    previews = InputPreview("docs", docs, settings), InputPreview("queries", queries, settings)
    return check_not_swapped(*previews, settings.ingest)


def test_swapped_inputs_are_an_error_that_names_both(tmp_path: Path) -> None:
    docs, queries = write_inputs(tmp_path)
    assert check_swapped(docs, queries) == []
    with pytest.raises(InputError, match=r"look swapped: .*docs\.csv reads as documents, .*queries\.csv as queries"):
        check_swapped(queries, docs)


def test_inputs_that_are_unreadable_either_way_are_not_called_swapped(tmp_path: Path) -> None:
    docs, _ = write_inputs(tmp_path)
    assert check_swapped(docs, str(tmp_path / "missing.csv")) == []


def test_dropped_languages_are_named_with_the_setting_that_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "queries.txt"
    path.write_text("\n".join(GERMAN), encoding="utf-8")
    english = Settings.model_validate({"clean": {"language": "en"}})
    (note,) = check_languages(str(path), english)
    assert "detected 100% de among the queries, but clean.language keeps only en" in note
    assert "--set clean.language=de, or null" in note
    path.write_text("\n".join(ENGLISH), encoding="utf-8")
    assert check_languages(str(path), english) == []


@pytest.mark.parametrize("clean", [{"language": None}, {"language": "en", "keep_all": True}])
def test_nothing_is_said_if_cleaning_keeps_all_languages(tmp_path: Path, clean: dict[str, object]) -> None:
    (tmp_path / "queries.txt").write_text("\n".join(GERMAN), encoding="utf-8")
    assert check_languages(str(tmp_path / "queries.txt"), Settings.model_validate({"clean": clean})) == []


def test_languages_in_the_syntax_of_a_setting() -> None:
    assert language_setting(["de"]) == "de"
    assert language_setting(["en", "de"]) == "[en, de]"
