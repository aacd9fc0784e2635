"""Presets of real models beside Hugging Face transformers' own code, with random weights: nothing
is downloaded.

    python -m benchmarks.models          # writes docs/models.csv, about ten minutes on two cores

A row is one statistic of one model after one layer (0: the input): mean over seeds and its standard
error, once of their model and once of ours, how many combined standard errors lie between the two,
and what the theory predicts. Their models are built from what was published of each, shrunk to our
width, depth and heads, and initialized by their own code (nanochat's by the authors' rule). Both
read distinct tokens, whose embeddings are independent, and both are differentiated in a random
direction of the normalized output. Needs `pip install -e .[models]`."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from explorer.config import Config, preset
from explorer.measuring import measure
from explorer.measuring.sharing import torch_threads
from explorer.measuring.statistics import Signal, second_moment
from explorer.profile import Profile
from explorer.schemes.preset import PRESETS
from explorer.theory import predict

Array = NDArray[np.float64]
SIZES: dict[str, Any] = {
    "n_layers": 12,
    "d_model": 256,
    "n_heads": 4,
    "n_ctx": 64,
    "batch_size": 2,
    "n_seeds": 32,
}
OUTPUT = Path(__file__).parent.parent / "docs" / "models.csv"
COLUMNS = (
    "model",
    "class",
    "statistic",
    "layer",
    "theirs",
    "their_error",
    "ours",
    "our_error",
    "deviation",
    "predicted",
    *SIZES,
)
WIDTH = Config().d_model
ROUNDING = 1e-6
"""Of float32, relative: what Post-LN's second moment of 1 has for a standard error."""
STATISTICS = ("second_moment", "token_correlation", "attention_entropy", "activation_gradient")


class Foreign(NamedTuple):
    """A model that nobody here wrote."""

    name: str
    """Its class in transformers."""
    blocks: str
    """Where its layers are."""
    published: Mapping[str, Any] = {}
    """What its authors published where the class's own defaults are another model's."""
    changes: Mapping[str, Any] = {}
    """Fields of ours that stand for what its embedding does."""
    without: str = "none"
    """Parameters that the preset has no counterpart for, as it says; zero here."""
    drawn: Mapping[str, float] = {}
    """Where the authors' own code draws otherwise than the class: by a part of a parameter's path,
    standard deviation × √fan_in of its uniform draws."""
    n_seeds: int = SIZES["n_seeds"]
    """Draws for the table: more where one draw says less, as attention is nearly one-hot."""
    normalized: bool = False
    """Its embedding is normalized, so that all tokens have one length, and ours scatter by 2/d."""


