"""Which source is held out: the requested one, else a small one of several, else clusters."""

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
    held = choose_held_out(query_tables(500, 60, 100), RUNS, None)
    assert (held.source, held.index, held.name) == ("queries", 1, RUNS[1])
    assert choose_held_out(query_tables(500, 49, 100), RUNS, None).source == "file"


def test_a_source_with_many_of_the_queries_stays_in_training() -> None:
    assert choose_held_out(query_tables(800, 100, 100), RUNS, None).index == 1, "a tenth"
    assert choose_held_out(query_tables(400, 0, 100), RUNS, None).source == "file", "a fifth"
    assert choose_held_out(query_tables(399, 0, 100), RUNS, None).is_clusters, "more than a fifth"
    assert choose_held_out(query_tables(60, 90), RUNS[:1], None).is_clusters, "a small run with a larger file"
    assert choose_held_out(query_tables(500, 49, 0), RUNS, None).is_clusters


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
    with pytest.raises(SettingsError, match="must have queries and leave others to train on; possible are clusters"):
        choose_held_out(query_tables(50, 0), RUNS[:1], "first")
    with pytest.raises(SettingsError, match="--hold-out files: it must have queries"):
        choose_held_out(query_tables(50, 60, 0), RUNS, FILES)


def test_a_name_of_two_runs_is_refused_and_files_means_the_files() -> None:
    with pytest.raises(SettingsError, match="--hold-out first is ambiguous: /data/first, /old/first"):
        choose_held_out(query_tables(50, 60, 0), ["/data/first", "/old/first"], "first")
    assert choose_held_out(query_tables(50, 60, 70), ["/data/first", "/data/files"], FILES).source == "file"
