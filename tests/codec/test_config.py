"""Settings of a codec are checked, and survive a round trip."""

from __future__ import annotations

from typing import Any

import pytest

import glie


@pytest.mark.parametrize("k", [0, -1, 5000, 2.5, "4", True])
def test_bad_k(k: Any) -> None:
    with pytest.raises(glie.InputError, match="codec setting k: expected a whole number"):
        glie.Codec(k=k)


def test_settings_round_trip() -> None:
    config = glie.CodecConfig(k=7, seed=3)
    assert glie.CodecConfig.from_dict(config.to_dict()) == config
    with pytest.raises(glie.InputError, match="bits is unknown to this version"):
        glie.CodecConfig.from_dict({"k": 4, "bits": 2})
