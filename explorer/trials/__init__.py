"""Trials: random designs that were trained, and how many of those like a given one did train.

`table` reads them, `evidence` is what an untrained model shows, `chance` what follows from it, `likeness` counts.
"""

from explorer.trials.chance import chance
from explorer.trials.evidence import Evidence, evidence, predicted
from explorer.trials.likeness import Likeness, as_trained, likeness
from explorer.trials.table import Trial, trials

__all__ = ["Evidence", "Likeness", "Trial", "as_trained", "chance", "evidence", "likeness", "predicted", "trials"]
