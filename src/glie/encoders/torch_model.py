"""A `transformers` text model in a local folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glie.encoders.base import Floats
from glie.encoders.files import digest_of
from glie.encoders.loading import quietly
from glie.encoders.text import TOKENS_PER_BATCH, WINDOW, Ints, framing
from glie.errors import EncoderError, MissingExtraError


class TorchModel:
    """A model that `save_pretrained` wrote, with safetensors weights."""

    batch = TOKENS_PER_BATCH

    def __init__(self, folder: Path, *, revision: str | None = None) -> None:
        try:
            import torch  # noqa: F401
            import transformers
        except ImportError:
            raise MissingExtraError("a text model of transformers", "minilm") from None
        self.revision = revision or digest_of(
            [*folder.glob("*.safetensors"), *folder.glob("tokenizer*")]
        )
        try:
            with quietly():
                self._tokenizer = transformers.AutoTokenizer.from_pretrained(
                    folder, local_files_only=True, use_fast=True, trust_remote_code=False
                )
                self._model = transformers.AutoModel.from_pretrained(
                    folder, local_files_only=True, use_safetensors=True, trust_remote_code=False
                ).eval()
            probe = self._tokenizer("a", return_special_tokens_mask=True)
            self.before, self.after = framing(probe["input_ids"], probe["special_tokens_mask"])
        except Exception as error:  # each format's reader raises its own
            first = str(error).strip().split("\n")[0]
            raise EncoderError(
                f"{folder}: not a transformers text model with a tokenizer and safetensors "
                f"weights: {first}"
            ) from None
        self.pad = self._tokenizer.pad_token_id or 0
        self.positions = getattr(self._model.config, "max_position_embeddings", None) or WINDOW
        # the encoder cuts windows, so the tokenizer need not warn about long texts
        self._tokenizer.model_max_length = int(1e30)

    def tokenize(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text, without special tokens."""
        found: list[list[int]] = self._tokenizer(texts, add_special_tokens=False)["input_ids"]
        return found

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Start and end of each token in the text."""
        tokens = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return [(int(start), int(end)) for start, end in tokens["offset_mapping"]]

    def states(self, tokens: Ints, mask: Ints) -> Floats:
        """The last hidden states of rows of tokens."""
        import torch

        with torch.inference_mode():
            output = self._model(
                input_ids=torch.from_numpy(tokens), attention_mask=torch.from_numpy(mask)
            )
        return np.asarray(output.last_hidden_state.float().numpy(), dtype=np.float32)
