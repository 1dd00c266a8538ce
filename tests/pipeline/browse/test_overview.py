"""The counts of a run, which are those of the lists that they lead to."""

from darklode.pipeline.browse.catalogue import Catalogue
from darklode.pipeline.browse.overview import table_counts
from helpers.browsing import asked


def test_each_count_is_that_of_its_list(benchmark: Catalogue, log: Catalogue) -> None:
    for catalogue in (benchmark, log):
        shown = table_counts(catalogue)
        assert [one.key for one in shown if one.key != "pairs"] == ["queries", "triplets", "rejects"]
        for tally in shown:
            assert sum(row["n"] for row in tally.rows) == asked(catalogue, tally.key).total
            for row in tally.rows:
                given = {name: row[name] for name in tally.by if row[name] is not None}
                assert asked(catalogue, tally.key, **given).total == row["n"]
