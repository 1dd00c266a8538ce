"""The one reader and writer of tables: a run's folder (or `s3://` prefix), its manifests and its parts.

    RUN/settings.yaml                 the settings in force
    RUN/manifests/<stage>.json        written last: a manifest means that the stage is complete
    RUN/progress/<stage>/<key>.json   units of an unfinished stage that are already on disk
    RUN/progress/<stage>/<key>.state  what a unit that is under way needs to go on
    RUN/tables/<table>/*.parquet      the parts, named by stage, number and content

A part never changes: another content has another name, so a stage that is rebuilt leaves the finished tables readable
until its new manifest stands. The same inputs give the same bytes, whether or not a run was killed on the way.
"""

from darklode.pipeline.base.artifacts.output import Output, State, Unit
from darklode.pipeline.base.artifacts.run import Run
from darklode.pipeline.base.artifacts.stage import FunnelStep, Json, Manifest, Part, Plan, Stage, digest, key_of
from darklode.pipeline.base.artifacts.step import StageCall, Step, call
from darklode.pipeline.base.artifacts.store import Store
from darklode.pipeline.base.artifacts.tables import Tables

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
