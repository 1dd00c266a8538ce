"""What is read of a mined run: counts of the log, triplets with what they rest on."""

from darklode.pipeline.browse.catalogue import Catalogue

ROWS = """
    SELECT q.tenant, q.text, x.clicks, x.exposures, x.triplets FROM all_queries q JOIN counts x USING (query)
    ORDER BY q.tenant, q.folded
"""


def test_clicks_and_exposures_are_summed_by_query(log: Catalogue) -> None:
    found = {(row["tenant"], row["text"].lower()): (row["clicks"], row["triplets"] > 0) for row in log.rows(ROWS)}
    assert found["default", "reset password"] == (2, True)
    assert found["tern", "refund"][0] == 0
    assert len(found) == 3


def test_triplets_name_their_texts_and_who_lent_them(log: Catalogue) -> None:
    rows = log.rows("""
        SELECT t.source, q.text AS query, p.passage_id, v.text AS via, t.outcome, len(t.negatives) AS negatives
        FROM all_triplets t JOIN all_queries q USING (query) JOIN all_passages p USING (passage)
        LEFT JOIN all_queries v ON v.query = t.via ORDER BY triplet
    """)
    own = [row for row in rows if row["source"] == "click_one_hop"]
    assert [(row["passage_id"], row["via"], row["outcome"]) for row in own] == [("d1", None, "unjudged")]
    lent = [row for row in rows if row["source"].endswith("multi_hop")]
    assert all(row["via"] for row in lent)
    assert {row["negatives"] for row in rows} <= {0, 1}
