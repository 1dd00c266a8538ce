"""A run's labels in the formats of other tools: one short file per format.

The corpus of a benchmark is the chunks: what was retrieved and judged. Formats made of the triplets alone serve mined
runs too, whose passages are documents. A new format is a function that writes a folder, and its line in `FORMATS` and
in `NEEDS`.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path

from pipeline.artifacts import Run, Tables
from pipeline.errors import ExportError
from pipeline.export.beir import beir
from pipeline.export.devrev import devrev
from pipeline.export.flagembedding import flagembedding
from pipeline.export.msmarco import msmarco
from pipeline.export.mteb import mteb
from pipeline.export.sentence_transformers import sentence_transformers
from pipeline.export.tevatron import tevatron
from pipeline.export.trec import trec
from pipeline.export.withheld import public_and_withheld

FORMATS: dict[str, Callable[[Tables, Path], None]] = {
    "beir": beir,
    "trec": trec,
    "sentence-transformers": sentence_transformers,
    "mteb": mteb,
    "flagembedding": flagembedding,
    "tevatron": tevatron,
    "msmarco": msmarco,
    "devrev": devrev,
}

NEEDS = {
    "beir": ("chunks", "queries", "qrels"),
    "trec": ("chunks", "queries", "qrels", "rankings"),
    "sentence-transformers": ("triplets",),
    "mteb": ("chunks", "queries", "qrels"),
    "flagembedding": ("triplets",),
    "tevatron": ("triplets",),
    "msmarco": ("chunks", "queries", "qrels", "triplets"),
    "devrev": ("chunks", "queries", "qrels"),
}
"""The tables that each format is made of; a format sees no others."""


def export(run: Run, format: str, to: Path, withhold_test: Path | None = None) -> list[Path]:
    """Write a run's labels in another tool's format: all files or none.

    Args:
        run: a run whose stages up to the needed tables are complete.
        format: a key of `FORMATS`.
        to: a folder that is empty or does not exist.
        withhold_test: another such folder, for the same format with the labels and rankings of the test split alone;
            `to` then has all but these. Neither may lie in the other.

    Returns:
        The files written, sorted.

    Raises:
        ExportError: the format is unknown, a folder is not empty or cannot be made, the run lacks a table, nothing
            in it is relevant, or the format has no labels of the test split to withhold.
    """
    if format not in FORMATS:
        raise ExportError(_unknown(format))
    tables, to = _open(run, format), to.expanduser().resolve()
    if withhold_test is None:
        with _built(format, tables, to) as built:
            built.replace(to)
        return _files(to)
    public, withheld = public_and_withheld(run, format, NEEDS[format])
    kept = withhold_test.expanduser().resolve()
    if to.is_relative_to(kept) or kept.is_relative_to(to):
        raise ExportError(f"{kept} and {to} lie in one another; keep the test labels where the public folder is not")
    with _built(format, withheld, kept) as built_kept, _built(format, public, to) as built:
        built_kept.replace(kept)
        built.replace(to)
    return sorted(_files(to) + _files(kept))


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _built(format: str, tables: Tables, to: Path) -> Iterator[Path]:
    """The folder in that format, beside its place; it goes away unless it is moved there."""
    with _scratch(to) as scratch:
        built = Path(scratch) / "built"
        built.mkdir()
        FORMATS[format](tables, built)
        yield built


def _unknown(format: str) -> str:
    nearest = get_close_matches(format.lower(), FORMATS, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]}?" if nearest else f"the formats are {', '.join(FORMATS)}"
    return f"there is no export format {format!r}; {hint}"


def _open(run: Run, format: str) -> Tables:
    present = run.parts()
    missing = ", ".join(table for table in NEEDS[format] if table not in present)
    if missing:
        command = "`darklode build`" if len(NEEDS[format]) > 1 else "`darklode build` or `darklode mine`"
        raise ExportError(f"{run.store.url} lacks {missing}, which {format} needs; run {command} to the end")
    return run.tables(*NEEDS[format])


def _scratch(to: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder beside the target, on the same disk, that goes away whatever happens."""
    try:
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise ExportError(f"{to} is not an empty folder; name one that is empty or does not exist")
        to.parent.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(prefix=f".{to.name}-", dir=to.parent)
    except OSError as error:
        raise ExportError(f"cannot write to {to}: {error.strerror}; name another place") from error
