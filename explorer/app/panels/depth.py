"""The Depth panel: its labs, a row each."""

from __future__ import annotations

from explorer.app.panels.lab import Lab, Plot
from explorer.figures.labs import norm_placement as norm_placement_figures
from explorer.figures.labs import realformer as realformer_figures
from explorer.figures.labs import residual as residual_figures
from explorer.figures.labs import why_residuals as why_residuals_figures
from explorer.labs import norm_placement, realformer, residual, why_residuals

ROWS: tuple[Lab, ...] = (
    Lab(
        "07_residual",
        "Residual",
        "In x + F(x) the second moments of independent parts add up. Post-norm therefore keeps 2^(−l/2) of its input "
        "after l branches, with pre-norm the stream grows by one unit a branch, and branches that start at zero make "
        "the whole stack the identity.",
        "2^(−l/2) is the weight of the identity path, not of the gradient: Post-LN without attention has a flat "
        "gradient, and attention bends it into a V. Pre-LN grows by one unit only where branches have unit moment. "
        "Starting as the identity has a price: matrices before a zero matrix, or in a branch whose α is zero, get no "
        "gradient in the first step.",
        residual.Residual, residual.run, residual.verdict,
        (
            Plot("sums", "Moments of a sum", "Second moment of x + αF. Dotted level: independent.",
                 residual_figures.sums),
            Plot("path", "The identity path", "Coefficient of the input. Dotted: standard error. Bars: seeds.",
                 residual_figures.path),
            Plot("gradient", "Post-LN's gradient", "Mean squared ∂L/∂x. Dashed: the identity path's weight².",
                 residual_figures.gradient),
            Plot("growth", "Growth of the stream", "Second moment by layer, two branches each. Lines: theory.",
                 residual_figures.growth),
            Plot("first_gradients", "Who gets a first gradient", "Norms before the first step. 0: exactly zero.",
                 residual_figures.first_gradients),
            Plot("identities", "Starting as the identity", "Mean squared ∂L/∂x, same designs. Exactly 1: identity.",
                 residual_figures.identities),
        ),
        "Essay: Su Jianlin 2021, kexue 8620; Bachlechner et al. 2020, arXiv 2003.04887; Zhang 2019, arXiv 1901.09321",
    ),
    Lab(
        "08_why_residuals",
        "Why residuals",
        "With a residual the branch can be small, and 1/√N is small enough: signal, gradient and the effect of one "
        "step on the loss then stay bounded at any depth.",
        "That a residual adds 1 to the derivative is not the point: x + F(x) without a norm grows as 2^N, both ways. "
        "1/N is smaller than needed. In one dimension the growth is (1 + ε)^N; in many, the branch is nearly "
        "orthogonal to the stream, and ε² adds up. All this holds at initialization: trained branches may align.",
        why_residuals.WhyResiduals, why_residuals.run, why_residuals.verdict,
        (
            Plot("growths", "Three growths at once", "With the chosen ε, against depth. Flat: bounded at any depth.",
                 why_residuals_figures.growths),
            Plot("gradients", "Gradient of all weights",
                 "Σ‖∂L/∂W‖² over one plain layer's. Bars: seeds, far apart without a residual.",
                 why_residuals_figures.gradients),
            Plot("step", "One step of descent", "How far the loss falls, at the chosen η. Lines: η‖∇L‖², expected.",
                 why_residuals_figures.step),
            Plot("rates", "Longer steps",
                 "Change of the loss over its first order. 1: equal. At the edge: off the scale.",
                 why_residuals_figures.rates),
            Plot("product", "One dimension against many", "Aligned branches: (1+ε)ᴺ. Random ones: only (1+ε²)ᴺ.",
                 why_residuals_figures.product),
            Plot("small_enough", "How small is small enough", "All growths in N layers, against a. For a ≥ ½: bounded.",
                 why_residuals_figures.small_enough),
        ),
        "Essay: Su Jianlin 2022, kexue 8994, after Wang et al. 2022, arXiv 2203.00555",
    ),
    Lab(
        "09_norm_placement",
        "Norm placement",
        "In Post-LN the last MLP's initial gradient does not depend on depth. In Pre-LN the stream's second moment "
        "stays between 1 + l/2 and 1 + 3l/2, and the last gradient shrinks as 1/√L.",
        "All of this is at initialization. That Pre-LN therefore needs no warm-up is the paper's conclusion, which is "
        "tried in the lab Warm-up, not here. The theorem bounds from above, without constants, for one head with W_Q "
        "= W_K = 0: what can be tested is its slope, a little steeper than −½ while tokens still become more alike. "
        "And 2^(−l/2), the weight of the identity path, is not how the gradient decays: Post-LN without attention has "
        "a flat gradient. Attention bends it into a V: averaging shrinks gradients that differ from token to token, "
        "and passes on what they share.",
        norm_placement.NormPlacement, norm_placement.run, norm_placement.verdict,
        (
            Plot("theorem", "The last MLP's gradient", "Theorem 1's setting, stacks of growing depth. Dotted: 1/√L.",
                 norm_placement_figures.theorem),
            Plot("last", "Every MLP's gradient", "The deepest of these stacks, layer by layer. Bars: seeds.",
                 norm_placement_figures.last),
            Plot("stream", "Pre-LN in its band", "Second moment. Gray: from 1 + l/2 to 1 + 3l/2.",
                 norm_placement_figures.stream),
            Plot("bends", "What bends Post-LN", "Mean squared ∂L/∂x: no attention, a plain mean, softmax.",
                 norm_placement_figures.bends),
            Plot("gradients", "Gradient of five designs", "Mean squared ∂L/∂x over the output's. Lines: theory.",
                 norm_placement_figures.gradients),
            Plot("weights", "Gradient of the weights", "All matrices of a layer together.",
                 norm_placement_figures.weights),
            Plot("moments", "Second moment of five designs", "Three stay at 1: they normalize the sum.",
                 norm_placement_figures.moments),
            Plot("correlations", "How alike tokens become", "Mean overlap of two tokens, over q.",
                 norm_placement_figures.correlations),
        ),
        "Xiong et al. 2020, arXiv 2002.04745",
    ),
    Lab(
        "10_realformer",
        "RealFormer",
        "Moving the residual onto the attention logits, A_l = q·k/√d + A_(l−1), makes those of independent layers "
        "grow as √l: attention gets sharper with depth, successive layers look at the same keys, and the layers' "
        "gradients are closer to each other than Post-LN's. One score tensor a layer must be kept.",
        "√l holds for independent layers. In a Post-LN stack tokens become alike and late layers add almost nothing: "
        "the sum levels off. Adding up queries and keys instead grows as l. In 12 layers the gradients along the "
        "stream are closer in all of 8 seeds, those of the weights in 6; in 48 layers in 5 and 3, in 2 layers in 1 "
        "and 3. Attention that is written out keeps its pattern anyway, so autograd keeps no more bytes for the sum. "
        "The score tensor costs memory where attention is fused or computed again.",
        realformer.RealFormer, realformer.run, realformer.verdict,
        (
            Plot("independent", "Logits of independent layers", "Unit queries and keys in each. Lines: 1, √l and l.",
                 realformer_figures.independent),
            Plot("spread", "Logits of a real stack", "Lines: theory. Dotted: independent layers.",
                 realformer_figures.spread),
            Plot("entropy", "Attention entropy", "Mean over heads and seeds. Lines: theory.",
                 realformer_figures.entropy),
            Plot("similarity", "Successive patterns", "Weight shared with the layer below. Rings: with another head.",
                 realformer_figures.similarity),
            Plot("gradients", "Gradient along the stream", "Mean squared ∂L/∂x over the output's. Lines: theory.",
                 realformer_figures.gradients),
            Plot("weights", "Gradient of the weights", "All matrices of a layer together. Lines: theory.",
                 realformer_figures.weights),
            Plot("closer", "How far apart the layers are", "A dot a seed. Below the diagonal: closer than Post-LN.",
                 realformer_figures.closer),
            Plot("memory", "What a layer keeps", "Bytes for the backward pass, with attention written out or fused.",
                 realformer_figures.memory),
        ),
        "Essay: Su Jianlin 2020, kexue 8027; He et al. 2020, arXiv 2012.11747",
    ),
)
