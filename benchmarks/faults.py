"""Which signal shows a planted fault first, and how often each gives a false alarm in healthy runs.

    python -m benchmarks.faults
        # writes docs/faults.csv, and the table in docs/faults.md: 5 to 15 minutes, one core

Small models of four designs are trained with three recipes on Python's prose, each step read by
`watch`. A signal gives an alarm where it is further from its course than its limit
(`own.alarms.distances`). The limits are the largest distances of healthy runs of two designs; false
alarms are counted in healthy runs of the two others."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import explorer as ex
from explorer.text import prose
from explorer.vocabulary import Array
from explorer_models.alarms import WINDOW, course, distances, least
from explorer_models.findings import _norms, over_time
from explorer_models.readings import Reading
from explorer_models.sums import Breakdown

OUTPUT = Path(__file__).parent.parent / "docs" / "faults.csv"

LAYERS, WIDTH, HEADS, TOKENS, BATCH = 3, 32, 4, 32, 8
STEPS, FAULT, AFTER = 100, 40, 12
"""Steps of a healthy run, the step of a fault, and steps from there to the end of a faulty run."""
SCALE, OVERFLOW = 2.0**8, 2.0**26
"""What the loss is multiplied by in half precision, before the fault and from it on."""


class Encoder(nn.Module):
    """torch's own encoder, with Post-LN layers and a causal mask, between an embedding and a
    readout."""

    def __init__(self, words: int) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
        self.embed, self.place = nn.Embedding(words, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.read = nn.Linear(WIDTH, words, bias=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(TOKENS)

    def forward(self, codes: Tensor) -> Tensor:
        """`[batch, token]` to logits of the next tokens."""
        x = self.encoder(self.embed(codes) + self.place.weight, mask=self.mask, is_causal=True)
        logits: Tensor = self.read(x)
        return logits


def gpt2(words: int) -> nn.Module:
    """GPT-2 of transformers: Pre-LN, learned positions."""
    import transformers

    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_layer=LAYERS,
            n_embd=WIDTH,
            n_head=HEADS,
            n_positions=TOKENS,
            vocab_size=words,
            bos_token_id=None,
            eos_token_id=None,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    )


def modern(kind: str) -> Callable[[int], nn.Module]:
    """Llama (RMSNorm, SwiGLU, rotary positions) or OLMo 2 (norms after the branches, and on queries
    and keys)."""

    def build(words: int) -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(
            num_hidden_layers=LAYERS,
            hidden_size=WIDTH,
            intermediate_size=2 * WIDTH,
            num_attention_heads=HEADS,
            num_key_value_heads=HEADS,
            vocab_size=words,
            max_position_embeddings=TOKENS,
            pad_token_id=None,
            bos_token_id=None,
            eos_token_id=None,
        )
        model: nn.Module = getattr(transformers, f"{kind}ForCausalLM")(config)
        return model

    return build


DESIGNS: Mapping[str, Callable[[int], nn.Module]] = {
    "GPT-2": gpt2,
    "Post-LN": Encoder,
    "Llama": modern("Llama"),
    "OLMo 2": modern("Olmo2"),
}


class Recipe(NamedTuple):
    """Optimizer, peak learning rate, whether it falls as a cosine, and the norm to which gradients
    are clipped."""

    optimizer: Callable[..., torch.optim.Optimizer]
    rate: float
    cosine: bool
    clip: float

    def at(self, step: int) -> float:
        """The learning rate, after a warm-up of 20 steps."""
        warm = min(1.0, (step + 1) / 20)
        return (
            self.rate * warm * ((1 + math.cos(math.pi * step / STEPS)) / 2 if self.cosine else 1.0)
        )


RECIPES: Mapping[str, Recipe] = {
    "AdamW, cosine, clipped": Recipe(torch.optim.AdamW, 2e-3, True, 1.0),
    "Adam, constant": Recipe(torch.optim.Adam, 2e-3, False, math.inf),
    "SGD, momentum, cosine": Recipe(
        lambda weights, lr: torch.optim.SGD(weights, lr, momentum=0.9), 0.05, True, math.inf
    ),
}
FAULTS = ("learning rate × 10", "random batch", "layer × 2", "float16 overflow")


class Case(NamedTuple):
    """One run; a healthy one has no fault."""

    design: str
    recipe: str
    seed: int
    fault: str = ""


def run(case: Case) -> tuple[ex.Watch, list[float]]:
    """Trains a model on Python's prose, each step read, and keeps the loss of each."""
    codes, recipe = torch.tensor(prose().codes), RECIPES[case.recipe]
    torch.manual_seed(case.seed)
    model = DESIGNS[case.design](words := len(prose().vocabulary)).train()
    optimizer = recipe.optimizer(model.parameters(), lr=recipe.rate)
    draw, losses = torch.Generator().manual_seed(case.seed), list[float]()
    half = case.fault == "float16 overflow"
    with ex.watch(model, every=1) as watch:
        for step in range(FAULT + AFTER if case.fault else STEPS):
            starts = torch.randint(len(codes) - TOKENS - 1, (BATCH, 1), generator=draw)
            batch, fault = (
                codes[starts + torch.arange(TOKENS + 1)],
                case.fault if step >= FAULT else "",
            )
            if fault == "random batch" and step == FAULT:
                batch = torch.randint(words, batch.shape, generator=draw)
            if fault == "layer × 2" and step == FAULT:
                for weight in watch.blocks[1].module.parameters():
                    weight.data.mul_(2.0 if weight.ndim > 1 else 1.0)
            for group in optimizer.param_groups:
                group["lr"] = recipe.at(step) * (10.0 if fault == "learning rate × 10" else 1.0)
            scale = (OVERFLOW if fault else SCALE) if half else 1.0
            with torch.autocast("cpu", torch.float16, enabled=half):
                out: Any = model(batch[:, :-1])
                logits = getattr(out, "logits", out)
            loss = F.cross_entropy(logits.float().flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            (loss * scale).backward()  # type: ignore[no-untyped-call]
            for weight in model.parameters():
                weight.grad = weight.grad if weight.grad is None else weight.grad / scale
            torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
            optimizer.step()
            losses.append(float(loss.detach()))
    return watch, losses


# Signals.


def norm_jumps(readings: Sequence[Reading]) -> Array:
    """`[reading]`, 1 where `watch` finds a matrix whose norm changed by more than the optimizer's
    step, else 0."""
    return np.array(
        [0.0, *(float(_norms(before, after) is not None) for before, after in pairwise(readings))]
    )


SIGNALS: Mapping[str, str] = {
    "loss": "loss",
    "gradient norm": "parameter_gradient",
    "update norm": "update_ratio",
    "update of every matrix": "",
    "largest attention logits": "largest_logit",
    "stream, second moment": "second_moment",
    "stream, largest x": "max_abs",
    "weight norm": "weight_norm",
}
"""Signals by their names in the table: root mean squares of a statistic over all layers, heads and
matrices."""
EACH, NORMS, VERDICT = "update of every matrix", "matrix norm beyond its step", "verdict of watch"


def far(readings: Sequence[Reading], losses: Sequence[float], name: str) -> Array:
    """`[step]`: how far a signal is from its course, infinite where it is not finite."""
    with np.errstate(all="ignore"):
        if name == EACH:
            every = course(readings, "update_ratio")
            return np.where(np.isfinite(every).all(1), least(every)[0], np.inf)
        values = (
            np.array(losses)
            if name == "loss"
            else np.sqrt((course(readings, SIGNALS[name]) ** 2).mean(1))
        )
        return np.where(np.isfinite(values), distances(values)[0], np.inf)


class Scored(NamedTuple):
    """A run in numbers."""

    case: Case
    distances: Mapping[str, Array]
    """By signal, `[step]`: how far each step is from those before it, infinite where it is not
    finite."""
    verdict: int | None
    """The first step from the fault on after which `watch` gives a warning; of a healthy run the
    last, if it does."""


def scored(
    case: Case,
    readings: Sequence[Reading],
    layers: Sequence[str],
    first: Breakdown | None,
    losses: Sequence[float],
) -> Scored:
    """Distances of every signal, and the verdict."""
    by_signal = {name: far(readings, losses, name) for name in SIGNALS} | {
        NORMS: norm_jumps(readings)
    }

    def warnings(step: int) -> set[str]:
        known = first if first is not None and first.step <= step else None
        found = over_time(
            readings[FAULT - WINDOW if case.fault else 0 : step + 1], known, layers, False
        )
        return {finding.meaning for finding in found if finding.severity != "good"}

    before = warnings(FAULT - 1) if case.fault else set()
    steps = range(FAULT if case.fault else len(readings) - 1, len(readings))
    return Scored(case, by_signal, next((step for step in steps if warnings(step) - before), None))


def limits_of(runs: Sequence[Scored]) -> dict[str, float]:
    """By signal, the least whole distance that no healthy run exceeds; of weight norms it follows
    from the rule."""
    largest = {name: max(float(np.nanmax(run.distances[name])) for run in runs) for name in SIGNALS}
    return {name: float(math.ceil(value)) for name, value in largest.items()} | {NORMS: 0.0}


def alarms_of(run: Scored, limits: Mapping[str, float]) -> dict[str, int | None]:
    """By signal the first step beyond its limit; of a faulty run, counted from its fault."""
    start = FAULT if run.case.fault else 0
    first = {
        name: next(iter(np.flatnonzero(run.distances[name][start:] > limit).tolist()), None)
        for name, limit in limits.items()
    }
    return first | {VERDICT: None if run.verdict is None else run.verdict - start}


# The table.

DESIGN_NAMES, RECIPE_NAMES = tuple(DESIGNS), tuple(RECIPES)
HEALTHY, SEEDS = 50, 1
"""Healthy runs of each kind, and seeds of each design, recipe and fault."""
CASES: Mapping[str, tuple[Case, ...]] = {
    "chosen on": tuple(Case(DESIGN_NAMES[i % 2], RECIPE_NAMES[i % 3], i) for i in range(HEALTHY)),
    "held out": tuple(
        Case(DESIGN_NAMES[2 + i % 2], RECIPE_NAMES[i % 3], 100 + i) for i in range(HEALTHY)
    ),
    "fault": tuple(
        Case(design, recipe, 200 + seed, fault)
        for seed in range(SEEDS)
        for fault in FAULTS
        for design in DESIGNS
        for recipe in RECIPES
    ),
}
"""Limits are chosen on healthy runs of two designs; false alarms are counted in those of two
others."""


def rows_of(runs: Mapping[str, Sequence[Scored]]) -> list[dict[str, object]]:
    """A row a run: the first alarm of each signal, empty for none."""
    limits = limits_of(runs["chosen on"])
    print("limits:", limits)
    return [
        {"runs": kind, **run.case._asdict()}
        | {name: "" if step is None else step for name, step in alarms_of(run, limits).items()}
        for kind, several in runs.items()
        for run in several
    ] + [{"runs": "limit"} | dict(limits)]


def cell(rows: Sequence[Mapping[str, str]], name: str) -> str:
    """In how many runs a signal gave an alarm, the median of its steps after the fault, and how
    often it was first."""
    seen = [int(row[name]) for row in rows if row[name]]
    if not seen:
        return f"0 of {len(rows)}"
    names = [*SIGNALS, NORMS]
    first = sum(
        row[name] != "" and int(row[name]) == min(int(row[other]) for other in names if row[other])
        for row in rows
    )
    counted = f"{len(seen)} of {len(rows)}, after {np.median(seen):.0f}"
    return counted if name == VERDICT else f"{counted}, first {first}"


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """The table of docs/faults.md."""
    limits = next(row for row in rows if row["runs"] == "limit")
    lines = [["signal", "limit", *FAULTS, "false alarms, chosen on", "held out"]]
    for name in (*SIGNALS, NORMS, VERDICT):
        false = [
            sum(row["runs"] == kind and row[name] != "" for row in rows)
            for kind in ("chosen on", "held out")
        ]
        limit = limits[name] if name in SIGNALS else ""
        lines.append(
            [
                name,
                str(limit).removesuffix(".0"),
                *(cell([row for row in rows if row["fault"] == fault], name) for fault in FAULTS),
                *(f"{count} of {HEALTHY}" for count in false),
            ]
        )
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def write(rows: Sequence[Mapping[str, object]]) -> None:
    """Writes docs/faults.csv, and the table into docs/faults.md."""
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        lines = table([*csv.DictReader(file)])
    page = OUTPUT.with_suffix(".md")
    words = re.sub(
        r"\| signal .*?\n(?!\|)", lambda _: lines, page.read_text(encoding="utf-8"), flags=re.DOTALL
    )
    page.write_text(words, encoding="utf-8")


def main() -> None:
    """Trains every case; on one thread, as sums of several round otherwise, and a training
    multiplies what rounds."""
    torch.set_num_threads(1)
    runs: dict[str, list[Scored]] = {kind: [] for kind in CASES}
    for kind, cases in CASES.items():
        for case in cases:
            watch, losses = run(case)
            watch.remove()
            runs[kind].append(
                scored(case, watch.readings, watch.layers, watch.first_nonfinite, losses)
            )
            print(kind, *case, f"verdict at {runs[kind][-1].verdict}", flush=True)
    write(rows_of(runs))


if __name__ == "__main__":
    main()
