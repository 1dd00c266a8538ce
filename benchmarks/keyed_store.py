"""The keyed store with ten million keys, beside what it replaced and the libraries that were tried in its place.

Each candidate runs in a process of its own. It gets the keys in batches, is opened anew, and looks up a million of
them, half of which it does not have. What the store replaced runs from the last commit that had it, which takes a clone
with its history. The libraries keep keys and places alone; the store and what it replaced whole verdicts, or vectors.
LMDB is measured where it is installed. Takes 10 minutes and 3 GB of disk. Writes benchmarks/results/keyed_store.*.
"""

import argparse
import importlib.util
import io
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

KEYS, BATCHES, LOOK_UP, BLOCK = 10_000_000, 20, 1_000_000, 16_000
BEFORE = "ac102f6"
"""The last commit with a ledger and a cache of their own."""
OWNER = "owner"
NOTE = """Seconds are the processor's. Ten million keys come in 20 batches; the look-ups ask for keys of which half are
absent, in a process that opened the store anew; "held" is the memory that opening takes. `verdicts` and `vectors` are
the store's clients, each beside what it was before; the others keep 16-byte keys and a place. "Not found" counts keys
that are there and were missed."""
Find = Callable[[np.ndarray], int]
Opened = tuple[Find, float]


def batch(number: int, keys: int) -> np.ndarray:
    """Random keys, shape (keys, 2)."""
    return np.random.default_rng(number).integers(0, 2**64, (keys, 2), dtype=np.uint64)


def hexes(keys: np.ndarray) -> pa.Array:
    """Keys as content hashes."""
    digits = keys.astype(">u8").tobytes().hex().encode()
    offsets = np.arange(len(keys) + 1, dtype=np.int32) * 32
    return pa.Array.from_buffers(pa.string(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(digits)])


def binary(keys: np.ndarray) -> pa.Array:
    """Keys as 16 bytes."""
    data = pa.py_buffer(np.ascontiguousarray(keys).tobytes())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(keys), [None, data])


