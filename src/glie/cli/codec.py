"""The verbs for codebooks that indexes share: `glie codec make`, `add`, `list`, `show`;
and `glie codec fit-sample`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import rich.table
import typer

import glie
from glie.cli.index import Documents, EncoderName, Language, Ocr, OcrLang, TextOf
from glie.cli.shared import RARE, Cache, Json, load_encoder, say_left_out
from glie.cli.show_index import size
from glie.cli.terminal import errors, output, print_json, progress_bar, status_line
from glie.codec.adapt import EXPLAINED, explained
from glie.codec.readout import shared
from glie.errors import CodecError, InputError
from glie.identity import EncoderId, check_match
from glie.progress import Progress
from glie.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from glie.codec.readout.codebook import Codebook
    from glie.encoders import Encoder
    from glie.evaluation import Dataset, Encoded
    from glie.progress import OnProgress

MOST_HELD = 20  # pages, to see whether a codebook fits others

CodecFolder = Annotated[
    Path, typer.Argument(metavar="CODEC", help="A folder from `glie codec make`.")
]


def make(
    pages: Annotated[
        list[str],
        typer.Argument(
            metavar="PAGES",
            help="Documents, folders with corpus.jsonl, names of ViDoRe sets on the Hub, folders "
            "of cached vectors, or .npz files with one (n, D) array per page. Only pages are "
            "used, never questions.",
        ),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="CODEC", help="The codec folder to create.")],
    encoder: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="As for `glie index`; for .npz files, the encoder of their vectors.",
            show_default="english",
        ),
    ] = None,
    codewords: Annotated[
        int | None,
        typer.Option(
            min=1, help="Their number.", show_default="what the pages support, 16,384 to 65,536"
        ),
    ] = None,
    bytes_per_page: Annotated[
        int, typer.Option(metavar="BYTES", help="The budget that the codec has by default.")
    ] = 520,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            help="The same seed draws the same pages.",
            min=0,
            rich_help_panel=RARE,
        ),
    ] = 0,
    cache: Cache = None,
    as_json: Json = False,
) -> None:
    """Make a large codebook for an encoder, once, for all indexes of that encoder.

    Of all PAGES, as many are drawn at random as the codewords need: 16 vectors a codeword, a
    million for 65,536. The codebook goes to --to and to the folder that the indexes of this user
    share (`glie codec list`). An index of the encoder then takes it by itself, or by --codec.

    glie codec make reports/ --encoder vidore/colqwen2-v1.0 --to colqwen2.codec

    glie index reports/ --encoder vidore/colqwen2-v1.0 --codec colqwen2.codec --to reports.glie
    """
    from glie.codec.make import FEWEST, make_codebook, vectors_for
    from glie.codec.store import check_place

    check_place(to)
    glie.Codec(bytes_per_page=bytes_per_page)  # a wrong budget is refused before the work
    drawn = _Drawn(encoder, cache)
    with status_line("sampling pages") as say:
        blocks = drawn.blocks(pages, vectors_for(codewords), seed, say)
        made = make_codebook(blocks, None, codewords, seed=seed, progress=say)
    book = dataclasses.replace(made, encoder=drawn.encoder, notes={"fitted_on": drawn.sources})
    glie.Codec.with_codebook(book, bytes_per_page, adapt=True).save(to)
    file = shared.register(book)
    vectors = sum(source["vectors"] for source in drawn.sources.values())
    share = drawn.explained_by(book)
    if as_json:
        print_json({"codec": str(to), "explained": share, **_facts(book, str(file))})
        return
    print(f"{to}: {_described(book)}, made of {vectors:,} vectors")
    print(f"registered as {book.digest} in {file.parent}")
    if share is not None:
        print(f"it explains {share:.0%} of the residuals of pages held out")
    if share is not None and share <= EXPLAINED:
        said = f"below {EXPLAINED:.0%}, no index takes it by itself: its own codebook may be better"
        errors.print(f"{said}; give more pages", style="yellow", soft_wrap=True)
    if codewords is None and len(book) < FEWEST:
        said = f"{vectors:,} vectors are few: {FEWEST:,} codewords need {vectors_for(FEWEST):,}"
        errors.print(f"{said}; give more pages", style="yellow", soft_wrap=True)


def fit_sample(
    documents: Documents,
    to: Annotated[Path, typer.Option("--to", metavar="CODEC", help="The codec folder to create.")],
    encoder: EncoderName = None,
    bytes_per_page: Annotated[
        int, typer.Option(metavar="BYTES", help="Size of a page on disk.")
    ] = 520,
    ocr: Ocr = True,
    ocr_lang: OcrLang = None,
    text: TextOf = "auto",
    language: Language = None,
    seed: Annotated[
        int,
        typer.Option(
            metavar="NUMBER",
            help="The same seed draws the same pages.",
            min=0,
            rich_help_panel=RARE,
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Fix one codec for several runs of `glie index`, so that what they make can be merged, or
    served as shards of one index.

    Otherwise each run fits its codec to its own first pages. This fits one to random pages of
    DOCUMENTS: about 500, or 64 of an encoder that glie has a codebook for.

    glie codec fit-sample reports/ --to my.codec

    glie index reports/2023 --codec my.codec --to reports.shards/2023

    glie index reports/2024 --codec my.codec --to reports.shards/2024

    glie search reports.shards "capital expenditure in 2018"
    """
    from glie.codec.store import check_place
    from glie.indexing import fitted_codec
    from glie.ingest import Reading

    check_place(to)
    budget = glie.Codec(bytes_per_page=bytes_per_page)
    reading = Reading(ocr=ocr, text=text, ocr_lang=ocr_lang)
    reader = load_encoder(encoder)
    with progress_bar() as show:
        made = fitted_codec(
            documents,
            reader,
            budget,
            reading=reading,
            language=language,
            seed=seed,
            progress=show,
        )
    made.save(to)
    if as_json:
        print_json({"codec": str(to), "settings": dataclasses.asdict(made.config)})
    else:
        print(f"{to}: {made}; give it to each run with --codec")


