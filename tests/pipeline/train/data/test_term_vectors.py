"""Term vectors are the ridge regression of text vectors on tokens, and read no label."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.train.data import term_vectors
from darklode.pipeline.train.data.base_encoder import BaseEncoder
from darklode.pipeline.train.data.dataset import QuerySet, Task
from darklode.pipeline.train.data.pairs import PAIRS_STAGE, adaptation_pairs
from darklode.pipeline.train.data.term_vectors import (
    RIDGE,
    TERM_VECTORS_STAGE,
    QueryTokenizer,
    TermTable,
    fit_term_vectors,
    term_queries,
    write_term_vectors,
)
from darklode.schemas.adaptation import AdaptSettings
from helpers.adapted import base_for, build_to_adapt, model_in
from helpers.runs import execute, read

TOKEN_IDS = [[5, 7, 7], [7, 9], [5, 9, 11], [2, 5], [11]]


def unit_vectors(n: int, d: int = 3) -> np.ndarray:
    vectors = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_they_are_the_ridge_regression_on_weighted_unit_rows() -> None:
    vectors = unit_vectors(len(TOKEN_IDS))
    terms = fit_term_vectors(TOKEN_IDS, vectors, excluded=[2])
    assert terms.tokens.tolist() == [5, 7, 9, 11], "a token counts once per text, an excluded one never"
    present = np.array([[token in ids for token in terms.tokens] for ids in TOKEN_IDS], float)
    idf = np.log(1 + len(TOKEN_IDS) / present.sum(axis=0))
    rows = present * idf
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    solved = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(4), rows.T @ (vectors - vectors.mean(axis=0)))
    np.testing.assert_allclose(terms.vectors, idf[:, None] * solved, atol=1e-6)


def test_a_query_gets_the_sum_over_the_root_of_its_length() -> None:
    terms = TermTable(np.array([3, 8]), np.array([[1, 0], [0, 2]], np.float32))
    found = terms.of_queries([[3, 8, 8, 1], [1], []])
    np.testing.assert_allclose(found, [[0.5, 2], [0, 0], [0, 0]])


def test_the_most_frequent_tokens_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_vectors, "MAX_TERMS", 2)
    assert fit_term_vectors(TOKEN_IDS, unit_vectors(5), excluded=[5]).tokens.tolist() == [7, 9], "of equals the first"


def test_without_a_token_there_is_no_vector() -> None:
    none = fit_term_vectors([[], [2]], unit_vectors(2), excluded=[2])
    assert none.vectors.shape == (0, 3)
    assert (none.of_queries([[1, 2]]) == 0).all()


def test_it_tokenizes_as_the_encoder_does(tmp_path: Path) -> None:
    encoder = model_in(tmp_path).model_copy(update={"max_seq_length": 8})
    tokenizer = QueryTokenizer.open(encoder)
    assert tokenizer is not None
    (ids,) = tokenizer.queries(["badu befi kuma"])
    assert len(ids) == 8, "cut as the encoder's input is"
    names = tokenizer.tokenizer.convert_ids_to_tokens(ids)
    assert names[:4] == ["[CLS]", "a", "##s", "##k"], "with the prompt"
    assert {*ids[:4], ids[-1]} <= tokenizer.ignored_tokens
    assert not {*tokenizer.documents(["badu"])[0]} & {*tokenizer.tokenizer.all_special_ids}


def test_an_encoder_without_a_local_tokenizer_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert QueryTokenizer.open(object()) is None, "an endpoint"
    monkeypatch.setattr(term_vectors, "MAX_VOCABULARY", 10)
    assert QueryTokenizer.open(model_in(tmp_path)) is None, "too large a table"


def fitted(base: BaseEncoder, folder: Path, *, enabled: bool = True, seed: int = 0) -> Run:
    run = Run(str(folder))
    execute(run, PAIRS_STAGE, lambda _tables, output: adaptation_pairs(base.sources, output, AdaptSettings()))
    execute(
        run,
        TERM_VECTORS_STAGE,
        lambda tables, output: write_term_vectors(tables, output, base, enabled=enabled, seed=seed),
    )
    return run


def test_queries_get_theirs_whatever_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = base_for(build_to_adapt(tmp_path / "run", {"train": 6, "validation": 3, "test": 3}), root=tmp_path)
    run = fitted(base, tmp_path / "out")
    tables = run.tables()
    task = Task.from_tables(tables, base.open(tables), same_document=False)
    tokenizer = QueryTokenizer.open(base.encoder)
    assert tokenizer is not None
    expected = TermTable.from_tables(tables).of_queries(tokenizer.queries(list(task.train.texts)))
    assert task.train.terms is not None
    assert np.abs(expected).max() > 0
    np.testing.assert_array_equal(task.train.terms, expected)
    np.testing.assert_array_equal(term_queries(tables, task.train.ids[::-1]), expected[::-1])
    rows = np.array([3, 1])
    np.testing.assert_array_equal(task.train.take(rows).terms, expected[rows])
    both = task.train.concat(task.validation)
    assert both.terms is not None
    assert len(both.terms) == len(both)
    assert task.train.concat(replace(task.validation, terms=None)).terms is None
    monkeypatch.setattr(term_vectors, "MAX_TEXTS", 9)
    again, other = (read(fitted(base, tmp_path / f"out{seed}", seed=seed), "term_vectors") for seed in (1, 2))
    assert again == read(fitted(base, tmp_path / "again", seed=1), "term_vectors")
    assert again != other, "the seed draws the texts"


def test_unwanted_ones_are_not_made(tmp_path: Path) -> None:
    base = base_for(build_to_adapt(tmp_path / "run", {"train": 6, "validation": 3, "test": 3}), root=tmp_path)
    tables = fitted(base, tmp_path / "out", enabled=False).tables()
    assert tables.rows("term_vectors") == tables.rows("term_queries") == 0
    assert QuerySet.from_tables(tables, base.open(tables), "train").terms is None
    assert term_queries(tables, pa.array(["train-000"])) is None
