"""Check that an adapter fits an index: same encoder, and recorded queries have the recorded results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from darklode.pipeline.base.chunk_texts import view
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.base.types import Facts, Floats
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.serve.adapter_retriever import AdaptedBuilder
from darklode.pipeline.serve.run_search import TenantIndex
from darklode.pipeline.train.release.adapter import Adapter, weights_hash
from darklode.pipeline.train.release.compatibility import ENCODER_FACTS, MIN_COSINE, CheckFinding, returns_same
from darklode.pipeline.train.release.identity import DEPTH, identity, index_digest, mean_shift
from darklode.schemas.settings import Settings


@dataclass(frozen=True)
class AdapterCheck:
    """An adapter and the index to check it against.

    Attributes:
        adapter: the adapter's folder.
        index: texts of its tenant.
        encoder: encoder of the index's vectors, from the run's settings.
        settings: the run's settings.
    """

    adapter: Adapter
    index: TenantIndex
    encoder: SentenceTransformersSettings
    settings: Settings

    def findings(self) -> Iterator[CheckFinding]:
        """Run the checks in order; stop at the first failure."""
        for check in (
            self._files,
            self._check_base,
            self._vectors,
            self._texts,
            self._check_lengths,
            self._check_shift,
            self._first_ten,
        ):
            for finding in check():
                yield finding
                if not finding.fits:
                    return

    def _files(self) -> Iterator[CheckFinding]:
        """The files have the recorded hash."""
        files_hash, recorded = weights_hash(self.adapter.store, self.adapter.files), self.adapter.facts["weights"]
        yield CheckFinding("files of the adapter", files_hash == recorded, _compare_values(files_hash, recorded))

    def _check_base(self) -> Iterator[CheckFinding]:
        """The adapter's base encoder is the index's encoder."""
        own_identity, recorded = identity(self.encoder), self.adapter.facts["base"]
        for name in ENCODER_FACTS:
            yield CheckFinding(
                f"{name} of the base",
                own_identity[name] == recorded[name],
                _compare_values(own_identity[name], recorded[name]),
            )

    def _vectors(self) -> Iterator[CheckFinding]:
        """The index has a vector for each text, with the base's dimensions."""
        cache = EmbeddingCache(self.settings.cache.root, self.settings.cache.vector_dtype)
        shards = cache.open(self.encoder.encoder_id())
        hashes = self.index.texts.hashes()
        n_missing = len(hashes) if shards is None else int((shards.find(keys_of(hashes)) < 0).sum())
        remedy = f" in {cache.parts.store.url}; set their cache with --set cache.root=…" if n_missing else ""
        yield CheckFinding(
            "vectors of the index", not n_missing, f"{n_missing:,} of {len(hashes):,} texts have none{remedy}"
        )
        if shards is not None:
            dimensions, recorded = shards.layout.dimensions, self.adapter.facts["base"]["dimensions"]
            yield CheckFinding("dimensions", dimensions == recorded, _compare_values(dimensions, recorded))

    def _check_lengths(self) -> Iterator[CheckFinding]:
        """Vectors of texts and of adapted queries have length 1."""
        for subject, vectors in (("texts", self._in_index), ("adapted queries", self._adapted_vectors)):
            deviation = float(np.abs(np.linalg.norm(vectors, axis=1) - 1).max(initial=0))
            yield CheckFinding(f"length of vectors of {subject}", deviation <= self._tolerance, f"1 ± {deviation:.1e}")

    def _texts(self) -> Iterator[CheckFinding]:
        """The base encoder gives recorded texts the vectors of the index."""
        if not self._probes:
            yield CheckFinding("recorded texts", False, "none is in the index: it is another index")
            return
        passages = self.index.source.passage_rows(self.index.tenant, self._probes)
        vectors = self.encoder.load().encode_documents(view(passages).to_pylist())
        min_cosine = float(np.einsum("ij,ij->i", vectors, self._in_index).min())
        yield CheckFinding(
            f"{len(vectors)} texts encoded again",
            min_cosine >= MIN_COSINE,
            f"cosine with the index's vectors at least {min_cosine:.5f}",
        )

    def _check_shift(self) -> Iterator[CheckFinding]:
        """The adapter moves query vectors as when it was saved: servers may silently ignore adapters."""
        if not self.adapter.ships:
            yield CheckFinding("is applied", True, "the folder contains the base encoder: nothing to apply")
            return
        shift, recorded = mean_shift(self._base_vectors, self._adapted_vectors), float(self._recorded_queries["moved"])
        tolerance = self._tolerance
        same = abs(shift - recorded) <= tolerance * max(recorded, tolerance) + 1e-6 and shift > 0
        n = len(self._adapted_vectors)
        detail = f"mean shift of {n} queries {shift:.6f} (1 − cosine), recorded {recorded:.6f}"
        yield CheckFinding("is applied", same, detail)

    def _first_ten(self) -> Iterator[CheckFinding]:
        """Recorded queries have the recorded results; in a changed index, remaining results have equal scores."""
        exact = self.settings.vector_search.model_copy(update={"index": "exact"})
        base = NeuralBuilder("adapted", self.encoder, exact, self.settings.cache)
        queries = self._recorded_queries["queries"]
        results = self.index.top(
            {"adapted": AdaptedBuilder(base, self.adapter)}, [query["text"] for query in queries], DEPTH
        )
        rows = results.to_pylist()
        lists = [[row for row in rows if row["query"] == number] for number in range(len(queries))]
        hashes = {} if self._is_unchanged else self._hashes([row["text_id"] for row in rows])
        pairs = zip(queries, lists, strict=True)
        agree = sum(returns_same(query["found"], result, hashes, self._tolerance) for query, result in pairs)
        detail = f"unchanged for {agree} of {len(queries)} recorded queries" + (
            "" if self._is_unchanged else "; the index changed since"
        )
        yield CheckFinding("first ten", agree == len(queries), detail)

    def _hashes(self, text_ids: Sequence[str]) -> Mapping[str, str]:
        return {name: row["content_hash"] for name, row in self.index.texts_by_id(sorted(set(text_ids))).items()}

    @property
    def _tolerance(self) -> float:
        """Tolerance of scores and vector lengths at the encoder's precision."""
        return rounding(self.encoder.dtype)

    @cached_property
    def _digest(self) -> str:
        texts = self.index.texts
        return index_digest(_chunked(texts.chunk_ids), _chunked(texts.hashes()))

    @cached_property
    def _recorded_queries(self) -> Facts:
        """The record of this index: by texts, else by URL, else the first."""
        recorded: list[Facts] = self.adapter.facts["indexes"]
        same = [facts for facts in recorded if facts["digest"] == self._digest]
        in_this_run = [facts for facts in recorded if facts["run"] == self.index.source.run.store.url]
        return (same or in_this_run or recorded)[0]

    @cached_property
    def _is_unchanged(self) -> bool:
        return bool(self._recorded_queries["digest"] == self._digest)

    @cached_property
    def _probes(self) -> list[str]:
        return sorted(self.index.texts_by_id(self._recorded_queries["probes"]))

    @cached_property
    def _in_index(self) -> Floats:
        """The index's vectors of the recorded texts."""
        cache = EmbeddingCache(self.settings.cache.root, self.settings.cache.vector_dtype)
        shards = cache.open(self.encoder.encoder_id())
        assert shards is not None
        hashes = self._hashes(self._probes)
        vectors = CachedVectors(shards, [hashes[name] for name in self._probes])
        return np.asarray(vectors.take(vectors.positions()), np.float32)

    @cached_property
    def _adapted_vectors(self) -> Floats:
        return self.adapter.encode([query["text"] for query in self._recorded_queries["queries"]])

    @cached_property
    def _base_vectors(self) -> Floats:
        return self.encoder.load().encode_queries([query["text"] for query in self._recorded_queries["queries"]])


def require_fit(adapter: Adapter, index: TenantIndex, findings: Sequence[CheckFinding]) -> None:
    """Raise the first failed check.

    Raises:
        DoesNotFit: a check failed.
    """
    for finding in findings:
        if not finding.fits:
            raise DoesNotFit(
                f"{adapter.store.url} does not fit {index.source.run.store.url}: {finding.subject}: {finding.detail}"
            )


def _compare_values(value: Any, recorded: Any) -> str:
    return f"{value or 'none'}" if value == recorded else f"{value or 'none'}, recorded {recorded or 'none'}"


def _chunked(values: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([values])
