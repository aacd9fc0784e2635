"""Layers that are built otherwise than their siblings: `Profile.differences`, read off the code by a probe."""

from __future__ import annotations

from explorer.diagnosis.cures import Cure, mend
from explorer.diagnosis.finding import LONGEST, Finding
from explorer.diagnosis.reading import called, layer_name, path
from explorer.profile import SITE_WORDS, Profile


def odd_design(profile: Profile) -> Finding | None:
    """The first layer whose design is unlike that of its siblings; the evidence names whatever else is."""
    if not profile.differences:
        return None
    layer, site, words = profile.differences[0]
    others = [f"{layer_name(profile, one)} {said} ({SITE_WORDS.get(place, place)})"
              for one, place, said in profile.differences[1:]]
    meaning = f"{called(profile, layer)} {words}"
    own, _, theirs = meaning.partition(", where ") if len(meaning.split()) > LONGEST else (meaning, "", "")
    evidence = f"{theirs[0].upper()}{theirs[1:]}. " if theirs else ""
    evidence += f"Read off the operations that it runs, at the {SITE_WORDS.get(site, site)}."
    more = f" And: {'; '.join(others)}." if others else ""
    cure = Cure("Build this layer as its siblings are", f"{path(profile, layer)}  # beside another block")
    return Finding("warning", f"{own}.", evidence + more, *mend(profile, cure))
