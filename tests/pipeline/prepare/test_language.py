"""Which language a query is in, with the words that the documents know beside the identification."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from helpers.cleaning import cleaned, reasons, texts_of
from helpers.runs import documents, read

ENGLISH = [
    "how do i reset my password",
    "how to rotate a signing secret",
    "open the settings of your account",
    "you can delete a route",
]
GERMAN = [
    "wie setze ich mein Passwort für die Anwendung zurück?",
    "Kundenportal eigene Domain",
    "wo finde ich die Einstellungen meines Kontos",
]
GUIDE = (
    f"This page explains how the settings of your account work and what you can do when it fails. {'. '.join(ENGLISH)}"
)
DOORS = "garage door seals"
"""Dutch to fastText's lid.176, with a probability of .84."""


def test_another_language_goes(run: Run) -> None:
    cleaned(run, [*ENGLISH, *GERMAN, "パスワードを再設定する方法"], language="en")
    assert texts_of(run) == ENGLISH
    assert set(reasons(run).values()) == {"language de", "language ja"}


def test_what_the_documents_speak_of_is_no_other_language(run: Run) -> None:
    cleaned(run, [*ENGLISH, DOORS], language="en")
    assert DOORS in texts_of(run)
    cleaned(run, [*ENGLISH, DOORS], language="en", corpus=documents(doc_id=["a"], text=["How to reset a password."]))
    assert reasons(run) == {DOORS: "language nl"}


def test_documents_in_another_language_speak_for_no_query(run: Run) -> None:
    text = "wo finde ich die Einstellungen meines Kontos"
    corpus = documents(
        doc_id=["a", "b"], text=[" ".join(ENGLISH), f"Erste Schritte: {text}. Hier steht, was zu tun ist."]
    )
    cleaned(run, [*ENGLISH, text], language="en", corpus=corpus)
    assert texts_of(run) == ENGLISH


def test_another_tenants_documents_say_nothing(run: Run) -> None:
    ours = documents(doc_id=["a", "b"], text=["How to reset a password.", f"{DOORS} and more words of English"])
    tenants = pa.array(["a", "b"])
    corpus = ours.set_column(0, ours.schema.field("tenant"), tenants)
    cleaned(run, [*ENGLISH, DOORS], ["a"] * 5, language="en", corpus=corpus)
    assert DOORS not in texts_of(run)


def test_by_default_each_tenant_keeps_the_languages_of_its_documents(run: Run) -> None:
    german = " ".join(GERMAN)
    corpus = documents(doc_id=["a", "b", "c"], text=[GUIDE, german, GUIDE])
    corpus = corpus.set_column(0, corpus.schema.field("tenant"), pa.array(["both", "both", "one"]))
    texts = [ENGLISH[0], GERMAN[0], *ENGLISH[1:], GERMAN[2]]
    cleaned(run, texts, ["both", "both", *["one"] * 4], language="documents", corpus=corpus)
    assert reasons(run) == {GERMAN[2]: "language de"}


def test_a_few_documents_in_another_language_open_no_language(run: Run) -> None:
    texts = [*[f"{GUIDE} {number}" for number in range(30)], GERMAN[0]]
    corpus = documents(doc_id=[str(number) for number in range(31)], text=texts)
    cleaned(run, [*ENGLISH, GERMAN[2]], language="documents", corpus=corpus)
    assert texts_of(run) == ENGLISH


def test_where_no_document_can_be_identified_all_languages_are_kept(run: Run) -> None:
    cleaned(run, [ENGLISH[0], GERMAN[0]], language="documents", corpus=documents(doc_id=["a"], text=["x1 y2"]))
    assert texts_of(run) == [ENGLISH[0], GERMAN[0]]


def test_without_documents_the_identification_decides(run: Run) -> None:
    cleaned(run, [*ENGLISH, DOORS, GERMAN[0]], language="en", corpus=documents(doc_id=[], text=[]))
    assert texts_of(run) == ENGLISH


def test_several_languages_may_be_kept(run: Run) -> None:
    japanese = "パスワードを再設定する方法"
    cleaned(run, [*ENGLISH, *GERMAN, japanese], language=["en", "ja"])
    assert texts_of(run) == [*ENGLISH, japanese]


@pytest.mark.parametrize("language", [None, ["en", "zh"]])
def test_lengths_are_compared_within_a_language(run: Run, language: list[str] | None) -> None:
    chinese = ["如何重置密码", "如何在集群中管理依赖", "请问如何在多个节点的集群中管理依赖并且自动扩容"]
    english = ["what is a webhook", "where can i find the list of all error codes", "how do i reset my password"]
    english[2] += " when i am locked out and there is nobody who could open the settings for me"
    doubtful = "how do i reset my password"
    settings = {"min_percentile": 20, "max_percentile": 80}
    cleaned(run, [*english, doubtful, *chinese], language=language, **settings)
    assert texts_of(run) == [english[1], doubtful, chinese[1]]


def test_language_goes_before_length(run: Run) -> None:
    long = "wie kann ich das Passwort für mein Konto zurücksetzen wenn ich keinen Zugang zu meiner Adresse mehr habe"
    cleaned(run, [*ENGLISH, *[long] * 20], language="en", min_percentile=25, max_percentile=100)
    assert {row["stage"] for row in read(run, "rejects") if row["payload"] == long} == {"clean.language"}
    assert len(texts_of(run)) >= 2
