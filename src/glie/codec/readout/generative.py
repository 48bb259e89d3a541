"""The generative read-out, the paper's: a refiner moves the anchors, a decoder regenerates all N.

`Fitted` is what `glie.fit` leaves. `Generative` is that for one k: a fit measures at some k whether
refining and regenerating help, and a codec does what helped at the k nearest to its own.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from glie.codec.budget import reduced
from glie.codec.codes import Codes, stored_as
from glie.codec.config import CodecConfig
from glie.codec.readout.base import SHORTLIST, Readout, repeated
from glie.codec.readout.decoder import (
    FEATURES,
    PAPER_FEATURES,
    AnyDecoder,
    Decoder,
    PaperDecoder,
    Unrolled,
    regenerated,
    with_steps,
)
from glie.codec.readout.refiner import HEADS, AnyRefiner, PaperRefiner, Refiner, refined
from glie.errors import InputError
from glie.identity import EncoderId
from glie.pages import Pages
from glie.storage import digest

Weights = dict[str, npt.NDArray[np.float16]]

WEIGHTS = "model.safetensors"
PARTS = ("refiner", "decoder", "single_stage")
# the networks of each layout, in the order of PARTS
LAYOUTS: dict[str, tuple[Any, Any, Any]] = {
    "paper": (PaperRefiner, PaperDecoder, PaperRefiner),
    "light": (Refiner, Decoder, Refiner),
}


@dataclasses.dataclass(frozen=True)
class FitScores:
    """nDCG@5 on the held-out questions, at one k."""

    k: int
    free: float  # normalised k-means
    single_stage: float  # the best refined code, searched in one stage
    cascade: float  # the best refined code with regeneration of the shortlist
    step: float = 1.0  # the share of the decoder's steps that was best; 0: no regeneration
    # standard errors, over questions, of the gains over normalised k-means
    single_stage_error: float = 0.0
    cascade_error: float = 0.0

    def __post_init__(self) -> None:
        CodecConfig(k=self.k)
        errors = ("single_stage_error", "cascade_error")
        for name in ("free", "single_stage", "cascade", "step", *errors):
            value = getattr(self, name)
            if type(value) not in (int, float) or not 0 <= value <= 1:
                raise InputError(f"budget {self.k}: {name}: expected 0 to 1, found {value!r}")

    @property
    def cascade_pays(self) -> bool:
        """Whether the gain is more than its standard error."""
        return self.cascade - self.free > self.cascade_error

    @property
    def single_stage_pays(self) -> bool:
        return self.single_stage - self.free > self.single_stage_error


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The weights of a fit, its scores and its notes.

    `refiner` and `decoder` are those of the best cascade, `single_stage` is the refiner of the best
    single stage. Weights are float32 arrays whose values fit in float16, in which they are saved.
    """

    refiner: AnyRefiner
    decoder: AnyDecoder
    single_stage: AnyRefiner
    budgets: tuple[FitScores, ...]
    encoder: EncoderId | None = None
    notes: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # for people to read

    def __post_init__(self) -> None:
        for name in PARTS:
            weights = getattr(self, name)
            object.__setattr__(self, name, type(weights)(*map(_halved, weights)))

    @property
    def dim(self) -> int:
        return int(self.refiner.query.shape[0])

    def budget(self, k: int) -> FitScores:
        """The scores at the measured k nearest to this one, by ratio."""
        return min(self.budgets, key=lambda budget: (abs(math.log(budget.k / k)), budget.k))

    def tensors(self) -> Weights:
        """The weights by name, in half precision."""
        return {
            f"{part}.{name}": array.astype(np.float16)
            for part in PARTS
            for name, array in getattr(self, part)._asdict().items()
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, npt.NDArray[Any]], **rest: Any) -> Fitted:
        """The reverse of `tensors`; raises InputError unless every weight has its shape."""
        layout = "paper" if "decoder.norm" in tensors else "light"
        kinds = dict(zip(PARTS, LAYOUTS[layout], strict=True))
        expected = {f"{part}.{name}" for part, kind in kinds.items() for name in kind._fields}
        if set(tensors) != expected:
            odd = sorted(set(tensors) ^ expected)
            raise InputError(f"weights: {', '.join(odd)} missing or unknown")
        for name, array in tensors.items():
            if array.dtype != np.float16 or not np.isfinite(array).all():
                raise InputError(f"weights {name}: expected finite float16 numbers")

        def part(name: str) -> Any:
            kind = kinds[name]
            return kind(*(tensors[f"{name}.{field}"] for field in kind._fields))

        fitted = cls(*map(part, PARTS), **rest)
        fitted._check_shapes()
        return fitted

    def _check_shapes(self) -> None:
        dim, inner = (*self.refiner.query.shape, 0, 0)[:2]
        depth, width = (*self.decoder.up.shape, 0, 0)[:2]
        features = PAPER_FEATURES if isinstance(self.decoder, PaperDecoder) else FEATURES
        attention: dict[str, tuple[int, ...]] = {
            **dict.fromkeys(("query", "key", "value"), (dim, inner)),
            **dict.fromkeys(("query_bias", "key_bias", "value_bias", "mix_bias"), (inner,)),
            **{"mix": (inner, inner), "output": (inner, dim), "output_bias": (dim,)},
        }
        decoder: dict[str, tuple[int, ...]] = {
            **{"anchor": (dim + 2, width), "anchor_bias": (width,)},
            **dict.fromkeys(("norm", "norm_bias", "down_bias"), (depth, width)),
            **{"up": (depth, width, 2 * width), "up_bias": (depth, 2 * width)},
            **{"down": (depth, 2 * width, width), "slot": (features, width)},
            **{"step": (width, dim), "step_bias": (dim,)},
        }
        for part, shapes in (
            (self.refiner, attention),
            (self.single_stage, attention),
            (self.decoder, decoder),
        ):
            for name, array in part._asdict().items():
                if array.shape != shapes[name] or not dim or not inner or inner % HEADS:
                    raise InputError(f"weights {name}: unexpected shape {array.shape}")


