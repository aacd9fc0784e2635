"""Results of one contender of a race: its `Outcome`, and a `Line` that it wrote. Plain values, without torch."""

from __future__ import annotations

from typing import NamedTuple


class Outcome(NamedTuple):
    """Result of one contender."""

    name: str
    steps: int
    """Steps made."""
    final_loss: float
    """Held-out loss of the weights as they are now, nats a character; nan once retired."""
    below_unigram: int | None
    """The step from which on the held-out loss stayed below the unigram's by more than `race.MARGIN`, if any."""
    retired_at: int | None
    """The step that could not be made; None if all could."""
    reason: str
    """The reason why not; empty if nothing went wrong."""
    ratio_first: float
    """Norm of the gradients by the first layer's matrices over those by the last layer's, at step 0; nan where both are
    zero, as where α is."""
    ratio_last: float
    """This ratio at the last step at which the instruments were on."""
    worse_from: int | None = None
    """The step from which on the held-out loss stayed above a uniform guess's by more than `race.WORSE`; None if it
    did not, or the contender is retired."""

    @property
    def diverged(self) -> bool:
        """Whether it could not continue, or ended far worse than a uniform guess."""
        return self.retired_at is not None or self.worse_from is not None


class Line(NamedTuple):
    """A line of a contender."""

    given: str
    """The held-out text before it; empty where characters are filled in."""
    written: str
    """Text that the contender wrote; where it fills in, the whole text with its characters in brackets."""
