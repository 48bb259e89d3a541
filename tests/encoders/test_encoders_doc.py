"""docs/encoders.md: its commands and its code run as they stand, on tiny models of those names."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from glie.encoders.loading import PILLOW, quietly
from tests.cli.conftest import Run, run  # noqa: F401
from tests.documents.test_documents import make_pdf
from tests.encoders.checkpoints import saved
from tests.encoders.test_multi_vector import hub  # noqa: F401

DOC = (Path(__file__).parents[2] / "docs" / "encoders.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", DOC, flags=re.DOTALL)


class Engine(torch.nn.Module):
    """A model as colpali-engine has them: called, it gives the vectors."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        with quietly():
            self.network = transformers.ColQwen2ForRetrieval.from_pretrained(folder)

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def forward(self, **inputs: Any) -> torch.Tensor:
        made: torch.Tensor = self.network(**inputs).embeddings
        return made


def test_the_document(
    run: Run,  # noqa: F811
    hub: Callable[[str, Path, int], None],  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    colqwen2 = saved("colqwen2", Path("models/colqwen2"))
    hub("vidore/colqwen2-v1.0-hf", colqwen2, 1)
    hub("lightonai/GTE-ModernColBERT-v1", saved("colbert", Path("colbert")), 1)
    make_pdf(Path("reports/a.pdf"), ["Capital expenditure in 2018", "Rotor blades"])
    make_pdf(Path("notes/b.pdf"), ["Holiday allowance is 25 days"])
    commands = [line for block in blocks("console") for line in block.splitlines()]
    assert len(commands) == 8
    for command in commands:
        program, *arguments = shlex.split(command)
        if program == "mv":
            Path(arguments[0]).rename(arguments[1])
            continue
        done = run(*arguments)
        assert done.code == 0, (command, done.err)

    colqwen2 = Path("elsewhere/colqwen2")
    given: dict[str, Any] = {
        "model": Engine(colqwen2).eval(),
        "processor": transformers.AutoProcessor.from_pretrained(colqwen2, **PILLOW),
        "image": Image.new("RGB", (112, 56)),
        "embeddings": torch.nn.functional.normalize(torch.randn(2, 30, 8), dim=-1),
    }
    own, positions, inside, pooler = blocks("python")
    for code in (own, positions, inside, pooler):
        exec(compile(code, "docs/encoders.md", "exec"), given)
    assert set(given["hits"][0].ids) == {"a.pdf#1", "a.pdf#2"}
    assert (given["grid"].rows, given["grid"].columns) == (2, 4)
    assert given["spans"][:2] == [(0, 5), (6, 12)]
    assert len(given["small"][0]) == len(given["same"][0]) == 4
    assert len(given["model"].encode_document(["red blue green white pink"])[0]) == 4
    assert given["pooled"].shape == (2, 16, 8)
