"""`STORIES`: tours of the page, each in a few steps. Data alone."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from explorer.app.explore.question import Choose, Draw, Question
from explorer.profile import Profile

VERDICT = "verdict"
"""Stands for the verdict, where a step says what to look at."""
OFFER = ("Move a slider: ",
         "a Transformer is drawn at random, and every chart shows what its signal does, layer by layer.")
"""The line that offers the stories: its bold part and its plain part."""


class Step(NamedTuple):
    """A state of the page, with the words for it."""

    link: str
    """The page as a person could have set it, as `Links.write` writes it, without the version."""
    words: str
    """One or two sentences. What they claim, the page shows."""
    look_at: str
    """Name of a chart of the open panel, or `VERDICT`; empty where the whole panel is meant."""
    question: Question | None = None
    """Asked before the page shows what the answer is."""


class Story(NamedTuple):
    """A tour in a few steps."""

    name: str
    """As it stands in a link."""
    title: str
    words: str
    """One line, for its card."""
    steps: tuple[Step, ...]


# Stories about the signal and its gradient: √d, warm-up, a thousand layers.


ROOT_D = Story("root_d", "The forgotten √d", "What attention does when its logits are not divided.", (
    Step("", "Attention compares queries and keys of 64 coordinates. Divided by √64 = 8, the logits of layer 1 spread "
         "by about 1, and attention stays broad: its entropy is 0.89 of the uniform one.", "attention_entropy"),
    Step("?attention_scale=none", "The same Transformer without the division: its logits spread 8 times as far in "
         "layer 1.", "attention_entropy",
         Draw("What happens to the entropy, layer by layer?", "attention_entropy", (0.0, 1.0),
              "Attention is close to one-hot: the entropy is 0.14 of the uniform one in layer 1, and 0.20 in layer "
              "12.")),
    Step("?attention_scale=none", "One-hot attention is often said to make gradients vanish. Here they explode: mean "
         "squared, the gradient at the input is about 31,000 times the last layer's; with the division it was 12 "
         "times.", "gradient_by_layer"),
    Step("?scale_rule=t5&attention_scale=none", "T5 does not divide either; it draws W_Q √64 = 8 times smaller. The "
         "logits spread by about 1 in layer 1 again, and the entropy is back at 0.89.", "attention_entropy"),
))

WARMUP = Story("warmup", "Why deep Post-LN needs warm-up", "How a norm on each sum makes the tokens alike.", (
    Step("", "Pre-LN has a norm before each branch. Its gradient grows on the way back: mean squared, it is 12 times "
         "the last layer's at the input.", "gradient_by_layer"),
    Step("?design=post_ln", "Post-LN, the design of the first Transformer, has its norms on the sums instead.",
         "gradient_by_layer",
         Draw("How large is the gradient from the input to layer 12?", "gradient_by_layer", (-3.0, 3.0),
              "It is V-shaped: 0.10 of the last layer's at the input, 0.03 in between.")),
    Step("?design=post_ln", "Attention averages, and here nothing keeps the tokens apart: their correlation is 0.999 "
         "after 12 layers. Attention has nothing left to tell apart, so its entropy becomes the uniform one.",
         "token_correlation"),
    Step("?design=post_ln&n_layers=24", "Twice as deep, the tokens differ by less than a millionth of what they did "
         "at the input. The verdict says how small models like it trained.", VERDICT),
    Step("?tab=race", "What training makes of it, a race shows: press Start. Post-LN stays at the loss of a unigram "
         "without warm-up, and gets below it with one. Pre-LN and ReZero need none.", ""),
))

DEEP = "?n_layers=1000&d_model=32&n_ctx=16&"


def _growth(measured: Profile) -> int:
    """The option that is right: how the second moment of a stack without norms ends."""
    first = measured.first_nonfinite
    if first is not None and first.layer < 100:
        return 2
    return int(measured["second_moment", "resid_post"].mean(axis=0)[-1] > 1e4)


THOUSAND = Story("thousand", "A thousand layers", "What keeps a very deep stack alive, at width 32.", (
    Step(f"{DEEP}n_seeds=1", "1000 layers, 32 wide; the line at the bottom says how long measuring took. Pre-LN adds "
         "2000 branches, and the second moment grows with their number, to about 2,200.", "second_moment"),
    Step(f"{DEEP}norm_placement=none&n_seeds=1", "The same sums without any norm.", "second_moment",
         Choose("How does the second moment end?", "second_moment", (-2.0, 40.0),
                "Each layer multiplies it now. From layer 69 on, there are numbers that are not finite.",
                options=("It grows as before, to about 2,200", "It grows faster, but stays finite",
                         "It stops being finite before layer 100"), right=_growth)),
    Step(f"{'?design=deepnorm&' + DEEP[1:]}n_seeds=1", "DeepNorm weights the stream by 6.69 in each sum, draws the "
         "branches smaller, and normalizes the sum. The gradient at the input is 1.1 times the last layer's.",
         "gradient_by_layer"),
    Step(f"{'?design=rezero&' + DEEP[1:]}n_seeds=1", "ReZero has no norm: each branch is multiplied by an α that is "
         "learned, from 0. The input passes 1000 layers unchanged, and so does the gradient.", "second_moment"),
))


# Stories about width and about real models: μP, and the way from GPT-2 to Llama.


MUP = Story("mup", "Same function, other training (μP)", "Why one learning rate does not fit every width.", (
    Step("?parametrization=ntk&pin=pre_ln", "NTK draws every weight with variance 1 and divides by √256 = 16 in the "
         "forward pass. It is the same function as the pinned one: dots lie on dots.", "second_moment"),
    Step("?parametrization=ntk&pin=pre_ln", "What differs is the gradient of a matrix: that of W_Q is 16 times "
         "smaller, since the forward pass divides by 16.", "gradient_by_matrix"),
    Step("?tab=lessons", "Adam's first step moves every weight by the learning rate, however small its gradient is. So "
         "the best rate depends on the width under the standard parametrization, and does not under μP: the lesson on "
         "parametrization takes that step, and trains at several widths.", ""),
))

LLAMA = Story("gpt2_llama", "From GPT-2 to Llama", "What each change does to the signal of a new model.", (
    Step("?design=gpt2", "GPT-2 starts from small embeddings, of second moment 0.0008. Its last matrix of each branch "
         "is drawn √24 = 4.9 times smaller, and the stream grows 10-fold over 12 layers.", "second_moment"),
    Step("?design=gpt2&norm=rms&pin=gpt2", "Llama's norm divides by the RMS and does not subtract the mean. At the "
         "start that changes next to nothing: the second moment stays within 1 % of GPT-2's.", "second_moment"),
    Step("?design=gpt2&scale_rule=bert&norm=rms&pin=gpt2", "Llama draws all of its matrices alike, N(0, 0.02²); "
         "GPT-2's ended at a second moment of 0.0084.", "second_moment",
         Draw("How does the second moment grow now?", "second_moment", (-4.0, 2.0),
              "It grows to 0.23, which is 27 times GPT-2's.")),
    Step("?design=llama3&pin=gpt2", "Gated MLPs, rotary positions and shared keys complete Llama 3. Its tokens become "
         "more alike: a correlation of 0.87 after 12 layers, where GPT-2 has 0.29.", "token_correlation"),
))


STORIES: Mapping[str, Story] = MappingProxyType({
    story.name: story for story in (ROOT_D, WARMUP, THOUSAND, MUP, LLAMA)
})
