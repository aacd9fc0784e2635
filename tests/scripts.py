"""Running a script that a page gives to be taken home."""

from __future__ import annotations

from typing import Any

SIZE: dict[str, Any] = {
    "n_layers": 2,
    "d_model": 16,
    "n_heads": 2,
    "n_ctx": 8,
    "batch_size": 2,
    "n_seeds": 2,
}


def run(code: str) -> dict[str, Any]:
    """What a script leaves; it is somebody's file, so no line may be long or hold anything that is
    not shown."""
    assert max(map(len, code.splitlines())) <= 130
    assert code.isprintable() or set(
        "".join(filter(lambda sign: not sign.isprintable(), code))
    ) == {"\n"}
    left: dict[str, Any] = {}
    exec(compile(code, "snippet.py", "exec"), left)  # noqa: S102 - what this test is about
    return left
