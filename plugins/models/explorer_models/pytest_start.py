"""The fixture `explorer_start` of pytest: a test that a model starts as expected. With
`pytest --write-starts` it stores how models start instead, for review."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from explorer_models.expecting import Verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option `--write-starts`."""
    parser.getgroup("explorer").addoption(
        "--write-starts",
        action="store_true",
        help="store how models start in the files that explorer_start expects, for review",
    )


@pytest.fixture
def explorer_start(pytestconfig: pytest.Config) -> Callable[..., Verdict]:
    """A function that fails the test where a model does not start as expected:
    `explorer_start(model, batch, expect="starts/gpt2.toml", loss=None)`.

    `expect` is what `explorer probe --expect` takes: a file that a person has reviewed, its path
    relative to pytest's root; a preset; or "class", for what the model's own class says. With
    `outside=True`, or an `optimizer`, the model is to pass the tests from outside, too. It returns
    the verdict, with the profile of the model.
    """

    def check(
        model: Any,
        batch: Any,
        expect: str = "class",
        loss: Any = None,
        *,
        outside: bool = False,
        optimizer: Any = None,
    ) -> Verdict:
        # torch is imported where a test asks for it, not where pytest begins
        from explorer_models.expecting import expectation, verdict
        from explorer_models.probe import probed
        from explorer_models.starts import Start, refuse_not_finite

        path = pytestconfig.rootpath / expect
        is_file = expect.endswith((".toml", ".json"))
        if is_file and pytestconfig.getoption("write_starts"):
            refuse_not_finite(model)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(Start.of(model, *probed(model, batch, loss))), encoding="utf-8")
            pytest.skip(f"wrote {expect}: review it, and commit it")
        if is_file and not path.exists():
            pytest.fail(f"{expect} is not there: pytest --write-starts stores it", pytrace=False)
        judged = verdict(
            expect,
            expectation(str(path) if is_file else expect),
            model,
            batch,
            loss,
            outside=outside or optimizer is not None,
            optimizer=optimizer,
        )
        if not judged.agrees:
            pytest.fail(str(judged), pytrace=False)
        return judged

    return check
