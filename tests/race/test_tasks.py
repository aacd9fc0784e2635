"""What is learned: no answer in sight, no held-out passage trained on, and two levels that somebody
else counts too."""

import math
from collections import Counter, defaultdict
from itertools import pairwise

import numpy as np
import pytest

from explorer import Config, ConfigError, text
from explorer_race.race import Contender, Race
from explorer_race.tasks import NOT_ASKED, PASSAGE, Data, Task, probabilities, repeated, split

NEXT, MASKED = Task(), Task(kind="masked_character")
PROSE = text.prose()


def string(codes: np.ndarray) -> str:
    return "".join(np.array(PROSE.vocabulary)[codes])


def test_next_character_is_asked_everywhere() -> None:
    window = Data(NEXT, None, 16, 4).batch(7)
    assert window.inputs.shape == (4, 16)
    assert (window.inputs[:, 1:] == window.targets[:, :-1]).all()
    assert (window.before == window.inputs).all()


@pytest.mark.parametrize(("share", "count"), [(0.15, 2), (0.01, 1), (0.5, 8)])
def test_masked_character_is_hidden_where_it_is_asked(share: float, count: int) -> None:
    data = Data(MASKED.replace(masked_share=share), None, 16, 4)
    window = data.batch(7)
    hidden = window.inputs == data.vocabulary
    assert (hidden == (window.targets != NOT_ASKED)).all()
    assert (hidden.sum(axis=1) == count).all()
    assert window.inputs.max() == len(PROSE.vocabulary)
    whole = np.where(hidden, window.targets, window.inputs)
    assert (whole[:, :-1] == window.before[:, 1:]).all()


def test_a_batch_is_a_matter_of_seed_and_step() -> None:
    data, same, other = (
        Data(NEXT, None, 16, 4),
        Data(NEXT, None, 16, 4),
        Data(NEXT.replace(seed=1), None, 16, 4),
    )
    data.batch(3)
    assert (data.batch(5).inputs == same.batch(5).inputs).all()
    assert (data.batch(5).inputs != data.batch(6).inputs).any()
    assert (data.batch(5).inputs != other.batch(5).inputs).any()


def test_no_held_out_passage_is_trained_on() -> None:
    """Not by place and not by repetition, in a text that repeats much: counted with strings, not
    with hashes."""
    train, held = split(PROSE.codes, 0.1)
    trained, kept = string(train), string(held)
    assert abs(len(kept) / len(PROSE.codes) - 0.1) < 1e-3
    passages = {kept[start : start + PASSAGE] for start in range(len(kept) - PASSAGE + 1)}
    assert not [
        start for start in range(len(trained)) if trained[start : start + PASSAGE] in passages
    ]
    assert len(trained) < 0.9 * len(PROSE.codes) - 1000, (
        "the prose does repeat itself; nothing was taken out"
    )


