"""Sets about topics, and quick plans to measure on them."""

from __future__ import annotations

import dataclasses
import zlib
from typing import Any

import numpy as np
import pytest

from glie.codec.readout.codebook import Codebook
from glie.encoders import Encoder
from glie.evaluation import Dataset, Encoded, encode, encoding
from glie.evaluation.experiment import run
from glie.evaluation.fits import Codecs
from glie.evaluation.methods import ADAPTED, NAMES, SHIPPED
from glie.evaluation.plan import Plan
from glie.evaluation.store import Result, Store
from glie.identity import EncoderId
from glie.training.recipe import DEFAULT
from tests.conftest import unit

QUICK = dataclasses.replace(
    DEFAULT, epochs=1, batch=4, code_batch=8, negatives=3, pool=8, width=16, measurements=1
)


ALL = list(NAMES)


PAGES = 70


class Topics:
    """An encoder of numbers: a page "3 5" is about topics 3 and 5, and so is a question."""

    name, revision = "topics", "1"

    def encode_pages(self, pages: Any) -> Any:
        return [self._vectors(text, 12) for text in pages]

    def encode_queries(self, texts: Any) -> Any:
        return [self._vectors(text, 2) for text in texts]

    def _vectors(self, text: str, each: int) -> Any:
        rng = np.random.default_rng(zlib.crc32(text.encode()) + each)
        topics = np.eye(16)[[int(word) for word in text.split()]].repeat(each, axis=0)
        return unit(topics + 0.25 * rng.normal(size=topics.shape))


TOPICS = Topics()


def make_set(name: str, seed: int = 0, pages: int = PAGES, encoder: Encoder = TOPICS) -> Encoded:
    rng = np.random.default_rng(seed)
    about = [rng.choice(16, 3, replace=False) for _ in range(pages)]
    texts = {f"p{i}": " ".join(map(str, topics)) for i, topics in enumerate(about)}
    queries = {f"q{i}": f"{topics[0]} {topics[2]}" for i, topics in enumerate(about)}
    relevant = {f"q{i}": {f"p{i}": 1 + i % 2} for i in range(pages)}
    with pytest.MonkeyPatch.context() as patch:  # in several blocks, as a large set is
        patch.setattr(encoding, "SHARD_PAGES", 16)
        patch.setattr(encoding, "TEXTS_PER_BATCH", 8)
        found = encode(Dataset(name, texts, queries, relevant), encoder)
    assert len(found.shard_pages) > 2
    return found


def plan(methods: list[str] = ALL, **changes: Any) -> Plan:
    return Plan(**{"methods": methods, "budgets": [1, 2], "recipe": QUICK, **changes})


def everything(
    sets: list[Encoded], plan: Plan, store: Store, fit_on: list[Encoded] | None = None
) -> list[Result]:
    return list(run(sets, plan, Codecs(plan, store, fit_on=fit_on, sets=sets), store))


class LongTopics(Topics):
    """The same topics, said to be of the encoder that has a codebook, in as many dimensions."""

    made_for = Codebook.shipped().encoder or EncoderId("")
    name, revision = made_for.name, made_for.revision or ""

    def _vectors(self, text: str, each: int) -> Any:
        rotation = np.linalg.qr(np.random.default_rng(0).normal(size=(128, 16)))[0]
        return super()._vectors(text, each) @ rotation.T.astype(np.float32)


IN_BYTES = ["glie-free", "quantised", "ward-1bit", "plaid", SHIPPED, ADAPTED, "uncompressed"]


def in_bytes(*budgets: int, methods: list[str] = IN_BYTES, **changes: Any) -> Plan:
    return plan(methods, budgets=budgets, in_bytes=True, **changes)
