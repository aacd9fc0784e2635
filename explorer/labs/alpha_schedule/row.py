"""The lab α schedule: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.alpha_schedule import experiment, pictures
from explorer.labs.lab import Lab, Plot, Why

ROW = Lab(
    "12_alpha_schedule", "α schedule",
    "In x + αF(x), α may be learned from 0, or be raised by a small constant step up to 1 and then left there, which "
    "trained best in the essay's experience. Either way the layers are added gradually; there is no warm-up here.",
    "These short runs do not confirm the essay's order: after norms a learned α wins in 8 of 8 seeds, and the ramp is "
    "third of four. A ramp ends at the full network, α = 1, and must be slow. Without norms, and twelve layers deep, "
    "it learns until α nears 1 and then blows up (3 of 3 seeds). A learned α stays far below 1; the sign does not "
    "matter, so |α| is shown. This lab trains four models.",
    experiment.AlphaSchedule, experiment.run, experiment.verdict,
    (
        Plot(pictures.losses, "Held-out loss", "Nats a character. A stalled model stays at the unigram's level."),
        Plot(pictures.means, "α over the steps", "Mean of |α| over the layers. A ramp is straight.",
             why=Why("A ramp is min(end, t · step); under Adam a learned α first moves by about η a step.")),
        Plot(pictures.by_layer, "Learned α by layer", "|α|, learned from 0. Bright: layers that add the most."),
    ),
    "Essay: Su Jianlin 2021, kexue 8620; Bachlechner et al. 2020, arXiv 2003.04887",
    grows=True,
)