def rope(theta: float, **more: Any) -> dict[str, Any]:
    """Rotary positions of one base."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


TYPED = {"input": "correlated", "input_correlation": 2 / 3}
"""Of three tables one is the token type's, which all tokens share; ours are two."""
QWEN3 = {"hidden_size": 4096, "intermediate_size": 12288, "num_key_value_heads": 8}
WINDOWS = {
    "rope_parameters": {
        kind: {"rope_type": "default", "rope_theta": 1e4}
        for kind in ("sliding_attention", "full_attention")
    }
}
MODELS = {
    "gpt2": Foreign("GPT2Model", "h"),
    "gptj": Foreign("GPTJModel", "h"),
    "mpt": Foreign("MptModel", "blocks"),
    "bert": Foreign("BertModel", "encoder.layer", changes=TYPED, normalized=True),
    "albert": Foreign("AlbertModel", "encoder.albert_layer_groups", changes=TYPED),
    "t5": Foreign("T5EncoderModel", "encoder.block", without="relative_attention_bias"),
    "t5_v1_1": Foreign(
        "T5EncoderModel",
        "encoder.block",
        {"feed_forward_proj": "gated-gelu", "d_model": 2048, "d_ff": 5120, "num_heads": 32},
        without="relative_attention_bias",
    ),
    "llama3": Foreign(
        "LlamaModel",
        "layers",
        {**QWEN3, "intermediate_size": 14336, "rms_norm_eps": 1e-5, **rope(5e5)},
    ),
    "qwen3": Foreign("Qwen3Model", "layers", {**QWEN3, **rope(1e6)}),
    # with attention in every layer instead of one in four, and one MLP for 512 experts
    "qwen3_next": Foreign(
        "Qwen3NextModel",
        "layers",
        {"full_attention_interval": 1, "num_experts": 0, **rope(1e7, partial_rotary_factor=0.25)},
    ),
    "olmo2": Foreign("Olmo2Model", "layers", {"rms_norm_eps": 1e-6, **rope(5e5)}),
    "gemma2": Foreign("Gemma2Model", "layers"),
    # with the base of five layers in six in all of them
    "gemma3": Foreign("Gemma3TextModel", "layers", WINDOWS),
    # with the windows' layers alone, whose heads and base all layers then have, and no embeddings
    # by layer
    "gemma4": Foreign(
        "Gemma4TextModel",
        "layers",
        {"hidden_size_per_layer_input": 0, "per_layer_config": {}, **WINDOWS},
        n_seeds=64,
    ),
    # the class has the model of October 2025, whose queries and keys have no gain
    "nanochat": Foreign(
        "NanoChatModel",
        "layers",
        {"rms_norm_eps": 1.1920929e-07, "hidden_size": 2048, **rope(1e5)},
        {"qk_gain": 1.0},
        normalized=True,
        drawn={"q_proj": 1.0, "k_proj": 1.0, "v_proj": 1.0, "o_proj": 0.0, "fc1": 0.4, "fc2": 0.0},
    ),
    # one expert for 128, no YaRN
    "gpt_oss": Foreign(
        "GptOssModel", "layers", {"num_local_experts": 1, "num_experts_per_tok": 1, **rope(1.5e5)}
    ),
    "command_r": Foreign("CohereModel", "layers", rope(8e6)),
}


def build(row: Foreign, config: Config) -> nn.Module:
    """Their model at our size, initialized by their code."""
    import transformers

    kind = getattr(transformers, row.name)
    big = kind.config_class(**row.published)
    width, heads = config.d_model / big.hidden_size, config.n_heads / big.num_attention_heads
    factors = {
        "intermediate_size": width,
        "d_ff": width,
        "num_key_value_heads": heads,
        "rotary_dim": width / heads,
    }
    sizes = {
        "hidden_size": config.d_model,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": config.n_heads,
        **{
            name: max(1, round(factor * value))
            for name, factor in factors.items()
            if (value := getattr(big, name, 0))
        },
        **{
            name: config.d_model // config.n_heads
            for name in ("head_dim", "d_kv", "query_pre_attn_scalar")
            if hasattr(big, name)
        },
        "vocab_size": config.batch_size * config.n_ctx,
        "max_position_embeddings": config.n_ctx,
    }
    special = dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
    model: nn.Module = kind(
        kind.config_class(**{**row.published, **sizes, **special, "attn_implementation": "eager"})
    )
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            for part, deviation in row.drawn.items():
                if part in path:
                    bound = deviation * math.sqrt(3 / parameter.shape[1])
                    parameter.uniform_(-bound, bound)
            if parameter.ndim > 1:
                parameter.mul_(0.0 if row.without in path else math.sqrt(config.init_variance))
    return model.eval()


class Pass(NamedTuple):
    """One pass forward, and the gradients of its output in a random direction."""

    stream: Tensor
    """`[layer, batch, token, d_model]`: the input and each layer's output, never normalized once
    more."""
    pattern: Tensor
    """`[layer, batch, head, query, key]`."""
    gradient: Tensor
    """By the stream."""
    direction: Tensor


