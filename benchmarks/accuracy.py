"""How far the theory is from measurement: every design and variant, every statistic, worst error
over depth.

    python -m benchmarks.accuracy  # writes docs/accuracy.csv, about five minutes on two cores
    python -m benchmarks.accuracy --quick  # the named designs only, few seeds, to standard output

A row is one statistic of one config. `error` is the largest deviation of the prediction from the
mean over seeds, at any site and layer that the theory covers: relative, or absolute for statistics
between 0 and 1 (`kind`); norms and the logits' spread are compared with the root mean square over
seeds. `standard_error` is the measurement's own, at that place: an error of one or two of them says
nothing against the theory. `want` is what was aimed for, if anything was."""

from __future__ import annotations

import argparse
import csv
import itertools
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from explorer.config import Config, ConfigError
from explorer.diagnosis.agreement import CHANCE
from explorer.measuring import measure
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.schemes.residual import RESIDUALS
from explorer.sites import BRANCHES
from explorer.theory import predict
from explorer.theory.rough import group_of
from explorer.theory.rough import table as stated
from explorer.vocabulary import STATISTICS, Statistic

Array = NDArray[np.float64]
SIZES: dict[str, Any] = {"n_layers": 12, "d_model": 256, "n_heads": 4, "n_ctx": 64, "batch_size": 2}
SEEDS, NAMED_SEEDS = 12, 64
MORE_SEEDS = {"post": 256, "RealFormer": 256}
"""Their gradients scatter by a third from draw to draw."""
OUTPUT = Path(__file__).parent.parent / "docs" / "accuracy.csv"
SKIPPED = ("attention_entropy",)
"""The same as its normalized form."""

NAMED: dict[str, dict[str, Any]] = {
    "pre": {},
    "peri": {"norm_placement": "peri"},
    "1/√(2L)": {"residual": "inverse_sqrt_depth"},
    "deepnorm": {"norm_placement": "post", "residual": "deepnorm"},
    "post": {"norm_placement": "post"},
    "RealFormer": {"norm_placement": "post", "residual_attention": "scores"},
    "pre, no √d": {"attention_scale": "none"},
    "SwiGLU": {"mlp": "gated", "activation": "silu"},
    "parallel": {"stream": "parallel"},
    **{
        PRESETS[name].title: dict(PRESETS[name].changes)
        for name in ("gpt2", "llama3", "olmo2", "gemma2", "gpt_oss", "keel")
    },
}
WANT = {
    "pre": (0.02, 0.01, 0.02),
    "peri": (0.02, 0.01, 0.03),
    "1/√(2L)": (0.01, 0.01, 0.01),
    "deepnorm": (0.01, 0.01, 0.01),
    "post": (0.01, 0.01, 0.08),
    "RealFormer": (0.01, 0.02, 0.15),
    "pre, no √d": (0.02, 0.01, 0.20),
    **dict.fromkeys(
        ("SwiGLU", "parallel", "GPT-2", "Llama 3", "OLMo 2", "Gemma 2", "gpt-oss style", "Keel"),
        (0.02, 0.01, 0.05),
    ),
}
"""Of the second moment, the token correlation and the activation gradient."""

