"""The phases of a panel: which follows which, and that the status line always says the one there
is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from explorer.app.widgets.panel import Panel, Phase


class Toy(Panel[int, int]):
    """A panel that goes where it is told to."""

    def go(self, *phases: Phase) -> None:
        for phase in phases:
            self._enter(phase, f"It is {phase}.")


@pytest.fixture
def panel() -> Iterator[Toy]:
    panel = Toy()
    yield panel
    panel.close()
    assert not panel.worker.alive


ROUTE = {Phase.IDLE: (), Phase.COMPUTING: (Phase.COMPUTING,)}
"""How a new panel comes to a phase; to all others by way of computing."""


@pytest.mark.parametrize("after", Phase)
@pytest.mark.parametrize("before", Phase)
def test_only_what_computes_can_be_stopped_or_paused(
    panel: Toy, before: Phase, after: Phase
) -> None:
    panel.go(*ROUTE.get(before, (Phase.COMPUTING, before)))
    if (
        after in (before, Phase.IDLE, Phase.COMPUTING, Phase.REFUSED, Phase.FAILED)
        or before is Phase.COMPUTING
    ):
        panel.go(after)
        assert panel.phase is after
    else:
        with pytest.raises(RuntimeError, match=f"{before} cannot become {after}"):
            panel.go(after)
        assert panel.phase is before
    assert panel.status.state == panel.phase


def test_what_was_paused_goes_on_or_ends(panel: Toy) -> None:
    panel.go(Phase.COMPUTING, Phase.PAUSED, Phase.COMPUTING, Phase.PAUSED, Phase.IDLE)
    assert panel.status.text == "It is idle."
