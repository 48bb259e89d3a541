"""The verb that fine-tunes Light-ColPali, to compare with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import glie
from glie.cli import fail
from glie.cli.shared import Json, say_left_out
from glie.cli.terminal import print_json, status_line, tune_bar
from glie.wording import count


def light_colpali(
    dataset: Annotated[
        str,
        typer.Argument(metavar="DATASET", help="As for `glie fit`; its pages need images."),
    ],
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="A ColPali or ColQwen2 model of transformers: a folder, or a name on the Hub.",
        ),
    ],
    to: Annotated[
        Path, typer.Option("--to", metavar="ADAPTER", help="The adapter folder to create.")
    ],
    k: Annotated[int, typer.Option(help="Vectors per page; each k needs its own adapter.")] = 4,
    steps: Annotated[
        int | None,
        typer.Option(help="Steps of the optimizer, 32 pairs each.", show_default="5 epochs"),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same adapter.")] = 0,
    as_json: Json = False,
) -> None:
    """Fine-tune a visual encoder with Light-ColPali's merging, to compare codecs with.

    Unlike `glie fit`, this changes the encoder: pages must be encoded again for each k. It trains
    a LoRA on up to 4,000 pairs of a question and a page image, and needs a GPU to be practical.
    Ctrl-C stops early and keeps what is learned so far.
    """
    from glie.evaluation import load
    from glie.evaluation.light_colpali import (
        FineTuning,
        LightColPali,
        check_place,
        check_ready,
        fine_tune,
        image_pairs,
    )

    check_ready()
    settings = FineTuning(steps=steps)
    glie.CodecConfig(k=k, seed=seed)
    loaded = load(dataset)
    pairs, warnings = image_pairs(loaded)
    say_left_out(loaded.name, [*loaded.warnings, *warnings])
    with status_line("loading the model"):
        encoder = LightColPali(model)
    check_place(to)
    with tune_bar() as show:
        losses = fine_tune(encoder, pairs, k, settings, seed=seed, progress=show)
    encoder.save(to)
    notes = encoder.notes
    if as_json:
        print_json({"adapter": str(to), "losses": losses, **notes})
    else:
        print(
            f"{to}: {count(notes['parameters'], 'parameter')} for k = {k}, trained on "
            f"{count(notes['pairs'], 'pair')} in {notes['seconds']:.0f} s "
            f"({count(notes['steps'], 'step')})"
        )
    if notes["interrupted"]:
        fail(f"interrupted after {notes['steps']} steps; {to} is what was learned so far", 130)
