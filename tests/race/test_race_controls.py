"""What the next race will be, and what is looked at: texts, heat maps, contenders, designs of the
Explore page."""

from __future__ import annotations

import pytest
from handed import bring
from raced import LONG, Open, Page, lineup
from watched import Watched

from explorer.app.dashboard import Dashboard
from explorer.app.tabs import tabs
from explorer.config import Config
from explorer.figures.palette import HUES
from explorer.schemes.preset import PRESETS
from explorer_race.page.files import race_script
from explorer_race.page.panel import RacePanel
from explorer_race.recipe import Recipe

# --- text -----------------------------------------------------------------------------------------


def test_a_text_of_ones_own_is_learned(page: Page) -> None:
    file = page.preparation.text
    raw = b"To be, or not to be, that is the question.\n" + bytes(range(32, 127)) * 60
    answers = bring(file, "play.txt", raw, part=2_000)
    assert (len(answers), answers[0], answers[-1]) == (4, 0, len(raw))
    assert file.now == f"play.txt, {len(raw):,} characters"
    page.run()
    assert len(page.race.data.text.codes) == len(raw)
    file.handle(["other"], [])
    page.run()
    assert len(page.race.data.text.codes) > 400_000


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"short", "text must have at least 2,000 characters; got 5"),
        (
            b"To be, or not to be. " * 200,
            (
                "text must not repeat itself: passages of 64 characters that come again in the "
                "held-out part are not trained on, and what remains must exceed Sequence length; "
                "got 0 of 3,780 characters and Sequence length = 16"
            ),
        ),
    ],
)
def test_a_bad_text_is_refused_in_a_sentence(open_race: Open, raw: bytes, words: str) -> None:
    file = open_race().panel.preparation.text
    bring(file, "bad.txt", raw)
    assert file.said == f"Refused: bad.txt: {words}. It stays Python's own prose."
    assert (file.refused, file.text, file.own) == (True, None, False)


def test_a_text_that_is_too_large_is_not_sent(open_race: Open) -> None:
    file = open_race().panel.preparation.text
    assert bring(file, "bad.txt", b"a" * 5_000_001) == [-1]
    assert file.said.startswith("Refused: bad.txt must have at most 5.0 MB to be sent")
    assert (file.refused, file.text, file.own) == (True, None, False)


def test_parts_that_do_not_follow_end_the_file(open_race: Open) -> None:
    file, sent = open_race().panel.preparation.text, []
    file.send = lambda content, buffers=None: sent.append(content["got"])  # type: ignore[method-assign]
    for message, buffers in (
        (["part", 0], [b"a"]),
        (["begin", "a", 1], []),
        (["part", 5], [b"a"]),
        (["part", 0], [b"a"]),
        (["begin", "a", 10], []),
        (["part", 0], [b"12345"]),
        (["part", 5], [b"123456"]),
        (["begin", "a", "10"], []),
        (["part", None], [b"a"]),
        ("begin", []),
        (["file", "a"], [b"a"]),
        (["begin", "a", 0], []),
        (["begin", "a", -5], []),
    ):
        file.handle(message, buffers)
    assert sent == [-1, 0, -1, -1, 0, 5, -1, -1, -1]
    assert file.text is None


# --- heat maps ------------------------------------------------------------------------------------


def test_the_lists_below_a_heat_map_choose_what_it_shows(page: Page) -> None:
    page.run()
    chart, selection = page.gallery.maps[0], page.gallery.selections[0]
    assert chart.figure["layout"]["title"]["text"] == "Post-LN"
    selection.set_state({"values": {"statistic": "second_moment", "contender": "1"}})
    assert chart.title == "Layer by layer: second moment of the stream"
    assert chart.figure["layout"]["title"]["text"] == "Pre-LN"
    selection.set_state({"values": {"statistic": "nonsense", "contender": ["7"]}})
    assert selection.values == {"statistic": "second_moment", "contender": "1"}
    page.ask("remove", 2)
    page.run()
    assert selection.values["contender"] == "0", "there is but one"


def test_a_heat_map_can_be_chosen_while_the_race_runs(running: Page) -> None:
    running.wait(lambda: bool(running.gallery.selections[0].sections))
    running.gallery.selections[0].set_state(
        {"values": {"statistic": "attention_entropy", "contender": "1"}}
    )
    assert running.gallery.maps[0].title == "Layer by layer: attention entropy"
    running.stop()


