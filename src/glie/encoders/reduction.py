"""Reduction: a matrix that projects an encoder's vectors to fewer dimensions.

In a safetensors file, as the tensor "reduction"; its metadata say which encoder it was fitted for.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from glie.encoders.base import Encoder, Floats
from glie.errors import EncoderError

TENSOR = "reduction"
FITTED_FOR = "encoder_revision"


def write_reduction(path: Path, matrix: Floats, encoder: Encoder) -> None:
    """Write a matrix that was fitted on an encoder's vectors."""
    from safetensors.numpy import save_file

    # float16 halves the file; it loses a thousandth of what the reduction itself loses
    save_file({TENSOR: matrix.astype(np.float16)}, path, {FITTED_FOR: encoder.revision})


def read_reduction(path: Path, revision: str) -> Floats:
    """Read the (H, D) matrix for an encoder of this revision."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="np") as file:
            fitted_for = (file.metadata() or {}).get(FITTED_FOR, revision)
            matrix = file.get_tensor(TENSOR)
    except Exception as error:  # a missing file, a damaged one, or one without that tensor
        first = str(error).strip().split("\n")[0]
        raise EncoderError(
            f"{path}: not a safetensors file with the tensor {TENSOR!r}: {first}"
        ) from None
    if matrix.ndim != 2 or matrix.dtype.kind != "f" or not 0 < matrix.shape[1] <= len(matrix):
        raise EncoderError(
            f"{path}: {TENSOR!r} is {matrix.dtype} of shape {matrix.shape}; expected floats of "
            "(H, D), from an encoder's H dimensions to D, not more"
        )
    if not np.isfinite(matrix).all():
        raise EncoderError(f"{path}: {TENSOR!r} has values that are not finite; fit it again")
    if fitted_for != revision:
        raise EncoderError(
            f"{path}: fitted for an encoder of revision {fitted_for}, not {revision}; fit one for "
            "this encoder"
        )
    return np.asarray(matrix, dtype=np.float32)


def check_width(matrix: Floats, width: int, name: str) -> None:
    """Raise unless the matrix fits vectors of `width` dimensions."""
    if len(matrix) != width:
        raise EncoderError(
            f"{name}: a reduction of {len(matrix)} dimensions for vectors of {width}; give the "
            "one that was fitted for this encoder"
        )
