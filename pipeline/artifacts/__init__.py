"""The one reader and writer of tables: a run's folder (or `s3://` prefix), its manifests and its parts.

    RUN/settings.yaml                 the settings in force
    RUN/manifests/<stage>.json        written last: a manifest means that the stage is complete
    RUN/progress/<stage>/<key>.json   units of an unfinished stage that are already on disk
    RUN/tables/<table>/*.parquet      the parts, named by stage, number and content

A part never changes: another content has another name, so a stage that is rebuilt leaves the finished tables readable
until its new manifest stands. The same inputs give the same bytes, whether or not a run was killed on the way.
"""

from pipeline.artifacts.output import Output, Unit
from pipeline.artifacts.run import Run
from pipeline.artifacts.stage import FunnelStep, Manifest, Part, Plan, Stage, digest, key_of
from pipeline.artifacts.store import Store
from pipeline.artifacts.tables import Tables

__all__ = [
    "FunnelStep",
    "Manifest",
    "Output",
    "Part",
    "Plan",
    "Run",
    "Stage",
    "Store",
    "Tables",
    "Unit",
    "digest",
    "key_of",
]
