"""Requests a second of `glie serve`, with the median and the 99th percentile of their time, for
1, 8 and 64 concurrent clients.

    python benchmarks/serve.py [INDEX] [--pages 10000] [--requests 400] [--clients 1,8,64]

For an index of documents, questions are different words of its pages, so that none is cached; a
question is encoded, searched, and answered with snippets. Without INDEX, an index of synthetic
pages is made and queried by vectors. The server is a separate process on this machine and shares
its cores with the clients. No request may fail.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from common import machine, publish, synthetic_pages

import glie
from glie.documents.original import original_text

DISTINCT = 200  # synthetic pages; the others are copies of them
QUERY_VECTORS = 12
WORDS = 8  # words of a page in a question


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("index", nargs="?", type=Path)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--clients", default="1,8,64")
    arguments = parser.parse_args()
    counts = [int(number) for number in arguments.clients.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.index or synthetic_index(Path(folder) / "synthetic.glie", arguments.pages)
        bodies = questions(path, arguments.requests * len(counts))
        pages = len(glie.Index.open(path))
        asked = "in words" if "query" in bodies[0] else "by vectors"
        print(f"{machine()}; {pages:,} pages, asked {asked}, {arguments.requests} requests each")
        print(f"{'clients':>8} {'a second':>9} {'p50 ms':>8} {'p99 ms':>8} {'failed':>7}")
        failed = 0
        with Server(path) as server:
            for _ in range(20):  # warm up
                server.ask(server.connect(), bodies[0])
            for place, clients in enumerate(counts):
                some = bodies[place * arguments.requests : (place + 1) * arguments.requests]
                failed += measure(server, some, clients)
    if failed:
        sys.exit(f"{failed} requests failed")


class Server:
    """`glie serve` in a separate process."""

    def __init__(self, index: Path) -> None:
        code = "from glie.cli import main; main()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(index), "--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        said = "".join(iter(self._process.stdout.readline, "}\n")) + "}"
        self._port = int(json.loads(said)["url"].rstrip("/").rpartition(":")[2])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.terminate()
        self._process.wait()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=120)

    def ask(self, connection: http.client.HTTPConnection, body: dict[str, Any]) -> bool:
        """Whether the answer has pages."""
        sent = {"content-type": "application/json"}
        connection.request("POST", "/search", json.dumps(body), sent)
        answer = connection.getresponse()
        found = json.loads(answer.read())
        return answer.status == 200 and len(found["hits"]) > 0


def measure(server: Server, bodies: list[dict[str, Any]], clients: int) -> int:
    """Print a row; returns the number of failed requests."""

    def client(number: int) -> tuple[list[float], int]:
        connection, seconds, failed = server.connect(), [], 0
        for body in bodies[number::clients]:
            began = time.perf_counter()
            try:
                failed += not server.ask(connection, body)
            except (OSError, http.client.HTTPException, ValueError):
                connection, failed = server.connect(), failed + 1
            seconds.append(time.perf_counter() - began)
        return seconds, failed

    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        results = list(pool.map(client, range(clients)))
    rate = len(bodies) / (time.perf_counter() - began)
    times = 1000 * np.concatenate([seconds for seconds, _ in results])
    failed = sum(failed for _, failed in results)
    middle, slow = np.percentile(times, [50, 99])
    publish(f"answer {clients} client{'s'[: clients > 1]} of glie serve", rate, "requests/s")
    print(f"{clients:8} {rate:9.1f} {middle:8.1f} {slow:8.1f} {failed:7}", flush=True)
    return failed


def synthetic_index(path: Path, pages: int) -> Path:
    """An index of vectors without documents, at the default budget."""
    made = glie.Pages(synthetic_pages(min(DISTINCT, pages), n=256), normalize=True)
    index = glie.Index.create(path, glie.Codec(bytes_per_page=520))
    for at in range(0, pages, len(made)):
        some = made.slice(0, min(len(made), pages - at))
        index.add(glie.Pages(list(some), ids=[str(at + i) for i in range(len(some))]))
    index.compact()
    return path


def questions(path: Path, count: int) -> list[dict[str, Any]]:
    """Different questions: words of pages or, for an index without documents, random vectors."""
    index, rng = glie.Index.open(path), np.random.default_rng(0)
    if index.encoder is None:
        shape = (QUERY_VECTORS, index.dim or 0)
        vectors = (rng.normal(size=shape).round(3) for _ in range(count))
        return [{"vectors": rows.tolist(), "normalize": True} for rows in vectors]
    texts = [original_text(metadata).split() for _, metadata in index.records()]
    texts = [words for words in texts if len(words) >= WORDS]
    if not texts:
        sys.exit(f"{path}: none of its documents can be read, so there are no questions")
    chosen = (texts[int(page)] for page in rng.integers(len(texts), size=count))
    return [{"query": " ".join(rng.permutation(words)[:WORDS])} for words in chosen]


if __name__ == "__main__":
    main()
