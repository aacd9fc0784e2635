"""What the race costs: the engine over a plain hand-written loop, and the instruments over the
engine, in one run."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from explorer import Config
from explorer.measuring.sharing import torch_threads
from explorer.model import Transformer
from explorer.model.batch import Batch
from explorer_race.race import Contender
from explorer_race.recipe import LONGEST, Recipe
from explorer_race.runner import Runner
from explorer_race.tasks import Data, Task

SIZES = {
    "(12, 64)": Config(n_layers=12, d_model=64, n_ctx=64, batch_size=16),
    "(6, 128)": Config(n_layers=6, d_model=128, n_ctx=64, batch_size=16),
    "(48, 32)": Config(n_layers=48, d_model=32, n_ctx=32, batch_size=8),
}
EVERY, ROUNDS = 10, 9
RECIPE = Recipe(warmup=100, decay="cosine")
ENGINE_LIMIT, INSTRUMENTS_LIMIT = 1 / 0.95, 1.10
"""At least 0.95 of the plain loop's steps a second; at most a tenth more time for the
instruments."""


def plain(config: Config, data: Data) -> Callable[[], None]:
    """One step of the loop that anybody would write, over the same model."""
    model = Transformer(config, config.seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=RECIPE.learning_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / RECIPE.warmup)
    )
    rng = np.random.default_rng(0)

    def step() -> None:
        starts = rng.integers(len(data.train) - config.n_ctx, size=config.batch_size)
        codes = torch.from_numpy(data.train[starts[:, None] + np.arange(config.n_ctx + 1)])
        batch = Batch(codes[:, :-1], codes[:, 1:])
        optimizer.zero_grad()
        model.loss(model(model.embed(batch)), batch).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()

    return step


def seconds(work: Callable[[], object]) -> float:
    """Processor time of as many steps as lie between two readings: all is one thread's, and others
    may be at work."""
    start = time.process_time()
    for _ in range(EVERY):
        work()
    return time.process_time() - start


def costs(config: Config) -> tuple[dict[str, float], dict[str, float]]:
    """The engine's ratio and the instruments': medians over rounds in which the three take
    turns."""
    config = Task().fit(config)
    data = Data(Task(), None, config.n_ctx, config.batch_size)
    bare, watched = (
        Runner(Contender("", config, RECIPE), data, LONGEST, torch.device("cpu")) for _ in range(2)
    )
    by_hand = plain(config, data)
    works = (by_hand, lambda: bare.advance(LONGEST), lambda: watched.advance(EVERY))
    with torch_threads(1):
        rounds = [[seconds(work) for work in works] for _ in range(ROUNDS + 1)][1:]
    hand, engine, instruments = np.array(rounds).T
    return (
        {
            "hand_seconds": float(np.median(hand)) / EVERY,
            "ratio": float(np.median(engine / hand)),
            "limit": ENGINE_LIMIT,
        },
        {
            "step_seconds": float(np.median(engine)) / EVERY,
            "ratio": float(np.median(instruments / engine)),
            "limit": INSTRUMENTS_LIMIT,
        },
    )


def main() -> dict[str, dict[str, float]]:
    """Layers and width to what the engine and its instruments cost there."""
    found: dict[str, dict[str, float]] = {}
    for name, config in SIZES.items():
        found[f"race engine {name}"], found[f"race instruments {name}"] = costs(config)
    return found
