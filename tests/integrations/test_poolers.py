"""glie's codes as the poolings of sentence-transformers and colpali-engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import MultiVectorEncoder
from sentence_transformers.multi_vector_encoder.modules import BaseTokenPooling

import glie
from glie.integrations.colpali_engine import GliePooler, TokenPoolingOutput
from glie.integrations.sentence_transformers import GliePooling
from tests.codec.networks import random_codec
from tests.conftest import make_arrays
from tests.encoders.checkpoints import DIM, saved

PAGES = [torch.from_numpy(rows) for rows in make_arrays(4, dim=DIM)]
TEXTS = ["red blue green black white pink the page", "red", "what is a page"]


def code_of(page: torch.Tensor, codec: glie.Codec) -> Any:
    codes = codec.compress(glie.Pages([page.float().numpy()], normalize=True))
    return codes.vectors[0][codes.counts[0] > 0]


def same(found: Any, codec: glie.Codec, pages: list[torch.Tensor] = PAGES) -> None:
    assert len(found) == len(pages)
    for mine, page in zip(found, pages, strict=True):
        np.testing.assert_allclose(mine, code_of(page, codec), atol=1e-6)


def padded(pages: list[torch.Tensor], side: str) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(pages, batch_first=True, padding_side=side)


@pytest.fixture(scope="module")
def colbert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved("colbert", tmp_path_factory.mktemp("poolers") / "colbert")


@pytest.mark.parametrize("codec", [glie.Codec(k=3), glie.Codec(k=3, dtype="int4"), random_codec(DIM, 0).at(3)])  # fmt: skip
def test_both_give_glie_s_codes(codec: glie.Codec) -> None:
    pooling, pooler = GliePooling(codec=codec), GliePooler(codec=codec)
    assert isinstance(pooling, BaseTokenPooling)
    same(pooling.pool(PAGES), codec)
    same(pooler.pool_embeddings(PAGES), codec)
    assert (GliePooling().k, GliePooling(k=7).k, GliePooling(5, codec=codec).k) == (4, 7, 5)
    for row in pooling.pool(PAGES)[0]:
        assert float(row.norm()) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches(side: str) -> None:
    """The same shapes out: padding never counts as a vector, and stays where it was."""
    few = [*PAGES, PAGES[0][:2]]
    batch, codec = padded(few, side), glie.Codec(k=3)
    mask = batch.any(dim=-1)
    noisy = batch.masked_fill(~mask[..., None], 0.5)  # only a mask tells
    for found in (
        GliePooling(k=3).pool(batch, padding_side=side),
        GliePooling(k=3).pool(noisy, attention_mask=mask, padding_side=side),
        GliePooler(k=3).pool_embeddings(batch, padding=True, padding_side=side),
        GliePooler(k=3).pool_embeddings(batch, padding_side=side),
    ):
        assert found.shape == (5, 3, DIM)
        same([rows[rows.any(dim=-1)] for rows in found], codec, few)
        empty = found[4, 0 if side == "left" else 2]
        assert not empty.any()


def test_types_and_pages_of_few_vectors() -> None:
    for kind in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        pages = [page.to(kind) for page in PAGES]
        for found in (GliePooling(k=2).pool(pages), GliePooler(k=2).pool_embeddings(pages)):
            assert {(page.dtype, tuple(page.shape)) for page in found} == {(kind, (2, DIM))}
    one, none = PAGES[0][:1], PAGES[0][:0]
    for found in (
        GliePooling(k=4).pool([one, none]),
        GliePooler(k=4).pool_embeddings([one, none]),
    ):
        assert [tuple(page.shape) for page in found] == [(1, DIM), (0, DIM)]
        np.testing.assert_allclose(found[0], one, atol=1e-6)
    long = GliePooling(k=4).pool([3 * PAGES[0]])[0]  # vectors off the sphere
    np.testing.assert_allclose(long, GliePooling(k=4).pool([PAGES[0]])[0], atol=1e-5)


def test_in_a_call_of_encode_document(colbert: Path) -> None:
    model = MultiVectorEncoder(str(colbert), device="cpu")
    whole = [page.clone() for page in model.encode_document(TEXTS)]
    pooling = GliePooling(k=2)
    same(model.encode_document(TEXTS, token_pooling=pooling), pooling.codec, whole)
    asked = model.encode_query(["red"], token_pooling=pooling)[0]
    np.testing.assert_array_equal(asked, model.encode_query(["red"])[0])
    both = GliePooling(k=2, tasks=["query", "document"])
    assert len(model.encode_query(["red"], token_pooling=both)[0]) == 2


@pytest.mark.parametrize(
    ("codec", "tasks"),
    [(glie.Codec(k=2), ["document"]), (random_codec(DIM, 0).at(2), ["query", "document"])],
)
def test_as_the_last_module_of_a_saved_model(
    codec: glie.Codec, tasks: list[str], colbert: Path, tmp_path: Path
) -> None:
    model = MultiVectorEncoder(str(colbert), device="cpu")
    whole = [page.clone() for page in model.encode_document(TEXTS)]
    model.append(GliePooling(codec=codec, tasks=tasks))
    same(model.encode_document(TEXTS), codec, whole)
    model.save_pretrained(str(tmp_path / "small"), create_model_card=False)
    again = MultiVectorEncoder(str(tmp_path / "small"), device="cpu", trust_remote_code=True)
    last = again[-1]
    assert isinstance(last, GliePooling)
    assert (last.k, last.tasks, last.codec.same_as(codec)) == (2, tasks, True)
    same(again.encode_document(TEXTS), codec, whole)
    assert len(again.encode_query(["red"])[0]) == (2 if "query" in tasks else 12)
    with pytest.raises(ValueError, match="trust_remote_code"):
        MultiVectorEncoder(str(tmp_path / "small"), device="cpu")


def test_return_dict_and_pool_factor() -> None:
    pooler = GliePooler(k=3)
    found = pooler.pool_embeddings(PAGES, return_dict=True)
    assert isinstance(found, TokenPoolingOutput)
    same(found.pooled_embeddings, pooler.codec)
    assert found.cluster_id_to_indices is not None
    for page, codes, clusters in zip(
        PAGES, found.pooled_embeddings, found.cluster_id_to_indices, strict=True
    ):
        assert list(clusters) == [0, 1, 2]
        members = torch.cat([indices for (indices,) in clusters.values()])
        assert sorted(members.tolist()) == list(range(len(page)))
        for slot, (indices,) in clusters.items():
            assert all((page[i] @ codes.T).argmax() == slot for i in indices)
    batch = pooler.pool_embeddings(
        padded(PAGES, "left"), return_dict=True, padding=True, num_workers=2
    )
    assert isinstance(batch, TokenPoolingOutput)
    assert batch.cluster_id_to_indices is not None
    for mine, theirs in zip(batch.cluster_id_to_indices, found.cluster_id_to_indices, strict=True):
        assert {k: v[0].tolist() for k, v in mine.items()} == {
            k: v[0].tolist() for k, v in theirs.items()
        }
    thirds = pooler.pool_embeddings(PAGES, pool_factor=3)
    for mine, page in zip(thirds, PAGES, strict=True):
        np.testing.assert_allclose(mine, code_of(page, glie.Codec(len(page) // 3)), atol=1e-6)
    nothing = pooler.pool_embeddings([], return_dict=True)
    assert isinstance(nothing, TokenPoolingOutput)
    assert (nothing.pooled_embeddings, nothing.cluster_id_to_indices) == ([], [])
    assert pooler.pool_embeddings([]) == []


def test_what_cannot_be_pooled() -> None:
    pooler = GliePooler(k=3)
    with pytest.raises(glie.InputError, match=r"found \[\(16,\)"):
        pooler.pool_embeddings(PAGES[0])
    with pytest.raises(glie.InputError, match="padding_side: expected 'left' or 'right'"):
        pooler.pool_embeddings(padded(PAGES, "left"), padding_side="top")
    with pytest.raises(glie.InputError, match=r"codec: expected a glie\.Codec, found str"):
        GliePooling(codec="x")  # type: ignore[arg-type]
    with pytest.raises(glie.InputError, match="k: expected a whole number"):
        GliePooler(k=0)
    with pytest.raises(glie.VectorError, match="have 16 numbers, the codec was fitted for 8"):
        GliePooler(codec=random_codec(8, 0)).pool_embeddings(PAGES)
    with pytest.raises(glie.VectorError, match="not finite"):
        pooler.pool_embeddings([torch.full((3, 4), torch.nan)])
