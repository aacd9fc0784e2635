"""Arrays as bytes: the same bits on the other side, and a refusal of what is none."""

from __future__ import annotations

import numpy as np
import pytest

from explorer.tasks.frames import packed, unpacked

ARRAYS = {"seeds": np.array([[1.0, np.nan], [np.inf, -0.0]]), "a number": np.array(2.5, np.float32),
          "codes": np.arange(5, dtype=np.int16), "none": np.empty((0, 3)), "view": np.arange(12.0).reshape(3, 4).T}


def test_arrays_arrive_bit_for_bit() -> None:
    about, arrays = unpacked(packed({"levels": [0.5, None]}, ARRAYS))
    assert about == {"levels": [0.5, None]}
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("raw", [b"", b"no race", b"\xff" * 20, packed(1, {"lost": np.ones(9)})[:-1],
                                 b"\x04\x00\x00\x0012 3", b"\x01\x00\x00\x001"])
def test_other_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"packed arrays|buffer is smaller"):
        unpacked(raw)
