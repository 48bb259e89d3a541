"""Load `transformers` models: on which device, without log noise, and without torchvision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Image processors that need only Pillow. Those of torchvision round pixels differently, so the
# vectors would depend on which is installed.
PILLOW = {"backend": "pil"}


def pick_device(asked: str | None = None) -> str:
    """The device to run on: `asked`, or else CUDA, MPS or the CPU."""
    import torch

    if asked is not None:
        return asked
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


@contextmanager
def quietly() -> Iterator[None]:
    """Hide progress bars and warnings while models load."""
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
    """Load processors without their video part: it needs torchvision, and pages are not videos."""
    from transformers import ProcessorMixin

    whole = ProcessorMixin.__dict__.get("get_attributes")
    if whole is None:  # an older transformers
        yield
        return

    def still(cls: Any) -> list[str]:
        return [name for name in whole.__func__(cls) if "video" not in name]

    ProcessorMixin.get_attributes = classmethod(still)
    try:
        yield
    finally:
        ProcessorMixin.get_attributes = whole
