"""Batches: each row once a pass, in another order each time, part by part; and what may be compared with what."""

import numpy as np
import pyarrow as pa

from darklode.pipeline.base.artifacts import Output, Run, Stage, Tables
from darklode.pipeline.towers.dual.triplet_batches import N_BUFFERED, TripletStream, allowed_pairs
from darklode.schemas.tables import TABLES
from helpers.runs import execute


def rows(first: int, count: int, run: int = 0, weight: float = 0.7) -> pa.Table:
    listed = [
        {"tenant": "t", "index": run, "query_id": f"q{n}", "query": f"q{n}", "positive_id": f"d{n}", "content": f"d{n}",
         "key": f"k{n}", "answers": [f"k{n}"], "weight": weight}
        for n in range(first, first + count)
    ]  # fmt: skip
    return pa.Table.from_pylist(listed, schema=TABLES["tower_triplets"].schema)


def streamed(folder: object, *parts: pa.Table) -> Tables:
    run = Run(str(folder))

    def work(_tables: Tables, output: Output) -> None:
        for part in parts:
            output.write("tower_triplets", part)

    execute(run, Stage("given", 1, (), ("tower_triplets",)), work)
    return run.tables("tower_triplets")


def asked(stream: TripletStream, batches: int) -> list[str]:
    return [one for _ in range(batches) for one in stream.rows(stream.next().tolist())["query_id"].to_pylist()]


def test_a_pass_has_each_row_once_and_the_next_another_order(tmp_path: object) -> None:
    tables = streamed(f"{tmp_path}/run", rows(0, 30), rows(30, 30))
    found = asked(TripletStream(tables, 10, 1), 12)
    first, second = found[:60], found[60:]
    assert sorted(first) == sorted(second) == sorted(f"q{n}" for n in range(60))
    assert first != second
    assert found == asked(TripletStream(tables, 10, 1), 12) != asked(TripletStream(tables, 10, 2), 12)


def test_weights_are_relative_to_the_mean_of_the_table(tmp_path: object) -> None:
    alike = TripletStream(streamed(f"{tmp_path}/alike", rows(0, 30), rows(30, 7)), 10, 1)
    assert alike.relative_weights(alike.rows(alike.next().tolist())).tolist() == [1.0] * 10
    stream = TripletStream(streamed(f"{tmp_path}/run", rows(0, 30, weight=0.4), rows(30, 10, weight=0.8)), 40, 1)
    batch = stream.rows(stream.next().tolist())
    expected = np.array([0.8 if int(query[1:]) >= 30 else 0.4 for query in batch["query_id"].to_pylist()]) / 0.5
    np.testing.assert_allclose(stream.relative_weights(batch), expected, rtol=1e-6)


def test_what_is_skipped_is_as_if_it_had_been_read(tmp_path: object) -> None:
    """Across parts, and across passes."""
    tables = streamed(f"{tmp_path}/run", rows(0, 30), rows(30, 33))
    every = asked(TripletStream(tables, 10, 1), 20)
    for batches in (0, 1, 3, 7, 12):
        stream = TripletStream(tables, 10, 1)
        stream.skip(batches)
        assert asked(stream, 20 - batches) == every[batches * 10 :]


def test_a_batch_is_held_while_others_are_under_way(tmp_path: object) -> None:
    stream = TripletStream(streamed(f"{tmp_path}/run", rows(0, 64)), 8, 1)
    turns = [stream.next().tolist() for _ in range(N_BUFFERED)]
    assert sorted(slot for turn in turns for slot in turn) == list(range(stream.slots))
    assert stream.rows(turns[0][2:4]).num_rows == 2
    kept = stream.rows(turns[1])
    assert stream.next().tolist() == turns[0]
    assert stream.rows(turns[1]) == kept


def test_runs_are_mixed_and_few_rows_are_one_batch(tmp_path: object) -> None:
    parts = [rows(number * 4, 4) for number in range(4)] + [rows(100 + number * 4, 4, run=1) for number in range(2)]
    found = asked(TripletStream(streamed(f"{tmp_path}/run", *parts), 4, 1), 6)
    assert ["1" if len(one) > 3 else "0" for one in found[::4]] == ["0", "1", "0", "0", "1", "0"]
    assert TripletStream(streamed(f"{tmp_path}/few", rows(0, 3)), 32, 1).size == 3


def test_no_other_answer_of_a_query_is_its_negative() -> None:
    batch = rows(0, 4).to_pylist()
    batch[1]["answers"] = ["k1", "k3"]  # the fourth row's document answers the second's query, too
    batch[2]["key"], batch[2]["answers"] = "k0", ["k0"]  # a copy of the first row's document
    counts = allowed_pairs(pa.Table.from_pylist(batch, schema=TABLES["tower_triplets"].schema))
    wrong = {(1, 3), (0, 2), (2, 0)}
    assert {(int(a), int(b)) for a, b in zip(*np.nonzero(~counts), strict=True)} == wrong
