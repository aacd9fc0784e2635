"""Sentences of the package in Chinese: each message is translated, as it stands, with its numbers
and fields."""

from __future__ import annotations

import ast
import copy
import re
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from string import Formatter
from typing import Any

import plotly.graph_objects as go
import pytest

import explorer as ex
from benchmarks.goldens import PRESETS, SICK
from benchmarks.messages import (
    PACKAGE,
    PACKAGE_MESSAGES,
    TRANSLATING,
    called_messages,
    catalogue,
    is_prose,
    package_messages,
    write_catalogue,
)
from explorer import translation
from explorer.app.widgets.answer import box_words
from explorer.app.widgets.controls import Controls
from explorer.app.widgets.wording import NAMES as OPTIONS
from explorer.command import REFUSED, run
from explorer.diagnosis.agreement import agreement
from explorer.diagnosis.reading import place
from explorer.lessons.answers import form
from explorer.lessons.checking import AnswerError, checked_text, reply
from explorer.lessons.exercises import EXERCISES, TEXTS
from explorer.lessons.expressions import ExpressionError
from explorer.lessons.ledger import rows
from explorer.lessons.settings import settings_of
from explorer.profile import Profile
from explorer.translation import TranslatedError, catalog, speaking, translated
from explorer.vocabulary import STATISTICS

CHINESE = re.compile(r"[\u4e00-\u9fff]")
SYMBOLS = {"Eps", "Alpha", "Beta1", "Beta2"}
"""Labels that are Greek letters in Chinese."""
NAMES = {
    "SSMax s",
    "the {site}",
    "tokens",
    "sink",
    "4: hyper-connections, mHC",
    "8: Llama 3; 1: PaLM; 0: GPT-2",
    *OPTIONS.values(),
    "fan out",
    "hyper",
    "layer",
    "mitchell",
    "mlp",
    "scores",
    "sigmoid",
    "softmax",
    "torchtitan",
    "one-hot",
    "logit",
    "1 / logit²",
    "relu: E φ² = ½; gelu: 0.425; silu: 0.356",
    "Queries, keys, values",
    "1e4; Llama 3: 5e5",
    "AdamW: W ← (1 − η λ) W − η m / √v",
    ", where ",  # between parts of a plug-in's sentence, which is English
}
"""Messages without a Chinese word: names alone."""
FIELD = re.compile(r"\{[^}]*\}")
NUMBER = re.compile(r"(?<![\w.])\.?\d+(?:[.,]\d+)*")


@pytest.fixture
def chinese() -> Iterator[None]:
    ex.language("zh")
    yield
    ex.language("en")


