"""`transformers`' own late-interaction models: ColPali and ColQwen2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glie.encoders.content import picture_of
from glie.encoders.loading import PILLOW, pick_device, quietly, without_videos
from glie.errors import EncoderError, MissingExtraError

if TYPE_CHECKING:
    from torch import Tensor

MODELS = {"colpali": "ColPaliForRetrieval", "colqwen2": "ColQwen2ForRetrieval"}


class RetrievalModel:
    """A ColPali or ColQwen2 model with its processor, from a folder or the Hugging Face Hub.

    Vectors are those that the model's attention mask keeps: the image's, and those of the prompt
    around it.
    """

    def __init__(self, name: str | os.PathLike[str], device: str | None = None) -> None:
        try:
            import PIL  # noqa: F401
            import torch
            import transformers  # noqa: F401
        except ImportError:
            raise MissingExtraError("looking at pages", "multi-vector") from None
        self.name = os.fspath(name)
        self.device = torch.device(pick_device(device))
        self.model, self._processor = _loaded(self.name)
        self.model.to(self.device).eval()

    def page_vectors(self, pages: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """(B, N, D) vectors of page images, and the (B, N) mask of those that are not padding."""
        images = [picture_of(page, i) for i, page in enumerate(pages)]
        return self._vectors(self._processor.process_images(images=images))

    def query_vectors(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """(B, m, D) vectors of questions, and the (B, m) mask of those that are not padding."""
        return self._vectors(self._processor.process_queries(text=list(texts)))

    def _vectors(self, inputs: Any) -> tuple[Tensor, Tensor]:
        # labels are only for generating text
        given = {name: value.to(self.device) for name, value in inputs.items() if name != "labels"}
        return self.model(**given).embeddings.float(), given["attention_mask"].bool()


def _loaded(name: str) -> tuple[Any, Any]:
    """Load the model and its processor: safetensors weights, no code from the repository."""
    import transformers

    local = Path(name).is_dir()
    if local and (Path(name) / "adapter_config.json").exists():
        raise EncoderError(
            f"{name}: an adapter, not a model; give the model that it is for, or a checkpoint "
            "that it is merged into (on the Hub, their names end in -hf)"
        )
    options = {"local_files_only": local, "trust_remote_code": False}
    try:
        with quietly(), without_videos():
            kind = transformers.AutoConfig.from_pretrained(name, **options).model_type
            if kind not in MODELS:
                raise EncoderError(f"{name}: a {kind} model, expected {' or '.join(MODELS)}")
            processor = transformers.AutoProcessor.from_pretrained(name, **options, **PILLOW)
            model = getattr(transformers, MODELS[kind]).from_pretrained(
                name, use_safetensors=True, **options
            )
    except EncoderError:
        raise
    except Exception as error:  # each format's reader raises its own
        reason = str(error).strip().split("\n")[0]
        raise EncoderError(
            f"{name}: not a transformers ColPali or ColQwen2 model with its processor and "
            f"safetensors weights: {reason}"
        ) from None
    return model, processor
