"""The older name of `glie.distributed.ingest`."""

from glie.distributed.ingest import ingest_on_ray
from glie.renamed import warn

__all__ = ["ingest_on_ray"]

warn("glie.on_ray", "glie.distributed.ingest")