def pairs(keys: np.ndarray) -> pa.Table:
    """250 chunks a query, of 100,000 chunks: what a ledger is asked for. Equal keys give equal pairs."""
    chunks = np.stack([keys[:, 1] % np.uint64(100_000), np.zeros(len(keys), np.uint64)], axis=1)
    queries = np.stack([keys[:, 0] % np.uint64(KEYS // 250), keys[:, 0] * np.uint64(0)], axis=1)
    return pa.table({"query_hash": hexes(queries), "chunk_hash": hexes(chunks)})


class Verdicts:
    """The ledger: of this version, or of the one before."""

    def __init__(self, root: Path) -> None:
        from darklode.pipeline.judge.ledger import Ledger
        from darklode.pipeline.judge.port import REPLIES

        self.ledger: Any = Ledger(str(root))
        self.replies = REPLIES

    def append(self, keys: np.ndarray) -> None:
        """Keep them."""
        said = {"relevant": pa.array(keys[:, 0] % 7 == 0), "raw_reply": pa.repeat("yes", len(keys))}
        said["probability"] = pa.array((keys[:, 1] % 1000 / 1000).astype(np.float32))
        columns = [said.get(field.name, pa.nulls(len(keys), field.type)) for field in self.replies]
        keep = getattr(self.ledger, "add", None) or self.ledger.append
        keep(OWNER, pairs(keys), pa.table(columns, schema=self.replies))

    def open(self) -> Find:
        """Ready to look up."""
        entries = self.ledger.open(OWNER)
        find = getattr(entries, "find", None) or entries.lookup
        return lambda keys: len(find(pairs(keys)).rows)


class Vectors:
    """The embedding cache: of this version, or of the one before."""

    def __init__(self, root: Path) -> None:
        from darklode.pipeline.base.memory.vectors import EmbeddingCache

        self.cache = EmbeddingCache(str(root), "float16")

    def append(self, keys: np.ndarray) -> None:
        """Keep them."""
        self.cache.append(OWNER, hexes(keys), np.ones((len(keys), 8), np.float16))

    def open(self) -> Find:
        """Ready to look up."""
        from darklode.pipeline.base.memory.keys import keys_of

        shards = self.cache.open(OWNER)
        assert shards is not None
        shards.find(keys_of(hexes(batch(0, 1))))
        return lambda keys: int((shards.find(keys_of(hexes(keys))) >= 0).sum())


class Parquet:
    """Keys in Parquet parts, nothing in memory: DuckDB joins them, or a dataset of Arrow's filters."""

    def __init__(self, root: Path, by: str) -> None:
        self.root, self.by, self.parts = root, by, 0

    def append(self, keys: np.ndarray) -> None:
        """Keep them."""
        rows = pa.table({"key": binary(keys), "place": np.arange(len(keys))})
        pq.write_table(rows, self.root / f"{self.parts:03}.parquet", compression="zstd")
        self.parts += 1

    def open(self) -> Find:
        """Ready to look up."""
        if self.by == "arrow":
            rows = ds.dataset(str(self.root))
            return lambda keys: rows.to_table(filter=pc.field("key").isin(binary(keys))).num_rows
        connection = duckdb.connect()

        def find(keys: np.ndarray) -> int:
            connection.register("wanted", pa.table({"key": binary(keys)}))
            query = f"SELECT place FROM wanted JOIN read_parquet('{self.root}/*.parquet') USING (key)"
            return int(connection.sql(query).to_arrow_table().num_rows)

        return find


class DuckDb(Parquet):
    """The same parts, loaded into a table of DuckDB's in memory."""

    def open(self) -> Find:
        """Ready to look up."""
        connection = duckdb.connect()
        connection.execute(f"CREATE TABLE kept AS SELECT * FROM read_parquet('{self.root}/*.parquet')")

        def find(keys: np.ndarray) -> int:
            connection.register("wanted", pa.table({"key": binary(keys)}))
            return int(connection.sql("SELECT place FROM wanted JOIN kept USING (key)").to_arrow_table().num_rows)

        return find


class Sqlite:
    """A local index in SQLite."""

    def __init__(self, root: Path) -> None:
        self.connection = sqlite3.connect(root / "index.sqlite")
        self.connection.executescript("PRAGMA journal_mode=wal; PRAGMA synchronous=normal")
        self.connection.execute("CREATE TABLE IF NOT EXISTS kept (key BLOB PRIMARY KEY, place INTEGER) WITHOUT ROWID")

    def append(self, keys: np.ndarray) -> None:
        """Keep them."""
        rows = zip(binary(keys).to_pylist(), range(len(keys)), strict=True)
        self.connection.executemany("INSERT INTO kept VALUES (?, ?)", rows)
        self.connection.commit()

    def open(self) -> Find:
        """Ready to look up."""
        one = "SELECT place FROM kept WHERE key = ?"
        return lambda keys: sum(
            self.connection.execute(one, (key,)).fetchone() is not None for key in binary(keys).to_pylist()
        )


class Lmdb:
    """A local index in LMDB."""

    def __init__(self, root: Path) -> None:
        import lmdb

        self.environment = lmdb.open(str(root), map_size=8 << 30)

    def append(self, keys: np.ndarray) -> None:
        """Keep them."""
        rows = ((key, place.to_bytes(8, "big")) for place, key in enumerate(binary(keys).to_pylist()))
        with self.environment.begin(write=True) as change:
            change.cursor().putmulti(rows)

    def open(self) -> Find:
        """Ready to look up."""

        def find(keys: np.ndarray) -> int:
            with self.environment.begin() as reading:
                return len(reading.cursor().getmulti(binary(keys).to_pylist()))

        return find


CANDIDATES: dict[str, Callable[[Path], Any]] = {
    "verdicts": Verdicts,
    "vectors": Vectors,
    "DuckDB over Parquet parts": lambda root: Parquet(root, "duckdb"),
    "DuckDB, a table in memory": lambda root: DuckDb(root, "duckdb"),
    "pyarrow dataset over Parquet parts": lambda root: Parquet(root, "arrow"),
    "SQLite": Sqlite,
    "LMDB": Lmdb,
}


def resident_mb() -> float:
    """Memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def timed(action: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and its processor seconds, which depend less on what else the machine does than the clock's."""
    began = time.process_time()
    return action(), time.process_time() - began


def fill(name: str, root: Path, keys: int) -> dict[str, float]:
    """Append all keys."""
    kept, spent = CANDIDATES[name](root), 0.0
    for number in range(BATCHES):
        rows = batch(number, keys // BATCHES)
        spent += timed(partial(kept.append, rows))[1]
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return {"append s": spent, "disk MB": size / 1e6}


def look_up(name: str, root: Path, keys: int) -> dict[str, float]:
    """Open it and look up keys, half of them absent."""
    random = np.random.default_rng(BATCHES)
    each = LOOK_UP // 2 // BATCHES
    present = [batch(number, keys // BATCHES)[random.integers(0, keys // BATCHES, each)] for number in range(BATCHES)]
    wanted = np.concatenate([*present, batch(BATCHES + 1, LOOK_UP // 2)])
    random.shuffle(wanted)
    before = resident_mb()
    find, opening = timed(lambda: CANDIDATES[name](root).open())
    held = resident_mb() - before
    block = min(timed(lambda: find(wanted[:BLOCK]))[1] for _ in range(3))
    found, million = timed(lambda: find(wanted))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "open s": opening,
        "held MB": held,
        "16,000 keys s": block,
        "1,000,000 keys s": million,
        "peak MB": peak,
        "not found": max(0, LOOK_UP // 2 - found),
    }


def run(name: str, keys: int, tree: Path | None) -> dict[str, Any]:
    """One candidate, in processes of their own; from another checkout where one is given."""
    with tempfile.TemporaryDirectory() as scratch:
        found: dict[str, Any] = {"candidate": name if tree is None else f"{name}, before"}
        path = {} if tree is None else {"PYTHONPATH": str(tree / "src")}
        for step in ("fill", "look_up"):
            command = [sys.executable, __file__, "--step", step, name, scratch, "--keys", str(keys)]
            done = subprocess.run(command, env=os.environ | path, check=True, stdout=subprocess.PIPE)
            found |= json.loads(done.stdout)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--step", nargs=3)
    parser.add_argument("--only", nargs="*", default=list(CANDIDATES), help="measure these, keep the others' figures")
    given = parser.parse_args()
    if given.step:
        step, name, root = given.step
        print(json.dumps({"fill": fill, "look_up": look_up}[step](name, Path(root), given.keys)))
        return
    from benchmarks.report import RESULTS, machine, markdown_table, write

    kept = RESULTS / "keyed_store.json"
    results = json.loads(kept.read_text()) if given.only != list(CANDIDATES) and kept.exists() else []
    results = [row for row in results if row["candidate"].removesuffix(", before") not in given.only]
    with tempfile.TemporaryDirectory() as scratch:
        archive = subprocess.run(["git", "archive", BEFORE], check=True, stdout=subprocess.PIPE).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tree_files:
            tree_files.extractall(scratch, filter="data")
        for name in given.only:
            if name == "LMDB" and importlib.util.find_spec("lmdb") is None:
                continue
            for tree in [None, Path(scratch)] if name in ("verdicts", "vectors") else [None]:
                results.append(run(name, given.keys, tree))
                print(results[-1], file=sys.stderr)
    rows = [[f"{value:,.2f}" if isinstance(value, float) else value for value in row.values()] for row in results]
    write(
        "keyed_store",
        f"# The keyed store\n\n{machine()}\n\n{NOTE}\n\n{markdown_table(list(results[0]), rows)}",
        results,
    )


if __name__ == "__main__":
    main()
