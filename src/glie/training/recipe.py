"""How a codec is fitted: the paper's recipe, and the one for two CPU cores."""

from __future__ import annotations

import dataclasses

from glie.errors import InputError


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a fit. As they stand here, they are the paper's."""

    epochs: int | None = 100  # rounds over the queries; None: as many as make up `steps`
    steps: int = 450
    learning_rate: float = 2e-4
    weight_decay: float = 1e-4
    final_rate: float = 0.05  # of the learning rate, where its cosine ends
    clip: float = 1.0
    batch: int = 8  # queries a step
    negatives: int = 7  # pages a query, besides a relevant one
    pool: int = 50  # the best non-relevant pages, which negatives are drawn from
    temperature: float = 0.07
    patches: int = 48  # a cluster, in the Chamfer term
    directions: int = 128  # of the support term
    width: int = 256  # of the decoder
    depth: int = 1
    # the weights of the terms
    of_regenerated: float = 1.0  # token and listwise
    of_code: float = 0.5  # token and listwise
    chamfer: float = 0.5
    overshoot: float = 0.5
    support: float = 0.1
    # where the two recipes differ
    vectors: int | None = None  # of a page, read and regenerated a step; None: all of them
    code_batch: int | None = None  # queries a step that fits the code first, by itself; None: not
    code_steps: int = 150  # of those, where `epochs` is None
    strength: float = 1.0  # how much is kept of what such a code has learned
    jitter: float = 0.0  # the length of the noise on what the decoder reads of the code
    vary: bool = False  # pages are cut and joined at random, anew each epoch
    average: float = 0.0  # how much of the running average of the weights a step keeps; 0: none
    # how the result is chosen
    holdout: float = 0.1  # of the queries
    measurements: int = 6  # of the holdout, over the fit

    def __post_init__(self) -> None:
        numbers = ("epochs", "steps", "batch", "negatives", "pool", "width", "depth")
        for name in (*numbers, "code_batch", "code_steps", "measurements"):
            value = getattr(self, name)
            if name in ("epochs", "code_batch") and value is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise InputError(
                    f"recipe: {name}: expected a whole number of at least 1, found {value!r}"
                )
        if not 0 < self.holdout < 1:
            raise InputError(
                f"recipe: holdout: expected a share of the queries, found {self.holdout!r}"
            )


PAPER = Recipe()
DEFAULT = Recipe(
    epochs=None,
    vectors=256,
    code_batch=48,
    strength=0.25,
    jitter=0.5,
    vary=True,
    average=0.98,
    holdout=0.2,
)
RECIPES = {"default": DEFAULT, "paper": PAPER}


def recipe_of(recipe: str | Recipe) -> Recipe:
    """A recipe by its name, or itself."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe not in RECIPES:
        known = ", ".join(RECIPES)
        raise InputError(f"recipe: expected one of {known} or a Recipe, found {recipe!r}")
    return RECIPES[recipe]
