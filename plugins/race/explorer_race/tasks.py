"""Tasks: the next character, or a masked one, of real text, with a held-out part and two reference
losses.

A text that repeats itself would tell the held-out part beforehand (Python's prose repeats a good
part of its pages), so every passage of 64 characters that comes again in the held-out part is taken
out of what is trained on.

The user's file is an argument of its own, not a field of `Task`: settings may come from a permalink
or a browser, and those must not name files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from explorer.choices import Choices, ConfigError
from explorer.config import Config
from explorer.fields import Option, setting
from explorer.text import Text, prose

Codes = NDArray[np.int64]
Array = NDArray[np.float64]

PASSAGE = 64
"""Characters in a row that count as a repetition."""
BLOCKS, LEAST_HELD_OUT = 10, 4_096
"""Blocks that the text is cut into, or fewer where one would give fewer characters than this to the
held-out part."""
HELD_OUT_CHARACTERS = 1_024
"""About as many characters are read whenever the held-out loss is measured, at the cost of half a
step or so."""
NOT_ASKED = -100
"""The target where nothing is to be predicted: what torch's cross-entropy leaves out."""
LARGEST_LOGITS = 2**26
"""Numbers in the logits of one batch, at most: 256 MB."""


@dataclass(frozen=True, kw_only=True)
class TaskKind(Option):
    """The characters of a sequence that are to be predicted."""

    masks: bool
    """Hidden ones, from both sides; else each next one, from those before it."""


KINDS: dict[str, TaskKind] = {
    "next_character": TaskKind("the next character, from those before it; causal", masks=False),
    "masked_character": TaskKind(
        "a hidden character, from those around it",
        "BERT: Devlin et al. 2018",
        ("masked_share",),
        masks=True,
    ),
}


class Task(Choices):
    """Task of the contenders, and division of the text.

    Raises:
        ConfigError: an unknown field, a wrong type, or a value out of range.

    Example:
        >>> ex.Task(kind="masked_character").fit(ex.Config(n_ctx=32)).input
        'text'
    """

    kind: str = setting(
        "next_character", "Task", "Task", "The characters to predict.", pinned=True, options=KINDS
    )
    masked_share: float = setting(
        0.15,
        "Masked",
        "Task",
        "Share of a sequence's characters that are hidden, at least one.",
        0.01,
        0.9,
    )
    held_out: float = setting(
        0.1, "Held out", "Task", "Share of the text that is never trained on.", 0.01, 0.5
    )
    seed: int = setting(
        0,
        "Seed of the batches",
        "Task",
        "Draw of the batches; the same for all contenders.",
        0,
        2**31 - 1,
    )

    @property
    def masks(self) -> bool:
        """Whether characters are hidden, and asked for; else the next one is."""
        return KINDS[self.kind].masks

    def fit(self, config: Config) -> Config:
        """A config with everything that the task needs: text, a readout, and a mask or none."""
        return config.replace(input="text", loss="next_token", causal=not self.masks)

    def check(self, config: Config) -> None:
        """Raises ConfigError if a config cannot learn the task, or can see the answer."""
        if not config.design.reads_text:
            raise ConfigError(f"input must be text to learn from text; got {config.input}")
        if not config.design.predicts_text:
            raise ConfigError(
                f"loss must be next_token, which has the readout, to learn from text; got {config.loss}"
            )
        if config.design.attends and not config.causal and not self.masks:
            raise ConfigError(
                "causal must be true to learn the next character, or the model would see the answer; got false"
            )
        if config.causal and self.masks:
            raise ConfigError(
                "causal must be false to learn a masked character, which needs both sides; got true"
            )


class Window(NamedTuple):
    """One batch of sequences: inputs, targets, and for the bigram the characters before."""

    inputs: Codes
    """`[batch, token]`"""
    targets: Codes
    """`[batch, token]`, NOT_ASKED where nothing is predicted."""
    before: Codes
    """`[batch, token]`: the character before the target."""


class Levels(NamedTuple):
    """Cross-entropies in nats a character that need no Transformer, on the same held-out
    characters."""

    unigram: float
    """From the frequencies of the characters: reached by a model that sees nothing."""
    bigram: float
    """From the character before."""


