"""The geometry of pages: norms of their vectors and intrinsic dimension, with controls.

pages = glie.Pages(arrays, ids=ids)
for corpus in glie.geometry.measure({"mine": zip(pages.ids, pages)}):
    print(corpus)

`twonn` estimates the intrinsic dimension of a page's vectors from the two nearest neighbours of
each vector. Two controls put the number into context: `gaussian_control` has the page's covariance
and no other structure, `uniform_control` has no structure.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from glie.errors import InputError, VectorError
from glie.pages import checked_block
from glie.progress import OnProgress, Progress, ignore

Points = npt.NDArray[np.float64]
if TYPE_CHECKING:  # np.random is loaded when it is used
    Seed = int | Sequence[int] | np.random.Generator

DISCARDED = 0.1  # share of the largest neighbour ratios that the fit ignores, as in Facco et al.
FEWEST_VECTORS = 20  # the relative error of an estimate from n vectors is about 1 / sqrt(n)
MOST_PAGES = 200  # measured in each corpus by default
ROWS_AT_ONCE = 512  # in a block of distances


def norms(vectors: Any) -> Points:
    """The length of every vector."""
    return np.asarray(np.linalg.norm(_points(vectors), axis=1))


def twonn(vectors: Any) -> float:
    """The intrinsic dimension of a set of vectors by TwoNN (Facco et al., 2017).

    The ratio of the distances to the second and the first neighbour has the distribution function
    1 - ratio**-d. So d is the slope of -log(1 - rank / n) over log(ratio): a least-squares line
    through the origin, without the largest tenth of the ratios. Equal vectors count once. NaN if
    there are fewer than 20 distinct vectors, or all distances are equal.
    """
    points = _distinct(_points(vectors))
    if len(points) < FEWEST_VECTORS:
        return math.nan
    first, second = _two_nearest(points)
    kept = int(len(points) * (1 - DISCARDED))
    log_ratio = np.sort(np.log(second / first))[:kept]
    rise = -np.log1p(-np.arange(1, kept + 1) / len(points))
    square = float(log_ratio @ log_ratio)
    return float(log_ratio @ rise) / square if square else math.nan


def gaussian_control(vectors: Any, seed: Seed = 0) -> Points:
    """As many vectors from a Gaussian with the same mean and covariance."""
    points = _points(vectors)
    mean, count = points.mean(axis=0), len(points)
    centred, drawn = points - mean, np.empty_like(points)
    # Gaussian mixtures of the centred rows have their covariance, without a factorisation
    rng = np.random.default_rng(seed)
    for first in range(0, count, ROWS_AT_ONCE):
        block = drawn[first : first + ROWS_AT_ONCE]
        block[:] = rng.normal(size=(len(block), count)) @ centred
    return np.asarray(mean + drawn / math.sqrt(max(count - 1, 1)))


def uniform_control(vectors: Any, seed: Seed = 0) -> Points:
    """As many vectors of the same dimension, uniform in the unit cube."""
    return np.random.default_rng(seed).uniform(size=_points(vectors).shape)


class Spread(NamedTuple):
    """Median, minimum and maximum of some values; NaN if there are none."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return cls(math.nan, math.nan, math.nan)
        return cls(float(np.median(known)), float(min(known)), float(max(known)))


@dataclass(frozen=True)
class PageGeometry:
    """The measurements of one page; a dimension is NaN if it cannot be estimated."""

    id: str
    vectors: int
    dim: int
    zeros: int  # vectors of length zero: padding, ignored by the estimates
    duplicates: int  # vectors equal to another one: counted once
    norm: Spread
    twonn: float
    gaussian: float  # TwoNN of the two controls
    uniform: float


@dataclass(frozen=True)
class CorpusGeometry:
    """The measurements of the pages of a corpus, or of a sample."""

    name: str
    found: int  # pages of the corpus
    pages: tuple[PageGeometry, ...]  # those measured

    @property
    def vectors(self) -> Spread:
        """Vectors a page."""
        return Spread.of(page.vectors for page in self.pages)

    @property
    def dims(self) -> tuple[int, ...]:
        """D; several values if pages differ."""
        return tuple(sorted({page.dim for page in self.pages}))

    @property
    def norm(self) -> Spread:
        """The median of the pages' median norms, and the smallest and largest norm of all."""
        return Spread(
            Spread.of(page.norm.median for page in self.pages).median,
            Spread.of(page.norm.low for page in self.pages).low,
            Spread.of(page.norm.high for page in self.pages).high,
        )

    @property
    def twonn(self) -> Spread:
        return Spread.of(page.twonn for page in self.pages)

    @property
    def gaussian(self) -> Spread:
        return Spread.of(page.gaussian for page in self.pages)

    @property
    def uniform(self) -> Spread:
        return Spread.of(page.uniform for page in self.pages)

    @property
    def not_estimated(self) -> int:
        """Number of pages without an estimate; the medians ignore them."""
        return sum(math.isnan(page.twonn) for page in self.pages)

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with None for NaN."""
        spreads = ("vectors", "norm", "twonn", "gaussian", "uniform")
        pages = [asdict(page) | {"norm": page.norm._asdict()} for page in self.pages]
        summary: dict[str, Any] = {
            "name": self.name,
            "pages": self.found,
            "measured": len(self.pages),
            "not_estimated": self.not_estimated,
            "dims": list(self.dims),
        }
        summary |= {name: getattr(self, name)._asdict() for name in spreads}
        return {name: _without_nan(value) for name, value in (summary | {"each": pages}).items()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned."""
        pages = [
            PageGeometry(**_with_nan(page) | {"norm": Spread(**_with_nan(page["norm"]))})
            for page in values["each"]
        ]
        return cls(values["name"], values["pages"], tuple(pages))

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.pages)} of {self.found} pages measured; "
            f"norm {self.norm.low:.3f} to {self.norm.high:.3f}; "
            f"TwoNN {self.twonn.median:.1f} ({self.twonn.low:.1f} to {self.twonn.high:.1f}), "
            f"Gaussian {self.gaussian.median:.1f}, uniform {self.uniform.median:.1f}"
        )


