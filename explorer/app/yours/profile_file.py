"""The profile that is shown: a file that a browser hands over, or that of an example."""

from __future__ import annotations

from collections.abc import Callable

from explorer.app.widgets.file import FileEntry
from explorer.profile import Profile

EXAMPLE = "an example: torch's own nn.TransformerEncoder"
LARGEST_BYTES = 4_000_000
"""A profile of a thousand layers with eight heads has half as many."""
MOST_LAYERS = 1024


class ProfileFile(FileEntry):
    """The entry.

    Args:
        show: called with a profile and its words; None for the example.
    """

    def __init__(self, show: Callable[[Profile | None, str], None]) -> None:
        super().__init__(label="Profile", about="Profile of your model, as JSON", accept=".json,application/json",
                         other="Show the example", now=EXAMPLE, most=LARGEST_BYTES)
        self._show = show

    def read(self, name: str, raw: bytes) -> None:
        """Shows the file, if it is a profile of some layers."""
        try:
            profile = readable(raw)
        except ValueError as error:
            self.refuse(f"Refused: {name}: {error}. The charts stay those of {self.now}.")
        else:
            self._use(profile, f"{profile.model or 'a model'}, from {name}")

    def put_back(self) -> None:
        """Shows the example."""
        self._use(None, EXAMPLE)

    def _use(self, profile: Profile | None, words: str) -> None:
        with self.hold_sync():
            self.now, self.own, self.said, self.refused = words, profile is not None, "", False
        self._show(profile, words)


def readable(raw: bytes) -> Profile:
    """A profile from a file's bytes.

    Raises:
        ValueError: it is too large, or none; says which.
    """
    if len(raw) > LARGEST_BYTES:
        raise ValueError(f"the file must be at most {LARGEST_BYTES // 1_000_000} MB long")
    try:
        profile = Profile.from_json(raw.decode())
    except UnicodeDecodeError:
        raise ValueError("the file must be text, UTF-8") from None
    if profile.origin != "measured" or ("second_moment", "resid_post") not in profile.values:
        raise ValueError("the profile must be a measured one with a second_moment at resid_post")
    layers = profile["second_moment", "resid_post"].shape[1]
    if not 1 <= layers <= MOST_LAYERS:
        raise ValueError(f"the profile must have 1 to {MOST_LAYERS} layers; got {layers}")
    return profile
