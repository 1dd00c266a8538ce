"""From settings to the real parts behind the ports: retrievers and judges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flows.config import nearest
from pipeline.corpora import TenantChunks
from pipeline.errors import SettingsError
from pipeline.judges.embedded import EmbeddedJudge
from pipeline.judges.port import Judge
from pipeline.retrievers.corpus import Corpus
from pipeline.retrievers.embedded import EMBEDDED
from pipeline.retrievers.port import Retriever
from pipeline.search import Factory
from pipeline.terms import TermSpace
from schemas.settings import JudgeSettings, PoolSettings


@dataclass(frozen=True)
class Embedded:
    """Builds an embedded retriever: by its name, so that it can travel to another machine."""

    name: str

    def __call__(self, corpus: Corpus) -> Retriever:
        """Fit it on the corpus."""
        return EMBEDDED[self.name](corpus)

    @property
    def shares(self) -> str:
        """A feedback retriever fits what the one that it is named after fits."""
        return self.name.removesuffix("_feedback")


def retrievers(settings: PoolSettings) -> Mapping[str, Factory]:
    """The retrievers that the settings name, in their order.

    Raises:
        SettingsError: no name, an unknown one, or one twice.
    """
    names = settings.retrievers
    if not names or len(set(names)) < len(names):
        raise SettingsError("pool.retrievers must name at least one retriever, and none twice")
    for name in names:
        if name not in EMBEDDED:
            raise SettingsError(f"pool.retrievers: there is no retriever {name}; {nearest(name, list(EMBEDDED))}")
    return {name: Embedded(name) for name in names}


def judge_for(settings: JudgeSettings) -> Callable[[TenantChunks], Judge]:
    """Builds the judge of one tenant's chunks."""
    return lambda chunks: EmbeddedJudge(TermSpace(chunks.batches()), settings)
