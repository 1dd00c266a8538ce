"""Semantic ids: fit codebooks on a sample, encode every text, and measure the quality of each level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from darklode.pipeline.base.artifacts import FunnelStep, Output, Stage, Tables, key_of
from darklode.pipeline.base.artifacts.output import PART_ROWS
from darklode.pipeline.base.sharding import Pieces, Spread, here
from darklode.pipeline.base.types import Floats, Ints
from darklode.pipeline.index import residual_kmeans
from darklode.pipeline.index.faiss_io import is_member, positions_of
from darklode.pipeline.index.residual_kmeans import Books, Codes
from darklode.pipeline.index.shard import VectorShard, make_shards
from darklode.pipeline.index.source import VectorSource
from darklode.pipeline.index.texts import previous_tables
from darklode.schemas.serving import SemanticIdSettings
from darklode.schemas.serving_tables import INDEXED_TEXTS, SEMANTIC_CODEBOOKS, SEMANTIC_ID_LEVELS, SEMANTIC_IDS

CODEBOOKS_STAGE = Stage("semantic_codebooks", 1, (INDEXED_TEXTS.name,), (SEMANTIC_CODEBOOKS.name,))
SEMANTIC_IDS_STAGE = Stage(
    "semantic_ids", 1, (INDEXED_TEXTS.name, SEMANTIC_CODEBOOKS.name), (SEMANTIC_IDS.name, SEMANTIC_ID_LEVELS.name)
)

ID_COLUMNS = ["tenant", "text_id", "doc_id", "number"]
"""Columns that the ids share with `indexed_texts`."""

ADDED_ERROR_FACT = "error of added texts"
"""Fact of the stage: mean squared residual of the texts that the last update added; null if there are none."""

N_FITS = 2
"""Number of fits: the first gives the ids, the second only measures their stability."""

MAX_COMPARED_TEXTS = 20_000
"""Maximum number of texts whose codes by both fits are compared."""


SAMPLES_PER_CENTROID = 100  # between faiss's min_points_per_centroid (39) and max_points_per_centroid (256)


def write_codebooks(
    tables: Tables,
    output: Output,
    settings: SemanticIdSettings,
    source: VectorSource,
    spread: Spread = here,
    *,
    seed: int,
) -> None:
    """Fit the centroids twice, on different samples if there are enough texts. One unit per fit.

    Args:
        tables: `indexed_texts`.
        output: receives `semantic_codebooks`.
        settings: levels and codebook_size.
        source: the vectors.
        spread: computes vectors missing in the cache.
        seed: random seed of the samples and the initial centroids.
    """
    source.encode(CODEBOOKS_STAGE.name, spread)
    hashes = tables.read(INDEXED_TEXTS.name, ["content_hash"])["content_hash"]
    order = np.random.default_rng(seed).permutation(len(hashes))
    for fit in range(N_FITS):
        with output.unit(f"fit {fit}", key_of(tables.content(INDEXED_TEXTS.name), fit)) as unit:
            if unit.done:
                continue
            size = SAMPLES_PER_CENTROID * settings.codebook_size
            sample_rows = np.sort(np.roll(order, -fit * size)[:size])
            books = residual_kmeans.fit_codebooks(
                source.stored_vectors.take(hashes.take(pa.array(sample_rows))), settings, seed + fit
            )
            output.write(SEMANTIC_CODEBOOKS.name, residual_kmeans.codebook_rows(fit, books))
        output.progress(fit + 1, N_FITS)
    rows = output.rows(SEMANTIC_CODEBOOKS.name)
    output.count(FunnelStep("semantic_codebooks", "texts", len(hashes), "centroids of two fits", rows))


def write_semantic_ids(tables: Tables, output: Output, source: VectorSource, spread: Spread = here) -> None:
    """Encode each text, and measure the levels.

    Args:
        tables: `indexed_texts` and `semantic_codebooks`.
        output: receives `semantic_ids` and `semantic_id_levels`.
        source: the vectors.
        spread: encodes the texts.
    """
    texts = tables.read(INDEXED_TEXTS.name)
    books = _books(tables, 0)
    basis = output.unit_key("", residual_kmeans.codebook_id(books))
    shards = make_shards(tables, source.stored_vectors, SEMANTIC_IDS_STAGE.name, basis, spread.places)
    pieces = chain.from_iterable(spread(encode_shard, shards))
    codes, errors = _gather(pieces, len(texts), len(books), output)
    group, unique = residual_kmeans.last_groups(codes)
    suffixes = _disambiguate(group, np.full(len(codes), -1))
    _write(output, texts, codes, suffixes, residual_kmeans.codebook_id(books))
    fits = {
        "codes": pa.array([len(centres) for centres in books]),
        "error": pa.array(errors / max(1, len(codes))),
        "stability": pa.array(_stability(tables, source, codes), pa.float64()),
    }
    _write_levels(output, codes, unique, pa.table(fits))


def update_semantic_ids(tables: Tables, output: Output, source: VectorSource, *, trained: str) -> None:
    """Encode added and changed texts; the others keep their ids. Nothing is trained.

    Error and stability of the levels stay those of the training.

    Args:
        tables: `indexed_texts` and `semantic_codebooks`.
        output: receives `semantic_ids` and `semantic_id_levels`.
        source: the vectors.
        trained: id of the codebook in use.

    Raises:
        ArtifactError: the previous ids are missing.
    """
    earlier = previous_tables(output, trained, SEMANTIC_IDS.name, SEMANTIC_ID_LEVELS.name)
    texts, books = tables.read(INDEXED_TEXTS.name, ID_COLUMNS), _books(tables, 0)
    before = earlier.read(SEMANTIC_IDS.name, ["codes", "disambiguation", "number"]).combine_chunks()
    numbers = texts["number"].to_numpy()
    row_before = positions_of(numbers, before["number"].to_numpy())
    is_unchanged = row_before >= 0
    codes = np.empty((len(numbers), len(books)), np.int32)
    codes[is_unchanged] = _matrix(before["codes"])[row_before[is_unchanged]]
    added = pa.array(np.flatnonzero(~is_unchanged))
    hashes = tables.read(INDEXED_TEXTS.name, ["content_hash"])["content_hash"].take(added)
    blocks = (block for _, block in source.stored_vectors.blocks(hashes))
    codes[~is_unchanged], errors = _gather(_encode_blocks(blocks, books), len(added), len(books), output)
    group, unique = residual_kmeans.last_groups(codes)
    suffixes = _disambiguate(group, np.where(is_unchanged, before["disambiguation"].to_numpy()[row_before], -1))
    _write(output, texts, codes, suffixes, residual_kmeans.codebook_id(books))
    fits = earlier.read(SEMANTIC_ID_LEVELS.name).sort_by("level")
    _write_levels(output, codes, unique, fits.select(["codes", "error", "stability"]))
    output.facts[ADDED_ERROR_FACT] = float(errors[-1] / len(added)) if len(added) else None


def _books(tables: Tables, fit: int) -> Books:
    """Codebooks of a fit."""
    return residual_kmeans.read_codebooks(tables.read(SEMANTIC_CODEBOOKS.name), fit)


def _matrix(codes: pa.ChunkedArray) -> Codes:
    """A list column of codes as an array, shape (n, levels)."""
    flat = codes.combine_chunks().flatten()
    return np.asarray(flat, np.int32).reshape(len(codes), -1)


def encode_shard(shard: VectorShard) -> Pieces:
    """Yield two tables per block of a shard: the squared residuals of each level, and the codes, text by text."""
    yield from _encode_blocks(shard.blocks(), _books(shard.tables, 0))


def _encode_blocks(blocks: Iterable[Floats], books: Books) -> Pieces:
    for block in blocks:
        codes, residuals = residual_kmeans.encode_vectors(block, books)
        yield pa.table({"left": residuals})  # `_gather` reads the two tables by these column names, in this order
        yield pa.table({"code": codes.ravel()})


def _gather(pieces: Iterator[pa.Table], texts: int, levels: int, output: Output) -> tuple[Codes, NDArray[np.float64]]:
    """Join the pieces of `encode_shard`: codes, shape (texts, levels), and summed squared residuals per level."""
    codes = np.empty((texts, levels), np.int32)
    errors = np.zeros(levels)
    n_done = 0
    for residuals, code_rows in zip(pieces, pieces, strict=True):  # the same iterator twice: pieces come in pairs
        block = code_rows["code"].to_numpy().reshape(-1, levels)
        codes[n_done : n_done + len(block)] = block
        errors += residuals["left"].to_numpy()
        n_done += len(block)
        output.progress(n_done, texts)
    return codes, errors


def _disambiguate(group: Ints, known_suffixes: Ints) -> Ints:
    """Suffixes that distinguish rows of equal codes. Known suffixes (≥ 0) stay; new ones follow in row order."""
    new_rows = np.flatnonzero(known_suffixes < 0)
    next_suffix = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    known_rows = np.flatnonzero((known_suffixes >= 0) & is_member(group, group[new_rows]))
    np.maximum.at(next_suffix, group[known_rows], known_suffixes[known_rows] + 1)
    new_rows = new_rows[np.argsort(group[new_rows], kind="stable")]
    group_start = np.searchsorted(group[new_rows], group[new_rows])
    suffixes = known_suffixes.astype(np.int64)
    suffixes[new_rows] = np.arange(len(new_rows)) - group_start + next_suffix[group[new_rows]]
    return suffixes


def _write(output: Output, texts: pa.Table, codes: Codes, suffixes: Ints, name: str) -> None:
    for start in range(0, len(codes), PART_ROWS):
        rows, part_codes = texts.slice(start, PART_ROWS), codes[start : start + PART_ROWS]
        ends = np.arange(len(part_codes) + 1, dtype=np.int32) * codes.shape[1]
        columns = {column: rows[column] for column in ID_COLUMNS}
        columns |= {
            "codes": pa.ListArray.from_arrays(pa.array(ends), pa.array(part_codes.ravel())),
            "disambiguation": pa.array(suffixes[start : start + PART_ROWS]),
            "codebook": pa.repeat(name, len(part_codes)),
        }
        output.write(SEMANTIC_IDS.name, SEMANTIC_IDS.rows(columns))
    output.count(FunnelStep("semantic_ids", "texts", texts.num_rows, "texts", len(codes)))


def _stability(tables: Tables, source: VectorSource, codes: Codes) -> list[float | None]:
    """Agreement of the two fits by level: Jaccard index of the text pairs with equal codes."""
    other_books = _books(tables, 1)
    n = len(codes)
    sample = np.unique(np.linspace(0, n - 1, min(MAX_COMPARED_TEXTS, n)).astype(np.int64))
    hashes = tables.read(INDEXED_TEXTS.name, ["content_hash"])["content_hash"].take(pa.array(sample))
    other_codes, _ = residual_kmeans.encode_vectors(source.stored_vectors.take(hashes), other_books)
    other_groups = residual_kmeans.groups(other_codes)
    return [
        residual_kmeans.pair_agreement(groups_of_fit, groups_of_other)
        for groups_of_fit, groups_of_other in zip(residual_kmeans.groups(codes[sample]), other_groups, strict=True)
    ]


def _write_levels(output: Output, codes: Codes, unique: list[float], fits: pa.Table) -> None:
    """Write `semantic_id_levels`; `unique` is the share of texts whose codes no other text has, by level."""
    levels = range(codes.shape[1])
    columns = {
        "level": pa.array(np.arange(1, codes.shape[1] + 1)),
        "perplexity": pa.array([residual_kmeans.perplexity(codes[:, level]) for level in levels]),
        "unique": pa.array(unique),
        **{name: fits[name] for name in fits.column_names},
    }
    output.write(SEMANTIC_ID_LEVELS.name, SEMANTIC_ID_LEVELS.rows(columns))
