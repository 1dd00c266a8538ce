"""Whether an adapter is for an index: what decides the vectors is the same, and its probes find what they found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from darklode.pipeline.base.corpora import view
from darklode.pipeline.base.errors import DoesNotFit
from darklode.pipeline.base.memory.keys import keys_of
from darklode.pipeline.base.memory.vectors import EmbeddingCache
from darklode.pipeline.base.models.precision import rounding
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.retrieve.retrievers.blocks import CachedVectors
from darklode.pipeline.retrieve.retrievers.neural import NeuralBuilder
from darklode.pipeline.serve.adapted import AdaptedBuilder
from darklode.pipeline.serve.index import Index
from darklode.pipeline.train.adapter import Adapter, Facts
from darklode.pipeline.train.identity import DEPTH, identity, index_digest, moved, weights_hash
from darklode.pipeline.train.vectors import Floats
from darklode.schemas.settings import Settings

COSINE = 0.9999
"""Least between a text's vector in the index and what the base gives for it now; half precision keeps more."""

SCORE = rounding("float32")
"""By so much a probe's score may differ from the recorded one: other sums, another machine."""

SAME = ("encoder", "pooling", "query prompt", "document prompt", "tokens", "cut", "precision", "weights")
"""The weights last: their hash is over all files of the model, those that the others are read from, too."""


@dataclass(frozen=True)
class Finding:
    """What was looked at, whether the adapter fits there, and what was seen."""

    what: str
    fits: bool
    seen: str


@dataclass(frozen=True)
class Check:
    """An adapter against an index.

    Attributes:
        adapter: as it lies in its folder.
        index: the texts of its tenant.
        encoder: that the index's vectors are by, as the run has it.
        settings: of the run.
    """

    adapter: Adapter
    index: Index
    encoder: SentenceTransformersSettings
    settings: Settings

    def findings(self) -> Iterator[Finding]:
        """All that is looked at, in order, until something does not fit."""
        for look in (
            self._files,
            self._same,
            self._vectors,
            self._texts,
            self._lengths,
            self._applied,
            self._first_ten,
        ):
            for finding in look():
                yield finding
                if not finding.fits:
                    return

    def _files(self) -> Iterator[Finding]:
        """The folder is the one that was recorded."""
        mine, recorded = weights_hash(self.adapter.store, self.adapter.files), self.adapter.facts["weights"]
        yield Finding("files of the adapter", mine == recorded, _both(mine, recorded))

    def _same(self) -> Iterator[Finding]:
        """The base is the index's encoder."""
        mine, recorded = identity(self.encoder), self.adapter.facts["base"]
        for name in SAME:
            yield Finding(f"{name} of the base", mine[name] == recorded[name], _both(mine[name], recorded[name]))

    def _vectors(self) -> Iterator[Finding]:
        """The index has a vector for each text, as long as the base's."""
        cache = EmbeddingCache(self.settings.cache.root, self.settings.cache.dtype)
        shards = cache.open(self.encoder.encoder_id())
        hashes = self.index.texts.hashes()
        lacking = len(hashes) if shards is None else int((shards.find(keys_of(hashes)) < 0).sum())
        place = f" in {cache.parts.store.url}; name their cache with --set cache.root=…" if lacking else ""
        yield Finding("vectors of the index", not lacking, f"{lacking:,} of {len(hashes):,} texts have none{place}")
        if shards is not None:
            mine, recorded = shards.layout.dimensions, self.adapter.facts["base"]["dimensions"]
            yield Finding("dimensions", mine == recorded, _both(mine, recorded))

    def _lengths(self) -> Iterator[Finding]:
        """Both sides have vectors of length 1."""
        for what, vectors in (("texts", self._in_index), ("adapted queries", self._adapted)):
            off = float(np.abs(np.linalg.norm(vectors, axis=1) - 1).max(initial=0))
            yield Finding(f"length of vectors of {what}", off <= self._tolerance, f"1 ± {off:.1e}")

    def _texts(self) -> Iterator[Finding]:
        """Recorded texts get from the base what the index has of them."""
        if not self._probes:
            yield Finding("recorded texts", False, "none of them is in the index: it is another one")
            return
        words = self.index.source.words(self.index.tenant, self._probes)
        again = self.encoder.load().encode_documents(view(words).to_pylist())
        least = float(np.einsum("ij,ij->i", again, self._in_index).min())
        yield Finding(
            f"{len(again)} texts encoded again", least >= COSINE, f"cosine with the index's vectors {least:.5f} or more"
        )

    def _applied(self) -> Iterator[Finding]:
        """The adapter does to queries what it did when it was saved: servers leave adapters out without a word."""
        if not self.adapter.ships:
            yield Finding("is applied", True, "the base itself is handed over: there is nothing to apply")
            return
        mine, recorded = moved(self._base, self._adapted), float(self._recorded["moved"])
        near = self._tolerance
        same = abs(mine - recorded) <= near * max(recorded, near) + 1e-6 and mine > 0
        said = f"{len(self._adapted)} queries are moved by {mine:.6f} (1 − cosine), by {recorded:.6f} when it was saved"
        yield Finding("is applied", same, said)

    def _first_ten(self) -> Iterator[Finding]:
        """Recorded queries find what they found; in an index that changed, what is still there has its score."""
        exact = self.settings.vectors.model_copy(update={"index": "exact"})
        base = NeuralBuilder("adapted", self.encoder, exact, self.settings.cache)
        queries = self._recorded["queries"]
        found = self.index.top({"adapted": AdaptedBuilder(base, self.adapter)}, [one["text"] for one in queries], DEPTH)
        rows = found.to_pylist()
        lists = [[row for row in rows if row["query"] == number] for number in range(len(queries))]
        hashes = {} if self._unchanged else self._hashes([row["text_id"] for row in rows])
        pairs = zip(queries, lists, strict=True)
        agree = sum(returns(one["found"], mine, hashes, self._tolerance) for one, mine in pairs)
        said = f"of {agree} of {len(queries)} recorded queries" + (
            "" if self._unchanged else "; the index changed since"
        )
        yield Finding("first ten", agree == len(queries), said)

    def _hashes(self, text_ids: Sequence[str]) -> Mapping[str, str]:
        return {name: row["content_hash"] for name, row in self.index.words(sorted(set(text_ids))).items()}

    @property
    def _tolerance(self) -> float:
        """By so much a score, or a vector's length, may differ at the encoder's precision."""
        return rounding(self.encoder.dtype)

    @cached_property
    def _digest(self) -> str:
        texts = self.index.texts
        return index_digest(_chunked(texts.chunk_ids), _chunked(texts.hashes()))

    @cached_property
    def _recorded(self) -> Facts:
        """What was recorded of this index: the same texts, the same address, or the only one."""
        recorded: list[Facts] = self.adapter.facts["indexes"]
        same = [one for one in recorded if one["digest"] == self._digest]
        there = [one for one in recorded if one["run"] == self.index.source.run.store.url]
        return (same or there or recorded)[0]

    @cached_property
    def _unchanged(self) -> bool:
        return bool(self._recorded["digest"] == self._digest)

    @cached_property
    def _probes(self) -> list[str]:
        return sorted(self.index.words(self._recorded["probes"]))

    @cached_property
    def _in_index(self) -> Floats:
        """Vectors of the recorded texts as the index has them."""
        cache = EmbeddingCache(self.settings.cache.root, self.settings.cache.dtype)
        shards = cache.open(self.encoder.encoder_id())
        assert shards is not None
        hashes = self._hashes(self._probes)
        vectors = CachedVectors(shards, [hashes[name] for name in self._probes])
        return np.asarray(vectors.take(vectors.positions()), np.float32)

    @cached_property
    def _adapted(self) -> Floats:
        return self.adapter.encode([one["text"] for one in self._recorded["queries"]])

    @cached_property
    def _base(self) -> Floats:
        return self.encoder.load().encode_queries([one["text"] for one in self._recorded["queries"]])


