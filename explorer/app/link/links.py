"""`Links`: the whole page's record as a link, and back: `?tab=depth&design=post_ln&n_layers=24&pin=pre_ln&v=1`.

A link says only what differs from the page as it opens. It may come from anybody: unknown parts are ignored, with
a notice. Values are checked where they are restored; here, only their places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote_plus, urlencode

from explorer.app import view
from explorer.app.link.panels import PARTS, Pairs, write_settings
from explorer.app.link.params import Params
from explorer.app.widgets.record import VERSION, record
from explorer.display import shown
from explorer.labs.table import LABS

SAFE = ",:()"
"""Characters that are not percent-encoded in a value, beside letters, digits and _.-~."""
STORY = ("story", "step")
LONGEST_SENTENCE, MOST_SENTENCES = 120, 3


class Links:
    """Links to a page of these panels.

    Args:
        panels: their names; the first is open at the start.
    """

    def __init__(self, panels: Sequence[str]) -> None:
        self._panels = tuple(panels)
        self._labs = {name: [lab.name for lab in LABS.values() if lab.panel.lower() == name] for name in panels}

    def write(self, state: Mapping[str, Any]) -> str:
        """The link of a record, with its question mark; empty for the page as it opens."""
        pairs = list(self._pairs(state))
        query = urlencode([*pairs, ("v", VERSION)], safe=SAFE, quote_via=quote_plus)
        return f"?{query}" if pairs else ""

    def _pairs(self, state: Mapping[str, Any]) -> Pairs:
        yield from view.write(_part(state, "view"))
        yield from zip(STORY, map(str, state.get("story") or ()), strict=False)
        opened, panels = state.get("open", self._panels[0]), _part(state, "panels")
        if opened != self._panels[0]:
            yield "tab", str(_part(panels, opened).get("open", opened))
        for name in self._panels:
            part = _part(panels, name)
            yield from PARTS[name][0](part) if name in PARTS else ()
            yield from self._lab_pairs(name, part, opened=name == opened)

    def _lab_pairs(self, panel: str, part: Mapping[str, Any], *, opened: bool) -> Pairs:
        """The open lab of a panel, and the settings of its labs."""
        labs = self._labs[panel]
        if labs and not opened and part.get("open", labs[0]) != labs[0]:
            yield "lab", str(part["open"])
        for lab, state in {panel: part, **_part(part, "panels")}.items():
            if lab in LABS:
                yield from write_settings(lab, LABS[lab].settings, state.get("settings", {}))

    def parse(self, text: object) -> tuple[dict[str, Any], list[str]]:
        """The whole record that a link stands for, and a sentence for each part that was not understood.

        What a link does not say is as on the page that opens; so is all of it if it is no link, or of another version.
        """
        try:
            params = Params(text)
        except ValueError as error:
            return self._record(Params("")), [str(error)]
        if (version := params.take("v", str(VERSION))) != str(VERSION):
            return self._record(Params("")), [f"v, the link's version, must be {VERSION}; got {shown(version)}"]
        state = self._record(params)
        return state, [*params.sentences, *params.rest()]

    def _record(self, params: Params) -> dict[str, Any]:
        panels: dict[str, Any] = {}
        for name, labs in self._labs.items():
            if name in PARTS:
                panels[name] = PARTS[name][1](params)
            elif labs:
                panels[name] = record(open=labs[0], panels={lab: _read_lab(lab, params) for lab in labs})
            elif name in LABS:
                panels[name] = _read_lab(name, params)
        tab = params.take("tab", self._panels[0])
        homes = {lab: name for name, labs in self._labs.items() for lab in labs}
        for lab in [*params.take_all("lab"), tab]:
            if lab in homes:
                panels[homes[lab]]["open"] = lab
        if (opened := homes.get(tab, tab)) not in self._panels:
            params.sentences.append(f"tab must be one of {', '.join(self._panels)} or a lab; got {shown(tab)}")
            opened = self._panels[0]
        return record(open=opened, panels=panels, view=_read_view(params), story=_read_story(params))


def _part(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a record; empty where it is none."""
    part = state.get(name)
    return part if isinstance(part, Mapping) else {}


def _read_lab(lab: str, params: Params) -> dict[str, Any]:
    return record(settings=params.settings(LABS[lab].settings, lab))


def _read_view(params: Params) -> dict[str, object]:
    """The view that a link asks for: lists of visible parts, and whether it is embedded."""
    parts: dict[str, object] = {name: view.split(params.take(name)) for name in view.LISTS if params.has(name)}
    return parts | ({"embed": True} if params.take("embed") in ("1", "true") else {})


def _read_story(params: Params) -> list[object]:
    """The name of the open story, and its step; empty for none."""
    name, step = params.take(STORY[0]), params.position(STORY[1], 1)
    return [name, step] if name else []


def in_a_sentence(sentences: Sequence[str]) -> str:
    """One short sentence on the ignored parts of a link, of whatever length it was; empty where nothing was ignored."""
    cut = [sentence if len(sentence) <= LONGEST_SENTENCE else sentence[: LONGEST_SENTENCE - 1] + "…"
           for sentence in sentences[:MOST_SENTENCES]]
    more = len(sentences) - len(cut)
    return f"Ignored in the link: {'; '.join([*cut, *([f'and {more} more'] if more else [])])}." if sentences else ""
