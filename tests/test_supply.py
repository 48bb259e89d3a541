"""What comes in with glie: pinned, with licences that allow commercial use, and nothing that is
unpickled, evaluated or fetched on import."""

from __future__ import annotations

import ast
import importlib.metadata
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from tools.licences import Package, normal, packages
from tools.lock import ANY_BUILD, HASHED, PLAIN, Lock

import glie

SOURCE = Path(glie.__file__).parent
EXTRAS = ["all", "dev", "bench", "fuzz"]


def test_every_pin_has_hashes() -> None:
    plain, hashed = Lock.read(PLAIN.read_text()), Lock.read(HASHED.read_text())
    assert list(plain) == list(hashed)
    assert {pin for pin, hashes in hashed.items() if not hashes} == {
        pin for pin in hashed if pin.startswith(ANY_BUILD)
    }
    lines = [line for hashes in hashed.values() for line in hashes]
    assert all(len(line) == len("--hash=sha256:") + 64 for line in lines)
    assert plain.plain() == PLAIN.read_text()
    assert hashed.hashed() == HASHED.read_text()


def test_all_that_is_installed_is_pinned() -> None:
    pinned = {normal(pin.split("==")[0]) for pin in Lock.read(PLAIN.read_text())}
    needed = {package.name for package in packages(EXTRAS)}
    assert len(needed) > 100
    assert needed - pinned == set()


def test_licences() -> None:
    for package in packages(EXTRAS):
        assert package.allowed, package


@pytest.mark.parametrize(
    ("licence", "allowed"),
    [
        *(("MIT", True), ("BSD-3-Clause AND Apache-2.0", True), ("Apache Software License", True)),
        *(("GPL-3.0-only OR MIT", True), ("GPL-3.0-only", False), ("MIT AND GPL-2.0", False)),
        *(("AGPL-3.0-or-later", False), ("GNU Affero General Public License v3", False)),
        *(("(MIT OR Apache-2.0) AND AGPL-3.0-only", False), (";", False), ("(MIT OR BSD)", True)),
        *(("MIT with non-commercial use only", False), ("MIT License; BSD License", True)),
        *(("", False), ("Proprietary", False), ("BUSL-1.1", False), ("CC-BY-NC-4.0", False)),
    ],
)
def test_which_licences_are_allowed(licence: str, allowed: bool) -> None:
    assert Package("a", "1", licence).allowed == allowed


# by the module or object whose attribute is called; "" for a plain name
REFUSED = {
    *(("", "eval"), ("", "exec"), ("", "compile"), ("", "__import__"), ("os", "system")),
    *(("pickle", "load"), ("pickle", "loads"), ("marshal", "loads"), ("torch", "load")),
    *(("joblib", "load"), ("dill", "loads"), ("yaml", "load"), ("shelve", "open")),
}
UNPICKLING = {"pickle", "marshal", "shelve", "dill", "joblib", "cloudpickle"}


def faults(source: str) -> list[str]:
    """What runs a text or a file as code, in a source."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [name for name in names if name.split(".")[0] in UNPICKLING]
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and ("", called.id) in REFUSED:
            found.append(called.id)
        if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
            whole = (called.value.id, called.attr)
            found += [".".join(whole)] if whole in REFUSED else []
        for keyword in node.keywords:
            is_true = isinstance(keyword.value, ast.Constant) and keyword.value.value is True
            if keyword.arg in ("allow_pickle", "shell", "trust_remote_code") and is_true:
                found.append(f"{keyword.arg}=True")
    return found


def test_nothing_is_unpickled_or_evaluated() -> None:
    for path in SOURCE.rglob("*.py"):
        assert faults(path.read_text()) == [], path


@pytest.mark.parametrize(
    "source",
    [
        *("eval('1')", "import pickle", "from joblib import load", "torch.load(path)"),
        *("np.load(path, allow_pickle=True)", "run('ls', shell=True)", "os.system('ls')"),
    ],
)
def test_what_would_be_is_seen(source: str) -> None:
    assert len(faults(source)) == 1


ALONE = """
import builtins, importlib, socket, sys
class Closed(socket.socket):
    def connect(self, *address): raise SystemExit(f"connects to {address}")
    connect_ex = sendto = connect
socket.socket = Closed
socket.create_connection = socket.getaddrinfo = Closed.connect
for name in sys.argv[1:]:
    importlib.import_module(name)
print(len(sys.argv) - 1)
"""


def test_nothing_is_fetched_on_import() -> None:
    names = [module.name for module in pkgutil.walk_packages([str(SOURCE)], "glie.")]
    names = [name for name in names if not name.endswith("__main__")]
    assert len(names) > 80
    command = [sys.executable, "-c", ALONE, *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(len(names))


def test_the_base_install_is_small() -> None:
    """What `pip install glie` brings, by name: an addition is a decision."""
    needed = importlib.metadata.requires("glie") or []
    base = sorted(normal(line.split(">")[0]) for line in needed if "extra ==" not in line)
    assert base == [
        *("filelock", "numba", "numpy", "pystemmer", "safetensors", "xxhash"),
    ]
