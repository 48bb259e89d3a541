"""A page's vectors on the plane of their two main components, with the stored vectors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from glie.codec.codes import Codes
from glie.geometry import measure_page

Floats = npt.NDArray[np.float32]
Point = tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Seen:
    """A vector of the page."""

    at: Point
    anchor: int  # the nearest one
    label: str  # the word that it comes from, if that is known


@dataclasses.dataclass(frozen=True)
class Anchor:
    """A stored vector."""

    at: Point
    count: int  # vectors of its cluster
    length: float | None  # of the mean of the vectors nearest to it, before normalisation


@dataclasses.dataclass(frozen=True)
class Child:
    """A reconstructed vector."""

    at: Point
    anchor: int


@dataclasses.dataclass(frozen=True)
class PageMap:
    """A page's vectors in a plane, and their shape."""

    explained: float  # the share of the variance that the plane shows
    vectors: list[Seen]
    anchors: list[Anchor]
    children: list[Child]
    norm_low: float
    norm_high: float
    twonn: float | None  # intrinsic dimension; the next two are its controls
    gaussian: float | None
    uniform: float | None


def page_map(
    page_id: str, vectors: Floats, labels: Sequence[str], codes: Codes, children: Floats
) -> PageMap:
    """The map of a page. `vectors` and `labels` are empty if it could not be encoded again."""
    used = np.flatnonzero(codes.counts[0])
    anchors = codes.vectors[0][used]
    known = vectors if len(vectors) else children
    centre = known.mean(axis=0)
    _, spread, axes = np.linalg.svd(known - centre, full_matrices=False)
    total = float((spread**2).sum())

    def points(rows: Floats) -> list[Point]:
        flat = np.zeros((len(rows), 2))
        flat[:, : min(2, len(axes))] = (rows - centre) @ axes[:2].T
        return [(round(x, 4), round(y, 4)) for x, y in flat.tolist()]

    nearest = (vectors @ anchors.T).argmax(axis=1)
    groups = [vectors[nearest == anchor] for anchor in range(len(anchors))]
    shape = measure_page(page_id, known)
    return PageMap(
        explained=float((spread[:2] ** 2).sum()) / total if total else 1.0,
        vectors=list(map(Seen, points(vectors), nearest.tolist(), labels)),
        anchors=[
            Anchor(
                at, int(count), float(np.linalg.norm(group.mean(axis=0))) if len(group) else None
            )
            for at, count, group in zip(points(anchors), codes.counts[0][used], groups, strict=True)
        ],
        children=list(map(Child, points(children), (children @ anchors.T).argmax(axis=1).tolist())),
        norm_low=shape.norm.low,
        norm_high=shape.norm.high,
        twonn=_known(shape.twonn),
        gaussian=_known(shape.gaussian),
        uniform=_known(shape.uniform),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
