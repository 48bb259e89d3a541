"""Trials: does a learned read-out make better vectors of anchor and codeword than the fixed mix?

    python tools/train_readout.py FIT --on DATASET... [--bytes-per-page 260] [--join 5]

A read-out turns a page's pairs (anchor, codeword) into vectors, or a query's products with them
into best matches. Each is trained on the questions of FIT, a fifth of its pages held out, and
starts exactly at the fixed mix. The table has the gain in nDCG@5 over the fixed mix, with its
standard error over questions, on FIT's held-out pages and on every DATASET. FIT and DATASET are
folders with corpus.jsonl, queries.jsonl and qrels.

- shares: the two shares of the mix are learned. One scalar more or less: the control of all.
- codeword: the mix plus a network of the codeword. The blind control of the next two.
- pair: the mix plus a network of codeword and anchor.
- page: the same, which also reads the mean of the page's mixes.
- lengths: a network of the pair's lengths changes its products. The blind control of the gate.
- gate: the same, which also reads the query's cosines with anchor, codeword and mix.

Losses are the token and the listwise term of a fit, with exact MaxSim as the teacher. --join makes
long pages of short ones: 1 to N neighbours become one page.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.rnn import pad_sequence

from glie.cli.shared import encode_sets
from glie.codec.codec import Codec
from glie.codec.codes import Codes
from glie.codec.readout.codebook import Codebook
from glie.codec.readout.pairs import read_pairs
from glie.errors import GlieError
from glie.evaluation.datasets import load
from glie.evaluation.encoded import Encoded
from glie.index.memory import search_codes
from glie.measures import each_measure
from glie.pages import Pages, Queries
from glie.training.inputs import split
from glie.training.losses import NOTHING, best_matches, listwise_loss, token_loss
from glie.training.negatives import hard_negatives

Ints = npt.NDArray[np.int64]

HELD_OUT = 0.2
BATCH, CANDIDATES, POOL = 12, 8, 20
SHORTLIST = 60  # pages that are reranked when a read-out is measured
WIDTH, GATE_WIDTH = 256, 32
MOST = 0.3  # by how much a gate changes a cosine


class Coded(NamedTuple):
    """Codes of P pages, padded: k anchors and n pairs each."""

    anchors: Tensor  # (P, k, D)
    used: Tensor  # (P, k)
    owner: Tensor  # (P, n): the anchor of a pair
    codewords: Tensor  # (P, n, D)
    real: Tensor  # (P, n)

    @property
    def own_anchors(self) -> Tensor:
        return self.anchors.gather(1, self.owner[..., None].expand_as(self.codewords))


class Store:
    """The codes of a set, from which padded batches are cut."""

    def __init__(self, codes: Codes, book: Codebook, first_layer: int) -> None:
        pairs, bounds = read_pairs(codes, len(book), first_layer)
        owner, codeword = np.divmod(pairs, len(book))
        self.anchors = torch.from_numpy(codes.vectors.astype(np.float32))
        self.used = torch.from_numpy(codes.counts > 0)
        self.owner, self.codeword = torch.from_numpy(owner), torch.from_numpy(codeword)
        self.starts, self.counts = torch.from_numpy(bounds[:-1]), torch.from_numpy(np.diff(bounds))
        self.book = torch.from_numpy(book.codewords)

    def batch(self, pages: Tensor) -> Coded:
        place = torch.arange(int(self.counts[pages].max()))
        real = place < self.counts[pages][:, None]
        at = torch.where(real, self.starts[pages][:, None] + place, 0)
        return Coded(
            self.anchors[pages],
            self.used[pages],
            torch.where(real, self.owner[at], 0),
            self.book[self.codeword[at]],
            real,
        )


class Shares(nn.Module):
    """The mix of anchor and codeword, its two shares learned."""

    def __init__(self, anchor_share: float, codeword_share: float) -> None:
        super().__init__()
        self.anchor_share = nn.Parameter(torch.tensor(anchor_share))
        self.codeword_share = nn.Parameter(torch.tensor(codeword_share))

    def mixed(self, coded: Coded) -> Tensor:
        return self.anchor_share * coded.own_anchors + self.codeword_share * coded.codewords

    def matches(self, tokens: Tensor, coded: Coded) -> Tensor:
        """The best match (P, t) of each token (P, t, D) among anchors and pairs."""
        made = best_matches(tokens, normalize(self.mixed(coded), dim=-1), coded.real)
        return torch.maximum(made, best_matches(tokens, coded.anchors, coded.used))


class Network(Shares):
    """The mix plus a network of what it reads."""

    def __init__(self, *shares: float, dim: int, anchor: bool = False, page: bool = False) -> None:
        super().__init__(*shares)
        self.anchor, self.page = anchor, page
        self.scale = dim**0.5
        self.hidden = nn.Linear(dim * (1 + anchor + page), WIDTH)
        self.output = zeroed(nn.Linear(WIDTH, dim))

    def mixed(self, coded: Coded) -> Tensor:
        mixed, seen = super().mixed(coded), [coded.codewords]
        if self.anchor:
            seen.append(coded.own_anchors)
        if self.page:
            real = coded.real[..., None]
            mean = (mixed * real).sum(1, keepdim=True) / real.sum(1, keepdim=True).clamp(min=1)
            seen.append(2 * mean.expand_as(mixed))
        hidden = self.hidden(torch.cat(seen, -1) * self.scale)
        found: Tensor = mixed + self.output(hidden.relu())
        return found


class Gate(Shares):
    """A network changes what each pair gives each token."""

    def __init__(self, *shares: float, query: bool) -> None:
        super().__init__(*shares)
        self.query = query
        self.hidden = nn.Linear(6 if query else 3, GATE_WIDTH)
        self.output = zeroed(nn.Linear(GATE_WIDTH, 1))

    def matches(self, tokens: Tensor, coded: Coded) -> Tensor:
        anchors, mixed = coded.own_anchors, self.mixed(coded)
        long, length = (x.norm(dim=-1).clamp(min=1e-6) for x in (coded.codewords, mixed))
        size = tokens.norm(dim=-1, keepdim=True).clamp(min=1e-6)  # a token's weight
        products = tokens @ (mixed / length[..., None]).mT  # (P, t, n)
        pairs = [2 * long, 4 * (anchors * coded.codewords).sum(-1), 2 * length]
        seen = [one[:, None].expand_as(products) for one in pairs]
        if self.query:
            directions = coded.codewords / long[..., None]
            cosines = tokens @ anchors.mT, tokens @ directions.mT, products
            seen += [3 * one / size for one in cosines]
        change = self.output(self.hidden(torch.stack(seen, -1)).relu())[..., 0].tanh()
        products = (products + MOST * size * change).masked_fill(~coded.real[:, None], NOTHING)
        return torch.maximum(products.amax(-1), best_matches(tokens, coded.anchors, coded.used))


def zeroed(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def readouts(book: Codebook) -> dict[str, Shares]:
    shares, dim = book.shares, book.dim
    return {
        "shares": Shares(*shares),
        "codeword": Network(*shares, dim=dim),
        "pair": Network(*shares, dim=dim, anchor=True),
        "page": Network(*shares, dim=dim, anchor=True, page=True),
        "lengths": Gate(*shares, query=False),
        "gate": Gate(*shares, query=True),
    }


class Questions(NamedTuple):
    """Pages and questions; `grades` has the relevant pages of each question, by row."""

    name: str
    pages: Pages
    queries: Queries
    grades: list[dict[int, int]]

    def some(self, rows: Ints) -> Questions:
        return self._replace(queries=self.queries.take(rows), grades=[self.grades[i] for i in rows])


def questions_of(encoded: Encoded, join: int, seed: int) -> Questions:
    """The questions of a set, its pages joined if asked."""
    pages, rng = encoded.pages(), np.random.default_rng(seed)
    sizes = rng.integers(1, join + 1, len(pages)).tolist()
    group = np.repeat(np.arange(len(sizes)), sizes)[: len(pages)]
    if join > 1:
        firsts = np.flatnonzero(np.diff(group, prepend=-1))
        offsets = np.append(pages.offsets[firsts], pages.offsets[-1])
        pages = Pages.packed(pages.vectors, offsets, [str(i) for i in range(len(firsts))])
    row = {page: int(group[i]) for i, page in enumerate(encoded.page_ids)}
    grades = [
        {row[page]: grade for page, grade in encoded.relevant[query].items() if page in row}
        for query in encoded.query_ids
    ]
    return Questions(encoded.name, pages, encoded.asked, grades)


def measured(
    readout: Shares, store: Store, asked: Questions, codes: Codes
) -> npt.NDArray[np.float64]:
    """nDCG@5 of every question: the best pages of the anchors, reranked."""
    listed = search_codes(asked.queries, codes, None, SHORTLIST, shortlist=0).positions
    rankings = {}
    with torch.no_grad():
        for query, rows in enumerate(listed):
            tokens = torch.from_numpy(asked.queries[query]).expand(len(rows), -1, -1)
            scores = readout.matches(tokens, store.batch(torch.from_numpy(rows.copy()))).sum(1)
            order = torch.argsort(-scores, stable=True).numpy()
            rankings[str(query)] = [str(rows[i]) for i in order]
    judged = {
        str(query): {str(row): grade for row, grade in grades.items()}
        for query, grades in enumerate(asked.grades)
    }
    return each_measure(judged, rankings, ["ndcg_at_5"])["ndcg_at_5"]


class Trainer:
    """Steps over the questions about training pages, with negatives among these."""

    def __init__(self, asked: Questions, rows: Ints, codes: Codes, store: Store, seed: int) -> None:
        self.asked, self.rows, self.store = asked, rows, store
        self.rng = np.random.default_rng([seed, 1])
        place = {int(row): at for at, row in enumerate(rows)}
        relevant = [[place[row] for row in grades if row in place] for grades in asked.grades]
        found = hard_negatives(asked.queries, relevant, codes.take(rows), POOL)
        self.relevant, self.negatives = [list(rows[mine]) for mine in relevant], rows[found]

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Tokens (B * C, t, D), which are real, pages (B * C,), and true best matches."""
        drawn = self.rng.integers(0, len(self.relevant), BATCH)
        pages = np.array(
            [
                [
                    self.rng.choice(self.relevant[query]),
                    *self.rng.permutation(self.negatives[query])[: CANDIDATES - 1],
                ]
                for query in drawn
            ]
        ).ravel()
        queries = [torch.from_numpy(self.asked.queries[int(query)]) for query in drawn]
        tokens = pad_sequence(queries, batch_first=True).repeat_interleave(CANDIDATES, 0)
        real = pad_sequence([torch.ones(len(q)) for q in queries], batch_first=True) > 0
        true = torch.stack(
            [
                (one @ torch.from_numpy(self.asked.pages[int(page)]).T).amax(1)
                for one, page in zip(tokens, pages, strict=True)
            ]
        )
        return tokens, real, torch.from_numpy(pages), true

    def train(self, readouts: dict[str, Shares], arguments: argparse.Namespace) -> None:
        """Train all read-outs on the same batches."""
        optimizers = {
            name: torch.optim.AdamW(one.parameters(), lr=arguments.rate, weight_decay=1e-3)
            for name, one in readouts.items()
        }
        for step in range(arguments.steps):
            tokens, real, pages, true = self.batch()
            coded = self.store.batch(pages)
            weights = (tokens.norm(dim=-1)[::CANDIDATES] * real).sum(1)[:, None]

            def shaped(matches: Tensor, real: Tensor = real) -> Tensor:
                return matches.reshape(BATCH, CANDIDATES, -1) * real[:, None]

            for name, readout in readouts.items():
                for group in optimizers[name].param_groups:
                    group["lr"] = (
                        arguments.rate * min(1, (step + 1) / 30) * (1 - step / arguments.steps)
                    )
                found, wanted = shaped(readout.matches(tokens, coded)), shaped(true)
                loss = arguments.token * token_loss(found, wanted, real.float())
                student, teacher = (one.sum(-1) / weights for one in (found, wanted))
                loss = loss + listwise_loss(student, teacher, arguments.temperature)
                optimizers[name].zero_grad()
                torch.autograd.backward(loss)
                optimizers[name].step()
            if (step + 1) % 50 == 0:
                print(f"{step + 1} of {arguments.steps} steps", end="\r", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fit", metavar="FIT")
    parser.add_argument("--on", nargs="+", default=[], metavar="DATASET")
    parser.add_argument("--bytes-per-page", type=int, default=260)
    parser.add_argument("--readouts", default="shares,codeword,pair,page,lengths,gate")
    parser.add_argument("--join", type=int, default=1, help="make pages of up to so many of FIT's")
    parser.add_argument("--questions", type=int, default=400, help="most that are measured a set")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rate", type=float, default=5e-4)
    parser.add_argument("--token", type=float, default=20, help="weight of the token term")
    parser.add_argument("--temperature", type=float, default=0.02)
    parser.add_argument("--encoder", help="default: the embedded one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", type=Path, help="folder that caches encoded vectors")
    arguments = parser.parse_args()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    rng = np.random.default_rng(arguments.seed)
    encoded = encode_sets(
        [load(name) for name in (arguments.fit, *arguments.on)], arguments.encoder, arguments.cache
    )
    book = next(
        book
        for book in Codebook.all_shipped()
        if book.encoder is not None and book.encoder.matches(encoded[0].encoder)
    )
    codec = Codec.with_codebook(book, arguments.bytes_per_page)
    nets = {name: readouts(book)[name] for name in arguments.readouts.split(",")}
    fixed = Shares(*book.shares)
    table: dict[str, list[str]] = {name: [] for name in ("fixed mix", *nets)}
    for place, one in enumerate(encoded):
        asked = questions_of(one, arguments.join if place == 0 else 1, arguments.seed)
        codes = codec.compress(asked.pages)
        store = Store(codes, book, codec.config.first_layer)
        chosen = np.arange(len(asked.queries))
        if place == 0:
            answers = [sorted(grades) for grades in asked.grades]
            trained, chosen, held_pages = split(answers, len(asked.pages), HELD_OUT, rng)
            rows = np.setdiff1d(np.arange(len(asked.pages)), held_pages)
            Trainer(asked.some(trained), rows, codes, store, arguments.seed).train(nets, arguments)
        tested = asked.some(rng.permutation(chosen)[: arguments.questions])
        base = measured(fixed, store, tested, codes)
        table["fixed mix"].append(f"{base.mean():.4f}")
        for name, net in nets.items():
            gains = measured(net, store, tested, codes) - base
            error = gains.std(ddof=1) / len(gains) ** 0.5
            table[name].append(f"{gains.mean():+.4f} ± {error:.4f}")
    names = [f"{encoded[0].name}, held out", *(one.name for one in encoded[1:])]
    print(f"| {arguments.bytes_per_page} bytes a page |", " | ".join(names), "|")
    print("| --- " * (len(names) + 1) + "|")
    for name, cells in table.items():
        print(f"| {name} |", " | ".join(cells), "|")


if __name__ == "__main__":
    try:
        main()
    except GlieError as error:
        raise SystemExit(f"train_readout: {error}") from None
