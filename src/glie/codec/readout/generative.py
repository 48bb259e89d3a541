"""What fitting leaves: the networks, and at which budgets they earned their place."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from glie.codec.config import CodecConfig
from glie.codec.readout.decoder import FEATURES, Decoder
from glie.codec.readout.refiner import HEADS, Refiner
from glie.errors import InputError
from glie.identity import EncoderId

Weights = dict[str, npt.NDArray[np.float16]]


@dataclasses.dataclass(frozen=True)
class FitScores:
    """nDCG@5 on the questions held out, at one k."""

    k: int
    free: float  # normalised k-means
    single_stage: float  # the best refined code, searched in one stage
    cascade: float  # the best refined code with regeneration of the shortlist
    step: float = 1.0  # the share of the decoder's steps that was best; 0: no regeneration

    def __post_init__(self) -> None:
        CodecConfig(k=self.k)
        for name in ("free", "single_stage", "cascade", "step"):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise InputError(f"budget {self.k}: {name}: expected 0 to 1, found {value!r}")

    @property
    def cascade_pays(self) -> bool:
        return self.cascade > self.free

    @property
    def single_stage_pays(self) -> bool:
        return self.single_stage > self.free


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The refiner and the decoder of the best cascade, the refiner of the best single stage, and
    what they were fitted on and measured.

    Weights are float32 arrays whose values fit in float16, in which they are saved.
    """

    refiner: Refiner
    decoder: Decoder
    single_stage: Refiner
    budgets: tuple[FitScores, ...]
    encoder: EncoderId | None = None
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for people to read

    def __post_init__(self) -> None:
        for name, weights in (
            ("refiner", Refiner(*map(_halved, self.refiner))),
            ("decoder", Decoder(*map(_halved, self.decoder))),
            ("single_stage", Refiner(*map(_halved, self.single_stage))),
        ):
            object.__setattr__(self, name, weights)

    @property
    def dim(self) -> int:
        return int(self.refiner.query.shape[0])

    def budget(self, k: int) -> FitScores:
        """The measured budget nearest to k, by ratio."""
        return min(self.budgets, key=lambda budget: (abs(math.log(budget.k / k)), budget.k))

    def tensors(self) -> Weights:
        """The weights by name, in half precision."""
        return {
            f"{part}.{name}": array.astype(np.float16)
            for part in ("refiner", "decoder", "single_stage")
            for name, array in getattr(self, part)._asdict().items()
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, npt.NDArray[Any]], **rest: Any) -> Fitted:
        """The reverse of `tensors`; raises InputError unless every weight has its shape."""
        expected = {
            f"{part}.{name}"
            for part, kind in (
                ("refiner", Refiner),
                ("decoder", Decoder),
                ("single_stage", Refiner),
            )
            for name in kind._fields
        }
        if set(tensors) != expected:
            odd = sorted(set(tensors) ^ expected)
            raise InputError(f"weights: {', '.join(odd)} missing or unknown")
        for name, array in tensors.items():
            if array.dtype != np.float16 or not np.isfinite(array).all():
                raise InputError(f"weights {name}: expected finite float16 numbers")

        def part(name: str, kind: Any) -> Any:
            return kind(*(tensors[f"{name}.{field}"] for field in kind._fields))

        fitted = cls(
            part("refiner", Refiner),
            part("decoder", Decoder),
            part("single_stage", Refiner),
            **rest,
        )
        fitted._check_shapes()
        return fitted

    def _check_shapes(self) -> None:
        dim, inner = (*self.refiner.query.shape, 0, 0)[:2]
        depth, width = (*self.decoder.up.shape, 0, 0)[:2]
        attention = [(dim, inner), (inner,), (dim, inner), (dim, inner), (inner, dim), (dim,)]
        decoder = [
            *((dim + 2, width), (width,)),
            *((depth, width, 2 * width), (depth, 2 * width)),
            *((depth, 2 * width, width), (depth, width)),
            *((FEATURES, width), (width, dim), (dim,)),
        ]
        for part, shapes in (
            (self.refiner, attention),
            (self.single_stage, attention),
            (self.decoder, decoder),
        ):
            for name, array, shape in zip(part._fields, part, shapes, strict=True):
                if array.shape != shape or not dim or not inner or inner % HEADS:
                    raise InputError(f"weights {name}: unexpected shape {array.shape}")


def _halved(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rounded to what float16 can hold: nothing measurable is lost, and the file is half."""
    return np.asarray(array, dtype=np.float16).astype(np.float32)
