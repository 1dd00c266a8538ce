"""A build over a million chunks: time and peak memory per stage, with 384-dimensional vectors from a fast endpoint.

    python -m benchmarks.million [--copies 30] [--work DIR]

The vectors are made up by a server of this benchmark in a process of its own: what is measured is everything around a
model. Needs ../shared/collections and 10 GB of disk. Writes benchmarks/results/million.md and million.json.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import tempfile
import zlib
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost import DOCS, Measured, build, repeat
from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.base.artifacts import Run
from darklode.pipeline.retrieve.search import retrieval

DIMENSIONS = 384
TABLE_ROWS = 1 << 16


def serve(port: Connection) -> None:
    """Answer embedding requests with vectors drawn by a checksum of each text; tells its port."""
    table = np.random.default_rng(0).standard_normal((TABLE_ROWS, DIMENSIONS), dtype=np.float32)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            texts = json.loads(self.rfile.read(int(self.headers["content-length"])))["input"]
            sums = np.array([zlib.crc32(text.encode()) for text in texts], np.int64)
            rows = table[sums % TABLE_ROWS] + table[sums // TABLE_ROWS]
            vectors = [{"index": i, "embedding": base64.b64encode(row).decode()} for i, row in enumerate(rows)]
            content = json.dumps({"data": vectors, "usage": {"total_tokens": 100 * len(texts)}}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    port.send(server.server_address[1])
    server.serve_forever()


def measure(work: Path, copies: int) -> tuple[dict[str, Measured], Run]:
    """A cold build and one on which nothing changed."""
    repeat(DOCS, work / "docs", copies)
    mine, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    encoder = {
        "kind": "openai",
        "model": "made-up",
        "base_url": f"http://127.0.0.1:{mine.recv()}/v1",
        "key_env": "",
        "dimensions": DIMENSIONS,
    }
    options = ["--set", f"encoders.vectors={json.dumps(encoder)}", "--set", f"cache.root={work / 'cache'}"]
    options += ["--set", "pool.retrievers=[bm25, vectors]"]
    try:
        results = {name: build(work / "docs", work / "run", *options) for name in ("cold", "unchanged")}
    finally:
        server.terminate()
    return results, Run(str(work / "run"))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copies", type=int, default=30)
    parser.add_argument("--work", type=Path, default=None)
    arguments = parser.parse_args()
    work = arguments.work or Path(tempfile.mkdtemp(prefix="darklode-million-"))
    try:
        results, run = measure(work, arguments.copies)
        chunks, took = run.tables("chunks").rows("chunks"), retrieval(run).to_pylist()
    finally:
        if not arguments.work:
            shutil.rmtree(work)
    found = {name: asdict(each) for name, each in results.items()}
    write("million", _markdown(chunks, results, took), {"chunks": chunks, "retrieval": took} | found)


def _markdown(chunks: int, results: dict[str, Measured], took: list[dict[str, Any]]) -> str:
    cold = results["cold"]
    stages = [[name, f"{cold.seconds[name]:.1f}", f"{cold.megabytes.get(name, 0):.0f}"] for name in cold.redone]
    names = ("retriever", "chunks", "chunks_per_second", "queries_per_second", "encoded", "cache_hits", "bytes_cached")
    shown = [[row[name] if row[name] is not None else "" for name in names] for row in took]
    rounded = [[f"{cell:.2f}" if isinstance(cell, float) else cell for cell in row] for row in shown]
    return "\n\n".join(
        [
            f"# A build over {chunks:,} chunks",
            f"{machine()}. BM25 and {DIMENSIONS} dimensions from an endpoint that makes vectors up. "
            f"Cold {cold.wall:.0f} s, unchanged {results['unchanged'].wall:.0f} s; "
            f"peak {max(cold.megabytes.values()):.0f} MB.",
            markdown_table(["stage", "seconds", "peak MB"], stages),
            markdown_table(names, rounded),
        ]
    )


if __name__ == "__main__":
    main()
