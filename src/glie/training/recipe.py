"""The settings of a fit: the paper's recipe, the default, for two CPU cores, and their controls."""

from __future__ import annotations

import dataclasses
from dataclasses import replace

from glie.codec.readout.generative import LAYOUTS
from glie.errors import InputError


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a fit. The defaults are the paper's."""

    epochs: int | None = 100  # passes over the queries; None: as many as `steps` take
    steps: int = 450
    learning_rate: float = 2e-4
    weight_decay: float = 1e-4
    final_rate: float = 0.05  # the last learning rate, as a share of the first
    clip: float = 1.0
    batch: int = 8  # queries a step
    negatives: int = 7  # pages a query, beside a relevant one
    pool: int = 50  # the best pages that are not relevant: negatives are drawn from these
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
    # settings in which the two recipes differ
    layout: str = "paper"  # of the networks, or "light": hidden layers run once a cluster
    vectors: int | None = None  # vectors of a page that a step reads and regenerates; None: all
    code_batch: int | None = (
        None  # queries a step in which the refiner is fitted first; None: it is not
    )
    code_steps: int = 150  # number of these steps, if `epochs` is None
    strength: float = 1.0  # share that is kept of such a refiner's changes
    jitter: float = 0.0  # length of the noise on the code that the decoder reads
    blind: bool = False  # a control: the decoder reads norm and count, never the anchor
    vary: bool = False  # cut and join pages at random in each epoch
    average: float = 0.0  # decay of the running average of the weights; 0: no average
    # how the result is selected
    holdout: float = 0.1  # share of the queries
    measurements: int = 6  # how often the holdout is measured

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
        if self.layout not in LAYOUTS:
            known = ", ".join(LAYOUTS)
            raise InputError(f"recipe: layout: expected one of {known}, found {self.layout!r}")
        if not 0 < self.holdout < 1:
            raise InputError(
                f"recipe: holdout: expected a share of the queries, found {self.holdout!r}"
            )


PAPER = Recipe()
DEFAULT = Recipe(
    epochs=None,
    layout="light",
    vectors=256,
    code_batch=48,
    strength=0.25,
    jitter=0.5,
    vary=True,
    average=0.98,
    holdout=0.2,
)
RECIPES = {"default": DEFAULT, "paper": PAPER}
RECIPES |= {f"{name}-blind": replace(recipe, blind=True) for name, recipe in RECIPES.items()}


def recipe_of(recipe: str | Recipe) -> Recipe:
    """A recipe by its name; a Recipe is returned as it is."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe not in RECIPES:
        known = ", ".join(RECIPES)
        raise InputError(f"recipe: expected one of {known} or a Recipe, found {recipe!r}")
    return RECIPES[recipe]