def test_singular_values_and_the_equilibrium_of_updates_are_shown_where_a_race_has_them(
    open_race: Open,
) -> None:
    page = open_race(lineup("pre_ln", optimizer="adamw", weight_decay=0.1), spectra=True)
    gallery, offered = page.gallery, lambda: str(page.gallery.selections[0].sections)
    page.run()
    assert page.race.spectra, "the saved race reads them on"
    assert not any(
        gallery.cells[name].hidden
        for name in ("update_ratio", "update_spectral_norm", "held_out_loss")
    )
    assert len(page.points("update_spectral_norm")["Pre-LN"]) > 0
    assert "update_stable_rank" in offered()
    assert "spectra=True" in race_script(page.panel._shown())
    gallery.selections[0].set_state(
        {"values": {"statistic": "update_stable_rank", "contender": "0"}}
    )
    assert gallery.maps[0].title == "Layer by layer: stable rank of updates"
    page.set(spectra=False)
    page.run()
    assert gallery.cells["update_spectral_norm"].hidden
    assert not gallery.cells["update_ratio"].hidden
    assert "update_stable_rank" not in offered()
    assert gallery.maps[0].title == "Layer by layer: gradient by the weights"
    assert "spectra" not in race_script(page.panel._shown())


# --- the lineup -----------------------------------------------------------------------------------


def test_the_page_starts_with_post_ln_with_and_without_warmup_beside_two_others() -> None:
    panel = RacePanel()
    entries = panel.preparation.contenders.entries
    assert [entry["name"] for entry in entries][2:] == ["Pre-LN", "ReZero"]
    assert entries[0]["name"] == "Post-LN, no warm-up"
    assert entries[1]["name"].startswith("Post-LN, warm-up ")
    assert [entry["hue"] for entry in entries] == list(HUES[:4])
    assert (panel.preparation.plan.config.n_layers, panel.preparation.plan.config.d_model) == (
        12,
        64,
    )
    hidden = [name for name, cell in panel.gallery.cells.items() if cell.hidden]
    assert hidden == ["update_ratio", "update_spectral_norm"], (
        "the stored race has neither decay nor spectra"
    )
    panel.close()


def test_up_to_six_contenders_and_a_seventh_in_words(open_race: Open) -> None:
    page = open_race(lineup("pre_ln", "pre_ln", "pre_ln", "pre_ln", "pre_ln"))
    assert "its recipe is shown below" in page.ask("add", "preset:deepnorm")
    assert len(page.names) == len(set(page.names)) == 6
    assert page.ask("add", "preset:deepnorm") == "At most 6 contenders race: remove one first."
    assert page.ask("remove", 2) == "Removed “Pre-LN (2)”."
    page.ask("add", "preset:rezero")
    assert page.preparation.contenders.entries[-1]["hue"] == HUES[1], "the free one"


def test_each_contender_has_a_recipe_of_its_own(open_race: Open) -> None:
    page = open_race(lineup("post_ln", "post_ln"))
    recipe = page.preparation.recipe
    page.ask("select", 2)
    page.prescribe(warmup=50, optimizer="radam")
    assert page.names == ["Post-LN, adam, no warm-up", "Post-LN, radam, warm-up 50"]
    page.ask("select", 1)
    assert (recipe.values["warmup"], recipe.config.optimizer) == (1, "adam")
    page.prescribe(warmup=-3)
    assert recipe.refusal
    page.ask("select", 2)
    assert (recipe.refusal, recipe.values["warmup"]) == ("", 50)
    assert [entry.recipe.warmup for entry in page.preparation.lineup] == [1, 50]
    assert "Recipe of Post-LN, radam, warm-up 50" in page.preparation.recipe_heading.value


def test_what_can_do_nothing_for_a_design_says_so(open_race: Open) -> None:
    """Disabled where it is off; where it is on, as before its design was known, it can be turned
    off."""
    page = open_race(lineup("pre_ln", "rezero", "qk_norm"))
    recipe = page.preparation.recipe
    assert {"alpha_schedule"} == set(recipe.disabled) & {"alpha_schedule", "qk_clip"}
    assert recipe.notes["alpha_schedule"].startswith("of no use: the residual has no α to learn")
    page.ask("select", 2)
    assert not set(recipe.disabled) & {"alpha_schedule", "qk_clip"}
    page.ask("select", 3)
    assert {"alpha_schedule", "qk_clip"} <= set(recipe.disabled)
    page.prescribe(qk_clip=100)
    assert "qk_clip" not in recipe.disabled
    page.press("start")
    page.until(
        "refused",
        "Refused: QK-clip must be 0 where a norm gives queries and keys their length; got QK-clip",
    )


def test_fields_of_muon_are_used_by_muon(open_race: Open) -> None:
    page = open_race(lineup("pre_ln"), every=1)
    recipe = page.preparation.recipe
    assert {"muon_rate", "muon_momentum", "decay_share", "alpha_steps"} <= set(recipe.disabled)
    page.prescribe(optimizer="muon_rms", decay="wsd")
    assert {"muon_rate", "muon_momentum", "decay_share"} & set(recipe.disabled) == {"muon_rate"}
    page.prescribe(optimizer="muon", qk_clip=20)
    page.run()
    assert page.race.contenders[0].recipe == Recipe(optimizer="muon", decay="wsd", qk_clip=20)


