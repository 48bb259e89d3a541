"""Checkpoint: the files of a model, from a folder or the Hugging Face Hub, and their reader."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from glie.encoders.files import digest_of
from glie.encoders.retrieval_model import MODELS
from glie.errors import EncoderError, MissingExtraError

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRUST = "GLIE_TRUST_REMOTE_CODE"

# the files that decide the vectors: weights, settings, vocabularies and prompts
WEIGHTS = "*.safetensors"
DESCRIPTIONS = ("*.json", "*.jinja", "*.txt", "*.model", "artifact.metadata")
CODE = "*.py"
NOT_OURS = ["onnx/*", "openvino/*", "*/onnx/*", "*/openvino/*"]  # other formats of the same weights

T = TypeVar("T", dict[str, Any], list[Any])
Reader = Literal["sentence-transformers", "transformers", "own code"]


class Checkpoint(NamedTuple):
    """The files of a model, and the identity that an index records."""

    name: str
    folder: Path
    revision: str

    @classmethod
    def in_folder(cls, folder: Path) -> Checkpoint:
        """A local folder; its revision is a digest of the files that decide the vectors."""
        return cls(str(folder.resolve()), folder, _digest(folder))

    @classmethod
    def on_hub(cls, name: str, revision: str | None) -> Checkpoint:
        """A repository; its revision is the commit. Downloads the weights only after the settings
        say that it is a late-interaction model."""
        folder = _fetched(name, revision, DESCRIPTIONS)
        commit = folder.name
        code = (CODE,) if trusted() else ()
        if code:
            _fetched(name, commit, code)
        if reader_of(folder) is None:
            raise EncoderError(f"{name}: {_what_it_is(folder)}")
        return cls(name, _fetched(name, commit, (*DESCRIPTIONS, *code, WEIGHTS)), commit)


def trusted() -> bool:
    """Whether code from the model's repository may run."""
    return os.environ.get(TRUST, "") not in ("", "0")


def reader_of(folder: Path) -> Reader | None:
    """The library that reads the late-interaction model of a folder; None if it is not one."""
    config, settings = _read(folder / CONFIG, dict), _read(folder / SETTINGS, dict)
    kinds = [str(module.get("type")) for module in _read(folder / MODULES, list)]
    architectures = _architectures(config)
    if settings.get("model_type") in ("MultiVectorEncoder", "ColBERT"):
        return "sentence-transformers"
    if "query_prefix" in settings or any(kind.startswith("pylate.") for kind in kinds):
        return "sentence-transformers"  # the older layout of PyLate
    native = config.get("model_type") in MODELS
    if not kinds and any(a == "HF_ColBERT" or a.endswith("ForRetrieval") for a in architectures):
        covered = importlib.util.find_spec("sentence_transformers") is not None
        return "sentence-transformers" if covered or not native else "transformers"
    if native:
        return "transformers"
    codes = [path.read_text(errors="replace") for path in folder.glob(CODE)] if trusted() else []
    return "own code" if any("def forward_images" in code for code in codes) else None


def is_visual(folder: Path) -> bool:
    """Whether a model has an image processor."""
    return any((folder / f"{name}_config.json").exists() for name in ("preprocessor", "processor"))


def check_weights(folder: Path) -> None:
    """Refuse weights that are only there as pickle."""
    for path in sorted(folder.rglob("*.bin")):
        if "model" in path.name and not list(path.parent.glob(WEIGHTS)):
            raise EncoderError(
                f"{path}: pickled weights, which can run any code; expected safetensors"
            )


def _what_it_is(folder: Path) -> str:
    """The error for a checkpoint that is not a late-interaction model."""
    config = _read(folder / CONFIG, dict)
    expected = (
        "expected a multi-vector one (ColBERT, ColPali, ColQwen2, ...) that sentence-transformers "
        "or transformers reads"
    )
    if "auto_map" in config and not trusted():
        return (
            f"a model that comes with code of its own; read it on the Hub, and set {TRUST}=1 if it "
            "may run"
        )
    if (folder / ADAPTER).exists() or any(a.startswith("Col") for a in _architectures(config)):
        return (
            f"made for colpali-engine; {expected} (their names end in -hf), or give glie your "
            "loaded model, as docs/encoders.md shows"
        )
    kind = "a single-vector model" if (folder / MODULES).exists() else "a plain model"
    return f"{kind}; {expected}. A local folder with a text model is read token by token"


def _digest(folder: Path) -> str:
    files = _visible(folder, (WEIGHTS, CODE, *DESCRIPTIONS))
    base = _read(folder / ADAPTER, dict).get("base_model_name_or_path")
    if base and Path(base).is_dir():  # an adapter needs its base model
        files += _visible(Path(base), (WEIGHTS,))
    return digest_of(files)[:16]


def _visible(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    found = {path for pattern in patterns for path in folder.rglob(pattern)}
    return [p for p in found if not any(s.startswith(".") for s in p.relative_to(folder).parts)]


def _architectures(config: dict[str, Any]) -> list[str]:
    return [str(name) for name in config.get("architectures") or []]


def _read(path: Path, kind: type[T]) -> T:
    """The contents of a JSON file; empty if it is missing."""
    try:
        found = json.loads(path.read_bytes()) if path.exists() else kind()
    except (OSError, ValueError) as error:
        raise EncoderError(f"{path}: not a model's configuration: {error}") from None
    if not isinstance(found, kind):
        raise EncoderError(
            f"{path}: not a model's configuration: expected a {kind.__name__}, found {found!r:.40}"
        )
    return found


def _fetched(name: str, revision: str | None, patterns: tuple[str, ...]) -> Path:
    """The folder with these files of a repository: from the cache, or downloaded into it."""
    try:
        import huggingface_hub
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
    except ImportError:
        raise MissingExtraError("an encoder of the Hugging Face Hub", "multi-vector") from None
    try:
        return Path(
            huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=list(patterns), ignore_patterns=NOT_OURS
            )
        )
    except GatedRepoError:
        why = "its authors ask for an agreement first: accept it on its page, then `hf auth login`"
    except RepositoryNotFoundError:
        why = "the Hub has no such model, or it is private (`hf auth login`)"
    except Exception as error:  # each transport raises its own
        reason = str(error).strip().split("\n")[0]
        why = (
            f"could not be downloaded from the Hub ({reason}); connect, or copy the model to a "
            "folder and give its path"
        )
    raise EncoderError(f"encoder {name!r}: no such folder, and {why}") from None
