"""EncoderId: which encoder made some vectors."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glie
from glie.encoders import BatchEncoder
from glie.identity import EncoderId, check_encoder, check_match, recorded_encoder

DIGEST = "722ab47901980717"


def encoder(name: str = "mine", revision: str = "1") -> BatchEncoder:
    return BatchEncoder(name, lambda pages: [], lambda queries: [], revision=revision)


def test_what_it_is_made_from() -> None:
    expected = EncoderId("mine", "1")
    assert EncoderId.of(None) is None
    assert EncoderId.of("mine") == EncoderId("mine", None)
    assert EncoderId.of({"name": "mine", "revision": "1", "more": 2}) == expected
    assert EncoderId.of({"name": "mine"}) == EncoderId("mine")
    assert EncoderId.of(encoder()) == expected
    assert EncoderId.of(expected) is expected


@pytest.mark.parametrize("bad", [3, {}, {"revision": "1"}, {"name": "a", "revision": 1}, object()])
def test_anything_else_is_refused(bad: Any) -> None:
    with pytest.raises(glie.InputError, match="expected a name, or a name and a revision, found"):
        EncoderId.of(bad)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (EncoderId("a", "1"), EncoderId("a", "1"), True),
        (EncoderId("a", "1"), EncoderId("a", "2"), False),
        (EncoderId("a", "1"), EncoderId("b", "1"), False),  # a count is no digest
        (EncoderId("a"), EncoderId("a", "1"), True),  # no revision: any
        (EncoderId("a"), EncoderId("b"), False),
        (EncoderId("a", DIGEST), EncoderId("b", DIGEST), True),  # the folder has moved
        (EncoderId("a", DIGEST), EncoderId("b"), False),
    ],
)
def test_which_match(one: EncoderId, other: EncoderId, same: bool) -> None:
    assert one.matches(other) is same
    assert other.matches(one) is same


def test_it_is_a_value() -> None:
    one = EncoderId("a", "1")
    assert (one == EncoderId("a", "1"), one == EncoderId("a")) == (True, False)
    assert len({one, EncoderId("a", "1"), EncoderId("b", "1")}) == 2
    assert str(one) == "encoder 'a' (revision 1)"
    assert json.dumps(one.to_dict()) == '{"name": "a", "revision": "1"}'
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "b"  # type: ignore[misc]


def test_the_older_form_a_mapping(tmp_path: Path) -> None:
    """`index.encoder["name"]` and comparison with a dictionary work as before."""
    entry: Any = glie.Index.create(tmp_path / "a", encoder={"name": "a", "revision": "1"}).encoder
    assert (entry["name"], entry["revision"]) == ("a", "1")
    assert entry == {"name": "a", "revision": "1"}
    assert entry != {"name": "a", "revision": None}
    assert dict(entry) == entry.to_dict()
    with pytest.raises(KeyError):
        entry["id"]


def test_one_wording() -> None:
    one, other = EncoderId("a", "1"), EncoderId("b")
    check_match(one, EncoderId("a"), "x: made with", "choose")
    check_match(None, None, "x: made with", "choose")
    said = "x: made with encoder 'a' (revision 1), not encoder 'b' (no revision); choose"
    with pytest.raises(glie.CodecError) as told:
        check_match(one, other, "x: made with", "choose", glie.CodecError)
    assert str(told.value) == said
    for recorded, found in ((one, None), (None, one)):
        with pytest.raises(glie.EncoderError, match="an encoder that was not named"):
            check_match(recorded, found, "x: made with", "choose")


def test_an_index_says_what_made_it(tmp_path: Path) -> None:
    index = glie.Index.create(tmp_path / "a", encoder=encoder())
    assert index.encoder == recorded_encoder(index) == EncoderId("mine", "1")
    check_encoder(index, encoder())
    expected = r"made with encoder 'mine' \(revision 1\), not encoder 'mine' \(revision 2\)"
    with pytest.raises(glie.EncoderError, match=expected):
        check_encoder(index, encoder(revision="2"))
    unnamed = glie.Index.create(tmp_path / "b")
    with pytest.raises(glie.EncoderError, match="does not name the encoder"):
        recorded_encoder(unnamed)
    manifest = json.loads(next((tmp_path / "a").glob("*.json")).read_bytes())
    assert manifest["encoder"] == {"name": "mine", "revision": "1"}


def test_codec_and_plan_take_any_form() -> None:
    codec = glie.Codec.shipped("minilm")
    assert codec is not None
    assert codec.encoder == EncoderId("minilm", DIGEST)
    assert glie.Codec.shipped(EncoderId("minilm", "other")) is None
    pages = glie.Pages([np.eye(16, dtype=np.float32)[:4] for _ in range(3)])
    plans = [
        glie.plan(pages, [150], encoder=form)
        for form in ("minilm", {"name": "minilm", "revision": None}, EncoderId("minilm"))
    ]
    assert plans[0] == plans[1] == plans[2]


def test_a_path_is_no_encoder() -> None:
    """It has a name, but that of a file."""
    with pytest.raises(glie.InputError, match="encoder: expected a name"):
        EncoderId.of(Path("models/colbert"))  # type: ignore[call-overload]