def test_names_can_be_given_and_are_all_different(page: Page) -> None:
    assert page.ask("name", 1, "  <b>slow</b> \n one") == ""
    assert page.names[0] == "<b>slow</b> one"
    heading = page.preparation.recipe_heading.value
    assert "&lt;b&gt;slow&lt;/b&gt; one" in heading
    assert "<b>" not in heading, "names come from links, too"
    assert page.ask("name", 2, "<b>slow</b> one").startswith("Another contender is called")
    assert page.ask("name", 2, "x" * 99) == f"Names have at most 40 letters: cut to “{'x' * 40}”."
    assert "“Post-LN”" in page.ask("name", 1, "  ")
    assert "&lt;" not in page.names[0]


def test_nonsense_from_a_browser_changes_nothing(page: Page) -> None:
    before = page.preparation.contenders.entries
    for content in (
        None,
        3,
        ["add"],
        ["add", "preset:"],
        ["add", "pre_ln"],
        ["add", 7],
        ["remove", 99],
        ["name", 1, 5],
        ["select", "1"],
        ["explode", 1],
    ):
        page.preparation.contenders.handle(content, [])
    assert page.preparation.contenders.entries == before


def started(page: Page) -> list[Config]:
    """The designs, in the size in which they would race."""
    return [design.config for design in page.preparation.start().designs if design.config]


def test_designs_of_the_explore_page_are_offered(open_race: Open) -> None:
    page = open_race(lineup("pre_ln"))
    deep = Config(n_layers=5, d_model=48, n_heads=3, norm_placement="peri")
    page.preparation.welcome([("Mine", deep)])
    offered = page.preparation.contenders.choices[-1]
    assert (offered["group"], offered["label"]) == ("Explore page", "Mine")
    page.ask("add", offered["value"])
    assert page.names == ["Pre-LN", "Mine"]
    sizes = [(one.n_layers, one.d_model, one.n_ctx) for one in started(page)]
    assert sizes == [(2, 32, 16), (2, 32, 16)]
    page.set(own_size=True)
    sizes = [(one.n_layers, one.d_model, one.n_ctx) for one in started(page)]
    assert sizes == [(2, 32, 16), (5, 48, 16)]
    assert started(page)[1].norm_placement == "peri"


def test_the_dashboard_hands_over_what_is_pinned() -> None:
    config = Config(
        n_layers=2, d_model=16, n_heads=2, n_ctx=8, batch_size=1, n_seeds=1, norm_placement="post"
    )
    page = Dashboard(config, {name: tabs()[name] for name in ("explore", "race")})
    explore = page.panels["explore"]
    Watched(explore).until("idle")
    page.header.set_state({"selected": 1})
    choices = page.panels["race"].preparation.contenders.choices
    assert [one["label"] for one in choices if one["group"] == "Explore page"] == ["Post-LN"]
    assert {one["group"] for one in choices} == {
        "Explore page",
        *(group for group, *_ in PRESETS.grouped()),
    }
    page.show("explore")
    explore.comparison.obey(["pin"])
    explore.comparison.obey(["name", 1, "Kept"])
    explore.controls.apply({"norm_placement": "pre"})
    choices = page.show("race").preparation.contenders.choices
    assert [one["label"] for one in choices if one["group"] == "Explore page"] == ["Kept", "Pre-LN"]
    page.close()


# --- as a record ----------------------------------------------------------------------------------


def test_the_choices_come_back_from_their_part(open_race: Open) -> None:
    first = open_race(lineup("post_ln", "post_ln", "pre_ln"), seed=5)
    first.ask("select", 2)
    first.prescribe(warmup=50, learning_rate=0.1 + 0.2)
    first.preparation.welcome(
        [("Mine", Config(n_layers=5, d_model=48, n_heads=3, norm_placement="peri"))]
    )
    first.ask("add", "pin:0")
    first.ask("name", 3, "Öfter “tief”")
    first.ask("remove", 1)
    first.ask("select", 2)
    first.set(own_size=True, kind="masked_character")
    part = first.part

    second = open_race()
    second.restore(part)
    assert second.preparation.start() == first.preparation.start()
    assert second.names == first.names == ["Post-LN", "Öfter “tief”", "Mine"]
    assert [one["hue"] for one in second.preparation.contenders.entries] == [
        HUES[1],
        HUES[2],
        HUES[3],
    ]
    assert second.preparation.recipe.config.warmup == 50
    assert second.part == part


def test_a_record_restored_while_a_race_runs_is_for_the_next(open_race: Open) -> None:
    page = open_race(steps=LONG)
    part = open_race(lineup("rezero")).panel.part
    page.begin()
    page.restore(part)
    assert page.status.state == "computing"
    assert page.names == ["ReZero"]
    page.stop()
    assert [one.name for one in page.race.contenders] == ["Post-LN", "Pre-LN"]
