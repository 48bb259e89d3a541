"""The settings of a codec. The dial is k; all else has a measured default."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from glie.errors import CodecError, InputError
from glie.kernels.quantize import BFLOAT16, DTYPES
from glie.kernels.residual import FIRST_LAYER, ONE_LAYER
from glie.renamed import renamed

MAX_K = 4096
MAX_CODEWORDS_A_PAGE = 0x7FFF
LATER = (  # settings that older codecs do not have
    *("dtype", "codewords", "bytes_per_page", "adapt", "position", "text_bytes"),
    *("residual_bytes", "ward", "length_norm", "first_layer", "candidate_bytes"),
)
NO_BUDGET: dict[str, Any] = {
    **{"bytes_per_page": 0, "text_bytes": 0, "candidate_bytes": 0},
    "adapt": False,
}
KEYS = {"codewords": "words"}  # settings that have another name in files


class CodecVersionError(CodecError):
    """Undamaged, but written by another version of glie: there is nothing to repair."""


@dataclasses.dataclass(frozen=True)
class CodecConfig:
    """k stored vectors a page, how k-means finds them, and the type of their numbers."""

    k: int = 4
    restarts: int = 2
    iterations: int = 10  # of Lloyd's algorithm; more cost much and lower the objective little
    seed: int = 0
    dtype: str = BFLOAT16
    codewords: int = 0  # that a page keeps of a codebook, at most
    bytes_per_page: int = 0  # the budget that chose the settings; 0: none did
    adapt: bool = False  # whether the first pages may choose them again
    # k-means sees a vector's place on its page too: as one more number, which grows by 1 in so many
    # vectors; 0: it does not
    position: int = 0
    text_bytes: int = 0  # of the budget, those that the words of a page take
    candidate_bytes: int = 0  # of the budget, those of a page's PQ codes in a large index
    residual_bytes: int = 0  # for the coordinates of a page, at most
    ward: bool = False  # clusters by Ward's linkage instead of k-means
    # Each doubling of the vectors that a page is scored by lowers their lengths by a factor of
    # 2^(length_norm / 1000): more of them have more chances to be near a question by accident
    length_norm: int = 0
    # A page's pairs are stored in layers, the most needed first: so many of them, then the same
    # number, then twice as many and so on. A budget takes one layer, which needs fewer bits
    first_layer: int = FIRST_LAYER

    words = renamed("words", "codewords")

    def __post_init__(self) -> None:
        for name, low, high in (
            ("k", 1, MAX_K),
            ("restarts", 1, 1000),
            ("iterations", 1, 10_000),
            ("seed", 0, 2**63 - 1),
            ("codewords", 0, MAX_CODEWORDS_A_PAGE),
            ("bytes_per_page", 0, 2**31 - 1),
            ("position", 0, 2**16),
            ("text_bytes", 0, 2**31 - 1),
            ("candidate_bytes", 0, 2**31 - 1),
            ("residual_bytes", 0, 2**16 - 1),
            ("length_norm", 0, 1000),
            ("first_layer", 1, ONE_LAYER),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InputError(
                    f"codec setting {name}: expected a whole number from {low} to {high}, "
                    f"found {value!r}"
                )
        for name in ("adapt", "ward"):
            if not isinstance(value := getattr(self, name), bool):
                raise InputError(f"codec setting {name}: expected true or false, found {value!r}")
        if self.dtype not in DTYPES:
            raise InputError(
                f"codec setting dtype: expected one of {', '.join(DTYPES)}, found {self.dtype!r}"
            )

    @property
    def code_bytes(self) -> int:
        """Of the budget, those for codes, ids and metadata."""
        return self.bytes_per_page - self.text_bytes - self.candidate_bytes

    def to_dict(self) -> dict[str, Any]:
        """The settings by their names in files; later ones only where they differ from the default,
        so that older codecs keep their bytes."""
        settings = dataclasses.asdict(self)
        for name in LATER:
            if settings[name] == getattr(type(self), name):
                del settings[name]
        return {KEYS.get(name, name): value for name, value in settings.items()}

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> CodecConfig:
        names = {KEYS.get(field.name, field.name): field.name for field in dataclasses.fields(cls)}
        unknown = sorted(set(settings) - set(names))
        if "displaced" in unknown:  # 16 bytes for a codeword's direction bought less than an anchor
            raise CodecVersionError(
                "codec settings: displaced belongs to a codec from before the first release; index "
                "the documents again"
            )
        if unknown:
            raise CodecVersionError(
                f"codec settings: {', '.join(unknown)} is unknown to this version of glie; "
                "upgrade it to read this codec"
            )
        return cls(**{names[key]: value for key, value in settings.items()})
