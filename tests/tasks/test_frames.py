"""Arrays as bytes: the same bits on the other side, and a refusal of what is none."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.tasks.frames import packed, unpacked

ARRAYS = {
    "seeds": np.array([[1.0, np.nan], [np.inf, -0.0]]),
    "a number": np.array(2.5, np.float32),
    "codes": np.arange(5, dtype=np.int16),
    "none": np.empty((0, 3)),
    "view": np.arange(12.0).reshape(3, 4).T,
}


def test_arrays_arrive_bit_for_bit() -> None:
    content = unpacked(packed({"levels": (0.5, None), "arrays": list(ARRAYS.items())}))
    assert content["levels"] == [0.5, None]
    assert [name for name, _ in content["arrays"]] == list(ARRAYS)
    for (_, array), expected in zip(content["arrays"], ARRAYS.values(), strict=True):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
        assert array.tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"no race",
        b"\xff" * 20,
        packed({"lost": np.ones(9)})[:-1],
        b"\x04\x00\x00\x0012 3",
        b'\x0d\x00\x00\x00{"array": 1.5}',
    ],
)
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="packed arrays"):
        unpacked(raw)
