"""Late-interaction checkpoints, on tiny random ones of the real architectures: images in, hits out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import peft
import pytest
import sentence_transformers
import torch
import transformers
from PIL import Image, ImageDraw

import glie
from glie.encoders import BatchEncoder, load_encoder
from glie.encoders.base import Floats
from glie.encoders.checkpoint import TRUST, Checkpoint, reader_of
from glie.encoders.loading import PILLOW, quietly, without_videos
from glie.encoders.reduction import write_reduction
from glie.evaluation import encode, sample
from glie.evaluation.datasets import Dataset
from glie.identity import EncoderId
from glie.ingest import ingest
from glie.retriever import encoder_of, load_recorded
from glie.server.library import Library
from tests.cli.conftest import Run, run  # noqa: F401
from tests.conftest import unit
from tests.documents.test_documents import make_pdf
from tests.encoders.checkpoints import DIM, RETRIEVAL, VISUAL, saved
from tests.encoders.test_encoders import run_tool
from tests.evaluation.test_light_colpali import image_set

COLOURS = ["red", "blue", "green", "black"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a kind of model; each is made once."""
    place = tmp_path_factory.mktemp("checkpoints")

    def folder(kind: str) -> Path:
        made = place / kind
        return made if made.exists() else saved(kind, made)

    return folder


def picture(colour: str, size: tuple[int, int] = (84, 112)) -> Image.Image:
    made = Image.new("RGB", size, "white")
    ImageDraw.Draw(made).rectangle((10, 10, 60, 40), fill=colour)
    return made


def pictures() -> list[Image.Image]:
    """Of four shapes, so that a batch of them needs padding."""
    sizes = [(84, 112), (200, 60), (300, 300), (56, 140)]
    return [picture(colour, size) for colour, size in zip(COLOURS, sizes, strict=True)]


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Pictures, a PDF of text and a text file."""
    folder = tmp_path / "docs"
    make_pdf(folder / "a.pdf", ["tidal energy", "rotor blades"])
    for colour, image in zip(COLOURS, pictures(), strict=True):
        image.save(folder / f"{colour}.png")
    return folder


def library(folder: Path) -> Any:
    """The same checkpoint in the hands of sentence-transformers."""
    visual = (folder / "processor_config.json").exists()
    with quietly(), without_videos():
        return sentence_transformers.MultiVectorEncoder(
            str(folder), device="cpu", processor_kwargs=dict(PILLOW) if visual else None
        )


def close(one: list[Floats], other: list[Any]) -> None:
    assert len(one) == len(other)
    for mine, theirs in zip(one, other, strict=True):
        np.testing.assert_allclose(mine, np.asarray(theirs), atol=2e-5)


@pytest.mark.parametrize("kind", VISUAL)
def test_images_in_and_hits_out(
    kind: str,
    checkpoint: Callable[[str], Path],
    run: Run,  # noqa: F811
    documents: Path,
    tmp_path: Path,
) -> None:
    """At a k of more vectors than a page has, the scores are the library's own."""
    folder, index = checkpoint(kind), tmp_path / "x.glie"
    done = run("index", documents, "--to", index, "--encoder", folder, "--k", 80, "--json")
    assert (done.code, done.json["pages"], done.json["problems"]) == (0, 6, [])
    assert done.err == ""  # no library's bars, no advice
    assert done.json["pages_without_text"] == []
    asked = ("search", index, "what is red?", "--json")
    assert len(run(*asked).json["hits"]) == 6  # words too, of the PDF
    found = run(*asked, "--mode", "late").json["hits"]
    assert len(found) == 6

    model = library(folder)
    pages = [glie_page.image() for glie_page in _pages_of(documents)]
    scores = model.similarity(
        model.encode_query(["what is red?"]), model.encode_document(pages, batch_size=2)
    )[0].tolist()
    expected = dict(zip([page.id for page in _pages_of(documents)], scores, strict=True))
    best = max(expected.values())
    for hit in found:
        assert hit["score"] == pytest.approx(expected[hit["id"]], abs=0.02 * best)
    assert expected[found[0]["id"]] == pytest.approx(best, abs=0.02 * best)
    again = run("index", documents, "--to", index, "--json").json
    assert (again["documents_unchanged"], again["pages_added"]) == (5, 0)


def _pages_of(folder: Path) -> list[Any]:
    from glie.documents import find_documents, read_document

    return [page for found in find_documents([folder]) for page in read_document(found).pages]


