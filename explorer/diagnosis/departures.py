"""`departs`: the first place at which a measurement leaves what theory expects of the nearest design of ours."""

from __future__ import annotations

import numpy as np

from explorer.diagnosis.cures import Cure, fix
from explorer.diagnosis.finding import LONGEST, Finding
from explorer.diagnosis.outputs import SPREAD
from explorer.diagnosis.reading import by_layer, called, layer_name, path
from explorer.diagnosis.siblings import unlike, worst
from explorer.numbers import number
from explorer.profile import SITE_WORDS, STATISTICS, Array, Profile
from explorer.theory import predict

# Layers that are built otherwise than their siblings: `Profile.differences`, read off the code by a probe.


def odd_design(profile: Profile) -> Finding | None:
    """The first layer whose design is unlike that of its siblings; the evidence names the other departures."""
    if not profile.differences:
        return None
    layer, site, words = profile.differences[0]
    others = [f"{layer_name(profile, other)} {said} ({SITE_WORDS.get(place, place)})"
              for other, place, said in profile.differences[1:]]
    meaning = f"{called(profile, layer)} {words}"
    own, _, theirs = meaning.partition(", where ") if len(meaning.split()) > LONGEST else (meaning, "", "")
    evidence = f"{theirs[0].upper()}{theirs[1:]}. " if theirs else ""
    evidence += f"Read off the operations that it runs, at the {SITE_WORDS.get(site, site)}."
    more = f" And: {'; '.join(others)}." if others else ""
    cure = Cure("Build this layer as its siblings are", f"{path(profile, layer)}  # beside another block")
    return Finding("warning", f"{own}.", evidence + more, *fix(profile, cure))


PLACES = (("logit_std", "attn_scores"), ("second_moment", "attn_out"), ("second_moment", "resid_mid"),
          ("second_moment", "mlp_out"), ("second_moment", "resid_post"))
"""Statistics that are compared, with their sites, in the order of the forward pass."""
STREAM = ("resid_mid", "resid_post")


def departs_from_twin(profile: Profile) -> Finding | None:
    """`departs` from the twin's prediction, where a profile has a twin and no config."""
    if profile.twin is None or profile.config is not None:
        return None
    return departs(profile, predict(profile.twin))


def unlike_twin(profile: Profile) -> Finding | None:
    """A model that was not read to its end, or behaves otherwise than the nearest design: why there are no lines."""
    if profile.twin is not None or profile.config is not None or not profile.remarks:
        return None
    more = f" And {len(profile.remarks) - 3} more." if len(profile.remarks) > 3 else ""
    reasons = "; ".join(profile.remarks[-3:])  # where they part comes last
    return Finding("warning", "The model matches no known design: there are no lines.",
                   f"{reasons[:1].upper()}{reasons[1:]}.{more}")


def departs(profile: Profile, expected: Profile) -> Finding | None:
    """The layer whose ratio to the prediction is most unlike the other layers', and its first such site.

    A twin is near, not the same, and a model of finite width scatters: what all layers have in common, and what drifts
    over depth, is not held against any of them. Of the stream its growth is compared, layer by layer.
    """
    ratios = {f"{statistic} {site}": ratio for statistic, site in PLACES
              if len(ratio := _ratio(profile, expected, statistic, site))}
    outliers = unlike(ratios, SPREAD)
    if not outliers:
        return None
    # beside a layer that is far off, its neighbor may look odd as well: the farthest layer, and there the first site
    layer, _ = worst(outliers)
    name = next(name for name in ratios if layer in outliers.get(name, ()))
    statistic, site = name.split()
    label = STATISTICS[statistic].label.lower()
    measured, theory = (by_layer(each, statistic, site)[layer - 1] for each in (profile, expected))
    cure = Cure("Compare this layer with its siblings", f"{path(profile, layer)}  # beside another block")
    where = layer_name(profile, layer)
    return Finding(
        "warning", f"The signal leaves theory's line in {where}.",
        f"First, the {label} at the {SITE_WORDS[site]} of {where}, {number(measured)} where {number(theory)} is "
        f"expected; {'it grows' if site in STREAM else 'that is'} {number(outliers[name][layer])} × "
        f"{'as much as' if site in STREAM else 'what'} the other layers predict.", *fix(profile, cure))


def _ratio(profile: Profile, expected: Profile, statistic: str, site: str) -> Array:
    """Measured over expected, `[layer]`; of the stream, growth over growth."""
    parts = [by_layer(each, statistic, site) for each in (profile, expected)]
    if not len(parts[0]) or len(parts[0]) != len(parts[1]):
        return np.empty(0)
    ratio: Array = parts[0] / parts[1]
    if site in STREAM:
        ratio = ratio / np.concatenate([[1.0], ratio[:-1]])
    return ratio
