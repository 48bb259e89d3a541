"""Matrix products by a compiled loop: in one thread, and each row by itself.

A library for linear algebra starts threads for a large product, and these keep a core busy for a
while after they have finished: a search that follows with threads of its own takes twice as long.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class Columns:
    """A matrix in the layout of the compiled product. No row of `rows @ columns` depends on the
    others; numpy's product rounds differently for other numbers of rows."""

    __array_ufunc__ = None  # numpy leaves `@` to this class

    def __init__(self, matrix: npt.NDArray[np.float32]) -> None:
        from glie.kernels._tiles import TILE_COLUMNS

        height, self.width = matrix.shape
        filled = np.pad(matrix, [(0, 0), (0, -self.width % TILE_COLUMNS)])
        apart = filled.reshape(height, -1, TILE_COLUMNS).swapaxes(0, 1)
        self.groups = np.ascontiguousarray(apart, np.float32)

    def __rmatmul__(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        from glie.kernels._decoder import multiply

        out = np.empty((len(rows), len(self.groups) * self.groups.shape[2]), np.float32)
        multiply(np.ascontiguousarray(rows, np.float32), self.groups, out)
        return out[:, : self.width]