@pytest.fixture
def bracketed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A language that is made by machine: each message a third longer, and in brackets. A language
    is a folder and a row."""
    messages = package_messages()
    for message in messages:
        if message.id:
            message.string = f"⟦{message.id}{'~' * (len(message.id) // 3)}⟧"
    file = tmp_path / "xx" / "LC_MESSAGES" / "explorer.po"
    file.parent.mkdir(parents=True)
    write_catalogue(file, messages)
    monkeypatch.setattr(translation, "LOCALE", tmp_path)
    monkeypatch.setattr(translation, "LANGUAGES", {**translation.LANGUAGES, "xx": "xx"})
    catalog.cache_clear()
    with translation.speaking("xx"):
        yield
    catalog.cache_clear()


def untranslated(text: str) -> str:
    """What stands outside of all brackets, and is a word."""
    depth, outside = 0, ""
    for character in text:
        depth += (character == "⟦") - (character == "⟧")
        if not depth and character != "⟧":
            outside += character
    return outside if is_prose(outside) else ""


def fields(message: str) -> Counter[str]:
    """The named fields of a message, each with its format."""
    parts = Formatter().parse(message)
    return Counter(f"{name}:{form}" for _, name, form, _ in parts if name is not None)


def test_each_message_of_the_package_is_translated() -> None:
    messages = [message for message in catalogue(PACKAGE_MESSAGES) if message.id]
    assert [message.id for message in messages] == [
        message.id for message in package_messages() if message.id
    ], "run `python -m benchmarks.lessons --translate`, and translate what is new"
    assert not [message.id for message in messages if message.fuzzy or not message.string]


def test_a_translation_keeps_fields_and_numbers() -> None:
    for message in catalogue(PACKAGE_MESSAGES):
        if message.id:
            assert fields(message.string) == fields(message.id), message.id
            numbers = Counter(NUMBER.findall(message.id))
            assert Counter(NUMBER.findall(message.string)) == numbers, message.id
            is_of_words = re.search("[A-Za-z]", FIELD.sub("", message.id))
            if is_of_words and message.id not in SYMBOLS | NAMES:
                assert CHINESE.search(message.string), message.id


def test_a_note_without_a_prediction_begins_alike_in_every_language() -> None:
    for message in catalogue(PACKAGE_MESSAGES):
        if "not covered" in message.id:
            assert catalog("zh_CN")["not covered"] in message.string


def test_the_file_is_read_as_gettext_reads_it() -> None:
    assert catalog("zh_CN") == {
        message.id: message.string for message in catalogue(PACKAGE_MESSAGES) if message.id
    }


def test_messages_are_found_in_calls() -> None:
    code = 'translated("a {b}", b=1)\nraise AnswerError("c" "d")\nother("e")\ntranslated(f)'
    assert list(called_messages(code)) == ["a {b}", "cd"]
    code = 'error = choices.refusal("f" if x else "g", {})\nmessage = "h"\nname = "i"'
    assert list(called_messages(code)) == ["h", "f", "g"]
    assert list(called_messages('map(translated, ("j", "k"))')) == ["j", "k"]
    classes = {TranslatedError, AnswerError, ExpressionError}
    assert {TranslatedError, *TranslatedError.__subclasses__()} == classes
    assert {kind.__name__ for kind in classes} < TRANSLATING


def test_a_language_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^name must be one of en, zh; got 'de'$"):
        ex.language("de")


@pytest.mark.usefixtures("chinese")
def test_all_threads_have_the_language_and_what_is_missing_stays_english() -> None:
    texts: list[str] = []
    thread = threading.Thread(target=lambda: texts.append(translated("Right.")))
    thread.start()
    thread.join()
    assert texts == ["正确。"]
    assert translated("no {such} message", such="new") == "no new message"
    ex.language("en")
    assert translated("Right.") == "Right."


@pytest.mark.usefixtures("bracketed")
def test_controls_and_their_refusals_are_messages() -> None:
    controls = Controls(ex.Config())
    for section in controls.sections:
        assert not untranslated(section["title"])
        for field in section["fields"]:
            for text in (field["label"], field["unit"], field["description"], field["usual"]):
                assert not untranslated(text), field["name"]
            for option in field["options"]:
                assert not untranslated(option["label"]), option
                assert not untranslated(option["formula"]), option
    assert not untranslated(controls.summary)
    assert not untranslated("".join(controls.notes.values()))
    for field in [field for fields in controls.excluded.values() for field in fields]:
        assert not untranslated(field["reason"] + field["way"])
    controls.apply({"n_heads": 5, "norm_placement": "no such"})
    assert controls.refusal
    assert not untranslated(re.sub("one of.*?;", "", controls.refusal))


def test_the_command_speaks_the_language_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    with pytest.raises(SystemExit):
        run(["--help"])
    assert "展示 Transformer 内部的信号" in capsys.readouterr().out
    assert run(["measure", "no such file"]) == REFUSED
    assert "config 必须是" in capsys.readouterr().err
    monkeypatch.setenv("LC_ALL", "C")
    assert translation.of_environment() == "en"


def test_a_dashboard_has_a_language_of_its_own() -> None:
    chinese, english = ex.dashboard(language="zh"), ex.dashboard()
    labels = []
    for page in (chinese, english):
        controls = page.panels["explore"].controls  # type: ignore[attr-defined]
        number = controls.number
        page._take(page, [1, number, "set", {"values": {**controls.values, "n_heads": 5}}], [])
        labels.append((controls.sections[0]["fields"][0]["label"], controls.refusal))
        page.close()
    assert labels == [
        ("深度", "宽度 必须能被 头数 整除；得到的是 256 和 5"),
        ("Depth", "Width must be divisible by Heads; got 256 and 5"),
    ]


def test_a_page_may_speak_another_language_than_the_process() -> None:
    profile = ex.predict(ex.Config())
    with speaking("zh"):
        assert ex.diagnose(profile)[0].meaning == "健康：信号增长到 19 倍，梯度增长到 12 倍。"
    assert ex.diagnose(profile)[0].meaning == "Healthy: signal grows 19 ×, gradient grows 12 ×."


@pytest.mark.usefixtures("bracketed")
@pytest.mark.parametrize("change", SICK, ids=str)
def test_a_diagnosis_is_all_of_messages(change: dict[str, Any]) -> None:
    for config in PRESETS[::6]:
        try:
            sick = config.replace(**change)
        except ex.ConfigError:
            continue
        profile = ex.predict(sick)
        findings = ex.diagnose(profile)
        assert not untranslated(str(findings))
        assert not untranslated(re.sub("<.*?>", "", findings._repr_html_()))
        comparison = ex.compare(ex.predict(ex.Config(n_layers=sick.n_layers)), profile)
        assert not untranslated(str(comparison))


@pytest.mark.usefixtures("bracketed")
def test_the_words_of_an_agreement_are_messages() -> None:
    for seeds in (1, 3):
        config = ex.Config(n_layers=3, d_model=32, n_ctx=16, n_seeds=seeds, causal=True)
        measured, predicted = ex.measure(config), ex.predict(config)
        for statistic in STATISTICS:
            words = agreement(measured, predicted, statistic)
            assert not untranslated(words.rule)
            assert not untranslated(words.words), statistic


@pytest.mark.usefixtures("bracketed")
@pytest.mark.parametrize("change", SICK, ids=str)
def test_the_notes_of_the_theory_are_messages(change: dict[str, Any]) -> None:
    for config in PRESETS[::4]:
        if config.accepts(**change, causal=True):
            profile = ex.predict(config.replace(**change, causal=True))
            for note in profile.notes.values():
                assert not untranslated(translated(copy.deepcopy(note))), note
                assert translated(note).count("⟧")


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize("number", EXERCISES)
def test_an_exercise_is_in_chinese(number: str) -> None:
    assert checked_text(number, TEXTS[number].answer).sentence == "正确。"
    for mistake in TEXTS[number].mistakes:
        sentence = checked_text(number, mistake.answer).sentence
        assert sentence.startswith("还不对：")
        assert sentence.endswith("？")
    for request in ("hint", "solution"):
        sentence, _ = reply(number, [request]) or ("", False)
        assert CHINESE.match(sentence)
        assert not re.search(r"\b(the|is|what)\b", sentence)
    assert CHINESE.search(form(number)[0])


@pytest.mark.usefixtures("chinese")
@pytest.mark.parametrize(
    ("number", "answer", "sentence"),
    [
        ("01.1", None, "还不对：01.1 要求：一个数；得到的是：None，是不是漏了 return？"),
        ("01.1", 0.9, "还不对：这个值太小。"),
        ("02.3", [1] * 13, "还不对：第 1 个数（从零数起）太大。"),
        (
            "04.1",
            lambda a, b: (-a, b),
            "还不对：在 a = 3, b = 4 处，第 0 个数（从零数起）符号不对。",
        ),
        ("02.1", lambda n: n, "还不对：02.1 要求：n、m 和 v 的函数；得到的函数的参数是：n。"),
    ],
)
def test_an_answer_that_is_not_right_has_a_chinese_sentence(
    number: str, answer: object, sentence: str
) -> None:
    assert repr(ex.check(number, answer)) == sentence


@pytest.mark.usefixtures("chinese")
def test_box_ledger_and_controls_are_in_chinese() -> None:
    assert box_words("02.1", "m*v")["label"] == "你对 02.1 的答案"
    assert all(CHINESE.search(text) for text in box_words("02.1", "m*v").values())
    ledger = ex.ledger(rows()[-1].lesson, [3.0, 2.0])
    names = [trace.name for trace in [*ledger.figure().data, *ledger.curve().data]]
    cells = [cell for row in ledger._cells() for cell in row[1:2]]
    assert all(CHINESE.search(text) for text in [*names, *cells[:-1], ledger._cells()[-1][0]])

    def stack(width: int = ex.slider(1, 9, 3), q: float = ex.slider(0, 1, 0.5)) -> go.Figure:
        return go.Figure().add_scatter(y=[width, q])

    labels = [spec.about.label for spec in settings_of(stack, {}).specs().values()]
    assert labels == ["宽度", "q"]


DONE = (
    "diagnosis",
    "choices.py",
    "command.py",
    "config.py",
    "display.py",
    "fields.py",
    "limits.py",
    "memory.py",
    "text.py",
    "app/sentences.py",
    "app/widgets/controls.py",
    "app/widgets/header.py",
    "app/widgets/verdict.py",
    "app/widgets/wording.py",
    "app/widgets/worker.py",
    "figures/why.py",
    "theory/coverage.py",
    "theory/rough.py",
)
"""Rooms and modules all of whose sentences are messages."""
SENTENCE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")
KEYS = {
    "Input and loss",  # a group's name
    "last layer",  # what a statistic refers to
    "no such option",  # pydantic's, in whose place a refusal stands
    # names of a plug-in, by which a rule decides
    "logits not divided",
    "no norm",
    "no norm on queries and keys",
    "no residual",
    "norm on the sum alone",
    "the gains",
    "the norm after attention",
    "the norm after the MLP",
    # names of features, in the place of words where a feature has some
    "growth in the first attention",
    "head size",
    "logit spread",
    "logits under the cap",
}
"""Literals of two words that no person reads."""


def literal_sentences(code: str) -> Iterator[str]:
    """Literals with two words, but for docstrings."""
    tree = ast.parse(code)
    docstrings = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str() as text) if node not in docstrings:
                if SENTENCE.search(text):
                    yield text


@pytest.mark.parametrize("name", DONE)
def test_no_sentence_of_a_room_is_outside_the_catalogue(name: str) -> None:
    known = {message.id for message in package_messages()} | KEYS
    place = PACKAGE / name
    files = [place] if place.is_file() else sorted(place.glob("*.py"))
    for file in files:
        assert [
            text for text in literal_sentences(file.read_text("utf-8")) if text not in known
        ] == []


def test_a_sentence_outside_the_catalogue_is_seen() -> None:
    code = '"""A docstring of words."""\nx = f"the value is {y}"\nz = "name"\n'
    assert list(literal_sentences(code)) == ["the value is "]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_layers": 0}, "必须是介于 1 和 1024 之间的整数；"),
        ({"n_layers": 2.5}, "必须是介于 1 和 1024 之间的整数；"),
        ({"causal": 3}, "必须是布尔值 true 或 false；"),
    ],
)
def test_a_rule_begins_with_a_chinese_word(changes: dict[str, Any], words: str) -> None:
    with speaking("zh"), pytest.raises(ValueError, match=re.escape(words)):
        ex.Config(**changes)


def test_a_layers_name_stands_behind_its_numeral() -> None:
    profile = Profile("measured", {}, ex.Config(n_layers=2), layers=("h.0", "h.1"))
    with speaking("zh"):
        assert place(profile, 2) == "第 2 层（h.1）"
    assert place(profile, 2) == "layer 2 (h.1)"
