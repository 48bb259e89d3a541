"""Codecs of every kind keep the same promises: the ways to get one, and to change one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import glie
from glie import renamed
from glie.codec.readout.base import AnchorsOnly
from glie.codec.readout.generative import Generative
from glie.codec.readout.residual import Residual
from tests.codec.networks import fitted_of, random_codec
from tests.conftest import make_arrays

DIM = 128


class Kind(NamedTuple):
    """How to make a codec of a kind, and what it says of itself."""

    make: Callable[[], glie.Codec]
    shortlist: int = 20
    worth_caching: bool = False


KINDS = {
    "free": Kind(lambda: glie.Codec(k=3)),
    "few bits": Kind(lambda: glie.Codec(k=3, dtype="int2")),
    "fitted": Kind(lambda: random_codec(DIM, 0, 3), worth_caching=True),
    "fitted, few bits": Kind(lambda: random_codec(DIM, 0, 3).stored_as("int4"), worth_caching=True),
    "single stage": Kind(lambda: random_codec(DIM, 0, 3).single_stage),
    "budget": Kind(lambda: glie.Codec(bytes_per_page=300), shortlist=200),
    "budget, frozen": Kind(lambda: glie.Codec(bytes_per_page=300, adapt=False), shortlist=200),
    "budget, no codebook": Kind(lambda: glie.Codec(bytes_per_page=300, adapt=True)),
    "adapted": Kind(
        lambda: glie.Codec(bytes_per_page=300, adapt=True).adapted(some_pages()), shortlist=200
    ),
}
READY = sorted(set(KINDS) - {"budget, no codebook"})


def some_pages() -> glie.Pages:
    return glie.Pages(make_arrays(8, dim=DIM, low=9))


@pytest.mark.parametrize("kind", READY)
def test_every_kind_codes_and_regenerates(kind: str) -> None:
    codec, pages = KINDS[kind].make(), some_pages()
    codes = codec.compress(pages)
    assert (codes.k, codes.dim, len(codes)) == (codec.k, DIM, 8)
    assert (codes.residual is not None) == codec.keeps_residual
    made = codec.regenerate(codes)
    used = np.count_nonzero(codes.counts, axis=1)
    for page in range(8):  # the stored vectors are among those that are scored
        found = made[page] @ codes.vectors[page, : used[page]].T
        norms = np.linalg.norm(codes.vectors[page, : used[page]], axis=1) ** 2
        assert (found.max(axis=0) >= norms - 1e-5).all()
    assert (codec.shortlist, codec.worth_caching) == KINDS[kind][1:]
    assert codec.shortlist_for(10_000) == codec.shortlist
    assert codec.shortlist_for(1_000_000) == 10 * codec.shortlist
    assert codec.page_bytes(DIM) > 0


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_can_be_saved_compared_and_changed(kind: str, tmp_path: Path) -> None:
    codec = KINDS[kind].make()
    codec.save(tmp_path / "c")
    again = glie.Codec.load(tmp_path / "c")
    assert again.same_as(codec)
    assert again.same_codes_as(codec)
    assert repr(again) == repr(codec)
    assert type(again.readout) is type(codec.readout)
    other = codec.at(2)
    assert (other.k, other.dtype, other.adapts) == (2, codec.dtype, False)
    assert codec.stored_as("int1").dtype == "int1"
    assert not codec.same_as(other)
    single = codec.single_stage
    assert not single.regenerates
    assert single.single_stage.same_as(single)
    assert len(single.compress(some_pages())) == 8
    assert codec.with_seed(7).config.seed == 7
    for changed in (other, codec.stored_as("int1"), single):
        assert len(changed.compress(some_pages())) == 8


def test_what_a_codec_is_shows() -> None:
    budget = glie.Codec(bytes_per_page=520)
    words = f"{budget.config.codewords} of 65,536 codewords"
    assert repr(budget) == f"Codec(bytes_per_page=520, k=6, int2, {words}, adapts)"
    assert repr(budget.frozen) == f"Codec(bytes_per_page=520, k=6, int2, {words})"
    assert repr(budget.at(2)) == f"Codec(k=2, int2, {words})"
    waiting = glie.Codec(bytes_per_page=520, adapt=True)
    assert repr(waiting) == "Codec(bytes_per_page=520, no codebook yet, adapts)"
    assert repr(random_codec(16, 0)) == "Codec(k=4, fitted for D=16)"
    assert repr(random_codec(16, 0).single_stage) == "Codec(k=4, fitted, single stage for D=16)"
    assert repr(glie.Codec()) == "Codec(k=4)"


@pytest.mark.parametrize("adapt", [None, True, False])
def test_a_budget_has_two_spellings(adapt: bool | None) -> None:
    one, other = (
        glie.Codec(bytes_per_page=520, adapt=adapt),
        glie.Codec.for_budget(520, adapt=adapt),
    )
    assert one.same_as(other)
    assert one.adapts == (adapt is not False)


def test_all_settings_at_once() -> None:
    codec = glie.Codec(config=glie.CodecConfig(k=3, dtype="int8", seed=5))
    assert codec.same_as(glie.Codec(k=3, dtype="int8").with_seed(5))
    assert glie.Codec(3, dtype="int8", config=codec.config).same_as(codec)
    with pytest.raises(TypeError, match="config has every setting"):
        glie.Codec(4, config=glie.CodecConfig(k=3))


def test_adapting_needs_a_budget() -> None:
    with pytest.raises(TypeError, match="adapt: only a codec made by a budget adapts"):
        glie.Codec(k=4, adapt=True)
    assert not glie.Codec(k=4, adapt=False).adapts
    with pytest.raises(TypeError, match="bytes_per_page chooses k and dtype"):
        glie.Codec(dtype="int2", bytes_per_page=520)
    with pytest.raises(glie.InputError, match=r"adapted: .*, found Codec\(k=4\)"):
        glie.Codec(k=4).adapted(some_pages())


def test_a_single_stage_of_a_budget_is_its_anchors() -> None:
    codec, pages = glie.Codec(bytes_per_page=520), some_pages()
    single = codec.single_stage
    assert isinstance(single.readout, AnchorsOnly)
    config = codec.config
    assert single.config == glie.CodecConfig(
        k=config.k, dtype=config.dtype, position=config.position
    )
    mine, expected = single.compress(pages), codec.compress(pages)
    assert mine.residual is None
    np.testing.assert_array_equal(mine.vectors, expected.vectors)


def test_another_k_leaves_the_budget(tmp_path: Path) -> None:
    codec = glie.Codec(bytes_per_page=520)
    for changed in (codec.at(2), codec.stored_as("int4")):
        assert (changed.config.bytes_per_page, changed.adapts) == (0, False)
        assert changed.codebook is codec.codebook
    assert codec.at(codec.k) is codec  # its own
    assert codec.stored_as("int2") is codec
    index = glie.Index.create(tmp_path / "two.glie", codec.at(2))
    index.add(some_pages())
    assert (index.info().k, index.info().budget) == (2, None)
    assert glie.Index.open(index.path).codec.same_as(codec.at(2))
    waiting = glie.Codec(bytes_per_page=520, adapt=True)
    assert waiting.at(4).same_as(glie.Codec(4))  # nothing else was chosen yet


def test_one_read_out_a_codec() -> None:
    fitted = Generative(fitted_of(random_codec(16, 0)))
    config = glie.Codec(bytes_per_page=520).config
    with pytest.raises(TypeError, match="not both"):
        glie.Codec.from_config(config, fitted)
    with pytest.raises(TypeError, match="codewords: they are those of a codebook"):
        glie.Codec.from_config(glie.CodecConfig(codewords=3))


def test_accessors_name_what_there_is() -> None:
    free, fitted, budget = glie.Codec(4), random_codec(16, 0), glie.Codec(bytes_per_page=520)
    assert [codec.codebook is not None for codec in (free, fitted, budget)] == [False, False, True]
    assert [codec.decoder is not None for codec in (free, fitted, budget)] == [False, True, False]
    assert [codec.refiner is not None for codec in (free, fitted, budget)] == [False, True, False]
    assert [len(codec.scores) for codec in (free, fitted, budget)] == [0, 1, 0]
    assert [codec.dim for codec in (free, fitted, budget)] == [None, 16, 128]
    assert fitted.measured == fitted.scores[0]
    assert free.measured is budget.measured is None
    assert free.notes == {}
    assert isinstance(budget.readout, Residual)
    assert budget.encoder is None  # it may still adapt to another
    assert budget.frozen.encoder is not None


def test_older_names_warn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renamed, "_warned", set())
    codec, fitted = glie.Codec(bytes_per_page=520), random_codec(16, 0)
    with pytest.warns(DeprecationWarning, match="Codec.settled is now called Codec.frozen"):
        assert codec.settled.same_as(codec.frozen)
    with pytest.warns(DeprecationWarning, match="Codec.suited_to is now called Codec.for_pages"):
        assert codec.frozen.suited_to(some_pages()).same_as(codec.frozen)
    with pytest.warns(DeprecationWarning, match="Codec.fitted is now called Codec.readout"):
        assert fitted.fitted is fitted_of(fitted)
    codes = codec.compress(some_pages())
    with pytest.warns(DeprecationWarning, match="Codes.evidence is now called Codes.residual"):
        assert codes.evidence is codes.residual
    with pytest.warns(DeprecationWarning, match="CodecConfig.words is now called"):
        assert codec.config.words == codec.config.codewords > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert codec.fitted is None
        assert not codec.settled.adapts


def test_empty_indexes_that_adapt_can_be_merged(tmp_path: Path) -> None:
    def empty(name: str, budget: int = 300) -> glie.Index:
        return glie.Index.create(tmp_path / name, glie.Codec(bytes_per_page=budget, adapt=True))

    one, other = empty("one"), empty("other")
    one.merge(other)
    assert (len(one), one.codec.adapts) == (0, True)
    one.add(some_pages())  # it still adapts to its first pages
    assert one.codec.codebook is not None
    with pytest.raises(glie.InputError, match="made with another codec"):
        other.merge(one)
    with pytest.raises(glie.InputError, match="made with another codec"):
        other.merge(empty("larger", 400))
