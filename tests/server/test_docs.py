"""The example in docs/serve.md, run as it stands: what it prints is what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from glie.encoders import Encoder
from glie.server.limits import Limits
from tests.server.browser import served

TEXT = (Path(__file__).parents[2] / "docs" / "serve.md").read_text()


def test_the_example(
    index_path: Path, encoder: Encoder, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = re.findall(r"```(?:python|text)\n(.*?)```", TEXT, re.DOTALL)
    with served(index_path, encoder=encoder) as address:
        here = code.replace("http://127.0.0.1:8000", address)
        exec(compile(f"{here}\nhttp.close()", "docs/serve.md", "exec"), {})
    assert capsys.readouterr().out == said


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    for said in (
        f"`--max-upload-mb` {limits.upload_bytes >> 20}, `--max-upload-pages` {limits.upload_pages}",
        f"`--max-query` {limits.query_characters} characters, `--max-searches` {limits.searches}",
        f"({limits.waiting} more wait; then 503), {limits.top} answers",
        f"{limits.query_vectors:,} vectors a question, {limits.body_bytes >> 20} MB",
        f"`--max-connections` {limits.connections}: a further one",
        f"{limits.seconds} seconds for the head of a request",
    ):
        assert said in TEXT
