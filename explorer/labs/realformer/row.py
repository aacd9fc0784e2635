"""The lab RealFormer: its claim, its limits and its charts."""

from __future__ import annotations

from explorer.labs.lab import Lab, Plot, Why
from explorer.labs.realformer import experiment, pictures

ROW = Lab(
    "10_realformer", "RealFormer",
    "Moving the residual onto the attention logits, A_l = q·k/√d + A_(l−1), makes those of independent layers grow as "
    "√l: attention gets sharper with depth, successive layers look at the same keys, and the layers' gradients are "
    "closer to each other than Post-LN's. One score tensor a layer must be kept.",
    "√l holds for independent layers. In a Post-LN stack tokens become alike and late layers add almost nothing: the "
    "sum levels off. Adding up queries and keys instead grows as l. In 12 layers the gradients along the stream are "
    "closer in all of 8 seeds, those of the weights in 6; in 48 layers in 5 and 3, in 2 layers in 1 and 3. Attention "
    "that is written out keeps its pattern anyway, so autograd keeps no more bytes for the sum. The score tensor "
    "costs memory where attention is fused or computed again.",
    experiment.RealFormer, experiment.run, experiment.verdict,
    (
        Plot(pictures.independent, "Logits of independent layers",
             "Unit queries and keys in each. Lines: 1, √l and l.",
             why=Why("Variances of independent layers add up: √l. Sums of both queries and keys grow as l.")),
        Plot(pictures.spread, "Logits of a real stack", "Lines: theory. Dotted: independent layers.",
             why=Why("s_l² is the sum of all layers' own, which fall as tokens become alike.")),
        Plot(pictures.entropy, "Attention entropy", "The median head of each layer. Lines: theory.",
             why=Why("H ≈ ln n − s²/2 at small logit spread s, and s grows with depth.")),
        Plot(pictures.similarity, "Successive patterns",
             "Weight shared with the layer below. Rings: with another head."),
        Plot(pictures.gradients, "Gradient along the stream", "Mean squared ∂L/∂x over the output's. Lines: theory."),
        Plot(pictures.memory, "Memory of a layer", "Bytes for the backward pass, with attention written out or fused."),
    ),
    "Essay: Su Jianlin 2020, kexue 8027; He et al. 2020, arXiv 2012.11747",
)
