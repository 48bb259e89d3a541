"""Index documents on a Ray cluster. Workers read, encode and compress documents into shards, which
are small indexes; this process merges the shards one by one.

A shard appears complete or not at all, and merging it twice changes nothing. So a worker that dies
is retried, and the next run merges what an interrupted run left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from glie.codec.codec import Codec
from glie.distributed.cluster import cluster, import_ray, said
from glie.distributed.sharded import ShardedIndex
from glie.distributed.shards import Shards, is_sharded
from glie.documents import FoundDocument
from glie.documents.known import (
    KnownDocument,
    gone_documents,
    known_documents,
    named_apart,
)
from glie.encoders import load_encoder
from glie.encoders.base import Encoder
from glie.encoders.recorded import encoder_of, load_recorded
from glie.engines.base import Engine
from glie.engines.collection import Collection
from glie.engines.exporting import upload
from glie.errors import (
    CorruptIndexError,
    DocumentError,
    GlieError,
    IndexFolderError,
    InputError,
)
from glie.identity import EncoderId, check_encoder, check_match
from glie.index.index import Index
from glie.index.words import language_named
from glie.indexing import CodecChoice, fitted_codec
from glie.ingest import (
    IngestProgress,
    OnIngestProgress,
    Reading,
    Report,
    found_documents,
    store_documents,
)
from glie.progress import ignore

DOCUMENTS_PER_SHARD = 32  # at most: the work that is lost if a worker dies
SHARDS_PER_WORKER = 4  # at least, so that workers finish at about the same time
RETRIES = 2  # of a shard whose worker died
SHARD = re.compile(r"\d{6}")
FIRST = "000000"
MAKING = ".making"  # suffix of a shard that is not complete
CODEC = "codec"

Load = Callable[[], Encoder]
Paths = Iterable[str | os.PathLike[str]]
Target = Index | ShardedIndex | Collection


@dataclasses.dataclass(frozen=True)
class _Task:
    """What every worker gets, besides the documents of its shard."""

    shards: Path
    load: Load
    encoder: EncoderId
    reading: Reading
    language: str  # of the words of shards, as `Index.create` takes it
    run: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)


def ingest_on_ray(
    target: Target,
    encoder: Encoder,
    paths: Paths,
    *,
    shards: str | os.PathLike[str],
    workers: int | None = None,
    gpus: float = 0,
    load: Load | None = None,
    keep_images: bool = False,
    ocr: bool = True,
    text: str = "auto",
    ocr_lang: str | None = None,
    progress: OnIngestProgress = ignore,
) -> Report:
    """`ingest` on a Ray cluster: the one that this process is connected to, the one that the
    variable RAY_ADDRESS names, or a local one that is started and stopped here.

    The target is an index, a folder of shards, or a collection in an engine.

    All machines must see the documents and the folder `shards`. `workers` shards are made at a
    time, each with `gpus` GPUs. A worker gets its encoder from `load`; by default it loads the same
    name and revision.
    """
    import_ray()  # it may be missing
    check_encoder(target, encoder)
    if keep_images and isinstance(target, Collection):
        raise InputError("keep_images: pictures are kept in an index, not in an engine")
    has_words = not isinstance(target, Collection)  # an engine holds none
    reading = Reading(keep_images, ocr, text if has_words else "none", ocr_lang)
    paths, place = list(paths), Path(shards).absolute()
    by_name = functools.partial(load_recorded, EncoderId.of(encoder))
    lock = contextlib.nullcontext() if isinstance(target, Collection) else target.writing()
    with lock, _folder(place), cluster(workers) as ray, _quiet():
        take_unfinished(target, place)
        known, report = known_documents(target), Report()
        reading = reading.beside(known)
        task = _Task(place, load or by_name, EncoderId.of(encoder), reading, _language(target))
        index = None if isinstance(target, Collection) else cast(Index, target)
        for document in known.values():
            if reading.wants_again(index, document):
                document.digest = ""
        found = named_apart(found_documents(paths), known)
        waiting, done = found, 0
        if target.codec.adapts and isinstance(target, Index) and target.dim is None:
            # the codec adapts to the first pages, before workers use it
            first = store_documents(target, encoder, found, known, reading, once=True)
            report, done, waiting = first.report, first.read, found[first.read :]
        if waiting:
            target.codec.frozen.save(place / CODEC)
        for result in _results(
            ray, task, _groups(waiting, target, known, ray, workers), workers, gpus
        ):
            path = place / result["shard"]
            if result["pages"] and not path.exists():
                raise IndexFolderError(f"{path}: not there; expected a folder all machines see")
            _take(target, path, result["names"], known)
            _add(report, result["report"])
            done += result["read"]
            pages = report.pages_added
            progress(IngestProgress.of(result["last"], done, len(found), pages, pages))
        if isinstance(target, Collection):
            target.engine.optimize()
        report.documents_gone = gone_documents(paths, known, found)
    return report


def open_or_create_collection(
    engine: Engine,
    documents: Sequence[str | os.PathLike[str]],
    encoder: str | os.PathLike[str] | None = None,
    choice: CodecChoice | None = None,
    *,
    shards: str | os.PathLike[str],
    ocr: bool = True,
    ocr_lang: str | None = None,
) -> tuple[Collection, Encoder]:
    """Open the collection in an engine, or create it for these documents; load its encoder.

    Like `glie.indexing.open_or_create`. A codec that adapts is adapted to the first documents
    before the collection is created.
    """
    choice = choice or CodecChoice()
    if engine.exists() and engine.read_header() is not None:
        pages = Collection.open(engine)
        choice.check_same(pages.codec, pages.path)
        return pages, encoder_of(pages, encoder)
    found_documents(documents)
    reader = load_encoder(encoder)
    entry = EncoderId.of(reader)
    reading = Reading(ocr=ocr, text="none", ocr_lang=ocr_lang)
    codec = first_shard(choice.codec_for(entry), reader, documents, shards, reading)
    dim = reader.encode_queries(["a"])[0].shape[1]
    return Collection.create(engine, codec, dim, encoder=entry), reader


def open_or_create_shards(
    path: str | os.PathLike[str],
    count: int | None,
    documents: Sequence[str | os.PathLike[str]],
    encoder: str | os.PathLike[str] | None = None,
    choice: CodecChoice | None = None,
    *,
    reading: Reading | None = None,
    language: str | None = None,
) -> tuple[ShardedIndex, Encoder]:
    """Open a folder of shards, or create one with so many for these documents; load its encoder.

    All shards get one codec, which is adapted to random pages first, if need be. Without `count`,
    the folder is there.
    """
    choice = choice or CodecChoice()
    if count is None or is_sharded(path):
        pages = ShardedIndex(Shards.read(path))
        choice.check_same(pages.codec, pages.path)
        if language is not None and language_named(language) != pages.language:
            raise InputError(
                f"{pages.path}: its words are in {pages.language or 'no language'}, not in "
                f"{language}; make another folder for another language"
            )
        found = len(pages.shards)
        if count not in (None, found):
            raise InputError(
                f"{pages.path}: it has {found} shards, not {count}; their number stays, since it "
                "decides where a document belongs: build another folder for more"
            )
        return pages, encoder_of(pages, encoder)
    found_documents(documents)
    reader = load_encoder(encoder)
    entry = EncoderId.of(reader)
    codec = choice.codec_for(entry)
    if codec.adapts:
        codec = fitted_codec(documents, reader, codec, reading=reading, language=language)
    return ShardedIndex.create(path, count, codec, encoder=entry, language=language), reader


def first_shard(
    codec: Codec,
    encoder: Encoder,
    paths: Paths,
    shards: str | os.PathLike[str],
    reading: Reading,
) -> Codec:
    """The codec for a new collection: this one, or one adapted to the first documents. These are
    left as a shard, which is merged first."""
    if not codec.adapts:
        return codec
    place = Path(shards).absolute() / FIRST
    shutil.rmtree(place, ignore_errors=True)
    index = Index.create(place, codec, encoder=EncoderId.of(encoder))
    stored = store_documents(index, encoder, found_documents(list(paths)), {}, reading, once=True)
    if index.dim is None:
        why = stored.report.problems or ["no page has text"]
        raise DocumentError(f"nothing to make a codec of: {why[0]}")
    return index.codec.frozen


def _language(pages: Target) -> str:
    """The language of the words of pages, as `Index.create` takes it."""
    return (None if isinstance(pages, Collection) else pages.language) or "none"


def _groups(
    found: Sequence[FoundDocument],
    target: Target,
    known: Mapping[str, KnownDocument],
    ray: Any,
    workers: int | None,
) -> list[dict[str, str]]:
    """The documents of each part with what the target knows of them, as JSON for a worker. Those of
    a part belong to one shard of the target, if it has several."""
    at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    each = -(-len(found) // (SHARDS_PER_WORKER * at_once))
    each = min(max(each, 1), DOCUMENTS_PER_SHARD)
    by_shard: dict[str, list[FoundDocument]] = {}
    for document in found:
        shard = target.shard_of(document.name) if isinstance(target, ShardedIndex) else ""
        by_shard.setdefault(shard, []).append(document)
    groups = list[dict[str, str]]()
    for mine in by_shard.values():
        for at in range(0, len(mine), each):
            documents = [
                (d.name, str(d.path), dataclasses.astuple(k) if (k := known.get(d.name)) else None)
                for d in mine[at : at + each]
            ]
            name = f"{len(groups) + 1:06d}"
            groups.append({"group": json.dumps({"shard": name, "documents": documents})})
    return groups


def _results(
    ray: Any, task: _Task, groups: list[dict[str, str]], workers: int | None, gpus: float
) -> Iterator[dict[str, Any]]:
    """The workers' reports on their shards, in any order."""
    if not groups:
        return
    made = ray.data.from_items(groups, override_num_blocks=len(groups)).map_batches(
        functools.partial(_made, task=task),
        batch_size=1,
        compute=ray.data.TaskPoolStrategy(size=workers),
        num_cpus=1,
        num_gpus=gpus or None,
    )
    try:
        for row in made.iter_rows():
            result = json.loads(row["result"])
            if "error" in result:
                raise GlieError(result["error"])
            yield result
    except ray.exceptions.RayError as error:
        raise GlieError(f"Ray: {said(error)}; what is finished is kept") from None