def test_repetitions_by_hand() -> None:
    rng = np.random.default_rng(3)
    passage, rest = rng.integers(50, size=PASSAGE), rng.integers(50, size=300)
    part = np.concatenate([rest[:100], passage, rest[100:]])
    other = np.concatenate([rng.integers(50, size=90), passage, rng.integers(50, size=10)])
    assert np.flatnonzero(repeated(part, other)).tolist() == list(range(100, 100 + PASSAGE))
    almost = other.copy()
    almost[90 + PASSAGE // 2] += 1
    assert not repeated(part, almost).any()
    assert not repeated(part[:10], other).any()


@pytest.mark.parametrize("task", [NEXT, MASKED], ids=lambda task: task.kind)
def test_levels_by_an_independent_count(task: Task) -> None:
    """With strings and dictionaries: Laplace for the unigram, Witten and Bell for the bigram, both
    in nats."""
    data = Data(task, None, 32, 4)
    trained, size = string(data.train), len(PROSE.vocabulary)
    counts, followers = Counter(trained), defaultdict(Counter)
    for first, second in pairwise(trained):
        followers[first][second] += 1
    unigram = {one: (counts[one] + 1) / (len(trained) + size) for one in PROSE.vocabulary}
    uni, bi = [], []
    held = data.held_out
    for target, before in zip(held.targets.flat, held.before.flat, strict=True):
        if target == NOT_ASKED:
            continue
        one, previous = PROSE.vocabulary[target], PROSE.vocabulary[before]
        seen, kinds = sum(followers[previous].values()), len(followers[previous])
        uni.append(-math.log(unigram[one]))
        mixed = (
            (followers[previous][one] + kinds * unigram[one]) / (seen + kinds)
            if seen
            else unigram[one]
        )
        bi.append(-math.log(mixed))
    assert data.levels.unigram == pytest.approx(np.mean(uni), rel=1e-12)
    assert data.levels.bigram == pytest.approx(np.mean(bi), rel=1e-12)
    assert data.levels.bigram < data.levels.unigram < math.log(size)


def test_probabilities_sum_to_one() -> None:
    """Of all answers to one character; the last of the five was never seen, the one before it only
    at the very end."""
    train = np.array([0, 1, 0, 2, 0, 1, 1, 2, 3])
    for before in range(5):
        unigram, bigram = probabilities(train, 5, np.full(5, before), np.arange(5))
        assert unigram.sum() == pytest.approx(1)
        assert bigram.sum() == pytest.approx(1)
        assert min(unigram.min(), bigram.min()) > 0
    # after 0, which came three times with two followers: (2 + 2 · 4/14) / (3 + 2)
    assert probabilities(train, 5, np.array([0]), np.array([1]))[1] == pytest.approx(
        (2 + 2 * 4 / 14) / 5
    )


@pytest.mark.parametrize(
    ("task", "changes", "sentence"),
    [
        (NEXT, {"causal": False}, "causal must be true to learn the next character"),
        (MASKED, {"causal": True}, "causal must be false to learn a masked character"),
        (NEXT, {"loss": "linear"}, "loss must be next_token"),
        (NEXT, {"input": "gaussian", "loss": "linear"}, "input must be text"),
    ],
)
def test_what_cannot_learn_is_refused(
    task: Task, changes: dict[str, object], sentence: str
) -> None:
    fitted = task.fit(Config(n_layers=1, d_model=8))
    task.check(fitted)
    with pytest.raises(ConfigError, match=sentence):
        task.check(fitted.replace(**changes))


def test_without_attention_nothing_sees_the_answer() -> None:
    config = NEXT.fit(Config(n_layers=1, d_model=8, attention="none")).replace(causal=False)
    NEXT.check(config)
    with pytest.raises(ConfigError, match="causal"):
        NEXT.check(config.replace(attention="softmax"))


def test_texts_of_ones_own(tmp_path) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(("\ufeff" + "Äpfel\r\nund Birnen\r" * 200).encode())
    own = text.load(file)
    assert "".join(own.vocabulary[code] for code in own.codes[:17]) == "Äpfel\nund Birnen\n"
    assert len(own.codes) == 17 * 200
    assert (
        Data(NEXT, text.encode(string(PROSE.codes)), 16, 4).levels == Data(NEXT, None, 16, 4).levels
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"a" * 1999, "text must have at least 2,000 characters; got 1,999"),
        (b"a" * 5000, "text must have between 2 and 8,192 distinct characters; got 1"),
        (
            ("To be or not to be. " * 200).encode("utf-16"),
            "text must be encoded in UTF-8; got UTF-16: save it as UTF-8",
        ),
        (
            ("To be or not to be. " * 200).encode("utf-16-le"),
            "text must be encoded in UTF-8; got NUL characters",
        ),
        (
            ("生存还是毁灭" * 500).encode("gbk"),
            r"text must be encoded in UTF-8; got b'\\xc9' at byte 0, as in GBK",
        ),
        (
            b"fine " * 1000 + b"\xff\xfe",
            r"text must be encoded in UTF-8; got b'\\xff' at byte 5,000",
        ),
        (
            "".join(map(chr, range(0x4E00, 0x4E00 + 9000))).encode(),
            "distinct characters; got 9,000",
        ),
    ],
)
def test_texts_that_are_refused(tmp_path, content: bytes, sentence: str) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=sentence):
        text.load(file)


def test_no_such_text(tmp_path) -> None:
    for place in (tmp_path, tmp_path / "nothing.txt"):
        with pytest.raises(ConfigError, match=r"text must be a file; got "):
            text.load(place)


def test_too_large_a_text(monkeypatch) -> None:
    monkeypatch.setattr(text, "LARGEST_BYTES", 3000)
    with pytest.raises(ConfigError, match="text must have at most 3,000 bytes; got more"):
        text.decode(b"ab" * 1501)


def test_texts_too_short_for_the_sequences() -> None:
    own = text.decode("".join(PROSE.vocabulary[code] for code in PROSE.codes[:2500]).encode())
    with pytest.raises(
        ConfigError, match=r"held-out part exceeds n_ctx; got 250 characters and n_ctx = 250"
    ):
        Data(NEXT, own, 250, 4)
    with pytest.raises(
        ConfigError, match=r"must not repeat itself: .*; got 0 of 7,200 characters and n_ctx = 16"
    ):
        Data(NEXT, text.decode(b"always the same " * 500), 16, 4)
    with pytest.raises(
        ConfigError, match=r"batch_size × n_ctx × distinct characters must be at most 67,108,864"
    ):
        Data(NEXT, None, 1024, 1024)


def test_the_prose_is_cut_once_for_all_races_of_a_shape() -> None:
    config = NEXT.fit(Config(n_layers=1, d_model=16, n_heads=2, n_ctx=8, batch_size=2))

    def data(task: Task, own: text.Text | None = None) -> Data:
        return Race([Contender("one", config)], task, steps=1, text=own).data

    assert data(NEXT) is data(NEXT)
    assert data(NEXT.replace(seed=1)) is not data(NEXT)
    assert data(NEXT, PROSE) is not data(NEXT, PROSE), (
        "a person's own text may be any, and is not kept"
    )
