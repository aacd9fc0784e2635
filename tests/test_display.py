"""What Python shows of a record: a line, a small table, a figure, and what can stand in its
brackets."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.formatters import DisplayFormatter
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config as Settings

import explorer as ex
from explorer import plugins
from explorer.display import DRAWERS, table
from explorer.vocabulary import geometric_mean

SMALL = {"n_layers": 3, "d_model": 16, "n_heads": 2, "n_ctx": 8, "n_seeds": 2}
TASK = ex.Task()
HOSTILE = "<script>alert(1)</script>"


class Cells(HTMLParser):
    """The tags of a piece of HTML, and the text of its cells by row."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not attrs, "no style and no script of any kind"
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1] and self.tags[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def shown(record: object, lines: int = 25) -> Cells:
    """The table that a notebook shows of a record."""
    bundle, _ = DisplayFormatter().format(record)
    assert len(bundle["text/plain"].splitlines()) <= lines
    return Cells(bundle["text/html"])


@pytest.fixture(scope="module")
def race() -> ex.Race:
    contenders = [
        ex.Contender(name, TASK.fit(ex.preset(row, **SMALL)))
        for name, row in ((HOSTILE, "post_ln"), ("pre", "pre_ln"))
    ]
    return ex.race(contenders, TASK, steps=3, every=2)


def test_a_config_says_what_differs_from_the_defaults() -> None:
    config = ex.Config(n_layers=24, norm_placement="post")
    assert repr(config) == str(config) == "Config(n_layers=24, norm_placement='post')"
    assert repr(ex.Config()) == "Config()"
    assert repr(ex.Recipe(warmup=5)) == "Recipe(warmup=5)"
    rows = shown(config).rows
    assert [row[0] for row in rows] == ["Depth", "Norm placement", "Defaults"]
    assert "24" in rows[0][1]
    assert all(name in f"{rows}" for name in ex.Config.specs())


@pytest.mark.parametrize("name", ex.PRESETS)
def test_what_a_config_says_makes_it_again(name: str) -> None:
    config = ex.preset(name, **SMALL)
    assert eval(repr(config), {"Config": ex.Config}) == config  # noqa: S307


def test_help_on_a_config_is_short_and_has_every_field(shell: InteractiveShell) -> None:
    shell.user_ns["Config"] = ex.Config
    told = shell.object_inspect_mime("Config")["text/plain"]
    assert len(told) < 100 * len(ex.Config.specs())
    assert all(f"{name}: " in told for name in ex.Config.specs())


@pytest.fixture
def shell(tmp_path: Path) -> InteractiveShell:
    settings = Settings({"HistoryManager": {"enabled": False}})
    return InteractiveShell(config=settings, ipython_dir=str(tmp_path))


def test_brackets_complete(shell: InteractiveShell) -> None:
    shell.user_ns |= {"profile": ex.predict(ex.Config(**SMALL)), "presets": ex.PRESETS}
    assert completions(shell, 'profile["sec') == [
        'profile["second_moment',
        'profile["second_moment_by_position',
    ]
    assert 'profile["second_moment", "embed' in completions(shell, 'profile["second_moment", "')
    assert completions(shell, 'presets["gpt2') == ['presets["gpt2']


def completions(shell: InteractiveShell, line: str) -> list[str]:
    with provisionalcompleter():
        return [
            line[: one.start] + one.text for one in shell.Completer.completions(line, len(line))
        ]


@pytest.mark.parametrize(
    "choices", [{}, {"attention": "none"}, {"norm_placement": "none", "init_variance": 1000.0}]
)
def test_a_profile_is_a_line_and_a_small_table(choices: dict[str, object]) -> None:
    config = ex.Config(**{**SMALL, **choices})
    for profile in (ex.measure(config), ex.predict(config)):
        assert len(repr(profile).splitlines()) == 1
        assert repr(config) in repr(profile)
        assert profile.origin in repr(profile)
        rows = {(row[0], row[2]): row[3:6] for row in shown(profile).rows}
        q = geometric_mean(profile.stream("second_moment")[1])
        assert rows["Second moment", "residual stream"] == [
            f"{q[0]:.4g}",
            f"{q[len(q) // 2]:.4g}",
            f"{q[-1]:.4g}",
        ]
        assert len(rows) < 25


def test_what_is_not_finite_is_shown_as_such() -> None:
    profile = ex.Profile(
        "measured", {("second_moment", "resid_post"): np.array([[1.0, np.inf, np.nan]])}
    )
    assert shown(profile).rows[1][3:6] == ["1", "inf", "nan"]


def test_a_race_is_a_line_and_a_table(race: ex.Race) -> None:
    assert "step 3 of 3" in repr(race)
    rows = shown(race).rows
    assert [row[0] for row in rows] == ["Contender", HOSTILE, "pre"], (
        "escaped, or it would be a tag of its own"
    )
    history = race.histories["pre"]
    assert rows[2][3:6] == [
        "3",
        f"{history.losses[-1]:.4g}",
        f"{history.series('held_out_loss')[1][-1]:.4g}",
    ]


def test_a_table_escapes_every_part_of_it() -> None:
    assert "<script" not in table(HOSTILE, [HOSTILE], [[HOSTILE]])


def test_whoever_draws_a_record_is_known_from_the_start() -> None:
    assert set(DRAWERS) == {"Comparison", "Profile"}
    assert set(plugins.references("drawers")) == {"CoordCheck", "Race"}


@pytest.mark.parametrize(
    "name",
    [
        "second_moment",
        "activation_gradient",
        "gradient_by_layer",
        "attention_entropy",
        "parameter_gradient",
        "attention_pattern",
    ],
)
def test_a_profile_draws_itself_beside_others(name: str) -> None:
    config = ex.Config(**SMALL)
    measured, predicted, other = (
        ex.measure(config),
        ex.predict(config),
        ex.predict(ex.Config(**SMALL, causal=True)),
    )
    figure = measured.plot(name, predicted, other)
    assert isinstance(figure, go.Figure)
    assert figure.layout.title.text
    assert figure.layout.title.subtitle.text
    if name != "attention_pattern":
        assert {trace.name for trace in figure.data if trace.showlegend is not False} >= {
            "causal mask off, measured",
            "causal mask off, predicted",
            "causal mask on, predicted",
        }


def test_a_race_draws_its_curves_with_a_legend(race: ex.Race) -> None:
    figure = race.plot()
    named = [trace for trace in figure.data if trace.showlegend]
    assert [trace.name for trace in named] == ["&lt;script&gt;alert(1)&lt;/script&gt;", "pre"]
    last = race.verdict()[1]
    assert (named[1].x[-1], named[1].y[-1]) == (3, pytest.approx(last.final_loss, rel=1e-6))
    assert race.plot("training_loss").layout.title.text == "Training loss"


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: ex.measure({"n_layers": 3}),
            r"config must be a Config; got \{'n_layers': 3\} of type dict",
        ),
        (lambda: ex.predict(None), "config must be a Config; got None of type NoneType"),
        (
            lambda: ex.solve("post", "alpha", "flat_signal"),
            "config must be a Config; got 'post' of type str",
        ),
        (
            lambda: ex.diagnose(ex.Config()),
            r"profile must be a Profile; got Config\(\) of type Config",
        ),
        (lambda: ex.dashboard({}), r"start must be a Config; got \{\} of type dict"),
        (lambda: ex.preset(["gpt2"]), r"name must be a str; got \['gpt2'\] of type list"),
        (lambda: ex.race([ex.Config()]), r"contenders\[0\] must be a Contender; got Config\(\)"),
        (lambda: ex.race(ex.Config()), r"contenders\[0\] must be a Contender; got Config\(\)"),
        (
            lambda: ex.race([ex.Contender("a", {})]),
            r"contenders\[0\].config must be a Config; got \{\} of type dict",
        ),
        (
            lambda: ex.race([ex.Contender("a", ex.Config(), 1e-3)]),
            r"contenders\[0\].recipe must be a Recipe; got 0.001",
        ),
        (
            lambda: ex.race([ex.Contender("a", ex.Config())], "text"),
            "task must be a Task; got 'text'",
        ),
        (
            lambda: ex.race([ex.Contender("a", TASK.fit(ex.Config()))], text="abc"),
            "text must be a Text; got 'abc'",
        ),
        (
            lambda: ex.predict(ex.Config()).plot("second_moment", ex.Config()),
            r"others\[0\] must be a Profile",
        ),
    ],
)
def test_an_argument_of_another_kind_is_named(call, sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        call()


def test_a_chart_that_is_not_there_is_refused(race: ex.Race) -> None:
    with pytest.raises(ValueError, match=r"statistic must be one of second_moment, .*; got 'mood'"):
        ex.predict(ex.Config(**SMALL)).plot("mood")
    with pytest.raises(ValueError, match=r"curve must be one of training_loss, .*; got 'mood'"):
        race.plot("mood")


def test_the_presets_are_a_mapping_and_a_table() -> None:
    rows = shown(ex.PRESETS, lines=len(ex.PRESETS)).rows
    assert [row[0] for row in rows[1:]] == list(ex.PRESETS)
    frame = ex.PRESETS.frame()
    assert list(frame.columns) == [
        "title",
        "group",
        "words",
        "changes",
        "source",
        "differs",
        "aliases",
        "by_width",
    ]
    assert frame.loc["gpt2", "title"] == ex.PRESETS["gpt2"].title
    assert all(ex.Config(**row.changes) == ex.preset(name) for name, row in ex.PRESETS.items())