PLACED = [
    {"norm_placement": "pre"},
    {"norm_placement": "post"},
    {"norm_placement": "peri"},
    {"norm_placement": "none", "residual": "inverse_sqrt_depth"},
]
VARIANTS: list[dict[str, Any]] = [
    *({"attention_scale": scale} for scale in ("none", "d")),
    {"qk_norm": True},
    {"causal": True},
    {"causal": True, "attention_scale": "none"},
    {"norm": "rms"},
    *(
        {"activation": name}
        for name in ("gelu", "silu", "elu", "selu", "tanh", "sigmoid", "identity")
    ),
    {"activation": "gelu", "activation_rescaled": False},
    {"activation": "relu2"},
    *({"mlp": "gated", "activation": name} for name in ("silu", "gelu", "relu", "identity")),
    {
        "mlp": "gated",
        "activation": "silu",
        "activation_rescaled": False,
        "causal": True,
        "norm": "rms",
    },
    *(
        {"scale_rule": rule}
        for rule in ("xavier", "he", "fan_out", "bert", "gpt2", "torch_default")
    ),
    {"scale_rule": "t5", "attention_scale": "none"},
    *({"init_variance": variance} for variance in (0.25, 4.0)),
    {"input": "correlated"},
    {"input": "text"},
    {"input": "text", "loss": "next_token"},
    {"distribution": "uniform"},
    {"parametrization": "ntk"},
    {"parametrization": "mup", "input": "text", "loss": "next_token"},
    *(
        {"residual_attention": kind, "causal": causal}
        for kind in ("scores", "qk")
        for causal in (False, True)
    ),
    *(
        {"stream": name, "causal": causal}
        for name in ("parallel", "hyper", "manifold", "depth_attention")
        for causal in (False, True)
    ),
    {"parametrization": "completep"},
    *({"position": "rotary", "causal": causal} for causal in (False, True)),
    {"position": "learned"},
    {"position": "rotary", "input": "correlated"},
    {"position": "rotary", "rope_fraction": 0.25, "causal": True},
    {"norm": "dyt"},
    {"norm": "derf", "norm_alpha": 1.0},
    {"norm": "dyt", "causal": True},
    *(
        {"mlp": "gated_plus_one", "activation": "quick", "causal": causal}
        for causal in (False, True)
    ),
    *(
        {"input_second_moment": 8e-4, "activation": "gelu_tanh", "causal": causal}
        for causal in (False, True)
    ),
    {"attention_variance": 3.0, "mlp_variance": 0.3},
    {"scale_rule": "torch_transformer", "bias_variance": 1 / 3},
    {"bias_variance": 100.0},
    {"bias_variance": 100.0, "causal": True},
    {"layer_weights": "copied"},
    *(
        {"bias_variance": variance, "biases": "all", "causal": causal}
        for variance in (1 / 3, 100.0)
        for causal in (False, True)
    ),
    *(
        {"input": "text", "loss": "next_token", "readout": "tied_scaled", "causal": causal}
        for causal in (False, True)
    ),
    {
        "layer_weights": "copied",
        "scale_rule": "torch_default",
        "bias_variance": 1 / 3,
        "activation_rescaled": False,
    },
    {"position": "alibi", "causal": True},
    {"value_residual": True},
    {"value_residual": True, "causal": True},
    *({"attention_scale": "ssmax", "causal": causal} for causal in (False, True)),
    {"qk_norm": True, "qk_norm_over": "all", "norm": "rms"},
    {"qk_norm": True, "qk_gain": 2.0},
    {"attention": "none"},
    {"logit_cap": 10.0},
    {"logit_cap": 50.0, "attention_scale": "none"},
    {"n_kv_heads": 1},
    {"n_heads": 8, "n_kv_heads": 2, "head_size": 64},
    *(
        {"attention_gate": kind, "causal": causal}
        for kind in ("head", "coordinate")
        for causal in (False, True)
    ),
    *({"sink": kind, "causal": True} for kind in ("zero", "learned")),
]
MORE_PLACED: list[dict[str, Any]] = [
    {"norm_placement": placement, "causal": causal}
    for causal in (False, True)
    for placement in (
        "branch_output",
        "scaled_pre",
        "mix",
        "keel",
        "hybrid",
        "subln",
        "normformer",
        "ngpt",
    )
]
CHOICES = (
    "norm_placement",
    "residual",
    "attention_scale",
    "attention",
    "n_kv_heads",
    "head_size",
    "residual_attention",
    "value_residual",
    "qk_norm",
    "qk_norm_over",
    "qk_gain",
    "logit_cap",
    "sink",
    "attention_gate",
    "causal",
    "position",
    "rope_fraction",
    "norm",
    "norm_alpha",
    "mlp",
    "activation",
    "activation_rescaled",
    "stream",
    "scale_rule",
    "init_variance",
    "attention_variance",
    "mlp_variance",
    "bias_variance",
    "biases",
    "layer_weights",
    "distribution",
    "parametrization",
    "input",
    "input_second_moment",
    "loss",
    "readout",
)
BRANCH = 0.2
"""Error of a branch that needs no note: those are drawn on no chart. For others see
`rough.table`."""
COLUMNS = (
    "design",
    *CHOICES,
    "statistic",
    "kind",
    "error",
    "standard_error",
    "layer",
    "covered",
    "want",
    "seeds",
    *SIZES,
    "note",
)


class Error(NamedTuple):
    """The largest error of one statistic, the measurement's standard error there, and the layer."""

    size: float
    standard: float
    layer: float
    covered: float
    """Share of the values that the theory covers."""


def cases() -> Iterator[tuple[str, Config]]:
    """Every config of the table, named designs first; each once."""
    seen = set()
    named = [
        (name, {**SIZES, **choices, "n_seeds": NAMED_SEEDS}) for name, choices in NAMED.items()
    ]
    crossed = [{**placed, "residual": residual} for placed in PLACED for residual in RESIDUALS]
    varied = [{**placed, **variant} for placed in PLACED for variant in VARIANTS]
    plain = [
        ("", {**SIZES, **choices, "n_seeds": SEEDS}) for choices in crossed + varied + MORE_PLACED
    ]
    for name, choices in named + plain:
        try:
            config = Config(**choices)
        except ConfigError:  # designs that exclude each other
            continue
        if (key := config.replace(n_seeds=1)) not in seen:
            seen.add(key)
            yield name, config


