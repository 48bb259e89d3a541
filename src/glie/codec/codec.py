"""Codec: pages in, codes out, and vectors back."""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from glie.codec.adapt import Sample, drawn, fits, frozen
from glie.codec.anchors import anchor, cluster
from glie.codec.budget import adaptive_config, config_for
from glie.codec.codes import Codes, quantised
from glie.codec.config import CodecConfig
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.decoder import Decoder, Unrolled, regenerated, with_steps
from glie.codec.readout.generative import FitScores, Fitted
from glie.codec.readout.refiner import Refiner, refine
from glie.codec.readout.residual import reconstructed, residual_codes
from glie.errors import CodecError, InputError, VectorError
from glie.identity import EncoderId, Identified, check_match
from glie.kernels.quantize import BFLOAT16
from glie.pages import Pages

SHORTLIST = 20  # pages regenerated a query: more cost time and bring little
RESIDUAL_SHORTLIST = 200  # of those whose codewords are looked up, which is cheap


class Codec:
    """k vectors a page. `Codec(k)` is training-free, normalised k-means centroids; `glie.fit`
    gives one whose vectors are refined and from which all N can be regenerated. `dtype` is what a
    number is stored in: bf16 or, in fewer bits, int8, int4, int2 or int1.

    `Codec(bytes_per_page=520)` chooses for a page of so many bytes on disk: a few vectors in 2 bits
    a number, and codewords of a codebook around them, from which a shortlist is read back. The codebook
    is that of the embedded encoder; an index whose first pages it does not fit makes one of these.
    `adapt` says that it shall, or shall not, in any case.

    >>> Codec(k=4).k
    4
    """

    def __init__(
        self,
        k: int | None = None,
        *,
        dtype: str | None = None,
        bytes_per_page: int | None = None,
        adapt: bool | None = None,
        config: CodecConfig | None = None,
        fitted: Fitted | None = None,
        cascade: bool = True,
        codebook: Codebook | None = None,
    ) -> None:
        if bytes_per_page is not None:
            if (k, dtype, config, fitted) != (None, None, None, None):
                raise TypeError("bytes_per_page chooses k, dtype and all else: give it alone")
            if adapt:
                config = adaptive_config(bytes_per_page)
            else:
                book = codebook or Codebook.shipped()
                config = config_for(bytes_per_page, book.dim, len(book))
                config = dataclasses.replace(config, adapt=adapt is None and codebook is None)
                codebook = book
        given = {name: value for name, value in (("k", k), ("dtype", dtype)) if value is not None}
        for name, value in given.items():
            if config is not None and value != getattr(config, name):
                raise TypeError(
                    f"{name}={value} contradicts config.{name}={getattr(config, name)}: give one "
                    "of them"
                )
        self.config = config or CodecConfig.from_dict(given)
        if codebook is None and self.config.codewords:
            raise TypeError("codewords: they are those of a codebook, which was not given")
        if codebook is not None and fitted is not None:
            raise TypeError("codebook, fitted: a codec reads pages back in one way or the other")
        self.fitted = fitted
        self.cascade = cascade and fitted is not None
        self.codebook = codebook

    @property
    def k(self) -> int:
        """How many vectors a page keeps."""
        return self.config.k

    @property
    def dtype(self) -> str:
        """The type in which their numbers are stored."""
        return self.config.dtype

    @property
    def dim(self) -> int | None:
        """The D that it was fitted for; None when it takes any."""
        made_for = self.fitted or self.codebook
        return None if made_for is None else made_for.dim

    @property
    def encoder(self) -> EncoderId | None:
        """The encoder that it was fitted for, if it was given."""
        made_for = self.fitted or (None if self.adapts else self.codebook)
        return None if made_for is None else made_for.encoder

    @property
    def measured(self) -> FitScores | None:
        """What the fit measured on the questions held out, at the budget nearest to k."""
        return None if self.fitted is None else self.fitted.budget(self.k)

    @property
    def refiner(self) -> Refiner | None:
        """What moves the anchors; None where normalised k-means was found to be as good."""
        if self.fitted is None:
            return None
        budget = self.fitted.budget(self.k)
        if self.cascade:
            return self.fitted.refiner if budget.cascade_pays else None
        return self.fitted.single_stage if budget.single_stage_pays else None

    @functools.cached_property
    def decoder(self) -> Decoder | None:
        """What regenerates a page; None where that was not found to help."""
        if self.fitted is None or not self.cascade:
            return None
        budget = self.fitted.budget(self.k)
        if not budget.cascade_pays or not budget.step:
            return None
        return with_steps(self.fitted.decoder, budget.step)

    def same_as(self, other: Codec) -> bool:
        """Whether two codecs give the same codes and regenerate the same pages."""
        from glie.codec.store import to_files

        return to_files(self) == to_files(other)

    @property
    def single_stage(self) -> Codec:
        """The codec for search without regeneration: the best code for one stage alone."""
        return Codec(config=self.config, fitted=self.fitted, cascade=False)

    def at(self, k: int) -> Codec:
        """The same codec at another budget: no weight depends on k."""
        return self._with(k=k)

    def stored_as(self, dtype: str) -> Codec:
        """The same codec with the numbers of its vectors stored in another type."""
        return self._with(dtype=dtype)

    def _with(self, **settings: Any) -> Codec:
        config = dataclasses.replace(self.config, **settings)
        return Codec(
            config=config, fitted=self.fitted, cascade=self.cascade, codebook=self.codebook
        )

    @property
    def adapts(self) -> bool:
        """Whether it may choose again, and make a codebook, when it sees the pages to store."""
        return self.config.adapt

    @property
    def frozen(self) -> Codec:
        """The same codec, which stays as it is whatever pages it sees."""
        if self.adapts and self.codebook is None:
            raise CodecError("the codec has no codebook yet: make one with codec.adapted(pages)")
        return self._with(adapt=False)

    def for_pages(self, pages: Pages | Iterable[Pages], *, more: bool = False) -> Codec:
        """What to store these pages with: this codec, or where it has no codebook that fits them,
        one that has adapted."""
        if not self.adapts:
            return self
        sample = drawn(pages)
        if self.codebook is not None and fits(self.codebook, sample.pages):
            return self
        return self._adapted(sample, more)

    def adapted(self, pages: Pages | Iterable[Pages], *, more: bool = False) -> Codec:
        """A codec for the same bytes a page with a codebook made of these pages. It counts among
        their bytes, unless there are many `more` to come. Pages that do not fit in memory may come
        in blocks: only some of them, drawn over all, are held."""
        if not self.adapts:
            raise InputError("adapted: expected a codec that was made by bytes_per_page")
        return self._adapted(drawn(pages), more)

    def _adapted(self, sample: Sample, more: bool) -> Codec:
        config, codebook = frozen(sample, self.config.bytes_per_page, more=more)
        return Codec(config=config, codebook=codebook)

    def compress(self, pages: Pages) -> Codes:
        """The code of every page. A page gives the same code alone and in any batch."""
        if not isinstance(pages, Pages):
            raise InputError(f"compress: expected glie.Pages, found {type(pages).__name__}")
        if self.adapts and self.codebook is None:
            raise CodecError(
                "the codec has no codebook yet: make one with codec.adapted(pages), or add pages "
                "to an index, which does"
            )
        if len(pages):
            self._check_dim(pages.dim, "pages")
        return self.code(pages, anchor(pages, cluster(pages, self.config)))

    def code(self, pages: Pages, free: Codes) -> Codes:
        """The code of pages whose normalised k-means code is known. In a few bits a number it is
        as it will be read back; in bfloat16 it is not rounded yet."""
        codes = free if self.refiner is None else refined(self.refiner, free, pages)
        if self.dtype != BFLOAT16:
            codes = quantised(codes, self.dtype, sizes=self.decoder is not None)
        if self.codebook is None:
            return codes
        residual = residual_codes(pages, codes, self.codebook, self.config.codewords)
        return dataclasses.replace(codes, residual=residual)

    @property
    def regenerates(self) -> bool:
        """Whether a page can be read back better than its stored vectors."""
        return self.decoder is not None or self.codebook is not None

    @property
    def shortlist(self) -> int:
        """How many pages a search reads back unless told."""
        return SHORTLIST if self.codebook is None else RESIDUAL_SHORTLIST

    def regenerate(self, codes: Codes) -> Pages:
        """The set of vectors that a page is scored by, its stored ones among them.

        With a decoder all N, cluster by cluster, the stored vector of each first. With a codebook
        the stored vectors, then the codewords. With neither, a cluster's vectors are its stored one.
        """
        if not isinstance(codes, Codes):
            raise InputError(f"regenerate: expected glie.Codes, found {type(codes).__name__}")
        if len(codes):
            self._check_dim(codes.dim, "codes")
        if self.codebook is not None and codes.residual is not None:
            return reconstructed(codes, self.codebook)
        return regenerated(self._unrolled, codes)

    @functools.cached_property
    def _unrolled(self) -> Unrolled | None:
        return None if self.decoder is None else Unrolled(self.decoder)

    def _check_dim(self, dim: int, what: str) -> None:
        if self.dim not in (None, dim):
            raise VectorError(
                f"{what}: their vectors have {dim} numbers, the codec was fitted for {self.dim}; "
                "use the encoder that it was fitted for, or fit another with glie.fit"
            )

    def check_encoder(self, encoder: EncoderId) -> None:
        """Refuse vectors of an encoder that the codec was not fitted for."""
        if self.encoder is not None:
            remedy = "use that one, or fit a codec for this (`glie fit`)"
            check_match(self.encoder, encoder, "the codec was fitted for", remedy, CodecError)

    @classmethod
    def shipped(cls, encoder: Identified | Mapping[str, Any] | str) -> Codec | None:
        """The codec that comes with glie for an encoder (an EncoderId, a name, or a mapping with
        name and revision), if there is one."""
        from glie.codec.store import shipped

        return shipped(EncoderId.of(encoder))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and, of a fitted codec, model.safetensors into a folder."""
        from glie.codec.store import save

        save(self, Path(folder))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Codec:
        """A saved codec."""
        from glie.codec.store import load

        return load(Path(folder))

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """`save`, with a model card, as the Hugging Face Hub expects a repository."""
        from glie.codec.store import save, write_card

        save(self, Path(folder))
        write_card(self, Path(folder))

    @classmethod
    def from_pretrained(cls, name: str | os.PathLike[str], **hub: Any) -> Codec:
        """A codec from a folder or, by its name there, from the Hugging Face Hub; `hub` goes to
        huggingface_hub.snapshot_download (revision, token, cache_dir, ...)."""
        from glie.codec.store import from_hub, load

        return load(Path(name)) if Path(name).is_dir() else from_hub(str(name), **hub)

    def push_to_hub(self, name: str, *, private: bool = False, token: str | None = None) -> str:
        """Upload to the Hugging Face Hub; returns the address of the commit."""
        from glie.codec.store import to_hub

        return to_hub(self, name, private=private, token=token)

    def __repr__(self) -> str:
        if self.fitted is None:
            kind = ""
        else:
            stages = "fitted" if self.cascade else "fitted, single stage"
            kind = f", {stages} for D={self.dim}"
        stored = "" if self.dtype == BFLOAT16 else f", {self.dtype}"
        return f"Codec(k={self.k}{stored}{kind})"


def refined(weights: Refiner, codes: Codes, pages: Pages) -> Codes:
    """Codes whose anchors have read their pages, one page at a time: none sees another."""
    vectors = np.zeros_like(codes.vectors)
    for page, rows in enumerate(pages):
        used = int(np.count_nonzero(codes.counts[page]))
        vectors[page, :used] = refine(weights, codes.vectors[page, :used], rows)
    return Codes(vectors, codes.norms, codes.counts, codes.ids)
