"""Documents into an index or an engine by many machines: the workers of a Ray cluster read, encode
and compress them into shards, which are small indexes, and here these are taken in one by one.

A shard appears whole or not at all, and taking it in twice is as good as once. So a worker that
dies is tried again, and what a run that was cut off leaves, the next one takes in.
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
import socket
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from glie.codec.codec import Codec
from glie.documents import FoundDocument
from glie.documents.known import (
    KnownDocument,
    gone_documents,
    known_documents,
    named_apart,
)
from glie.encoders import load_encoder
from glie.encoders.base import Encoder
from glie.engines.base import Engine
from glie.engines.collection import Collection
from glie.engines.exporting import upload
from glie.errors import (
    CorruptIndexError,
    DocumentError,
    GlieError,
    IndexFolderError,
    InputError,
    MissingExtraError,
)
from glie.identity import EncoderId, check_encoder, check_match
from glie.index.index import Index
from glie.indexing import CodecChoice
from glie.ingest import (
    IngestProgress,
    OnIngestProgress,
    Reading,
    Report,
    found_documents,
    lacks_images,
    store_documents,
)
from glie.kernels.parallel import cores
from glie.progress import ignore
from glie.retriever import encoder_of, load_recorded

DOCUMENTS_PER_SHARD = 32  # at most: the work that is lost with a worker
SHARDS_PER_WORKER = 4  # at least, so that none is idle for long at the end
RETRIES = 2  # of a shard whose worker died
SHARD = re.compile(r"\d{6}")
FIRST = "000000"
MAKING = ".making"  # the end of the name of a shard that is not whole
CODEC = "codec"

Load = Callable[[], Encoder]
Paths = Iterable[str | os.PathLike[str]]


@dataclasses.dataclass(frozen=True)
class _Task:
    """What a worker knows besides the documents of its shard."""

    shards: Path
    load: Load
    encoder: EncoderId
    reading: Reading
    run: str = dataclasses.field(default_factory=lambda: uuid.uuid4().hex)


def ingest_on_ray(
    target: Index | Collection,
    encoder: Encoder,
    paths: Paths,
    *,
    shards: str | os.PathLike[str],
    workers: int | None = None,
    gpus: float = 0,
    load: Load | None = None,
    keep_images: bool = False,
    ocr: bool = True,
    progress: OnIngestProgress = ignore,
) -> Report:
    """`ingest` by the workers of a Ray cluster: the one that this process is connected to, or that
    the variable RAY_ADDRESS names, or one that is started here for the purpose.

    All machines must see the documents and the folder `shards`. `workers` shards are made at once,
    each with so many `gpus`. A worker's encoder comes from `load`; by default it has the same name.
    """
    ray = _ray()
    check_encoder(target, encoder)
    if keep_images and isinstance(target, Collection):
        raise InputError("keep_images: pictures are kept in an index, not in an engine")
    paths, reading, place = list(paths), Reading(keep_images, ocr), Path(shards).absolute()
    by_name = functools.partial(load_recorded, EncoderId.of(encoder))
    task = _Task(place, load or by_name, EncoderId.of(encoder), reading)
    lock = target.writing() if isinstance(target, Index) else contextlib.nullcontext()
    with lock, _folder(place), _cluster(ray, workers):
        take_unfinished(target, place)
        known, report = known_documents(target), Report()
        if isinstance(target, Index) and keep_images:
            for document in known.values():
                if lacks_images(target, document):
                    document.digest = ""  # it is to be read again
        found = named_apart(found_documents(paths), known)
        waiting, done = found, 0
        if target.codec.adapts and isinstance(target, Index) and target.dim is None:
            # the codec is made of the first pages, before others are stored with it
            first = store_documents(target, encoder, found, known, reading, once=True)
            report, done, waiting = first.report, first.read, found[first.read :]
        if waiting:
            target.codec.frozen.save(place / CODEC)
        for result in _results(ray, task, _groups(waiting, known, ray, workers), workers, gpus):
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
    codec = first_shard(choice.codec_for(entry), reader, documents, shards, Reading(ocr=ocr))
    dim = reader.encode_queries(["a"])[0].shape[1]
    return Collection.create(engine, codec, dim, encoder=entry), reader


def first_shard(
    codec: Codec,
    encoder: Encoder,
    paths: Paths,
    shards: str | os.PathLike[str],
    reading: Reading,
) -> Codec:
    """The codec to make a collection with: this one or, where it adapts, one that has adapted to
    the first documents. These are left as a shard, which is taken in first."""
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


def _groups(
    found: Sequence[FoundDocument],
    known: Mapping[str, KnownDocument],
    ray: Any,
    workers: int | None,
) -> list[dict[str, str]]:
    """The documents by shard, with what is known of each, as text that a worker reads."""
    at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)))
    each = -(-len(found) // (SHARDS_PER_WORKER * at_once))
    each = min(max(each, 1), DOCUMENTS_PER_SHARD)
    groups = []
    for at in range(0, len(found), each):
        documents = [
            (d.name, str(d.path), dataclasses.astuple(known[d.name]) if d.name in known else None)
            for d in found[at : at + each]
        ]
        shard = f"{1 + at // each:06d}"
        groups.append({"group": json.dumps({"shard": shard, "documents": documents})})
    return groups


def _results(
    ray: Any, task: _Task, groups: list[dict[str, str]], workers: int | None, gpus: float
) -> Iterator[dict[str, Any]]:
    """What the workers say of their shards, in any order."""
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
        raise GlieError(f"Ray: {_said(error)}; what is finished is kept") from None


_loaded: dict[str, Encoder] = {}  # in a worker: that of the run, from one shard to the next


def _made(batch: Mapping[str, Any], task: _Task) -> dict[str, list[str]]:
    """In a worker: the shard of some documents, written beside and renamed when it is whole."""
    group = json.loads(str(batch["group"][0]))
    found = [FoundDocument(name, Path(path)) for name, path, _ in group["documents"]]
    known = {name: KnownDocument(*facts) for name, _, facts in group["documents"] if facts}
    making = task.shards / f"{group['shard']}.{uuid.uuid4().hex}{MAKING}"
    try:
        _check_attempts(task.shards, group["shard"], found)
        encoder = _encoder(task)
        index = Index.create(making, Codec.load(task.shards / CODEC), encoder=task.encoder)
        stored = store_documents(index, encoder, found, known, task.reading)
        pages = len(index)
        if pages:
            with contextlib.suppress(OSError):  # another attempt was as good
                making.rename(task.shards / group["shard"])
    except GlieError as error:
        return {"result": [json.dumps({"error": str(error)})]}
    except Exception as error:  # of any encoder's own; Ray would tell its own stack instead
        said = f"a Ray worker: {_said(error)}; what is finished is kept"
        return {"result": [json.dumps({"error": said})]}
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
    """Ray tries again for ever; each worker that died has left what it was making."""
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


def take_unfinished(target: Index | Collection, place: Path) -> None:
    """Take in the shards that a run which was cut off has left."""
    for path in sorted(path for path in place.iterdir() if SHARD.fullmatch(path.name)):
        try:
            shard = Index.open(path)
        except CorruptIndexError:  # it will be made again
            shutil.rmtree(path)
            continue
        same = target.codec.same_codes_as(shard.codec)
        if same and target.encoder == shard.encoder:
            _take(target, path, known_documents(shard), known_documents(target))
        else:  # of something else that was to be made
            shutil.rmtree(path)


def _take(
    target: Index | Collection,
    path: Path,
    names: Iterable[str],
    known: Mapping[str, KnownDocument],
) -> None:
    """Take in a shard, in place of what is known of its documents, and remove it."""
    replaced = [page_id for name in names if name in known for page_id in known[name].ids]
    shard = Index.open(path) if path.exists() else None
    if isinstance(target, Index):
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
    """A folder for shards, rid of what workers that died left; it goes when it is empty."""
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


def _ray() -> Any:
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or it warns of a change
    try:
        import ray
        import ray.data
    except ImportError:
        raise MissingExtraError("working on a Ray cluster", "ray") from None
    return ray


@contextlib.contextmanager
def _cluster(ray: Any, workers: int | None) -> Iterator[None]:
    """A cluster to work on; one that is started here is stopped again."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        if ray.is_initialized():
            yield
            return
        options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        address = os.environ.get("RAY_ADDRESS")
        if address is None:
            options |= {"include_dashboard": False, "num_cpus": max(cores(), workers or 1)}
        try:
            _check_address(address)
            ray.init(**options)
        except (OSError, ValueError, RuntimeError) as error:
            raise GlieError(
                f"Ray at {address or 'this machine'}: cannot be reached ({_said(error)}); "
                "start the cluster, or unset RAY_ADDRESS to start one here"
            ) from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_address(address: str | None) -> None:
    """Ray itself would try for many minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=10).close()


def _said(error: BaseException) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
