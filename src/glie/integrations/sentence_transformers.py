"""glie as token pooling for sentence-transformers.

pooling = GliePooling(k=16)
model.encode_document(pages, token_pooling=pooling)  # in one call
pooling.pool(embeddings)  # on what is encoded already
model.append(pooling)  # or in the model, saved with it
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from glie.codec.codec import Codec
from glie.errors import MissingExtraError
from glie.integrations.pooling import chosen, pooled

try:
    from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling
    from sentence_transformers.util import load_dir_path
except ImportError:
    raise MissingExtraError("pooling for sentence-transformers", "multi-vector") from None

if TYPE_CHECKING:
    from torch import Tensor

CODEC = "codec"


class GliePooling(BaseTokenPooling):
    """k vectors a document: its normalised k-means centroids, or the code of a given codec.

    A document with fewer distinct vectors than k keeps all of them. Questions are pooled only if
    `tasks` names them. A saved model takes the codec with it, and loads again with
    `trust_remote_code=True`, which sentence-transformers asks for before it imports any module
    that is not its own.
    """

    config_keys = ("k", "tasks")  # for information: `load` reads the codec

    def __init__(
        self,
        k: int | None = None,
        *,
        codec: Codec | None = None,
        tasks: str | list[str] | None = None,
    ) -> None:
        super().__init__(tasks=tasks)
        self.codec = chosen(k, codec)

    @property
    def k(self) -> int:
        """The number of vectors stored for a document."""
        return self.codec.k

    def pool_one(self, embedding: Tensor, **kwargs: Any) -> Tensor:
        """The (k, D) vectors of a document's code."""
        return pooled([embedding], self.codec)[0]

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        """Write the settings, and the codec in a folder beside them."""
        super().save(output_path, *args, **kwargs)
        self.codec.save(Path(output_path) / CODEC)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **options: Any) -> Self:
        """The reverse of `save`, from a folder or the Hugging Face Hub."""
        names = ("token", "cache_folder", "revision", "local_files_only")
        where = {name: options[name] for name in names if name in options}
        config = cls.load_config(model_name_or_path, subfolder=subfolder, **where)
        place = str(Path(subfolder) / CODEC)
        folder = load_dir_path(model_name_or_path, subfolder=place, **where)
        codec = Codec.load(folder or Path(model_name_or_path) / place)
        return cls(codec=codec, tasks=config.get("tasks"))
