"""The Training panel: labs that train, a row each. They take seconds, say how far they are, and can be stopped."""

from __future__ import annotations

from explorer.app.panels.lab import Lab, Plot
from explorer.figures.labs import alpha_schedule as alpha_schedule_figures
from explorer.figures.labs import warmup as warmup_figures
from explorer.labs import alpha_schedule, warmup

ROWS: tuple[Lab, ...] = (
    Lab(
        "11_warmup",
        "Warm-up",
        "Post-LN needs a learning rate that rises slowly: without warm-up it stalls, with Adam as with SGD. Pre-LN "
        "trains without warm-up. Before the first step Post-LN's gradients are large; after the warm-up they are "
        "small.",
        "Warm-up treats the symptom. A stall is not one step that was too long, but its consequence: all tokens "
        "become alike, and then no gradient passes the layers. In these small models RAdam, whose first steps are "
        "small, needs no warm-up either (8 of 8 seeds), although the paper calls it no substitute. This lab trains "
        "six models, which takes about twenty seconds.",
        warmup.Warmup, warmup.run, warmup.verdict,
        (
            Plot("losses", "Held-out loss", "Nats a character. A stalled model stays at the unigram's level.",
                 warmup_figures.losses),
            Plot("before", "Gradients before the first step", "All matrices of a layer, as drawn: the same for any T.",
                 warmup_figures.before),
            Plot("warm", "Gradients when warm-up ends", "The same, at step T of the long one. Low at the left: lost.",
                 warmup_figures.warm),
            Plot("ends", "Gradients at the end", "The same, after the last step. Even layers train together.",
                 warmup_figures.ends),
            Plot("ratio", "First layer over last", "Gradient of the first layer's matrices. Far below 1: vanishing.",
                 warmup_figures.ratio),
            Plot("correlation", "What a stall is", "Overlap of the tokens after the last layer. 1: all are alike.",
                 warmup_figures.correlation),
        ),
        "Xiong et al. 2020, arXiv 2002.04745",
    ),
    Lab(
        "12_alpha_schedule",
        "α schedule",
        "In x + αF(x), α may be learned from 0, or be raised by a small constant step up to 1 and then left there, "
        "which trained best in the essay's experience. Either way the layers are added gradually; there is no warm-up "
        "here.",
        "These short runs do not confirm the essay's order: after norms a learned α wins in 8 of 8 seeds, and the "
        "ramp is third of four. A ramp ends at the full network, α = 1, and must be slow. Without norms, and twelve "
        "layers deep, it learns until α nears 1 and then blows up (3 of 3 seeds). A learned α stays far below 1; the "
        "sign does not matter, so |α| is shown. This lab trains four models, which takes about fifteen seconds.",
        alpha_schedule.AlphaSchedule, alpha_schedule.run, alpha_schedule.verdict,
        (
            Plot("losses", "Held-out loss", "Nats a character. A stalled model stays at the unigram's level.",
                 alpha_schedule_figures.losses),
            Plot("alphas", "α over the steps", "Mean of |α| over the layers. A ramp is straight.",
                 alpha_schedule_figures.alphas),
            Plot("learned", "Learned α by layer", "|α|, learned from 0. Bright: layers that add the most.",
                 alpha_schedule_figures.learned),
            Plot("before", "Gradient before the first step", "Norm of ∂L/∂x. At α = 0 flat after the first norm.",
                 alpha_schedule_figures.before),
            Plot("ends", "Gradient at the end", "The same, after the last step.", alpha_schedule_figures.ends),
            Plot("weights", "Weights' gradients at the end", "All matrices of a layer. Far lower: not trained.",
                 alpha_schedule_figures.weights),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; Bachlechner et al. 2020, arXiv 2003.04887",
    ),
)