_loaded: dict[str, Encoder] = {}  # in a worker: the encoder of the run, kept between shards


def _made(batch: Mapping[str, Any], task: _Task) -> dict[str, list[str]]:
    """In a worker: write a shard under a temporary name, and rename it when it is complete."""
    group = json.loads(str(batch["group"][0]))
    found = [FoundDocument(name, Path(path)) for name, path, _ in group["documents"]]
    known = {name: KnownDocument(*facts) for name, _, facts in group["documents"] if facts}
    making = task.shards / f"{group['shard']}.{uuid.uuid4().hex}{MAKING}"
    try:
        _check_attempts(task.shards, group["shard"], found)
        encoder = _encoder(task)
        codec = Codec.load(task.shards / CODEC)
        index = Index.create(making, codec, encoder=task.encoder, language=task.language)
        stored = store_documents(index, encoder, found, known, task.reading, readers=1)
        pages = len(index)
        if pages:
            with contextlib.suppress(OSError):  # another attempt has made it
                making.rename(task.shards / group["shard"])
    except GlieError as error:
        return {"result": [json.dumps({"error": str(error)})]}
    except Exception as error:  # from any encoder; Ray would show a stack trace
        why = f"a Ray worker: {said(error)}; what is finished is kept"
        return {"result": [json.dumps({"error": why})]}
    shutil.rmtree(making, ignore_errors=True)
    result = {
        "shard": group["shard"],
        "names": stored.names,
        "read": stored.read,
        "last": found[-1].name,
        "pages": pages,
        "report": dataclasses.asdict(stored.report),
    }
    return {"result": [json.dumps(result)]}


