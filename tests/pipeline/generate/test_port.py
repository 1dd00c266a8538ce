"""Rows of a writer that is not asked again."""

from darklode.pipeline.generate.port import OUTPUT_SCHEMA, query_table


def test_an_empty_query_is_none_with_a_reason() -> None:
    found = query_table(["how", ""])
    assert found.schema == OUTPUT_SCHEMA
    assert found["text"].to_pylist() == ["how", None]
    assert found["error"].to_pylist() == [None, "no query was generated"]
    assert found["self_contained"].null_count == 2
