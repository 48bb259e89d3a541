"""glie: store and search late-interaction page embeddings in half a kilobyte a page.

codec = glie.Codec(k=4)
index = glie.Index.create("my.glie", codec)
index.add(glie.Pages(arrays, ids=ids))
hits = index.search(queries, top=10)
"""

from glie import engines, geometry
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.config import CodecConfig
from glie.errors import (
    CodecError,
    CorruptIndexError,
    DatasetError,
    DocumentError,
    EncoderError,
    EngineError,
    GlieError,
    IdError,
    IndexFolderError,
    InputError,
    LockedError,
    MissingExtraError,
    VectorError,
)
from glie.index.index import Batch, Index, IndexInfo
from glie.pages import Pages, Queries
from glie.planning import Planned, plan
from glie.search.results import Cost, Hit, Hits
from glie.training.fit import fit
from glie.training.recipe import Recipe

__version__ = "0.1.0"

__all__ = [
    "Batch",
    "Codec",
    "CodecConfig",
    "CodecError",
    "Codes",
    "CorruptIndexError",
    "Cost",
    "DatasetError",
    "DocumentError",
    "EncoderError",
    "EngineError",
    "GlieError",
    "Hit",
    "Hits",
    "IdError",
    "Index",
    "IndexFolderError",
    "IndexInfo",
    "InputError",
    "LockedError",
    "MissingExtraError",
    "Pages",
    "Planned",
    "Queries",
    "Recipe",
    "VectorError",
    "engines",
    "fit",
    "geometry",
    "plan",
]