@pytest.mark.parametrize("kind", [*VISUAL, "colbert"])
def test_vectors_are_the_library_s_own(kind: str, checkpoint: Callable[[str], Path]) -> None:
    encoder, model = load_encoder(checkpoint(kind)), library(checkpoint(kind))
    questions = ["what is red?", "a", "the white page is blue"]
    close(encoder.encode_queries(questions), model.encode_query(questions, convert_to_numpy=True))
    pages: list[Any] = pictures() if kind in VISUAL else ["red, white", "the page."]
    close(encoder.encode_pages(pages), model.encode_document(pages, convert_to_numpy=True))
    assert glie.Pages(encoder.encode_pages(pages)).dim == DIM
    assert encoder.encode_pages([]) == []


@pytest.mark.parametrize("kind", [*VISUAL, "colbert"])
def test_neighbours_do_not_matter_and_padding_is_no_page(
    kind: str, checkpoint: Callable[[str], Path]
) -> None:
    encoder = load_encoder(checkpoint(kind))
    assert isinstance(encoder, BatchEncoder)
    pages: list[Any] = pictures() if kind in VISUAL else ["red", "what is a white page, the blue"]
    alone = [encoder.encode_pages([page])[0] for page in pages]
    if kind != "colpali":  # whose pictures all have one size
        assert len({len(rows) for rows in alone}) > 1
    encoder._batch = len(pages)
    together = encoder.encode_pages(pages)
    close(together, alone)
    glie.Pages(together)
    close(encoder.encode_pages(pages[::-1])[::-1], alone)
    asked = ["a", "what is red and blue and white?"]
    close(encoder.encode_queries(asked), [encoder.encode_queries([one])[0] for one in asked])