def run(row: Foreign, model: nn.Module, config: Config) -> Pass:
    """Their model on distinct tokens."""
    stream: list[Tensor] = []
    blocks = list(model.get_submodule(row.blocks))

    def entered(_: nn.Module, args: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        if not stream:  # shared layers come again
            stream.append(args[0] if args else named["hidden_states"])

    blocks[0].register_forward_pre_hook(entered, with_kwargs=True)
    for block in blocks:
        block.register_forward_hook(
            lambda _, args, out: stream.append(out[0] if isinstance(out, tuple) else out)
        )
    tokens = torch.randperm(config.batch_size * config.n_ctx).view(config.batch_size, config.n_ctx)
    out = model(input_ids=tokens, output_attentions=True)
    return gathered(
        stream, out.attentions, out.last_hidden_state, torch.randn_like(out.last_hidden_state)
    )


def gathered(
    stream: list[Tensor], pattern: Sequence[Tensor], output: Tensor, direction: Tensor
) -> Pass:
    """What a pass has shown."""
    gradient = torch.autograd.grad((output * direction).sum(), stream)
    return Pass(
        *(torch.stack(list(part)).detach() for part in (stream, pattern, gradient)), direction
    )


def theirs(row: Foreign, config: Config, seed: int) -> dict[str, Array]:
    """Statistic to `[layer]`, from one draw of their model."""
    torch.manual_seed(seed)
    found = run(row, build(row, config), config)
    signal, gradient = Signal.of(found.stream), second_moment(found.gradient)
    # what a sink leaves, taken as a whole
    rows = found.pattern / found.pattern.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(rows).sum(dim=-1).mean(dim=(1, 2, 3))
    values = (signal.q, signal.overlap / signal.q, entropy, gradient / gradient[-1])
    return {name: value.double().numpy() for name, value in zip(STATISTICS, values, strict=True)}


def ours(profile: Profile) -> dict[str, Array]:
    """Statistic to `[seed, layer]` of a profile, at the same places."""
    return {
        name: profile[name, "pattern"].mean(-1)
        if name == "attention_entropy"
        else np.concatenate([profile[name, "embed"], profile[name, "resid_post"]], axis=1)
        for name in STATISTICS
    }


class Comparison(NamedTuple):
    """One statistic of a model of theirs and of ours, by layer."""

    statistic: str
    theirs: Array
    their_error: Array
    ours: Array
    our_error: Array
    predicted: Array

    @property
    def deviation(self) -> Array:
        """Difference of the means, in combined standard errors."""
        rounding = ROUNDING * np.abs(self.ours)
        error = np.sqrt(self.their_error**2 + self.our_error**2 + rounding**2)
        return np.divide(self.theirs - self.ours, error, out=np.zeros_like(error), where=error > 0)


def ours_of(name: str, **sizes: Any) -> Config:
    """The preset as it is compared with their model."""
    row = MODELS[name]
    config = preset(name, **sizes, **row.changes)
    # the embeddings are drawn as the layers are
    factor = config.d_model / WIDTH if PRESETS[name].by_width else 1.0
    factor *= 1.0 if row.normalized else config.init_variance
    return config.replace(input_second_moment=config.input_second_moment * factor)


def compare(row: Foreign, config: Config) -> list[Comparison]:
    """Their model against a config of ours: every statistic, over as many seeds of each."""
    with torch_threads(1):
        draws = [theirs(row, config, seed) for seed in range(config.n_seeds)]
    measured, predicted = ours(measure(config)), ours(predict(config))
    found = []
    for name in STATISTICS:
        pair = (np.stack([draw[name] for draw in draws]), measured[name])
        (their, their_error), (our, our_error) = (
            (value.mean(0), value.std(0, ddof=1) / math.sqrt(len(value))) for value in pair
        )
        found.append(Comparison(name, their, their_error, our, our_error, predicted[name][0]))
    return found


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The table's rows for one model."""
    sizes = {**SIZES, "n_seeds": MODELS[name].n_seeds}
    for found in compare(MODELS[name], ours_of(name, **sizes)):
        columns = (
            found.theirs,
            found.their_error,
            found.ours,
            found.our_error,
            found.deviation,
            found.predicted,
        )
        first = 1 if found.statistic == "attention_entropy" else 0
        for layer, numbers in enumerate(zip(*columns, strict=True), start=first):
            yield dict(
                zip(
                    COLUMNS,
                    (
                        name,
                        MODELS[name].name,
                        found.statistic,
                        layer,
                        *(f"{number:.5g}" for number in numbers),
                        *sizes.values(),
                    ),
                    strict=True,
                )
            )


def main() -> None:
    """Measures both, compares, writes."""
    with OUTPUT.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in MODELS:
            writer.writerows(found := list(rows(name)))
            worst = max(found, key=lambda row: abs(float(row["deviation"])))
            print(
                f"{name:<12} {worst['deviation']} standard errors: {worst['statistic']}, layer {worst['layer']}"
            )
            file.flush()


if __name__ == "__main__":
    main()
