"""Model cards tell the encoder, the budget and the scores of a codec."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import glie
from glie.codec.card import model_card
from glie.identity import EncoderId
from tests.codec.networks import fitted_codec, fitted_of, random_codec

MINILM = {"name": "minilm", "revision": "722ab47901980717"}  # that the shipped codec is for


def card_of(codec: glie.Codec, place: Path) -> str:
    codec.save_pretrained(place)
    return (place / "README.md").read_text()


def test_a_card_tells_encoder_budget_and_measures(tmp_path: Path) -> None:
    shipped = glie.Codec.shipped(MINILM)
    assert shipped is not None
    card = card_of(shipped, tmp_path / "shipped")
    assert f"| base encoder | `minilm` (revision `{MINILM['revision']}`) |" in card
    assert "| budget | k = 4 vectors a page in bf16, 1,040 bytes |" in card
    assert "| read-out | fitted for D=128 |" in card
    assert "| vectors | 128 numbers each |" in card
    assert "| fitted on | 3,141 pages and 1,638 questions |" in card
    assert "nDCG@5 on the 782 questions held out of the fit." in card
    assert "| 8 | 2,080 | 0.700 | 0.706 | 0.722 |" in card
    assert "base_model" not in card
    (tmp_path / "shipped" / "README.md").write_text("my own")
    shipped.save_pretrained(tmp_path / "shipped")
    assert (tmp_path / "shipped" / "README.md").read_text() == "my own"

    free = card_of(glie.Codec(k=7, dtype="int4"), tmp_path / "free")
    assert "| base encoder | not named |" in free
    assert "| budget | k = 7 vectors a page in int4 |" in free
    assert "Nothing: it was not fitted to questions." in free
    budget = card_of(glie.Codec(bytes_per_page=520, adapt=False), tmp_path / "budget")
    assert re.search(
        r"\| budget \| 520 bytes a page: k = \d+ vectors a page in int2, and at most \d+ of a codebook's [\d,]+ codewords \|",
        budget,
    )


def test_a_card_names_the_model_it_is_for(tmp_path: Path) -> None:
    fitted = fitted_of(random_codec(16, 0))

    def card(name: str) -> str:
        made = dataclasses.replace(fitted, encoder=EncoderId(name, "abc"))
        return model_card(fitted_codec(made, 4), "me/codec")

    on_hub = card("vidore/colqwen2-v1.0-hf")
    head = on_hub.split("---")[1]
    assert head.strip().split("\n")[-1] == "base_model: vidore/colqwen2-v1.0-hf"
    assert "| base encoder | `vidore/colqwen2-v1.0-hf` (revision `abc`) |" in on_hub
    assert 'glie.Codec.from_pretrained("me/codec")' in on_hub
    reduced = card("vidore/colqwen2-v1.0-hf@/home/me/64.safetensors")
    assert "`vidore/colqwen2-v1.0-hf`, reduced by `64.safetensors`" in reduced
    local = card("/home/me/models/gte-small")
    assert "| base encoder | `gte-small` (revision `abc`) |" in local
    assert "/home/me" not in local + reduced
    assert "base_model" not in local
