"""Which source is held out: the requested one, else the smallest of several, else clusters."""

import pyarrow as pa
import pytest

from darklode.pipeline.base.errors import SettingsError
from darklode.pipeline.towers.held_out import CLUSTERS, FILES, choose_held_out

RUNS = ["/data/first", "s3://bucket/second"]


def query_tables(*sizes: int, n_test: int = 2) -> list[pa.Table]:
    """Queries of the runs and of the files; each has test queries, too."""
    return [
        pa.table({"text": [str(number) for number in range(n + n_test)], "test": [True] * n_test + [False] * n})
        for n in sizes
    ]


def test_the_smallest_source_with_enough_queries_is_held_out() -> None:
    held = choose_held_out(query_tables(500, 60, 200), RUNS, None)
    assert (held.source, held.index, held.name) == ("queries", 1, RUNS[1])
    assert choose_held_out(query_tables(500, 49, 200), RUNS, None).source == "file"
    assert choose_held_out(query_tables(500, 49, 0), RUNS, None).name == RUNS[0]


def test_a_single_source_gives_clusters() -> None:
    assert choose_held_out(query_tables(500, 0), RUNS[:1], None).is_clusters
    assert choose_held_out(query_tables(30, 40), RUNS[:1], None).is_clusters
    assert choose_held_out(query_tables(500, 400, 60), RUNS, CLUSTERS).is_clusters


def test_a_requested_source_is_found_by_its_name() -> None:
    sizes = query_tables(5, 600, 200)
    assert choose_held_out(sizes, RUNS, "first/").index == 0
    assert choose_held_out(sizes, RUNS, RUNS[1]).index == 1
    assert choose_held_out(sizes, RUNS, FILES).source == "file"


def test_an_unknown_or_the_only_source_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"--hold-out third: .*possible are /data/first, s3://bucket/second, clu"):
        choose_held_out(query_tables(5, 6, 0), RUNS, "third")
    with pytest.raises(SettingsError, match="must leave queries to train on"):
        choose_held_out(query_tables(50, 0), RUNS[:1], "first")