@pytest.mark.parametrize("kind", RETRIEVAL)
def test_transformers_own_give_the_same(
    kind: str, checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    """Where sentence-transformers does not know a checkpoint, transformers itself reads it."""
    folder = shutil.copytree(checkpoint(kind), tmp_path / kind)
    config = json.loads((folder / "config.json").read_text())
    assert reader_of(folder) == "sentence-transformers"
    del config["architectures"]
    (folder / "config.json").write_text(json.dumps(config))
    assert reader_of(folder) == "transformers"
    own, other = load_encoder(folder), load_encoder(checkpoint(kind))
    close(own.encode_pages(pictures()), other.encode_pages(pictures()))
    close(own.encode_queries(["what is red?", "a"]), other.encode_queries(["what is red?", "a"]))
    assert isinstance(own, BatchEncoder)
    assert (own.reads, own.patches(picture("red"))) == ("image", None)


def test_the_grid_of_a_picture(checkpoint: Callable[[str], Path]) -> None:
    square = load_encoder(checkpoint("colpali"))
    assert isinstance(square, BatchEncoder)
    grid = square.patches(picture("red"))
    assert grid is not None
    assert grid.vectors.tolist() == np.arange(16).reshape(4, 4).tolist()
    for kind, before in ("colqwen2", 7), ("colqwen2.5", 1):  # tokens of the prompt
        encoder = load_encoder(checkpoint(kind))
        assert isinstance(encoder, BatchEncoder)
        wide, tall = encoder.patches(picture("red", (112, 56))), picture("red", (56, 112))
        assert wide is not None
        assert (wide.rows, wide.columns) == (2, 4)
        assert wide.vectors.tolist() == (before + np.arange(8).reshape(2, 4)).tolist()
        other = encoder.patches(tall)
        assert other is not None
        assert (other.rows, other.columns) == (4, 2)
    tiles = load_encoder(checkpoint("colsmol"))
    assert isinstance(tiles, BatchEncoder)
    assert tiles.patches(picture("red")) is None


def test_colbert_s_ways(checkpoint: Callable[[str], Path]) -> None:
    """Markers, expanded questions and the skip list are those of the checkpoint."""
    encoder = load_encoder(checkpoint("colbert"))
    assert glie.encoders.base.reads(encoder) == "text"
    assert [len(rows) for rows in encoder.encode_queries(["red", "red " * 12])] == [12, 15]
    plain, pointed = encoder.encode_pages(["red blue", "red, blue!"])
    assert (len(plain), len(pointed)) == (5, 5)  # [CLS] [D] red blue [SEP]
    assert not np.allclose(plain, pointed, atol=1e-3)  # it was read, and is not stored


def test_nothing_of_a_long_text_is_left_out(checkpoint: Callable[[str], Path]) -> None:
    """ColBERT takes 24 tokens, 3 of them its own: a page of more is read in pieces."""
    encoder, model = load_encoder(checkpoint("colbert")), library(checkpoint("colbert"))
    words = [COLOURS[i % 3] for i in range(50)] + ["pink"]
    text = " ".join(words)
    pieces = [" ".join(words[at : at + 21]) for at in range(0, 51, 21)]
    expected = model.encode_document(pieces, convert_to_numpy=True)
    assert len(model.encode_document([text])[0]) == 24
    rows = encoder.encode_pages([text, "red"])[0]
    assert len(rows) == 51 + 3 * 3
    close([rows], [np.concatenate(expected)])
    unbroken = encoder.encode_pages(["red," * 30])[0]
    assert len(unbroken) == 30 + 3 * 3
    five = ["red,blue,green"] * 10  # tokens a word: cut between words, not after 21
    pieces = [" ".join(five[at : at + 4]) for at in range(0, 10, 4)]
    cut = encoder.encode_pages([" ".join(five)])[0]
    close([cut], [np.concatenate(model.encode_document(pieces, convert_to_numpy=True))])


def test_libraries_keep_quiet_meanwhile() -> None:
    logs = transformers.utils.logging
    before = logs.get_verbosity(), logs.is_progress_bar_enabled()
    with quietly():
        assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == (logs.ERROR, False)
    assert (logs.get_verbosity(), logs.is_progress_bar_enabled()) == before


def test_another_encoder_is_refused(
    checkpoint: Callable[[str], Path],
    run: Run,  # noqa: F811
    documents: Path,
    tmp_path: Path,
) -> None:
    folder, index = shutil.copytree(checkpoint("colpali"), tmp_path / "model"), tmp_path / "x.glie"
    assert run("index", documents, "--to", index, "--encoder", folder).code == 0
    entry = glie.Index.open(index).encoder
    assert entry == EncoderId(str(folder), load_encoder(folder).revision)
    other = run("search", index, "red", "--encoder", checkpoint("colqwen2"))
    assert (other.code, other.err.count("\n")) == (1, 1)
    assert f"made with encoder {str(folder)!r}" in other.err
    assert run("add", index, documents, "--encoder", checkpoint("colqwen2")).code == 1

    moved = folder.rename(tmp_path / "elsewhere")
    gone = run("search", index, "red")
    assert (gone.code, gone.err.count("\n")) == (1, 1)
    assert run("search", index, "red", "--encoder", moved, "--json").code == 0
    shutil.rmtree(moved)
    saved("colpali", folder, seed=1)
    changed = run("search", index, "red")
    assert changed.code == 1
    assert "use that one, or index the documents again" in changed.err


def test_what_decides_the_vectors_decides_the_revision(
    checkpoint: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(checkpoint("colqwen2.5"), tmp_path / "model")
    before = Checkpoint.in_folder(folder).revision
    (folder / "README.md").write_text("a card")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x.json").write_text("{}")
    assert Checkpoint.in_folder(folder).revision == before
    template = folder / "chat_template.jinja"
    template.write_text(template.read_text().replace("Describe", "Read"))
    assert Checkpoint.in_folder(folder).revision != before


def test_visual_encoders_want_pictures(
    checkpoint: Callable[[str], Path],
    run: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    folder = tmp_path / "docs"
    make_pdf(folder / "a.pdf", [""])  # a scan: nothing to read, but to see
    (folder / "notes.md").write_text("words")
    done = run("index", folder, "--to", tmp_path / "x.glie", "--encoder", checkpoint("colpali"))
    assert done.code == 3
    assert "notes.md: a text file has no picture for the encoder;" in done.err
    assert "1 document added: 1 page" in done.out
    assert "(no text)" in run("search", tmp_path / "x.glie", "red").out
    encoder = load_encoder(checkpoint("colpali"))
    with pytest.raises(glie.InputError, match=r"page 0: expected an image.*found int"):
        encoder.encode_pages([7])
    with pytest.raises(glie.DocumentError, match=r"none\.png: no such file"):
        encoder.encode_pages(["none.png"])
    with pytest.raises(glie.InputError, match="query 1: no text to encode"):
        encoder.encode_queries(["a", " "])
    with pytest.raises(glie.InputError, match="found a single string"):
        encoder.encode_queries("a")
    path = tmp_path / "red.png"
    picture("red").save(path)
    close(encoder.encode_pages([path]), encoder.encode_pages([picture("red")]))


def test_plan_and_evaluate_look_at_pages(
    checkpoint: Callable[[str], Path],
    run: Run,  # noqa: F811
    documents: Path,
) -> None:
    folder = checkpoint("colqwen2")
    encoder = load_encoder(folder)
    planned = run("plan", documents, "--encoder", folder, "--bytes-per-page", 520, "--json")
    assert planned.code == 0, planned.err
    drawn = sample(documents, 10, 0, lambda one: encode(one, encoder))
    assert sorted(drawn.pages.ids) == sorted(page.id for page in _pages_of(documents))
    by_id = dict(zip(drawn.pages.ids, drawn.pages, strict=True))
    alone = encoder.encode_pages([_pages_of(documents)[0]])[0]
    np.testing.assert_allclose(by_id["a.pdf#1"], alone, atol=0.01)  # rounded to 16 bits
    blind = encode(Dataset("x", {"p": "a text"}, {}, {}), load_encoder(checkpoint("colbert")))
    assert blind.page_ids == ["p"]
    with pytest.raises(glie.DatasetError, match="1 page without an image left out"):
        encode(Dataset("x", {"p": "a text"}, {}, {}), encoder)


def test_reduced(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load_encoder(checkpoint("colpali"))
    matrix = np.random.default_rng(0).normal(size=(DIM, 6)).astype(np.float16)
    write_reduction(tmp_path / "six.safetensors", matrix.astype(np.float32), whole)
    encoder = load_encoder(f"{checkpoint('colpali')}@{tmp_path / 'six.safetensors'}")
    expected = [unit(rows @ matrix.astype(np.float32)) for rows in whole.encode_pages(pictures())]
    close(encoder.encode_pages(pictures()), expected)
    assert encoder.encode_queries(["red"])[0].shape[1] == 6
    assert encoder.revision.startswith(f"{whole.revision}+")
    assert encoder.name == f"{whole.name}@{tmp_path / 'six.safetensors'}"
    with pytest.raises(glie.EncoderError, match="fitted for an encoder of revision"):
        load_encoder(f"{checkpoint('colqwen2')}@{tmp_path / 'six.safetensors'}")

    fitted, pages = tmp_path / "fitted.safetensors", image_set(tmp_path / "set")
    run_tool(monkeypatch, pages, "--encoder", checkpoint("colpali"), "--dim", 5, "--to", fitted)
    made = load_encoder(f"{checkpoint('colpali')}@{fitted}")
    assert made.encode_pages(pictures())[0].shape[1] == 5


def test_a_checkpoint_in_little_memory(
    checkpoint: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same vectors in batches that fit, and one line if not even a page does."""
    encoder, model = load_encoder(checkpoint("colqwen2")), transformers.ColQwen2ForRetrieval
    assert isinstance(encoder, BatchEncoder)
    expected, whole, most = encoder.encode_pages(pictures()), model.forward, 2

    def forward(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        if len(input_ids) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return whole(self, input_ids=input_ids, **given)

    monkeypatch.setattr(model, "forward", forward)
    encoder._batch = 4
    close(encoder.encode_pages(pictures()), expected)
    most = 0
    with pytest.raises(glie.EncoderError, match="out of memory on a single page"):
        encoder.encode_pages(pictures())


def test_an_adapter_over_its_model(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    """As ColQwen2.5 and ColSmol are published: a LoRA, and the name of what it adapts."""
    base = shutil.copytree(checkpoint("colqwen2.5"), tmp_path / "base")
    model = library(base)
    network = model[0].model
    settings = peft.LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        network.add_adapter(settings)
    expected = model.encode_document(pictures(), convert_to_numpy=True)
    with without_videos():
        model.save_pretrained(str(tmp_path / "adapter"), create_model_card=False)
    notes = tmp_path / "adapter" / "adapter_config.json"
    notes.write_text(
        json.dumps({**json.loads(notes.read_text()), "base_model_name_or_path": str(base)})
    )
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    encoder = load_encoder(tmp_path / "adapter")
    close(encoder.encode_pages(pictures()), expected)
    plain = load_encoder(base).encode_pages(pictures())
    assert not np.allclose(plain[0], expected[0], atol=1e-3)
    shutil.rmtree(base)
    saved("colqwen2.5", base, seed=5)
    assert Checkpoint.in_folder(tmp_path / "adapter").revision != encoder.revision


HUB_NAME = "somebody/colpali"


def commit_of(number: int) -> str:
    return f"{number:040x}"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path, int], None]:
    """A cache as downloads from the Hub leave it, and no network."""
    cache = tmp_path / "hub"
    cache.mkdir()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)

    def publish(name: str, folder: Path, number: int) -> None:
        repository = cache / f"models--{name.replace('/', '--')}"
        shutil.copytree(folder, repository / "snapshots" / commit_of(number))
        (repository / "refs").mkdir(exist_ok=True)
        (repository / "refs" / "main").write_text(commit_of(number))

    return publish


def test_a_name_on_the_hub(
    checkpoint: Callable[[str], Path],
    run: Run,  # noqa: F811
    documents: Path,
    tmp_path: Path,
    hub: Callable[[str, Path, int], None],
) -> None:
    """An index remembers the commit, and goes on with it when the repository has moved on."""
    hub(HUB_NAME, checkpoint("colpali"), 1)
    index = tmp_path / "x.glie"
    done = run("index", documents, "--to", index, "--encoder", HUB_NAME)
    assert done.code == 0, done.err
    assert glie.Index.open(index).encoder == EncoderId(HUB_NAME, commit_of(1))
    before = run("search", index, "red", "--json").json["hits"]
    hub(HUB_NAME, saved("colpali", tmp_path / "new", seed=1), 2)
    assert load_encoder(HUB_NAME).revision == commit_of(2)
    assert run("search", index, "red", "--json").json["hits"] == before
    assert run("add", index, documents, "--encoder", HUB_NAME).code == 0
    newest = load_encoder(HUB_NAME)
    with pytest.raises(glie.EncoderError, match=f"revision {commit_of(1)}"):
        ingest(glie.Index.open(index), newest, [documents])
    assert encoder_of(glie.Index.open(index)).revision == commit_of(1)
    assert Library(index).encoder.revision == commit_of(1)  # the web server's
    assert load_recorded(EncoderId(HUB_NAME, commit_of(1))).revision == commit_of(1)  # a worker's

    matrix = tmp_path / "m.safetensors"
    first = load_encoder(HUB_NAME, revision=commit_of(1))
    write_reduction(matrix, np.eye(DIM, 5, dtype=np.float32), first)
    reduced = load_encoder(f"{HUB_NAME}@{matrix}", revision=commit_of(1))
    small = glie.Index.create(
        tmp_path / "small.glie",
        glie.Codec(k=2),
        encoder={"name": reduced.name, "revision": reduced.revision},
    )
    ingest(small, reduced, [documents])
    assert encoder_of(small).revision == reduced.revision


def test_what_the_hub_cannot_give(
    run: Run,  # noqa: F811
    documents: Path,
    tmp_path: Path,
    hub: Callable[[str, Path, int], None],
) -> None:
    def refused(name: str, message: str) -> None:
        done = run("index", documents, "--to", tmp_path / "x.glie", "--encoder", name)
        code = 2 if done.err.startswith("glie: --encoder") else 1  # 2: the option is to blame
        assert (done.code, done.err.count("\n")) == (code, 1), done.err
        assert message in done.err
        assert not (tmp_path / "x.glie").exists()

    refused("somebody/nothing", "no such folder, and could not be downloaded from the Hub")
    refused("somebody/nothing", "copy the model to a folder and give its path")
    refused("colpali", "encoder 'colpali' is unknown: expected 'english', 'multilingual', 'minilm'")
    refused("./no/such/folder", "is unknown")

    def described(**files: Any) -> Path:
        folder = tmp_path / "described"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in files.items():
            (folder / f"{name}.json").write_text(json.dumps(content))
        return folder

    single = [{"type": "sentence_transformers.models.Transformer"}]
    hub("some/single", described(config={"architectures": ["BertModel"]}, modules=single), 1)
    refused("some/single", "some/single: a single-vector model; expected a multi-vector one")
    hub("some/plain", described(config={"architectures": ["BertModel"]}), 1)
    refused("some/plain", "a plain model; expected a multi-vector one")
    hub("some/engine", described(config={"architectures": ["ColQwen2_5"]}), 1)
    refused("some/engine", "made for colpali-engine; expected a multi-vector one")
    hub("some/lora", described(adapter_config={}), 1)
    refused("some/lora", "give glie your loaded model, as docs/encoders.md shows")
    hub("some/code", described(config={"auto_map": {"AutoModel": "modeling.Net"}}), 1)
    refused("some/code", f"set {TRUST}=1 if it may run")
    hub("some/empty", described(config={"architectures": ["ColPaliForRetrieval"]}), 1)
    refused("some/empty", "some/empty: cannot be used as an encoder")


def test_old_ways_of_saving_are_known(tmp_path: Path) -> None:
    """As PyLate and Stanford's ColBERT describe theirs."""

    def described(config: Any = None, settings: Any = None, modules: Any = None) -> str | None:
        for name, content in (
            ("config", config),
            ("config_sentence_transformers", settings),
            ("modules", modules),
        ):
            path = tmp_path / f"{name}.json"
            path.unlink(missing_ok=True)
            if content is not None:
                path.write_text(json.dumps(content))
        return reader_of(tmp_path)

    sentences = "sentence-transformers"
    assert described({"architectures": ["HF_ColBERT"]}) == sentences
    assert described(settings={"model_type": "ColBERT"}) == sentences
    assert described(settings={"query_prefix": "[Q] "}) == sentences
    old = [{"type": "pylate.models.Dense.Dense"}]
    assert described(modules=old) == sentences
    assert described(settings={"model_type": "SentenceTransformer"}) is None
    assert described({"architectures": ["BertModel"]}) is None
    assert described({"architectures": None}) is None
    with pytest.raises(glie.EncoderError, match=r"configuration: expected a dict, found \[\]"):
        described([])
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(glie.EncoderError, match=r"config\.json: not a model.s configuration"):
        reader_of(tmp_path)


def test_damaged_and_pickled_checkpoints(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    folder = shutil.copytree(checkpoint("colbert"), tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(glie.EncoderError, match="model: cannot be used as an encoder: "):
        load_encoder(folder)
    pickled = shutil.copytree(checkpoint("colbert"), tmp_path / "pickled")
    dense = pickled / "1_Dense" / "model.safetensors"
    dense.rename(dense.with_name("pytorch_model.bin"))
    with pytest.raises(glie.EncoderError, match="pickled weights, which can run any code"):
        load_encoder(pickled)


CODE = """
import torch, transformers

class NetConfig(transformers.PretrainedConfig):
    model_type = "glie-net"

class Net(transformers.PreTrainedModel):
    config_class = NetConfig
    def __init__(self, config):
        super().__init__(config)
        self.words = torch.nn.Embedding(128, 8)
        self.post_init()
    def forward_images(self, images):
        sizes = [torch.tensor([image.width, image.height, 1]) % 128 for image in images]
        return torch.stack([self.words(size) for size in sizes])
    def forward_queries(self, texts):
        tokens = [torch.tensor([ord(letter) % 128 for letter in text]) for text in texts]
        rows = [self.words(one) for one in tokens]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
"""


def test_a_model_s_own_code_runs_only_if_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two methods, as Nemotron ColEmbed has them; what they pad with is zero."""
    monkeypatch.setattr(
        "transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules")
    )
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    folder = tmp_path / "net"
    folder.mkdir()
    (folder / "modeling_net.py").write_text(CODE)
    mapped = {"AutoConfig": "modeling_net.NetConfig", "AutoModel": "modeling_net.Net"}
    (folder / "config.json").write_text(json.dumps({"model_type": "glie-net", "auto_map": mapped}))
    from safetensors.torch import save_file

    words = torch.randn(128, 8, generator=torch.Generator().manual_seed(0))
    save_file({"words.weight": words}, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(glie.EncoderError):
        load_encoder(folder)
    assert "modeling_net" not in str(list((tmp_path / "modules").rglob("*")))
    monkeypatch.setenv(TRUST, "1")
    encoder = load_encoder(folder)
    queries = encoder.encode_queries(["abc", "a"])
    close(queries, [unit(words[[97, 98, 99]].numpy()), unit(words[[97]].numpy())])
    assert [len(rows) for rows in encoder.encode_pages(pictures())] == [3] * 4
    (folder / "modeling_net.py").write_text(CODE + "# changed")
    assert Checkpoint.in_folder(folder).revision != encoder.revision


class Counting:
    """A model of one's own, which gives padded vectors and a mask, and runs out of memory."""

    def __init__(self, most: int = 100, fault: Exception | None = None) -> None:
        self.most, self.sizes = most, list[int]()
        self.fault = fault or torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    def pages(self, images: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
        self.sizes.append(len(images))
        if len(images) > self.most:
            raise self.fault
        longest = max(image.width for image in images)
        vectors = torch.full((len(images), longest, 3), 9.0, dtype=torch.bfloat16)
        mask = torch.zeros(len(images), longest, dtype=torch.long)
        for row, image in enumerate(images):  # padded on the left
            mask[row, longest - image.width :] = 1
            vectors[row, longest - image.width :] = torch.tensor([0.0, image.width, 1.0])
        return vectors, mask

    def queries(self, texts: list[str]) -> list[Any]:
        return [np.ones((len(text), 3)) for text in texts]


def test_a_model_of_one_s_own(tmp_path: Path) -> None:
    own = Counting()
    encoder = BatchEncoder("my/model", own.pages, own.queries, revision="7", batch=3)
    images = [Image.new("L", (width, 2)) for width in (4, 2, 3, 5)]
    vectors = encoder.encode_pages(images)
    assert [len(rows) for rows in vectors] == [4, 2, 3, 5]
    assert own.sizes == [3, 1]
    np.testing.assert_allclose(vectors[1], unit(np.array([[0, 2.0, 1]] * 2)), atol=1e-6)
    entry = {"name": encoder.name, "revision": encoder.revision}
    index = glie.Index.create(tmp_path / "own.glie", glie.Codec(k=2), encoder=entry)
    images[0].save(tmp_path / "a.png")
    assert ingest(index, encoder, [tmp_path / "a.png"]).pages_added == 1
    assert index.search(encoder.encode_queries(["ab"]))[0].ids == ["a.png#1"]
    other = BatchEncoder("my/model", own.pages, own.queries, revision="8")
    with pytest.raises(glie.EncoderError, match=r"made with encoder 'my/model' \(revision 7\)"):
        ingest(index, other, [tmp_path / "a.png"])
    assert encoder.patches(images[0]) is None


@pytest.mark.parametrize(
    "fault",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB"),
        RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
        MemoryError(),
    ],
)
def test_batches_shrink_to_what_fits(fault: Exception) -> None:
    own = Counting(most=2, fault=fault)
    encoder = BatchEncoder("my/model", own.pages, own.queries, batch=8)
    images = [Image.new("L", (width, 2)) for width in (4, 2, 3, 5, 1)]
    assert [len(rows) for rows in encoder.encode_pages(images)] == [4, 2, 3, 5, 1]
    assert own.sizes == [5, 3, 2, 2, 1]
    own.sizes.clear()
    encoder.encode_pages(images)
    assert own.sizes == [2, 2, 1]  # it has learned
    own.most = 0
    with pytest.raises(glie.EncoderError, match="out of memory on a single page; use a smaller"):
        encoder.encode_pages(images)
    broken = Counting(most=2, fault=RuntimeError("shapes do not match"))
    with pytest.raises(RuntimeError, match="shapes do not match"):
        BatchEncoder("my/model", broken.pages, broken.queries).encode_pages(images)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.ones((2, 3)), r"array of shape \(2, 3\); expected \(B, N, D\) vectors"),
        ((np.ones((1, 3, 2)), np.ones((1, 2))), r"of \(1, 3, 2\) and a mask of \(1, 2\)"),
        ([np.ones((3, 2))] * 2, "vectors of 2 for 1"),
        ([np.ones(3)], r"array of shape \(3,\)"),
        ((np.ones((1, 3, 2)), np.zeros((1, 3))), r"array of shape \(0, 2\)"),
    ],
)
def test_what_a_model_may_not_give(given: Any, message: str) -> None:
    encoder = BatchEncoder("my/model", lambda images: given, lambda texts: given)
    with pytest.raises(glie.EncoderError, match=f"encoder 'my/model': it gave .*{message}"):
        encoder.encode_queries(["a"])


def test_zero_is_padding_where_there_is_no_mask() -> None:
    rows = np.zeros((2, 3, 2), dtype=np.float16)
    rows[0, :2], rows[1, 1:] = 1, 2
    encoder = BatchEncoder("my/model", lambda images: rows, lambda texts: rows)
    assert [len(one) for one in encoder.encode_queries(["a", "b"])] == [2, 2]
