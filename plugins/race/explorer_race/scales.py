"""The colors of trained maps: scales of `explorer.figures.map.cells`."""

from __future__ import annotations

import math

from explorer.figures.map.cells import Scale

# ln 103: as likely as each other are all characters of the task's text
HELD_OUT_LOSS = Scale("Held-out loss", "loss (nats/character)", clip=(0.0, 4.6), origin="trained")
LOSS_DROP = Scale(
    "Loss below the unigram's",
    "drop (nats/character)",
    clip=(-0.1, math.inf),
    origin="trained",
)
# the coordinate check of Yang et al. 2022, appendix D.1, on text that no step has seen
FEATURE_CHANGE = Scale(
    "Change of features", "RMS of Δx before the readout", log=True, origin="trained"
)
