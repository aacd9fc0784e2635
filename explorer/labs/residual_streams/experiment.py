"""Post-LN, Pre-LN, Keel, mHC and AttnRes, many layers deep: gradient and token correlation, untrained and trained.

At initialization mHC and AttnRes are Pre-LN: their streams are alike, or their queries zero, and all that is left of a
mix is a factor, which the norm before each branch divides away. So the five are also trained, a few steps each on the
same batches, and read again. Deep stacks cost: these are narrow, and the steps are few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from explorer.choices import Choices
from explorer.config import Config, preset
from explorer.fields import setting
from explorer.labs import Look, Verdict, unseen
from explorer.labs.stacks import Pair, gradient, pairs
from explorer.labs.trained import SHAPE, Seed, Trained, profile_at, train
from explorer.numbers import number
from explorer.profile import STREAM, Array, Profile
from explorer.schemes.preset import PRESETS
from explorer.stopping import Progress, Stop
from explorer.training.history import History
from explorer.training.recipe import Recipe

DESIGNS: Mapping[str, str] = {
    name: PRESETS[name].title for name in ("post_ln", "pre_ln", "keel", "mhc", "attn_res")
}
MIXES = ("mhc", "attn_res")
"""Designs that mix streams or outputs, and are Pre-LN before they are trained."""
USUAL = 1e-3
"""Adam's learning rate; it rises over a fifth of the steps."""
READINGS = 5
ALIKE = 1e-3
"""1 − ρ after the last layer below which the tokens' differences count as lost."""
FADED = 1e-3
"""Share of the output's gradient² below which a gradient counts as lost."""
SAME = 0.05
"""By which two designs' token correlations may differ, mean over layers, and still count as the same."""


