"""Codec: anchors and one read-out. Pages in, codes out, and vectors regenerated from codes."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from glie.codec.adapt import Sample, drawn, fits
from glie.codec.anchors import anchor, cluster
from glie.codec.budget import LEAST_FOR_CODES, adaptive_config, bytes_for_text, vector_bytes
from glie.codec.choose import chosen_for
from glie.codec.codes import Codes
from glie.codec.config import NO_BUDGET, CodecConfig
from glie.codec.readout import shared
from glie.codec.readout.base import AnchorsOnly, Readout, grown
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.decoder import AnyDecoder
from glie.codec.readout.generative import FitScores, Fitted, Generative
from glie.codec.readout.refiner import AnyRefiner
from glie.codec.readout.residual import Residual
from glie.codec.readout.transform import Transform
from glie.errors import CodecError, InputError, VectorError
from glie.identity import EncoderId, Identified, check_match
from glie.kernels.maxsim import maxsim
from glie.kernels.pq import CODE_BYTES
from glie.kernels.quantize import BFLOAT16
from glie.pages import Floats, Pages, Queries
from glie.renamed import renamed, warn


class Codec:
    """k stored vectors a page, the anchors, and one read-out: what a codec adds to them.

    - `Codec(k)` adds nothing: normalised k-means, without training. `dtype` is the type of a stored
      number: bf16 or, in fewer bits, int8, int4, int2 or int1. `Codec(config=CodecConfig(...))`
      sets the seed and the iterations of k-means too.
    - `Codec.for_budget(520)`, or `Codec(bytes_per_page=520)`, adds codewords of a codebook, from
      which a search reconstructs its shortlist. The budget chooses k, dtype and codewords.
    - `glie.fit` returns a codec that refines its anchors and regenerates all N vectors of a page.

    >>> Codec(k=4).k
    4
    """

    config: CodecConfig
    readout: Readout

    def __init__(
        self,
        k: int | None = None,
        *,
        dtype: str | None = None,
        bytes_per_page: int | None = None,
        adapt: bool | None = None,
        config: CodecConfig | None = None,
    ) -> None:
        if config is not None:
            same = k in (None, config.k) and dtype in (None, config.dtype)
            if not same or (bytes_per_page, adapt) != (None, None):
                raise TypeError("config has every setting: give it without k, dtype or a budget")
            self._become(config, AnchorsOnly())
        elif bytes_per_page is None:
            if adapt:
                raise TypeError(
                    "adapt: only a codec made by a budget adapts; give bytes_per_page instead of k "
                    "and dtype, or leave adapt out"
                )
            given = {"k": k, "dtype": dtype}
            given = {name: value for name, value in given.items() if value is not None}
            self._become(CodecConfig.from_dict(given), AnchorsOnly())
        elif (k, dtype) != (None, None):
            raise TypeError("bytes_per_page chooses k and dtype: give it without them")
        else:
            self._become(*_for_budget(bytes_per_page, adapt))

    @classmethod
    def for_budget(cls, bytes_per_page: int, *, adapt: bool | None = None) -> Self:
        """The codec for pages of `bytes_per_page` bytes on disk.

        It starts with the codebook of the embedded encoder. An index whose first pages this does
        not fit takes one that was registered for its encoder (`glie codec make`), or makes a
        codebook of the pages. `adapt=True` always makes one, `adapt=False` never does.
        """
        return cls(bytes_per_page=bytes_per_page, adapt=adapt)

    @classmethod
    def with_codebook(cls, codebook: Codebook, bytes_per_page: int, *, adapt: bool = False) -> Self:
        """The codec for a budget with this codebook. It does not adapt; with `adapt`, the first
        pages choose its settings again, and only a codebook of glie gives way to another."""
        readout = Residual(codebook)
        config = dataclasses.replace(readout.config_for(bytes_per_page), adapt=adapt)
        return cls.from_config(config, readout)

    @classmethod
    def from_config(cls, config: CodecConfig, readout: Readout | None = None) -> Self:
        """The codec of these settings and this read-out; by default normalised k-means."""
        codec = cls.__new__(cls)
        codec._become(config, AnchorsOnly() if readout is None else readout)
        return codec

    def _become(self, config: CodecConfig, readout: Readout) -> None:
        self.config, self.readout = config, readout.at(config)

    def _with(self, **settings: Any) -> Codec:
        return Codec.from_config(dataclasses.replace(self.config, **settings), self.readout)

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
        """The D it was made for; None if it accepts any."""
        return self.readout.dim

    @property
    def encoder(self) -> EncoderId | None:
        """The encoder it was made for. None if it is not known, or if the codec may still adapt to
        another."""
        return None if self.adapts and not self._keeps_codebook else self.readout.encoder

    @property
    def _keeps_codebook(self) -> bool:
        """Whether it has a codebook that was chosen for its pages, also if it adapts."""
        return self.codebook is not None and not self.codebook.is_shipped

    @property
    def notes(self) -> Mapping[str, Any]:
        """How its read-out was made, for people to read."""
        return self.readout.notes

    @property
    def scores(self) -> tuple[FitScores, ...]:
        """What `glie.fit` measured at each k; empty for a codec that was not fitted."""
        return self.readout.fitted.budgets if isinstance(self.readout, Generative) else ()

    @property
    def measured(self) -> FitScores | None:
        """The scores at the measured k nearest to its own; None if it was not fitted."""
        return self.readout.measured if isinstance(self.readout, Generative) else None

    @property
    def refiner(self) -> AnyRefiner | None:
        """The network that moves the anchors, if it uses one."""
        return self.readout.refiner if isinstance(self.readout, Generative) else None

    @property
    def decoder(self) -> AnyDecoder | None:
        """The network that regenerates a page, if it uses one."""
        return self.readout.decoder if isinstance(self.readout, Generative) else None

    @property
    def codebook(self) -> Codebook | None:
        """The codebook of its codewords, if it uses one."""
        return self.readout.codebook if isinstance(self.readout, Residual) else None

    def same_as(self, other: Codec) -> bool:
        """Whether two codecs give the same codes, regenerate the same pages and adapt alike."""
        from glie.codec.store import to_files

        return to_files(self) == to_files(other)

    def same_codes_as(self, other: Codec) -> bool:
        """Whether they do, however they would adapt to further pages."""
        from glie.codec.store import to_files

        one, two = (codec._with(adapt=False) for codec in (self, other))
        return to_files(one) == to_files(two)

    @property
    def single_stage(self) -> Codec:
        """The codec for search without regeneration: the best code for one stage alone. Of a budget
        that is the anchors without codewords, and the budget is given up."""
        readout = self.readout.single_stage
        if readout is self.readout:
            return self
        unset = "codewords", "residual_bytes", "length_norm", "first_layer"
        config = dataclasses.replace(self.config, **{n: getattr(CodecConfig, n) for n in unset})
        free = dataclasses.replace(config, **NO_BUDGET)
        return Codec.from_config(free, readout)

    def at(self, k: int) -> Codec:
        """The same codec with another k; no weight depends on k. Another k replaces the budget, if
        there is one: the codec then has none, and no longer adapts."""
        return self._chosen(k=k)

    def stored_as(self, dtype: str) -> Codec:
        """The same codec with its numbers stored in another type, which replaces a budget too."""
        return self._chosen(dtype=dtype)

    def with_seed(self, seed: int) -> Codec:
        """The same codec with another seed for k-means."""
        return self._with(seed=seed)

    def _chosen(self, **settings: Any) -> Codec:
        if self.readout.ready and dataclasses.replace(self.config, **settings) == self.config:
            return self
        return self._with(**settings, **NO_BUDGET)

    @property
    def adapts(self) -> bool:
        """Whether the first pages may choose its settings again, and make a codebook."""
        return self.config.adapt

    @property
    def frozen(self) -> Codec:
        """The same codec, which no longer adapts. Raises CodecError while it has no codebook."""
        self._check_ready()
        return self._with(adapt=False)

    def for_pages(
        self,
        pages: Pages | Iterable[Pages],
        *,
        more: bool = False,
        encoder: Identified | Mapping[str, Any] | str | None = None,
    ) -> Codec:
        """The codec to store these pages with: this one, unless it may adapt and its codebook does
        not fit them; then one with another codebook of glie, with one that was registered for their
        encoder (`glie codec make`), or with one made of the pages."""
        if not self.adapts or self._keeps_codebook:
            return self
        sample = drawn(pages)
        if self.readout.fits(sample.pages):
            return self
        if isinstance(self.readout, Residual):
            made_for = EncoderId.of(encoder)
            registered = made_for and shared.made_for(made_for, sample.pages.dim)
            for book in (*Codebook.all_shipped(), *(registered or ())):
                if fits(book, sample.pages):
                    return self._with_book(book)
        return self._adapted(sample, more)

    def _with_book(self, book: Codebook) -> Codec:
        readout = Residual(book)
        return self._of_budget(readout.config_for(self.config.code_bytes), readout)

    def _of_budget(self, config: CodecConfig, readout: Readout, *, adapt: bool = True) -> Codec:
        """The codec of settings that were chosen for the same budget."""
        budget = {name: getattr(self.config, name) for name in NO_BUDGET if name != "adapt"}
        return Codec.from_config(dataclasses.replace(config, adapt=adapt, **budget), readout)

    def beside_text(self, text_bytes: int) -> Codec:
        """The codec for the same budget if the words of a page take `text_bytes` of it. Where they
        leave less than CODES_SHARE, the codes take that, and pages are larger than the budget.
        A codec without a budget stays as it is."""
        budget = self.config.bytes_per_page
        if not budget:
            return self
        return self._within(text_bytes=bytes_for_text(budget, text_bytes))

    def beside_candidates(self) -> Codec:
        """The codec for the same budget if the PQ codes of a large index take their share of it.
        A codec without a budget stays as it is."""
        if not self.config.bytes_per_page:
            return self
        most = self.config.code_bytes - LEAST_FOR_CODES
        return self._within(candidate_bytes=max(0, min(CODE_BYTES * self.k, most)))

    def _within(self, **shares: int) -> Codec:
        """The codec for the same budget, of which other things take these shares."""
        codec = self._with(**shares)
        if not isinstance(self.readout, Residual | Transform):
            return codec
        config = self.readout.config_for(codec.config.code_bytes)
        return codec._of_budget(config, self.readout, adapt=self.config.adapt)

    def adapted(self, pages: Pages | Iterable[Pages], *, more: bool = False) -> Codec:
        """A codec for the same budget with a codebook or a table of coordinates made of these
        pages, whichever keeps more of them (`glie.codec.choose`).

        Its bytes count in the budget, unless many `more` pages will come. Pages that do not fit
        in memory may come in blocks: only a sample of them is held.
        """
        if not self.adapts:
            raise InputError(
                "adapted: expected a codec made by a budget, such as Codec(bytes_per_page=520), "
                f"found {self}"
            )
        return self._adapted(drawn(pages), more)

    def _adapted(self, sample: Sample, more: bool) -> Codec:
        config, readout = chosen_for(sample, self.config.code_bytes, more=more)
        return self._of_budget(config, readout, adapt=False)

    def compress(self, pages: Pages) -> Codes:
        """The code of every page. A page gives the same code alone and in any batch."""
        if not isinstance(pages, Pages):
            raise InputError(f"compress: expected glie.Pages, found {type(pages).__name__}")
        self._check_ready()
        if len(pages):
            self._check_dim(pages.dim, "pages")
        return self.code(pages, anchor(pages, cluster(pages, self.config)))

    def code(self, pages: Pages, free: Codes) -> Codes:
        """The code of pages whose normalised k-means code is `free`. In a few bits a number it is
        rounded as it is stored; in bfloat16 it is not yet rounded."""
        return self.readout.code(pages, free, self.dtype)

    def page_bytes(self, dim: int) -> int:
        """The most bytes of a page's code."""
        vectors = self.k * vector_bytes(dim, self.dtype, exact=self.readout.exact)
        return vectors + self.readout.extra_bytes(self.config)

    @property
    def regenerates(self) -> bool:
        """Whether a page can be regenerated better than its stored vectors."""
        return self.readout.regenerates

    @property
    def shortlist(self) -> int:
        """How many pages a search regenerates by default, unless there are many."""
        return self.readout.shortlist

    def shortlist_for(self, pages: int) -> int:
        """How many pages a search of so many regenerates by default."""
        return grown(self.shortlist, pages)

    @property
    def worth_caching(self) -> bool:
        """Whether regenerating a page costs more than keeping it in the page cache."""
        return self.readout.worth_caching

    @property
    def keeps_residual(self) -> bool:
        """Whether its codes have a residual: further bytes of each page beside the anchors."""
        return self.readout.keeps_residual

    def regenerate(self, codes: Codes) -> Pages:
        """The vectors that each page is scored by, its stored ones among them.

        A fitted codec gives all N, cluster by cluster, the stored vector of each first. One with a
        codebook gives the stored vectors, then one for each codeword. Any other repeats each stored
        vector as often as it counts.
        """
        if not isinstance(codes, Codes):
            raise InputError(f"regenerate: expected glie.Codes, found {type(codes).__name__}")
        if len(codes):
            self._check_dim(codes.dim, "codes")
        return self.readout.regenerate(codes)

    def maxsim(self, queries: Queries, codes: Codes) -> Floats:
        """MaxSim (Q, P) of queries with the pages that `regenerate` gives. With codewords they are
        scored as they are read: no vectors are written down."""
        if isinstance(self.readout, Residual) and codes.residual is not None:
            return self.readout.scores(queries, codes)
        pages = self.regenerate(codes)
        bounds = pages.offsets[:-1], pages.offsets[1:]
        return maxsim(queries.vectors, queries.offsets, pages.vectors, *bounds)

    def _check_ready(self) -> None:
        if not self.readout.ready:
            raise CodecError(
                "the codec has no codebook yet: make one with codec.adapted(pages), or add pages "
                "to an index, which does"
            )

    def _check_dim(self, dim: int, what: str) -> None:
        if self.dim not in (None, dim):
            raise VectorError(
                f"{what}: their vectors have {dim} numbers, the codec was fitted for {self.dim}; "
                "use the encoder that it was fitted for, or fit another with glie.fit"
            )

    def check_encoder(self, encoder: Identified | Mapping[str, Any] | str) -> None:
        """Refuse vectors of an encoder that the codec was not fitted for."""
        if self.encoder is not None:
            remedy = "use that one, or fit a codec for this (`glie fit`)"
            check_match(
                self.encoder, EncoderId.of(encoder), "the codec was fitted for", remedy, CodecError
            )

    @classmethod
    def shipped(cls, encoder: Identified | Mapping[str, Any] | str) -> Codec | None:
        """The codec that comes with glie for an encoder (an EncoderId, a name, or a mapping with
        name and revision), if there is one."""
        from glie.codec.store import shipped

        return shipped(EncoderId.of(encoder))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write config.json and the files of its read-out into a folder."""
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
        budget = (
            f"bytes_per_page={self.config.bytes_per_page}" if self.config.bytes_per_page else ""
        )
        vectors = f"k={self.k}" if self.readout.ready else ""
        dtype = "" if self.dtype == BFLOAT16 else self.dtype
        adapts = "adapts" if self.adapts else ""
        parts = budget, vectors, dtype, self.readout.label, adapts
        return f"Codec({', '.join(part for part in parts if part)})"

    settled = renamed("settled", "frozen")
    suited_to = renamed("suited_to", "for_pages")

    @property
    def fitted(self) -> Fitted | None:
        """The older way to `notes`, `scores` and, in `readout.fitted`, the weights."""
        warn("Codec.fitted", "Codec.readout (its notes and scores: Codec.notes, Codec.scores)")
        return self.readout.fitted if isinstance(self.readout, Generative) else None


def _for_budget(bytes_per_page: int, adapt: bool | None) -> tuple[CodecConfig, Readout]:
    """The settings and the read-out to begin with."""
    if adapt:
        return adaptive_config(bytes_per_page), AnchorsOnly()
    readout = Residual(Codebook.shipped())
    config = readout.config_for(bytes_per_page)
    return dataclasses.replace(config, adapt=adapt is None), readout
