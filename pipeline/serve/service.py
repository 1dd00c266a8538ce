"""Answer search requests to several systems, in one batch per system and depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from darklode.pipeline.base.types import Row
from darklode.pipeline.retrieve.retrievers.port import Retriever
from darklode.pipeline.serve.mapped_texts import IndexedTexts


@dataclass(frozen=True)
class SearchRequest:
    """A search request.

    Attributes:
        system: name of the system.
        text: the query.
        depth: maximum number of results.
        tenant: tenant whose texts are searched; None: the only one.
    """

    system: str
    text: str
    depth: int
    tenant: str | None = None


@dataclass(frozen=True)
class SearchService:
    """Systems that search the same texts.

    Attributes:
        tenant: tenant of the texts.
        texts: the searched texts; systems return their rows.
        retrievers: the systems by name.
    """

    tenant: str
    texts: IndexedTexts
    retrievers: Mapping[str, Retriever]

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenant."""
        return (self.tenant,)

    def systems(self, tenant: str | None = None) -> list[str]:  # noqa: ARG002 (as `TenantServices.systems`)
        """Names of the systems."""
        return list(self.retrievers)

    def answers(self, questions: Sequence[SearchRequest]) -> list[list[Row]]:
        """Results of each request, best first: rank, text_id, doc_id, title, heading, text and score (cosine)."""
        batches: dict[tuple[str, int], list[int]] = defaultdict(list)
        for position, question in enumerate(questions):
            batches[question.system, question.depth].append(position)
        results: list[list[Row]] = [[] for _ in questions]
        for (system, depth), positions in batches.items():
            hits = self.retrievers[system].search([questions[position].text for position in positions], depth)
            query, rank = np.nonzero(hits.rows >= 0)
            rows, scores = self.texts.text_rows(hits.rows[query, rank]), hits.scores[query, rank].tolist()
            for index, column, row, score in zip(query.tolist(), rank.tolist(), rows, scores, strict=True):
                results[positions[index]].append({"rank": column + 1, **row, "score": score})
        return results


@dataclass(frozen=True)
class TenantServices:
    """Search services of several tenants; a request reaches its own tenant's texts only.

    Attributes:
        services: the service of each tenant; an adapter of one tenant is no system of another.
    """

    services: Mapping[str, SearchService]

    @property
    def tenants(self) -> tuple[str, ...]:
        """The tenants."""
        return tuple(self.services)

    def systems(self, tenant: str | None = None) -> list[str]:
        """Names of a tenant's systems; None: of all tenants."""
        if tenant is not None:
            return self.services[tenant].systems()
        return list(dict.fromkeys(name for service in self.services.values() for name in service.systems()))

    def answers(self, questions: Sequence[SearchRequest]) -> list[list[Row]]:
        """As `SearchService.answers`; every request must name one of the tenants and a system of it."""
        results: list[list[Row]] = [[] for _ in questions]
        for tenant, service in self.services.items():
            positions = [position for position, question in enumerate(questions) if question.tenant == tenant]
            own_results = service.answers([questions[position] for position in positions])
            for position, result in zip(positions, own_results, strict=True):
                results[position] = result
        return results
