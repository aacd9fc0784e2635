"""Remedies for a model that is not ours: a change in words, and the line of torch that makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from explorer.config import Config
from explorer.profile import Profile
from explorer.remedies import Candidates, remedy

Fix = tuple[str, Mapping[str, object], str]
"""The last three parts of a finding: words, fields of `Config`, a line of torch."""


class Cure(NamedTuple):
    """A change of a torch model; names in the code stand for those of the model."""

    words: str
    code: str


PRE_NORM = Cure("Put a norm before each branch",
                "x = x + self.attention(self.norm_1(x)); x = x + self.mlp(self.norm_2(x))")
UNIT_VARIANCE = Cure("Draw the weights with variance 1/fan_in",
                     "nn.init.normal_(linear.weight, std=linear.in_features ** -0.5)")
NOT_ZERO = Cure("Start the branches with weights that are not zero", UNIT_VARIANCE.code)
NOT_ZERO_TOKEN = Cure("Start the token as small random numbers, not as zeros",
                      "nn.init.trunc_normal_(token, std=0.02)  # such as model.cls_token")
REACHED = Cure("Let the gradient of the loss reach these weights",
               "print(block)  # look for detach(), torch.no_grad(), a hard choice, and units that are all 0")
DIVIDED = Cure("Divide the logits by √d", "scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])")
QK_NORM = Cure("Normalize queries and keys",
               "q, k = (F.layer_norm(part, part.shape[-1:]) for part in (q, k))  # before the logits")
RESIDUAL = Cure("Add the branch to its input", "x = x + self.branch(self.norm(x))")
POST_NORM = Cure("Put back the norm after the sum", "x = self.norm(x + self.branch(x))")
READ_NORM = Cure("Let the branch read the norm", "x = x + self.branch(self.norm(x))  # not self.branch(x)")
APART = Cure("Draw each layer by itself",
             "for block in model.layers: block.apply(init)  # init draws the weights of a module")
FAN_IN = Cure("Use the matrix's own fan_in",
              "nn.init.normal_(linear.weight, std=linear.in_features ** -0.5)  # weight is [fan_out, fan_in]")
WIDER = Cure("Keep the stream in float32 or bfloat16",
             "with torch.autocast(device, dtype=torch.bfloat16): model(batch)")
EXACT = Cure("Keep the stream in float32", "x = x + self.branch(self.norm(x)).float()  # with x in float32")
SMALLER = Cure("Make the branches smaller with depth",
               "nn.init.normal_(last.weight, std=(2 * n_layers * last.in_features) ** -0.5)")


LATER = Cure("Go on from a checkpoint before it, with smaller steps", "")
DRAWN = (UNIT_VARIANCE, NOT_ZERO, NOT_ZERO_TOKEN, APART, FAN_IN, SMALLER)
"""Cures that draw weights, which is too late for a model that has been trained."""


def fix(profile: Profile, cure: Cure, candidates: Callable[[Config], Candidates] = lambda _: ()) -> Fix:
    """The remedy of a finding: a change of the config where there is one, else the cure."""
    if profile.config is None:
        cure = LATER if profile.step and cure in DRAWN else cure
        return cure.words, {}, cure.code
    return (*remedy(profile.config, candidates), "")
