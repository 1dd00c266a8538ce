"""Read and write runs. A run is a folder (or `s3://` prefix) with manifests and table parts.

    RUN/settings.yaml                 the settings in force
    RUN/manifests/<stage>.json        written last: a manifest means that the stage is complete
    RUN/progress/<stage>/<key>.json   finished units of an unfinished stage
    RUN/progress/<stage>/<key>.state  what an unfinished unit needs to continue
    RUN/tables/<table>/*.parquet      the parts, named by stage, number and content

Parts are immutable: their names contain a hash of their content. While a stage is rebuilt, its previous tables stay
readable until the new manifest is written. The same inputs give the same bytes, even if the run was killed in between.
"""

from darklode.pipeline.base.artifacts.output import Output
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import FunnelStep, Json, Manifest, Part, Plan, Stage, digest, key_of
from darklode.pipeline.base.artifacts.step import StageCall, Step, call
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.artifacts.tables import Tables
from darklode.pipeline.base.artifacts.units import State, Unit

__all__ = [
    "FunnelStep",
    "Json",
    "Manifest",
    "Output",
    "Part",
    "Plan",
    "Run",
    "Stage",
    "StageCall",
    "State",
    "Step",
    "Store",
    "Tables",
    "Unit",
    "call",
    "digest",
    "key_of",
]