class ResidualStreams(Choices):
    """Sizes of the stacks and length of the training."""

    n_layers: int = setting(48, "Depth", "", "Layers; time grows with them, AttnRes's with their square.", 2, 64,
                            symbol="N", unit="layers", log=True)
    width: int = setting(64, "Width", "", "Of the untrained stacks; those that are trained are 32 wide.", 32, 128,
                         symbol="d", unit="coordinates", log=True)
    n_streams: int = setting(4, "Streams", "", "Streams of mHC.", 2, 8, symbol="n", unit="streams")
    steps: int = setting(16, "Training steps", "", "Steps of each contender; time grows with them.", 10, 400,
                         unit="steps", log=True)
    rate: float = setting(1.0, "Learning rate", "", f"Factor on Adam's usual one, {USUAL:g}.", 0.1, 10, symbol="η",
                          unit="× usual", log=True)
    seed: Seed = 0

    def design(self, name: str) -> Config:
        """One of `DESIGNS`; all with RMSNorm, so that nothing else differs."""
        streams = {"n_streams": self.n_streams} if name == "mhc" else {}
        return preset(name, n_layers=self.n_layers, norm="rms", seed=self.seed, **streams)

    def stack(self, name: str) -> Config:
        """As it is measured at initialization."""
        return self.design(name).replace(d_model=self.width, n_heads=2, n_ctx=32, batch_size=1, n_seeds=3)

    def contender(self, name: str) -> tuple[Config, Recipe]:
        """As it is trained."""
        recipe = Recipe(learning_rate=self.rate * USUAL, warmup=max(1, self.steps // 5))
        return self.design(name).replace(**{**SHAPE, "n_ctx": 16}), recipe


@dataclass(frozen=True, eq=False)
class StreamsResult:
    """Untrained stacks, and what training made of the contenders."""

    settings: ResidualStreams
    stacks: Mapping[str, Pair]
    trained: Trained[ResidualStreams]

    def reading(self, name: str, step: int) -> Profile:
        """Token correlation and gradient of a contender at a step, or the last reading before."""
        return with_gradients(self.trained.histories[DESIGNS[name]], step)

    def after(self, name: str) -> Profile:
        """At the last reading."""
        return self.reading(name, self.settings.steps)


def with_gradients(history: History, step: int) -> Profile:
    """A reading with the gradient along the stream, relative to the output's; nan where it was not read."""
    profile = profile_at(history, step)
    at = min(int(np.searchsorted(history.steps, step)), len(history.steps) - 1)
    norms = {site: history.values["stream_gradient", site] for site in STREAM}
    with np.errstate(all="ignore"):
        gradients = {
            ("activation_gradient", site): np.square(values[at] / norms[STREAM[-1]][at][-1])[None]
            for site, values in norms.items() if len(values) > at
        }
    return Profile("measured", {**profile.values, **gradients}, seeds=(0,))


def run(settings: ResidualStreams, stop: Stop = lambda: False, progress: Progress = lambda _: None,
        look: Look = unseen) -> StreamsResult:
    """Measures the stacks, then trains the contenders side by side.

    Raises:
        Stopped: `stop()` said true.
    """
    share = 0.15  # of the time
    stacks = pairs({name: settings.stack(name) for name in DESIGNS}, stop, lambda part: progress(share * part))
    field = {words: settings.contender(name) for name, words in DESIGNS.items()}
    trained = train(settings, field, settings.steps, settings.seed, stop,
                    lambda part: progress(share + (1 - share) * part), READINGS,
                    lambda make: look(lambda: StreamsResult(settings, stacks, make())))
    return StreamsResult(settings, stacks, trained)


def correlation(profile: Profile) -> Array:
    """`[layer]` token correlation after each layer, mean over seeds."""
    return np.asarray(profile["token_correlation", "resid_post"].mean(0))


def lowest(profile: Profile) -> float:
    """The gradient² along the stream where it is least, over the output's, mean over seeds."""
    return float(gradient(profile).mean(0).min())


def from_pre(result: StreamsResult, name: str) -> tuple[float, float]:
    """Mean over layers of the distance between a design's token correlation and Pre-LN's: untrained, and trained."""
    both = [(result.stacks[design].measured, result.after(design)) for design in (name, "pre_ln")]
    (mine, trained), (pre, pre_trained) = ([correlation(profile) for profile in profiles] for profiles in both)
    return float(np.mean(abs(mine - pre))), float(np.mean(abs(trained - pre_trained)))


def verdict(result: StreamsResult) -> Verdict:
    """Verdict: who keeps gradient and rank, and whether mixing streams differs from one."""
    settings = result.settings
    parts = []
    for name, words in DESIGNS.items():
        after = result.after(name)
        parts.append(f"{words} {correlation(after)[-1]:.4f}, {number(lowest(after), 2)}")
    apart = {DESIGNS[name]: from_pre(result, name) for name in MIXES}
    distances = ", ".join(f"{words} {drawn:.4f} and {trained:.4f}" for words, (drawn, trained) in apart.items())
    evidence = (
        f"Token correlation after the last of {settings.n_layers} layers and least gradient² over the output's, after "
        f"{settings.steps} steps: {'; '.join(parts)}. Rank counts as lost where 1 − ρ is below {ALIKE:g}, the gradient "
        f"where it is below {number(FADED)}. Distance to Pre-LN's correlation, mean over layers, untrained "
        f"and trained: {distances} (up to {SAME:g} counts as the same)."
    )
    if fallen := [name for name, end in result.trained.ends.items() if end.reason]:
        return "warning", f"{' and '.join(fallen)} fell out of the training: lower the learning rate.", evidence
    lost = [name for name in DESIGNS if losses(result.after(name))]
    same = all(trained <= SAME for _, trained in apart.values())
    mixing = "mHC and AttnRes start as Pre-LN and " + ("are still like it" if same else "are not like it any more")
    if lost == ["post_ln"]:
        traits = " and ".join(losses(result.after("post_ln")))
        return "good", f"Post-LN loses its {traits}, the others keep theirs; {mixing}.", evidence
    if not lost:
        return "warning", f"At this depth and in these steps no design loses gradient or rank; {mixing}.", evidence
    return "warning", f"Gradient or rank is lost by {' and '.join(DESIGNS[name] for name in lost)}.", evidence


def losses(profile: Profile) -> list[str]:
    """Losses of a stack: its gradient, the rank of its tokens, both, or none."""
    kept = {"gradient": lowest(profile) >= FADED, "rank": 1 - correlation(profile)[-1] >= ALIKE}
    return [words for words, there in kept.items() if not there]


def invariants() -> dict[str, float]:
    """Untrained, 48 layers: token correlation after the last, as measured and predicted, and least gradient²."""
    settings = ResidualStreams()
    stacks = pairs({name: settings.stack(name) for name in DESIGNS})
    numbers = {}
    for name, words in DESIGNS.items():
        numbers[f"{words}, token correlation"] = float(correlation(stacks[name].measured)[-1])
        numbers[f"{words}, the same, predicted"] = float(correlation(stacks[name].predicted)[-1])
        numbers[f"{words}, least gradient²"] = lowest(stacks[name].measured)
    return numbers
