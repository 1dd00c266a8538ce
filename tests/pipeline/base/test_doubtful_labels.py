"""Doubt in SQL and in columns is the same."""

import duckdb

from darklode.pipeline.base.doubtful_labels import IS_DOUBTED_SQL, LIKELIHOOD_SQL, TIED_REASON, is_doubtful
from helpers.scripted_judge import Said
from helpers.scripted_stream import replies

CASES: list[tuple[Said, bool, float | None]] = [
    ({"contradicted": True}, True, 0.0),
    ({"no_probability": TIED_REASON}, True, 0.0),
    ({"no_probability": "the server returned no log-probabilities"}, False, None),
    ({"contradicted": True, "probability": 0.25}, True, 0.25),
    ({"contradicted": False, "probability": 0.75}, False, 0.75),
    ({}, False, None),
]


def test_what_has_no_probability_although_there_were_log_probabilities_is_doubted() -> None:
    rows = replies(*({"relevant": True} | dict(said) for said, _, _ in CASES))
    assert is_doubtful(rows).to_pylist() == [expected for _, expected, _ in CASES]
    with duckdb.connect() as connection:
        connection.register("verdicts", rows)
        found = connection.sql(f"SELECT coalesce({IS_DOUBTED_SQL}, false), {LIKELIHOOD_SQL} FROM verdicts").fetchall()
    assert found == [(expected, likelihood) for _, expected, likelihood in CASES]
