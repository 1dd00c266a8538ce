"""Hostile files for every reader, each made from its number alone, and what reading them comes to.

`python -m helpers.hostile FIRST LAST` reads the files of these numbers, and prints what went wrong with which.
"""

import gzip
import io
import json
import os
import random
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from darklode.pipeline.base.artifacts import Output, Run
from darklode.pipeline.base.artifacts.run import no_progress
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.ingest.documents import INGEST_DOCUMENTS, ingest_documents
from darklode.pipeline.ingest.logs import INGEST_LOGS, ingest_logs
from darklode.schemas.settings import IngestSettings, LogSettings
from helpers.runs import PYTHONPATH

SLOW_SECONDS = 2.0  # of the processor
STUCK_SECONDS = 60.0  # without a sign of life
MOST_BYTES = 1 << 18

TOKENS = {
    "html": (
        "<", "<a ", "<a href='", "<![ x", "<!--", "‹!--", "-->", "<ol><li>", "<li>", "</ol>", "<table><tr><td>",
        "<td>", "<p>", "<div>", "</div>", "<b><i>", "<pre><code>", "```", "<script>", "</script", "<style>",
        "<title>", "<main>", "<svg><math>", "<select><option>", "<meta name=tenant content=", "<textarea>",
        "<template>", "<frameset>", "&", "&#x110000;", "&#0;", "&amp", "&notin", "\"", "'", ">", "=", "\0", "\r",
        "\ufeff", "é", "\u202e", "x" * 50, "# * _ | \\", "]]>", "<?php", "<!DOCTYPE",
    ),
    "md": (
        "+++\n", "[[a.", "a.b.", " = ", '"""', '{"a": ', ";;;\n", "---toml\n",
        "---\n", "---", "...\n", "tenant: ", "title: ", "a: ", "? ", "- ", "  ", "\t", "&a ", "*a", "<<: *a", "[",
        "{", "}", "]", ", ", "!!python/object:os.system ", "!!binary ", "|\n", ">-\n", "'", '"', "%YAML 1.2\n",
        "2026-99-99", "9" * 300, "0x", ".inf", "~", "# ", "#" * 50, "```\n", "~~~", "`", "\n", "\n\n", "\0", "\r",
        "\ufeff", "\u2028", "é", "word ", "[x](", "<div>", "\x85",
    ),
    "jsonl": (
        '{"_id":', '{"text":', '"text":', '"tenant":', '{"a":{', "[", "]", "{", "}", ",", ":", '"', '"x"',
        '"\\ud800"', '"\\u0000"', "\\", "null", "NaN", "-Infinity", "true", "1e999", "9" * 400, "-", "0", "\n", "\n",
        "\r\n", "\r", "\0", "\ufeff", "é", " ", '{"index":{}}',
        '{"query":"a","doc_id":"b","timestamp":"2026-03-01T00:00:00Z"}', '"timestamp":', '"query_id":',
        '"event_attributes":{',
    ),
    "csv": (
        "text", "id", "tenant", "query", "doc_id", "timestamp", ",", ",", ";", "\t", '"', '""', '"a,b"', "\n", "\n",
        "\r\n", "\r", "\0", "\ufeff", "é", " ", "'", "=1+1", "x" * 80, "9" * 50, "2026-03-01", "," * 40, '"\n"', "\\",
    ),
    "txt": (
        "a word", "\n", "\r", "\0", "\ufeff", "é", "\u2028", " ", "\t", "x" * 500, "\x1b[31m", "\U0001f600",
    ),
}  # fmt: skip
SOUND = {
    "html": "<html><title>T</title><body><main><h1>One</h1><ol><li>a<li>b</ol><table><tr><td>1</table></main>",
    "md": "---\ntitle: T\ntenant: acme\ntags: [a, b]\n---\n# One\n\nText.\n\n```\ncode\n```\n",
    "jsonl": '{"_id": "1", "title": "T", "text": "some text", "tenant": "acme"}\n{"_id": "2", "text": "more"}\n' * 3,
    "csv": 'id,title,text,tenant\n1,T,"some, text",acme\n2,,"more\nlines",b\n' * 2,
    "txt": "one query\nanother query\n",
}
LOG = '{"timestamp":"2026-03-01T10:00:00Z","query":"a b","doc_id":"d1","position":1,"clicked":true,"session_id":"s"}\n'


@dataclass(frozen=True)
class Hostile:
    """A file to be read as documents, or as a log."""

    name: str
    data: bytes
    log: bool


def hostile(number: int) -> Hostile:
    """The file of a number."""
    dice = random.Random(number)
    form = dice.choice((*TOKENS, "html", "md", "jsonl", "parquet"))
    data = _parquet(dice) if form == "parquet" else _text(dice, form)
    name = f"2026-03-01.{'tsv' if form == 'csv' and dice.random() < 0.2 else form}"
    if form in ("jsonl", "csv") and dice.random() < 0.1:
        packed = gzip.compress(data, mtime=0)
        name, data = f"{name}.gz", _bitten(dice, packed) if dice.random() < 0.5 else packed
    return Hostile(name, data, log=form in ("jsonl", "csv", "parquet") and dice.random() < 0.4)


