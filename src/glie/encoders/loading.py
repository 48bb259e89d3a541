"""Loading networks of `transformers`: where they run, without noise, and without torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Image processors that need only Pillow. Those of torchvision round pixels in their own way, so
# where both are installed the choice would show in the vectors.
PILLOW = {"backend": "pil"}


def pick_device(asked: str | None = None) -> str:
    """The device to run on: the one that was asked for, else CUDA, MPS or the CPU."""
    import torch

    if asked is not None:
        return asked
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def quietly() -> Iterator[None]:
    """Neither bars nor advice while models load; then both are as they were."""
    from transformers.utils import logging

    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


@contextmanager
def without_videos() -> Iterator[None]:
    """Processors that load meanwhile go without their part for videos: it needs torchvision, and
    pages are not videos."""
    from transformers import ProcessorMixin

    whole = ProcessorMixin.__dict__.get("get_attributes")
    if whole is None:  # as transformers was before processors could tell their parts
        yield
        return

    def still(cls: Any) -> list[str]:
        return [name for name in whole.__func__(cls) if "video" not in name]

    ProcessorMixin.get_attributes = classmethod(still)
    try:
        yield
    finally:
        ProcessorMixin.get_attributes = whole