class Data:
    """A task on a text, cut to a config's shapes.

    Args:
        task: the task to learn.
        text: where from; None is Python's prose.
        n_ctx: characters in a sequence.
        batch_size: sequences in a batch.
    Raises:
        ConfigError: the text is too short for such sequences, or repeats itself so much that
            nothing is left.
    """

    def __init__(self, task: Task, text: Text | None, n_ctx: int, batch_size: int) -> None:
        self.task, self.text, self.n_ctx, self.batch_size = task, text or prose(), n_ctx, batch_size
        self.vocabulary = len(self.text.vocabulary)
        field, value = Config.field_name("n_ctx"), Config.field_name("n_ctx", n_ctx)
        if batch_size * n_ctx * self.vocabulary > LARGEST_LOGITS:
            raise ConfigError(
                Config.field_name("batch_size"),
                " × ",
                field,
                " × distinct characters must be at most "
                f"{LARGEST_LOGITS:,}; got {batch_size} × {n_ctx} × {self.vocabulary}",
            )
        self.train, self.held = split(self.text.codes, task.held_out)
        before = len(self.text.codes) - len(self.held)
        for name, length in (("held-out part", len(self.held)), ("part to train on", before)):
            if length <= n_ctx:
                raise ConfigError(
                    f"text must be long enough that its {name} exceeds ",
                    field,
                    f"; got {length:,} characters and ",
                    value,
                )
        if len(self.train) <= n_ctx:
            raise ConfigError(
                f"text must not repeat itself: passages of {PASSAGE} characters that come again in the held-out part "
                "are not trained on, and what remains must exceed ",
                field,
                f"; got {len(self.train):,} of {before:,} characters and ",
                value,
            )

    def batch(self, step: int) -> Window:
        """The batch of a step, from 0: a matter of the task's seed and the step alone."""
        rng = np.random.default_rng([self.task.seed, 2, step])
        return self.window(
            self.train, rng.integers(len(self.train) - self.n_ctx, size=self.batch_size), rng
        )

    @cached_property
    def held_out(self) -> Window:
        """The sequences that every held-out loss is measured on: evenly spread over the held-out
        part."""
        count = max(1, HELD_OUT_CHARACTERS // self.n_ctx)
        starts = np.linspace(0, len(self.held) - self.n_ctx - 1, count).astype(np.int64)
        return self.window(self.held, starts, np.random.default_rng([self.task.seed, 3]))

    def window(self, part: Codes, starts: Codes, rng: np.random.Generator) -> Window:
        """The sequences that begin at `starts` `[batch]`, as the task reads them; `rng` says what
        is hidden."""
        codes = part[starts[:, None] + np.arange(self.n_ctx + 1)]  # [batch, token + 1]
        before, targets = codes[:, :-1], codes[:, 1:]
        if not self.task.masks:
            return Window(before, targets, before)
        count = max(1, round(self.task.masked_share * self.n_ctx))
        hidden = rng.random(targets.shape).argsort(axis=1).argsort(axis=1) < count
        return Window(
            np.where(hidden, self.vocabulary, targets), np.where(hidden, targets, NOT_ASKED), before
        )

    @cached_property
    def levels(self) -> Levels:
        """The unigram's and the bigram's loss on the characters that `held_out` asks for."""
        asked = self.held_out.targets != NOT_ASKED
        unigram, bigram = probabilities(
            self.train, self.vocabulary, self.held_out.before[asked], self.held_out.targets[asked]
        )
        return Levels(float(-np.log(unigram).mean()), float(-np.log(bigram).mean()))


@lru_cache(maxsize=8)
def of_prose(task: Task, n_ctx: int, batch_size: int) -> Data:
    """`Data` of Python's prose, kept: to cut it takes longer than some steps, and each cell of a
    map asks for it."""
    return Data(task, None, n_ctx, batch_size)


def probabilities(train: Codes, size: int, before: Codes, after: Codes) -> tuple[Array, Array]:
    """Probabilities of each character `after` given `before`, of a unigram and a bigram counted on
    `train`; none is 0.

    Unigram: one is added to every count (Laplace). Bigram: after a character that came n times with
    t different followers, (count of the pair + t · unigram) / (n + t) (Witten & Bell 1991). Neither
    has anything to tune."""
    unigram = ((np.bincount(train, minlength=size) + 1) / (len(train) + size))[after]
    pairs, counts = np.unique(train[:-1] * size + train[1:], return_counts=True)
    times = np.bincount(pairs // size, weights=counts, minlength=size)[before]
    followers = np.bincount(pairs // size, minlength=size)[before]
    place = np.minimum(np.searchsorted(pairs, before * size + after), len(pairs) - 1)
    count = np.where(pairs[place] == before * size + after, counts[place], 0)
    bigram = np.where(
        times > 0, (count + followers * unigram) / np.maximum(times + followers, 1), unigram
    )
    return unigram, bigram


def split(codes: Codes, share: float) -> tuple[Codes, Codes]:
    """The training part and the held-out part: the ends of a few equal blocks, so that all kinds of
    text are held out.

    Passages that come again in the held-out part are taken out of the other.
    """
    count = min(BLOCKS, max(1, round(share * len(codes)) // LEAST_HELD_OUT))
    blocks = np.array_split(codes, count)
    cuts = [len(block) - round(share * len(block)) for block in blocks]
    train = np.concatenate([block[:cut] for block, cut in zip(blocks, cuts, strict=True)])
    held = np.concatenate([block[cut:] for block, cut in zip(blocks, cuts, strict=True)])
    return train[~repeated(train, held)], held


def repeated(part: Codes, other: Codes) -> NDArray[np.bool_]:
    """True for each character of `part` inside a passage of `PASSAGE` characters that `other` has
    too."""
    if min(len(part), len(other)) < PASSAGE:
        return np.zeros(len(part), dtype=np.bool_)
    begins = np.isin(_hashes(part), _hashes(other))  # [place where a passage begins]
    edges = np.zeros(len(part) + 1, dtype=np.int64)
    edges[: len(begins)] += begins
    edges[PASSAGE : PASSAGE + len(begins)] -= begins
    covered: NDArray[np.bool_] = np.cumsum(edges)[:-1] > 0
    return covered


def _hashes(codes: Codes) -> NDArray[np.uint64]:
    """A number for each passage, equal for equal passages and, but for one pair in 2⁶⁴, for no
    others."""
    size = int(codes.max()) + 1
    numbers = np.random.default_rng(0).integers(2**64, size=size, dtype=np.uint64)[codes]
    factor, length = np.uint64(0x9E3779B97F4A7C15), 1
    while length < PASSAGE:  # a passage is its two halves
        numbers = numbers[:-length] * factor + numbers[length:]
        with np.errstate(over="ignore"):
            factor *= factor
        length *= 2
    return numbers