def returns(
    recorded: Sequence[Facts], found: Sequence[Facts], hashes: Mapping[str, str], tolerance: float = SCORE
) -> bool:
    """Whether a list is the recorded one; texts of nearly equal scores may change places.

    Args:
        recorded: text_id, hash and score, best first.
        found: text_id and score, best first.
        hashes: of the found texts where the index changed since: then those in both lists that did not change are
            compared, and there must be one. Empty: the lists are compared whole.
        tolerance: by so much a score may differ.
    """
    before = {one["text_id"]: one for one in recorded}
    if not hashes:
        near = [abs(one["score"] - other["score"]) <= tolerance for one, other in zip(recorded, found, strict=False)]
        edge = recorded[-1]["score"] if recorded else 0.0
        gone = before.keys() - {one["text_id"] for one in found}
        return (
            len(recorded) == len(found)
            and all(near)
            and all(abs(before[one]["score"] - edge) <= tolerance for one in gone)
        )
    both = [one for one in found if hashes[one["text_id"]] == before.get(one["text_id"], {}).get("hash")]
    return bool(both) and all(abs(one["score"] - before[one["text_id"]]["score"]) <= tolerance for one in both)


def demand_fit(adapter: Adapter, index: Index, findings: Sequence[Finding]) -> None:
    """Refuse what does not fit.

    Raises:
        DoesNotFit: the message names the first thing that does not.
    """
    for one in findings:
        if not one.fits:
            raise DoesNotFit(f"{adapter.store.url} does not fit {index.source.run.store.url}: {one.what}: {one.seen}")


def _both(mine: Any, recorded: Any) -> str:
    return (
        f"{mine or 'none'}" if mine == recorded else f"{mine or 'none'}, and {recorded or 'none'} when it was adapted"
    )


def _chunked(values: Any) -> Any:
    import pyarrow as pa

    return pa.chunked_array([values])