class _Drawn:
    """Random pages of several sources; what they are is known once they are read."""

    def __init__(self, name: str | None, cache: Path | None) -> None:
        self.name, self.cache = name, cache
        self.encoder: EncoderId | None = None  # of the pages
        self.sources: dict[str, dict[str, int]] = {}  # pages and vectors of each
        self._engine: Encoder | None = None
        self._held: list[glie.Pages] = []  # one of each block, not fitted on

    def blocks(
        self, sources: list[str], vectors: int, seed: int, say: OnProgress
    ) -> Iterator[glie.Pages]:
        """The pages of all sources, with an equal share of the vectors from each."""
        from glie.evaluation import blocks

        done = 0
        for name in sources:
            found = self.sources.setdefault(Path(name).name, {"pages": 0, "vectors": 0})
            share = -(-vectors // len(sources))
            for block in blocks(name, share, seed, lambda one: self._encoded(one, say)):
                self._check(name, block.encoder)
                pages = block.pages
                if len(pages) > 1 and len(self._held) < MOST_HELD:
                    self._held.append(pages.slice(0, 1))
                    pages = pages.slice(1, len(pages))
                found["pages"] += len(pages)
                found["vectors"] += len(pages.vectors)
                done += len(pages.vectors)
                say(Progress("vectors sampled", done, max(done, vectors)))
                yield pages

    def explained_by(self, book: Codebook) -> float | None:
        """The mean share of the residuals of the pages held out; None if there are none."""
        shares = [explained(book, page) for page in self._held]
        return sum(shares) / len(shares) if shares else None

    def _encoded(self, dataset: Dataset | Encoded, say: OnProgress) -> Encoded:
        from glie.encoders import load_encoder
        from glie.evaluation import Encoded, encode

        say_left_out(dataset.name, dataset.warnings)
        if isinstance(dataset, Encoded):
            return dataset
        self._engine = self._engine or load_encoder(self.name)
        encoded = encode(dataset, self._engine, self.cache, say)
        say_left_out(dataset.name, encoded.warnings[len(dataset.warnings) :])
        return encoded

    def _check(self, place: str, encoder: EncoderId | None) -> None:
        """Refuse pages of different encoders, and vectors of an encoder that is not known."""
        given = EncoderId.of(self.name)
        found = encoder or self.encoder or given
        if found is None:
            raise InputError(f"{place}: it does not say what made its vectors; give --encoder NAME")
        if self._engine is None and given is not None:
            check_match(found, given, f"{place}: its vectors are of", "leave --encoder out")
        self.encoder = self.encoder or found
        check_match(self.encoder, found, f"{place}: the others are of", "give pages of one encoder")


def add(folder: CodecFolder, as_json: Json = False) -> None:
    """Register the codebook of a codec on this machine, for the indexes that refer to it."""
    book = _codebook_in(folder)
    file = shared.register(book)
    if as_json:
        print_json(_facts(book, str(file)))
    else:
        print(f"{_described(book)}: registered as {book.digest} in {file.parent}")


def list_codebooks(as_json: Json = False) -> None:
    """List the codebooks that come with glie, and those that indexes share on this machine."""
    from glie.codec.readout.codebook import Codebook

    rows = [_facts(book, None) for book in Codebook.all_shipped()]
    for digest in shared.registered():
        file = str(shared.folder() / f"{digest}{shared.SUFFIX}")
        try:
            book = shared.find(digest)
            rows += [] if book is None else [_facts(book, file)]
        except CodecError as error:
            rows.append({"digest": digest, "file": file, "damaged": str(error)})
    if as_json:
        print_json({"folder": str(shared.folder()), "codebooks": rows})
        return
    table = rich.table.Table("codebook", "encoder", "codewords", "D", "size", "", box=None)
    for row in rows:
        where = "comes with glie" if row["file"] is None else "shared"
        if "damaged" in row:
            table.add_row(row["digest"], "", "", "", "", "damaged: `glie codec add` it again")
        else:
            numbers = f"{row['codewords']:,}", str(row["dim"]), size(row["bytes"])
            table.add_row(row["digest"], (row["encoder"] or {}).get("name"), *numbers, where)
    output.print(table)
    print(f"shared codebooks are in {shared.folder()}")


def show(
    codec: Annotated[
        str, typer.Argument(metavar="CODEC", help="A codec folder, or the digest of a codebook.")
    ],
    as_json: Json = False,
) -> None:
    """Show what a codec or a codebook is: its encoder, its size, and what it was made of."""
    path = Path(codec)
    found = None if path.exists() else shared.find(codec)
    if found is None:
        found = _codebook_in(path)
    file = shared.folder() / f"{found.digest}{shared.SUFFIX}"
    there = str(file) if shared.is_registered(found) else None
    if as_json:
        print_json(_facts(found, there))
        return
    print(f"{found.digest}: {_described(found)}")
    print(f"file: {there}" if there else "not registered on this machine: `glie codec add` does")
    for name, source in found.notes.get("fitted_on", {}).items():
        print(f"made of {name}: {count(source['pages'], 'page')}, {source['vectors']:,} vectors")


def _codebook_in(folder: Path) -> Codebook:
    book = glie.Codec.load(folder).codebook
    if book is None:
        raise InputError(f"{folder}: a codec without a codebook; `glie codec make` makes one with")
    return book


def _described(book: Codebook) -> str:
    whose = "an encoder that is not named" if book.encoder is None else str(book.encoder)
    return f"{len(book):,} codewords for {whose}, D = {book.dim}, {size(len(book.to_bytes()))}"


def _facts(book: Codebook, file: str | None) -> dict[str, Any]:
    """For JSON; `file` is None if it is not among the shared ones."""
    return {
        "digest": book.digest,
        "encoder": None if book.encoder is None else book.encoder.to_dict(),
        "codewords": len(book),
        "dim": book.dim,
        "bytes": len(book.to_bytes()),
        "notes": book.notes,
        "file": file,
    }