def measured(config: Config, seeds: int) -> Profile:
    """One profile over as many seeds as asked for, in as many measurements as that takes."""
    profiles = [measure(config.replace(seed=seed)) for seed in range(0, seeds, config.n_seeds)]
    values = {key: np.concatenate([one[key] for one in profiles]) for key in profiles[0].values}
    return Profile(
        "measured", values, config, seeds=tuple(seed for one in profiles for seed in one.seeds)
    )


def errors(found: Profile, predicted: Profile) -> dict[str, Error]:
    """Statistic to its largest error over sites and layers."""
    worst: dict[str, Error] = {}
    for (statistic, site), theory in predicted.values.items():
        if statistic in SKIPPED or STATISTICS[statistic].by_position:
            continue
        draws = found[statistic, site]
        if draws.ndim == 3:
            draws = STATISTICS[statistic].mean(draws, 2)
        error, standard = deviations(STATISTICS[statistic], draws, theory.reshape(theory.shape[1]))
        known = np.isfinite(error)
        part = "branches" if site in BRANCHES else group_of(statistic, site)
        name = f"{statistic} of {part}" if part else statistic
        index = int(np.argmax(np.where(known, np.abs(error), -1.0)))
        one = Error(
            float(error[index]),
            float(standard[index]),
            found.depth(site)[index],
            float(known.mean()),
        )
        if name not in worst or not abs(one.size) <= abs(worst[name].size):
            worst[name] = one if known.any() or name not in worst else worst[name]
    return worst


def deviations(row: Statistic, found: Array, expected: Array) -> tuple[Array, Array]:
    """Error and standard error by layer, relative or absolute; `found` is `[seed, layer]`."""
    with np.errstate(all="ignore"):
        mean, standard = row.mean(found), row.standard_error(found)
        # ReZero: two zeros agree
        scale = np.where((mean == 0) & (expected == 0), 1.0, np.abs(mean))
        if row.bounded:
            scale = np.ones_like(mean)
        return (expected - mean) / scale, standard / scale


def rows(name: str, config: Config, seeds: int) -> Iterator[dict[str, Any]]:
    """The table's rows for one config."""
    predicted = predict(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what overflows is a row of the table, not news
        found = errors(measured(config, seeds), predicted)
    want = dict(
        zip(
            ("second_moment", "token_correlation", "activation_gradient"),
            WANT.get(name, ()),
            strict=False,
        )
    )
    for statistic, error in found.items():
        yield {
            "design": name,
            **{choice: getattr(config, choice) for choice in CHOICES},
            "statistic": statistic,
            "kind": "absolute"
            if STATISTICS[statistic.partition(" of ")[0]].bounded
            else "relative",
            "error": f"{error.size:+.4f}",
            "standard_error": f"{error.standard:.4f}",
            "layer": f"{error.layer:g}",
            "covered": f"{error.covered:.2f}",
            "want": want.get(statistic, ""),
            "seeds": seeds,
            **{size: getattr(config, size) for size in SIZES},
            "note": predicted.notes.get(statistic, ""),
        }


def config_of(row: Mapping[str, str]) -> Config:
    """The config of a row of the table."""
    specs = Config.specs()
    kinds: dict[str, Callable[[str], Any]] = {
        "integer": int,
        "number": float,
        "switch": lambda text: text == "True",
    }
    return Config(
        **{name: kinds.get(specs[name].kind, str)(row[name]) for name in (*CHOICES, *SIZES)}
    )


def too_far(row: Mapping[str, str]) -> bool:
    """Whether a row is off by more than its stated error, and more than the worst of some dozen
    values is by chance."""
    error, standard = abs(float(row["error"])), float(row["standard_error"])
    worst = stdtrit(int(row["seeds"]) - 1, 1 - CHANCE / 2 / (2 * int(row["n_layers"]) + 1))
    statistic, _, of = row["statistic"].partition(" of ")
    allowed = max(stated()["stated"][statistic], BRANCH if of == "branches" else 0.0)
    return bool(error > allowed and error > worst * standard)


def noted() -> None:
    """Writes the notes of all designs into the table."""
    with OUTPUT.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    for config, group in itertools.groupby(table, config_of):
        notes = predict(config).notes
        for row in group:
            row["note"] = notes.get(row["statistic"].partition(" of ")[0], "")
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(table)


def main() -> None:
    """Measures, compares, writes."""
    parser = argparse.ArgumentParser(description="how far the theory is from measurement")
    parser.add_argument(
        "--quick", action="store_true", help="the named designs with few seeds, to standard output"
    )
    quick = parser.parse_args().quick
    OUTPUT.parent.mkdir(exist_ok=True)
    with sys.stdout if quick else OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name, config in cases():
            if quick and not name:
                break
            if quick:
                config = config.replace(n_seeds=8)
            writer.writerows(
                rows(
                    name, config, config.n_seeds if quick else MORE_SEEDS.get(name, config.n_seeds)
                )
            )
            file.flush()
    if not quick:
        noted()


if __name__ == "__main__":
    main()
