"""`STORIES`: every story by name, in the order of their cards."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from explorer.app.stories.scale import LLAMA, MUP
from explorer.app.stories.signal import ROOT_D, THOUSAND, WARMUP
from explorer.app.stories.story import Story

STORIES: Mapping[str, Story] = MappingProxyType({
    story.name: story for story in (ROOT_D, WARMUP, THOUSAND, MUP, LLAMA)
})
