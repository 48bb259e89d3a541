"""Harmed files: a right answer or an error of ours. tools/fuzz.py does the same for longer."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tools.fuzz import KINDS, SET, TARGETS, Fuzzer, Harm, Numbers, Target, guarded

import glie
from glie.candidates import build
from glie.evaluation import cache as caching
from glie.evaluation import encode
from glie.storage import json_digest

HARMS = st.builds(
    Harm,
    st.sampled_from(KINDS),
    st.integers(0, 40),
    st.integers(0, 2**16),
    st.integers(0, 2**16),
)


@pytest.fixture(scope="module", params=TARGETS)
def fuzzer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fuzzer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "CANDIDATE_PAGES", 30)
        yield Fuzzer(TARGETS[request.param], tmp_path_factory.mktemp("sound"))


@given(harm=HARMS)
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_harm_is_told_or_means_nothing(fuzzer: Fuzzer, harm: Harm) -> None:
    assert fuzzer.try_out(harm) in ("refused", "right", "forged")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_harm_changes_something(tmp_path: Path, kind: str) -> None:
    """Or the fuzzer would be testing sound files."""
    for i in range(5):
        folder = tmp_path / f"{kind}-{i}"
        TARGETS["cache"].make(folder)
        before = {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
        Harm(kind, i, 9 + i, 2 + i).do(folder)
        if {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()} != before:
            return
    pytest.fail("nothing was harmed")


def test_the_fuzzer_notices(tmp_path: Path) -> None:
    """A reader that trusts what it reads, one that fails in its own way, and one that hangs."""

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / "a.bin").write_bytes(b"content")

    def fuzzed(read: Any, name: str) -> str:
        return Fuzzer(Target(make, read), tmp_path / name).try_out(Harm("flip", 0, 1, 1))

    with pytest.raises(AssertionError, match="a wrong answer"):
        fuzzed(lambda folder: (folder / "a.bin").read_bytes(), "trusting")
    with pytest.raises(KeyError):
        fuzzed(lambda folder: {b"content": 1}[(folder / "a.bin").read_bytes()], "failing")

    def hangs() -> None:
        with guarded(1):
            while True:
                pass

    with pytest.raises(TimeoutError, match="no answer after 1 s"):
        hangs()


def test_the_tool(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "tools/fuzz.py", "--count", "12", "--only", "codec"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "12 inputs fuzzed" in done.stdout


def test_lengths_that_no_file_could_hold_allocate_nothing(tmp_path: Path) -> None:
    """Found by fuzzing: a forged description of cached vectors."""
    encode(SET, Numbers(), tmp_path)
    (folder,) = tmp_path.iterdir()
    path = folder / "vectors.json"
    body = json.loads(path.read_text())
    del body["checksum"]
    for value in (2**31, 2**63 - 1, 2**64, 0, -1):
        body["pages"][3][1] = value
        digest = json_digest(body)
        path.write_text(json.dumps({**body, "checksum": digest}))
        with pytest.raises(glie.DatasetError, match="damaged"):
            caching.read(folder)


def test_a_damaged_line_of_a_journal_is_encoded_again(tmp_path: Path) -> None:
    """A page's name with one letter changed would be read as another page."""

    class Stopping(Numbers):
        def encode_queries(self, texts: Any) -> Any:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(SET, Stopping(), tmp_path)
    (folder,) = tmp_path.iterdir()
    journal = folder / "unfinished.jsonl"
    journal.write_bytes(journal.read_bytes().replace(b'"p3"', b'"p4"'))
    assert encode(SET, Numbers(), tmp_path).page_ids == list(SET.pages)


def test_a_changed_setting_of_a_codec_is_told(tmp_path: Path) -> None:
    glie.Codec(k=4).save(tmp_path)
    path = tmp_path / "config.json"
    text = path.read_text()
    path.write_text(text.replace('"k": 4', '"k": 5'))
    with pytest.raises(glie.CodecError, match=r"config\.json does not match its checksum"):
        glie.Codec.load(tmp_path)
    body = json.loads(path.read_text())
    del body["checksum"]
    path.write_text(json.dumps(body))  # changed on purpose
    assert glie.Codec.load(tmp_path).k == 5
