"""The plan of an experiment, checked before anything is measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from glie.codec.budget import vector_bytes
from glie.codec.codec import Codec
from glie.codec.config import CodecConfig
from glie.codec.readout.codebook import Codebook
from glie.errors import DatasetError, InputError
from glie.evaluation.encoded import Encoded
from glie.evaluation.methods import (
    ADAPTED,
    FREE,
    NEEDS_CODEC,
    PLAID,
    SHIPPED,
    codebook_for,
)
from glie.evaluation.store import filename
from glie.measures import each_measure
from glie.pages import Pages
from glie.training.recipe import Recipe, recipe_of
from glie.wording import count

# tables that take longer: by length of the shortlist, size of the decoder, number of pages fitted
# on; and the intrinsic dimension of the pages
MORE = ("shortlist", "capacity", "data", "geometry")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure."""

    methods: Sequence[str]
    budgets: Sequence[int]  # vectors a page, or bytes
    in_bytes: bool = False
    seeds: Sequence[int] = (0,)
    more: Sequence[str] = ()  # further tables: some of MORE
    recipe: str | Recipe = "default"
    epochs: int | None = None

    def vectors(self, budget: int, dim: int) -> int:
        """The k of a budget: the number of bfloat16 vectors that fit."""
        if self.in_bytes and budget < vector_bytes(dim):
            raise InputError(
                f"--bytes-per-page: {budget} bytes hold no vector of {dim} numbers in bfloat16, "
                f"which takes {vector_bytes(dim)}"
            )
        return CodecConfig(k=budget // vector_bytes(dim) if self.in_bytes else budget).k

    def bytes(self, budget: int, dim: int) -> int:
        """A budget in bytes a page."""
        return budget if self.in_bytes else budget * vector_bytes(dim)

    @property
    def learned(self) -> bool:
        """Whether the plan needs a fitted codec."""
        varied = {"shortlist", "capacity", "data"} & set(self.more)
        return bool(varied or set(NEEDS_CODEC) & set(self.methods))

    def by_vectors(self, codec: bool) -> bool:
        """Whether any method stores bfloat16 vectors; a fitted codec does."""
        free = {method.name for method in FREE if not method.by_bytes}
        return bool(free & set(self.methods)) or (codec and self.learned)


def recipe_for(plan: Plan) -> Recipe:
    """The recipe of a plan's fits."""
    recipe = recipe_of(plan.recipe)
    return recipe if plan.epochs is None else dataclasses.replace(recipe, epochs=plan.epochs)


def check_plan(plan: Plan, *, codec: bool, fits: bool, report: bool) -> None:
    """Raise if a plan cannot be carried out, or if parts of it would have no effect."""
    from glie.training.fit import check_ready

    if not plan.in_bytes:
        for k in plan.budgets:
            CodecConfig(k=k)
    recipe_for(plan)
    listed = codec or fits or SHIPPED in plan.methods
    needs = {"shortlist": listed, "capacity": fits, "data": fits, "geometry": True}
    for name in plan.more:
        if not needs[name]:
            wanted = "--codec or --fit-on" if name == "shortlist" else "--fit-on"
            raise InputError(f"--more {name}: it needs a fitted codec; give {wanted}")
    used = plan.learned or (fits and PLAID in plan.methods)
    if (codec or fits) and not plan.more and not used:
        raise InputError("--methods: none of them uses the codec; add glie, or leave the codec out")
    if fits and plan.learned:
        check_ready()
    probe = Pages([np.eye(2, 8)])
    for method in FREE:  # a missing extra is reported now
        if method.name in plan.methods:
            method.compress(probe, 64, 0)
    each_measure({"q": {"p": 1}}, {"q": ["p"]})
    if report:
        from glie.evaluation.plots import check_plotting

        check_plotting()


def check_budgets(encoded: Encoded, plan: Plan, codec: bool) -> None:
    """Raise if a budget is too small for any method."""
    for budget in plan.budgets:
        if plan.by_vectors(codec):
            plan.vectors(budget, encoded.dim)
        if SHIPPED in plan.methods and codebook_for(encoded.encoder, encoded.dim):
            Codec(bytes_per_page=plan.bytes(budget, encoded.dim))


def without_codewords(sets: Sequence[Encoded], plan: Plan) -> list[str]:
    """A note about sets for which glie ships no codebook."""
    lacking = [one for one in sets if not codebook_for(one.encoder, one.dim)]
    if SHIPPED not in plan.methods or not lacking:
        return []
    names = [repr(book.encoder.name) for book in Codebook.all_shipped() if book.encoder]
    return [
        f"{SHIPPED}: left out on {count(len(lacking), 'set')}: glie ships codebooks for encoder "
        f"{' and '.join(names)} at D = {Codebook.shipped().dim}; {ADAPTED} fits one for any encoder"
    ]


def check_names(names: Sequence[str]) -> None:
    """Raise if two sets have the same name, or names that make the same file name."""
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(filename(name), name)
        if other is not name or names.count(name) > 1:
            raise DatasetError(f"two sets have the name {name!r}, or nearly so; rename one")


def check_others(sets: Sequence[object]) -> None:
    """Raise if there is only one set: there are no others to fit on."""
    if len(sets) < 2:
        raise InputError("--fit-on others: there is one set; give others to fit on")