def _check_attempts(shards: Path, shard: str, found: Sequence[FoundDocument]) -> None:
    """Stop Ray from retrying for ever: each worker that died has left an incomplete shard."""
    if len(list(shards.glob(f"{shard}.*{MAKING}"))) > RETRIES:
        names = ", ".join(document.name for document in found)
        raise GlieError(
            f"Ray workers died {RETRIES + 1} times over one of {names}; what is finished is kept: "
            "leave that document out, or give workers more memory, and run it again"
        )


def _encoder(task: _Task) -> Encoder:
    if task.run not in _loaded:
        _loaded.clear()
        _loaded[task.run] = task.load()
    encoder, remedy = _loaded[task.run], "give all machines the same files"
    check_match(task.encoder, EncoderId.of(encoder), "a Ray worker: expected", remedy)
    return encoder


def take_unfinished(target: Target, place: Path) -> None:
    """Merge the shards that an interrupted run left."""
    for path in sorted(path for path in place.iterdir() if SHARD.fullmatch(path.name)):
        try:
            shard = Index.open(path)
        except CorruptIndexError:  # a worker makes it again
            shutil.rmtree(path)
            continue
        same = target.codec.same_codes_as(shard.codec) and target.encoder == shard.encoder
        if same and (not shard.has_text or _language(shard) == _language(target)):
            _take(target, path, known_documents(shard), known_documents(target))
        else:  # of another codec, encoder or language
            shutil.rmtree(path)


def _take(
    target: Target,
    path: Path,
    names: Iterable[str],
    known: Mapping[str, KnownDocument],
) -> None:
    """Merge a shard in place of the earlier pages of its documents, and delete it."""
    replaced = [page_id for name in names if name in known for page_id in known[name].ids]
    shard = Index.open(path) if path.exists() else None
    if not isinstance(target, Collection):
        if shard is not None:
            target.merge(shard, replacing=replaced)
        elif replaced:
            target.delete(replaced)
    else:
        if shard is not None:
            upload(shard, target)
        leaving = [page_id for page_id in replaced if shard is None or page_id not in shard]
        if leaving:
            target.delete(leaving)
    shutil.rmtree(path, ignore_errors=True)


def _add(report: Report, more: Mapping[str, Any]) -> None:
    for name, value in more.items():
        setattr(report, name, getattr(report, name) + value)


@contextlib.contextmanager
def _folder(place: Path) -> Iterator[None]:
    """The folder for shards, without incomplete ones; it is removed if it ends up empty."""
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise IndexFolderError(f"{place}: cannot be made: {error.strerror}") from None
    for path in place.glob(f"*{MAKING}"):
        shutil.rmtree(path, ignore_errors=True)
    try:
        yield
    finally:
        for path in (*place.glob(f"*{MAKING}"), place / CODEC):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            place.rmdir()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Ray Data without its logs and bars."""
    import ray.data as data

    logging.getLogger("ray.data").setLevel(logging.ERROR)
    data.DataContext.get_current().enable_progress_bars = False
    yield