@dataclasses.dataclass(frozen=True, eq=False)
class Generative:
    """The networks of a fit at one k. `cascade=False`: those for search in a single stage."""

    fitted: Fitted
    cascade: bool = True
    k: int = CodecConfig.k
    always: bool = False  # whether networks that did not pay are used too, to measure them

    ready = True
    keeps_residual = False
    shortlist = SHORTLIST

    @property
    def label(self) -> str:
        return f"fitted{'' if self.cascade else ', single stage'} for D={self.dim}"

    @property
    def dim(self) -> int:
        return self.fitted.dim

    @property
    def encoder(self) -> EncoderId | None:
        return self.fitted.encoder

    @property
    def notes(self) -> Mapping[str, Any]:
        return self.fitted.notes

    @property
    def measured(self) -> FitScores:
        """The scores that decide what is used."""
        return self.fitted.budget(self.k)

    @property
    def refiner(self) -> AnyRefiner | None:
        """What moves the anchors; None where normalised k-means scored as well."""
        if self.cascade:
            return self.fitted.refiner if self._cascade_used else None
        single = self.always or self.measured.single_stage_pays
        return self.fitted.single_stage if single else None

    @functools.cached_property
    def decoder(self) -> AnyDecoder | None:
        """What regenerates a page; None where that did not raise the score."""
        step = self.measured.step or float(self.always)
        if not self.cascade or not self._cascade_used or not step:
            return None
        return with_steps(self.fitted.decoder, step)

    @property
    def _cascade_used(self) -> bool:
        return self.always or self.measured.cascade_pays

    @property
    def regenerates(self) -> bool:
        return self.decoder is not None

    @property
    def worth_caching(self) -> bool:
        return self.regenerates

    @property
    def exact(self) -> bool:
        return self.regenerates  # the decoder reads norms and counts

    @property
    def single_stage(self) -> Readout:
        return dataclasses.replace(self, cascade=False)

    def at(self, config: CodecConfig) -> Readout:
        if config.codewords or config.adapt:
            raise TypeError("codewords, adapt: a codec has a codebook or was fitted, not both")
        return dataclasses.replace(self, k=config.k)

    def fits(self, pages: Pages) -> bool:
        return pages.dim == self.dim

    def extra_bytes(self, config: CodecConfig) -> int:
        return 0

    def code(self, pages: Pages, free: Codes, dtype: str) -> Codes:
        codes = free if self.refiner is None else refined(self.refiner, free, pages)
        return stored_as(codes, dtype, exact=self.exact)

    def regenerate(self, codes: Codes) -> Pages:
        """All N vectors of a page, cluster by cluster, the stored vector of each first."""
        return repeated(codes) if self._unrolled is None else regenerated(self._unrolled, codes)

    @functools.cached_property
    def _unrolled(self) -> Unrolled | None:
        return None if self.decoder is None else Unrolled(self.decoder)

    def smaller(self, config: CodecConfig, bytes_per_page: int, dim: int) -> CodecConfig:
        return reduced(config, bytes_per_page, dim, exact=self.exact)

    def shrunk(self, codes: Codes, anchors: Codes) -> Codes:
        return anchors

    def settings(self) -> dict[str, Any]:
        return {}

    def to_files(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        from safetensors.numpy import save

        weights = save(self.fitted.tensors())
        settings = {
            "dim": self.dim,
            "weights": digest(weights),
            "cascade": self.cascade,
            "encoder": None if self.encoder is None else self.encoder.to_dict(),
            "budgets": [vars(scores) for scores in self.fitted.budgets],
            "notes": self.notes,
        }
        return settings, {WEIGHTS: weights}

    @classmethod
    def from_files(cls, settings: dict[str, Any], files: Mapping[str, bytes], place: str) -> Self:
        from safetensors import SafetensorError
        from safetensors.numpy import load

        dim, cascade = settings.pop("dim"), settings.pop("cascade")
        named = settings.pop("weights", None)  # the first codecs did not name them
        rest = {
            "budgets": tuple(FitScores(**scores) for scores in settings.pop("budgets")),
            "encoder": EncoderId.of(settings.pop("encoder")),
            "notes": settings.pop("notes"),
        }
        if named is not None and named != digest(files[WEIGHTS]):
            raise InputError(f"{WEIGHTS} is not the file that config.json names")
        try:
            tensors = load(files[WEIGHTS])
        except SafetensorError as error:
            raise InputError(f"{WEIGHTS}: {error}") from None
        fitted = Fitted.from_tensors(tensors, **rest)
        if fitted.dim != dim or not fitted.budgets or type(cascade) is not bool:
            raise InputError(f"config.json does not describe {WEIGHTS}")
        return cls(fitted, cascade)


def _halved(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """Rounded to what float16 can hold: nothing measurable is lost, and the file is half."""
    return np.asarray(array, dtype=np.float16).astype(np.float32)