def _text(dice: random.Random, form: str) -> bytes:
    most = dice.choice((200, *(2_000,) * 6, 20_000, 20_000, MOST_BYTES))
    how = dice.randrange(4)
    if how == 0:  # one token or two, over and over
        few = dice.choices(TOKENS[form], k=dice.randint(1, 2))
        text = "".join(few) * (most // max(1, len("".join(few))))
    elif how == 1:  # nested, opened and perhaps closed
        opened, closed = dice.choice(
            (("[", "]"), ("{", "}"), ('{"a":', "}"), ("<div>", "</div>"), ("- ", ""), ("<b>", ""))
        )
        deep = dice.choice((10, 500, most // len(opened)))
        text = _begun(dice, form) + opened * deep + "x" + closed * deep
    elif how == 2:  # a mix
        text = "".join(dice.choices(TOKENS[form], k=max(1, most // 8)))
    else:  # a sound file with something in it
        text = LOG * 5 if form == "jsonl" and dice.random() < 0.5 else SOUND[form]
        for _ in range(dice.randint(1, 8)):
            at = dice.randrange(len(text) + 1)
            text = (
                text[:at]
                + dice.choice(TOKENS[form]) * dice.choice((1, 1, 3, 100))
                + text[at + dice.choice((0, 0, 5)) :]
            )
    data = text[:MOST_BYTES].encode(dice.choice(("utf-8",) * 8 + ("utf-16", "latin-1")), "replace")
    return _bitten(dice, data) if dice.random() < 0.3 else data


def _begun(dice: random.Random, form: str) -> str:
    """What a reader has to see before it looks any further."""
    return {"md": "---\na: ", "html": "<body>", "jsonl": '{"text":', "csv": "text\n", "txt": ""}[form] * dice.randint(
        0, 1
    )


def _bitten(dice: random.Random, data: bytes) -> bytes:
    """A file with flipped bits, a piece cut out or repeated, or its end gone."""
    bytes_ = bytearray(data)
    for _ in range(dice.choice((1, 1, 3, 30)) if bytes_ else 0):
        at, how = dice.randrange(len(bytes_)) if bytes_ else 0, dice.randrange(4)
        if how == 0 and bytes_:
            bytes_[at] ^= 1 << dice.randrange(8)
        elif how == 1:
            del bytes_[at : at + dice.choice((1, 4, 100))]
        elif how == 2:
            bytes_[at:at] = bytes_[at : at + 50] * dice.choice((1, 20))
        else:
            del bytes_[at + dice.randrange(1 + len(bytes_) - at) :]
    return bytes(bytes_)


def _parquet(dice: random.Random) -> bytes:
    rows = dice.choice((0, 1, 50, 2000))
    texts = [dice.choice(("a text", "é" * 20, "", None)) for _ in range(rows)]
    table = pa.table({"_id": [str(n) for n in range(rows)], "text": pa.array(texts, pa.string())})
    odd = (pa.array(range(rows)), pa.array([[n] for n in range(rows)], pa.list_(pa.int64())), pa.nulls(rows))
    table = table.append_column(dice.choice(("title", "tenant", "text", "x")), dice.choice(odd))
    sink = io.BytesIO()
    pq.write_table(
        table, sink, compression=dice.choice(("none", "snappy", "zstd", "gzip")), use_dictionary=dice.random() < 0.5
    )
    return _bitten(dice, sink.getvalue()) if dice.random() < 0.8 else sink.getvalue()


SETTINGS = IngestSettings(max_reject_share=1.0)
PROSE = (".md", ".html", ".txt")


def read(file: Hostile, folder: Path) -> None:
    """Read a file by the stage that it is for; what a user can mend is no failure."""
    path = folder / "source" / file.name
    path.parent.mkdir()
    path.write_bytes(file.data)
    run, stage = Run(str(folder / "run")), INGEST_LOGS if file.log else INGEST_DOCUMENTS
    output = Output(run.store, run.plan(stage, {}), None, no_progress)
    with suppress(DarklodeError):
        if file.log:
            ingest_logs(str(path.parent), output, LogSettings(), SETTINGS)
        else:
            ingest_documents(str(path.parent if path.suffix in PROSE else path), output, SETTINGS)


def _worker(first: int, last: int) -> None:
    """Read the files one after another; a line for each: its number, seconds of the processor, and what was raised."""
    for number in range(first, last):
        print(json.dumps({"began": number}), flush=True)
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            raised, began = None, time.process_time()
            try:
                read(hostile(number), Path(folder))
            except BaseException as error:
                raised = f"{type(error).__name__}: {str(error)[:300]}"
            print(json.dumps({"number": number, "seconds": time.process_time() - began, "raised": raised}), flush=True)


def failures(first: int, last: int, slow: float = SLOW_SECONDS) -> Iterator[str]:
    """What went wrong with which file; a process of its own reads them, and a new one goes on where it dies."""
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    while first < last:
        command = [sys.executable, "-m", "helpers.hostile", "worker", str(first), str(last)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
            at = first
            for said in _lines(worker):
                at = said.get("began", at)
                if said.get("raised"):
                    yield f"{at} {hostile(at).name}: {said['raised']}"
                elif said.get("seconds", 0) > slow:
                    yield f"{at} {hostile(at).name}: took {said['seconds']:.1f} s"
                elif said.get("stuck"):
                    yield f"{at} {hostile(at).name}: no end after {STUCK_SECONDS:g} s"
            code = worker.wait()
        if code not in (0, -9):
            yield f"{at} {hostile(at).name}: ended the process with {code}"
        first = last if code == 0 else at + 1


def _lines(worker: subprocess.Popen[bytes]) -> Iterator[dict[str, float]]:
    assert worker.stdout
    with selectors.DefaultSelector() as waiting:
        waiting.register(worker.stdout, selectors.EVENT_READ)
        while True:
            if not waiting.select(STUCK_SECONDS):
                yield {"stuck": 1}
                worker.kill()
                return
            line = worker.stdout.readline()
            if not line:
                return
            yield json.loads(line)


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        _worker(int(sys.argv[2]), int(sys.argv[3]))
    else:
        found = 0
        for one in failures(int(sys.argv[1]), int(sys.argv[2])):
            found += 1
            print(one, flush=True)
        print(f"{int(sys.argv[2]) - int(sys.argv[1]):,} files, {found} failures")