def measure(
    corpora: Mapping[str, Iterable[tuple[str, Any]]],
    seed: int = 0,
    most_pages: int = MOST_PAGES,
    progress: OnProgress = ignore,
) -> list[CorpusGeometry]:
    """Measure the pages of each corpus: an iterable of page ids and (n, D) arrays.

    From a corpus with more than `most_pages` pages, so many are drawn at random. A page's controls
    depend on the page, its id and the seed only.
    """
    for what, value, least in (("seed", seed, 0), ("pages a corpus", most_pages, 1)):
        if not isinstance(value, int) or value < least:
            expected = f"expected a whole number of at least {least}"
            raise InputError(f"{what}: {expected}, found {value!r}")
    measured = []
    for name, pages in corpora.items():
        progress(Progress(f"reading {name}"))
        found, drawn = drawn_from(pages, most_pages, np.random.default_rng(seed))
        if not drawn:
            raise InputError(f"corpus {name!r}: no pages; expected at least one")
        results: list[PageGeometry] = []
        for page_id, vectors in drawn:
            results.append(measure_page(page_id, vectors, seed))
            progress(Progress(f"pages of {name} measured", len(results), len(drawn)))
        measured.append(CorpusGeometry(name, found, tuple(results)))
    return measured


def measure_page(page_id: str, vectors: Any, seed: int = 0) -> PageGeometry:
    """Measure one page."""
    points = _points(vectors, f"page {page_id!r}")
    lengths = norms(points)
    directed = points[lengths > 0]
    rng = np.random.default_rng([seed, zlib.crc32(page_id.encode())])
    dimensions = [math.nan] * 3
    if len(directed):
        sets = directed, gaussian_control(directed, rng), uniform_control(directed, rng)
        dimensions = [twonn(each) for each in sets]
    count, dim = points.shape
    return PageGeometry(
        page_id,
        vectors=count,
        dim=dim,
        zeros=len(points) - len(directed),
        duplicates=len(directed) - len(_distinct(directed)),
        norm=Spread.of(lengths),
        twonn=dimensions[0],
        gaussian=dimensions[1],
        uniform=dimensions[2],
    )


def overall(corpora: Sequence[CorpusGeometry]) -> CorpusGeometry:
    """All measured pages as one corpus."""
    pages = (page for corpus in corpora for page in corpus.pages)
    return CorpusGeometry("all", sum(corpus.found for corpus in corpora), tuple(pages))


def checked_vectors(vectors: Any, what: str) -> npt.NDArray[Any]:
    """An (n, D) array of finite numbers, with vectors of any norm; errors name `what`."""
    block = checked_block(vectors, what)
    with np.errstate(over="ignore"):  # as in Pages: infinite in float32
        bad = np.flatnonzero(~np.isfinite(block.astype(np.float32)).all(axis=1))
    if bad.size:
        raise VectorError(f"{what}, row {bad[0]}: not finite (NaN or infinity)")
    return block


def _points(vectors: Any, what: str = "vectors") -> Points:
    return checked_vectors(vectors, what).astype(np.float64, order="C")


def _distinct(points: Points) -> Points:
    """Each vector once, centred and scaled for precision: ratios of distances do not change.

    Vectors are equal if they are equal in float32, the highest precision of encoders.
    """
    if not len(points):
        return points
    centred = points - points.mean(axis=0)
    extent = np.abs(centred).max() or 1.0
    rows = (centred / extent).astype(np.float32) + np.float32(0)  # adding 0 turns -0 into 0
    _, first = np.unique(rows.view(f"V{4 * rows.shape[1]}"), return_index=True)
    return np.asarray(rows[np.sort(first)], dtype=np.float64)


def _two_nearest(points: Points) -> tuple[Points, Points]:
    """The distances of each point to its first and second neighbour.

    A matrix product finds the neighbours. Their distances are computed from differences, because
    |x|² + |y|² - 2<x, y> loses precision for small distances.
    """
    squares = np.einsum("ij,ij->i", points, points)
    distances = np.empty((2, len(points)))
    for start in range(0, len(points), ROWS_AT_ONCE):
        block = points[start : start + ROWS_AT_ONCE]
        rows = np.arange(len(block))
        apart = squares - 2 * (block @ points.T)  # without |x|², which is constant in a row
        apart[rows, start + rows] = np.inf
        for neighbour in distances:
            nearest = apart.argmin(axis=1)
            neighbour[start + rows] = np.linalg.norm(block - points[nearest], axis=1)
            apart[rows, nearest] = np.inf
    distances.sort(axis=0)  # rounding can swap two nearly equal distances
    return distances[0], distances[1]


def drawn_from(
    pages: Iterable[tuple[str, Any]], most: int, rng: np.random.Generator
) -> tuple[int, list[tuple[str, Any]]]:
    """The number of pages, and `most` of them drawn at random, in their order.

    Only these are in memory (reservoir sampling).
    """
    kept: dict[int, tuple[int, tuple[str, Any]]] = {}
    found = 0
    for place, page in enumerate(pages):
        found += 1
        slot = place if place < most else int(rng.integers(place + 1))
        if slot < most:
            kept[slot] = place, page
    return found, [page for _, page in sorted(kept.values(), key=lambda entry: entry[0])]


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _with_nan(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: math.nan if value is None else value for name, value in values.items()}
