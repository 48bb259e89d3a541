"""`glie codec`: a codebook that the indexes of an encoder share."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import glie
from glie.codec.readout import shared
from tests.cli.conftest import Run, question_set
from tests.conftest import make_arrays


@pytest.fixture
def made(run: Run, documents: Path) -> str:
    """The digest of a codebook for the embedded encoder, in my.codec."""
    folder = question_set(Path("small"))
    (folder / "queries.jsonl").unlink()  # questions are never used
    done = run("codec", "make", folder, "reports", "--to", "my.codec", "--json")
    assert done.code == 0, done.err
    assert done.json["encoder"]["name"] == "english"
    assert done.json["notes"]["fitted_on"]["small"]["pages"] == 23  # and one held out
    assert done.json["notes"]["fitted_on"]["reports"]["pages"] == 2
    assert 0 < done.json["explained"] < 1
    assert Path(done.json["file"]).exists()
    return str(done.json["digest"])


def test_make_then_index(run: Run, made: str, documents: Path) -> None:
    codec = glie.Codec.load("my.codec")
    assert codec.codebook is not None
    assert codec.codebook.digest == made
    assert codec.config.bytes_per_page == 520
    for _ in range(2):  # run again, nothing has changed
        done = run("index", "reports", "--to", "x.glie", "--codec", "my.codec")
        assert done.code == 0, done.err
    info = run("info", "x.glie", "--json").json
    assert (info["codebook"], info["codebook_in"], info["budget"]) == (made, "shared", 520)
    assert info["text_bytes"] > 0
    assert glie.Index.open("x.glie").codec.config.text_bytes > 0  # words count in the budget
    shown = " ".join(run("info", "x.glie").out.split())  # the folder may have a long name
    assert "shared: " in shown
    assert "not counted" in shown
    assert run("search", "x.glie", "rotor blades", "--json").json["hits"][0]["page"] == 2
    small = ("--to", "small.glie", "--codec", "my.codec", "--bytes-per-page", 300, "--inside")
    assert run("index", "reports", *small).code == 0
    info = run("info", "small.glie", "--json").json
    assert (info["codebook"], info["codebook_in"], info["budget"]) == (made, "index", 300)
    assert "inside: " in run("info", "small.glie").out
    refused = run(
        "index", "reports", "--to", "y.glie", "--codec", "my.codec", "--encoder", "minilm"
    )
    assert refused.code == 1
    assert "the codec was fitted for encoder 'english'" in refused.err
    other = run("index", "reports", "--to", "z.glie")
    assert other.code == 0
    refused = run("index", "reports", "--to", "z.glie", "--codec", "my.codec")
    assert "it has another codec" in refused.err


def test_a_codebook_that_is_gone_is_added_again(
    run: Run, made: str, shared_codebooks: Path
) -> None:
    run("index", "reports", "--to", "x.glie", "--codec", "my.codec")
    shutil.rmtree(shared_codebooks)
    refused = run("search", "x.glie", "rotor blades")
    assert refused.code == 1
    for part in (made, "encoder 'english'", str(shared_codebooks), "`glie codec add CODEC`"):
        assert part in refused.err
    assert run("verify", "x.glie").code == 1
    assert run("codec", "add", "my.codec").code == 0
    assert run("search", "x.glie", "rotor blades").code == 0
    assert run("verify", "x.glie").code == 0
    assert run("compact", "x.glie", "--inside").code == 0
    shutil.rmtree(shared_codebooks)
    assert run("search", "x.glie", "rotor blades").code == 0
    # on a machine that has the folder of the codec, an index registers it
    assert run("index", "reports", "--to", "y.glie", "--codec", "my.codec").code == 0
    assert glie.Index.open("y.glie").info().codebook_in == "shared"


def test_list_and_show(run: Run, made: str, shared_codebooks: Path) -> None:
    listed = run("codec", "list", "--json").json
    assert listed["folder"] == str(shared_codebooks)
    assert [row["encoder"]["name"] for row in listed["codebooks"]] == [
        "english",
        "minilm",
        "english",
    ]
    assert [row["file"] is None for row in listed["codebooks"]] == [True, True, False]
    shown = run("codec", "list").out
    assert made in shown
    assert str(shared_codebooks) in shown.replace("\n", "")
    for name in ("my.codec", made):
        facts = run("codec", "show", name, "--json").json
        assert facts["digest"] == made
        assert facts == listed["codebooks"][-1]
        assert "made of small: 23 pages, " in run("codec", "show", name).out
    (shared_codebooks / f"{made}.safetensors").write_bytes(b"")
    assert "damaged" in run("codec", "list").out
    assert "damaged" in run("codec", "list", "--json").json["codebooks"][-1]
    assert run("codec", "show", made).code == 1
    assert run("codec", "add", "my.codec", "--json").json["digest"] == made
    assert "damaged" not in run("codec", "list").out
    shutil.rmtree(shared_codebooks)
    assert "not registered" in run("codec", "show", "my.codec").out


def few_of(out: str) -> int:
    (vectors,) = re.findall(r"made of ([\d,]+) vectors", out)
    return int(vectors.replace(",", ""))


def test_vectors_of_any_encoder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arrays = make_arrays(30, dim=32)
    np.savez("pages.npz", *arrays)
    refused = run("codec", "make", "pages.npz", "--to", "my.codec")
    assert "give --encoder NAME" in refused.err
    named = ("--encoder", "vidore/colqwen2-v1.0", "--to", "my.codec")
    done = run("codec", "make", "pages.npz", *named)
    assert done.code == 0, done.err
    vectors = few_of(done.out)
    assert sum(map(len, arrays)) - 40 <= vectors < sum(map(len, arrays))  # one page is held out
    assert "of the residuals of pages held out" in done.out
    assert "below 25%, no index takes it by itself" in done.err  # nobody's vectors
    assert f"{vectors // 4:,} codewords for encoder 'vidore/colqwen2-v1.0'" in done.out
    assert f"{vectors:,} vectors are few: 16,384 codewords need 262,144" in done.err
    refused = run("codec", "make", "pages.npz", *named, "--codewords", vectors)
    assert f"expected 1 to {vectors // 4:,}" in refused.err
    few = run("codec", "make", "pages.npz", *named, "--codewords", 4, "--json").json
    assert few["codewords"] == 4
    assert 64 <= few["notes"]["fitted_on"]["pages.npz"]["vectors"] <= vectors
    assert len(shared.registered()) == 2


def test_what_makes_no_codebook(run: Run, documents: Path) -> None:
    for arguments, code, said in (
        (["nowhere"], 1, "no such file or folder"),
        (["reports", "--bytes-per-page", "3"], 2, "--bytes-per-page"),
        (["reports", "--encoder", "nothing-like-it"], 2, "nothing-like-it"),
    ):
        done = run("codec", "make", *arguments, "--to", "my.codec")
        assert done.code == code
        assert said in done.err
        assert not Path("my.codec").exists()
    glie.Codec(4).save("free.codec")
    for verb in ("add", "show"):
        done = run("codec", verb, "free.codec")
        assert done.code == 1
        assert "a codec without a codebook" in done.err
