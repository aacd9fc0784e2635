"""What the diagnosis says of the architectures of `transformers`, as they are drawn: how many
alarms are false?

    python -m benchmarks.architectures             # all: some five minutes, one core
    python -m benchmarks.architectures jamba t5    # some of them, with the whole finding

Each architecture is built small from its own config class, with its own initialization and no
weights from elsewhere, probed on random tokens or images and diagnosed. Published designs start
well, so that nothing should be bad, and each warning should say something that is true of the
architecture. What cannot be built small is listed with the reason."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

import explorer as ex

WIDTH, HEADS, LAYERS, WORDS, TOKENS, PIXELS, BATCH = 64, 4, 6, 97, 16, 32, 2
LIMIT = 40
"""Seconds of an architecture."""
LARGEST = 8_000_000
"""Parameters of a model: with more, a size was not found in its config."""

SIZES: Sequence[tuple[int, str]] = (
    (WIDTH, "hidden_size d_model n_embd dim embed_dim emb_dim embedding_size"),
    (
        2 * WIDTH,
        "intermediate_size d_ff d_inner ffn_dim encoder_ffn_dim decoder_ffn_dim hidden_dim",
    ),
    (
        LAYERS,
        (
            "num_hidden_layers n_layer n_layers num_layers encoder_layers decoder_layers num_decoder_layers "
            "num_encoder_layers"
        ),
    ),
    (
        HEADS,
        (
            "num_attention_heads n_head n_heads num_heads encoder_attention_heads decoder_attention_heads "
            "num_encoder_attention_heads num_decoder_attention_heads linear_num_value_heads mamba_n_heads "
            "mamba_num_heads"
        ),
    ),
    (4, "num_experts n_routed_experts num_local_experts moe_num_experts"),
    (
        WIDTH // HEADS,
        (
            "head_dim d_kv attention_head_size v_head_dim qk_head_dim linear_key_head_dim "
            "linear_value_head_dim rotary_dim"
        ),
    ),
    (16, "q_lora_rank kv_lora_rank"),
    (
        8,
        (
            "qk_rope_head_dim qk_nope_head_dim sliding_window attention_window local_attention ssm_state_size "
            "state_size mamba_d_state mamba_dt_rank patch_size"
        ),
    ),
    (
        WIDTH // 2,
        "moe_intermediate_size shared_expert_intermediate_size mamba_d_head mamba_head_dim",
    ),
    (PIXELS, "image_size"),
    (2, "num_key_value_heads linear_num_key_heads num_experts_per_tok mamba_expand eos_token_id"),
    (1, "n_group topk_group bos_token_id decoder_start_token_id"),
    (0, "pad_token_id"),
    (4 * TOKENS, "max_position_embeddings n_positions n_ctx max_seq_len max_sequence_length"),
    (WORDS, "vocab_size"),
)
"""Sizes, and what configs call them."""
SMALL = {name: size for size, names in SIZES for name in names.split()}
LATENT = {"num_key_value_heads": HEADS, "head_dim": 8}
"""Latent attention has as many keys as queries, and turns a part of each."""
OWN: Mapping[str, Mapping[str, Any]] = {
    **dict.fromkeys(
        ("deepseek_v3", "deepseek_v32", "axk1", "axk2", "youtu", "glm_moe_dsa"), LATENT
    ),
    "esmc": {"num_key_value_heads": HEADS},
    "nemotron_h": {
        "hybrid_override_pattern": "M-M*M-M*M-M*",
        "num_hidden_layers": 12,
        "n_groups": 1,
    },
    "mamba2": {"num_heads": 4, "head_dim": 32},
    "minicpm3": {"dim_model_base": WIDTH // 10},
    "gemma4_unified_text": {"global_head_dim": WIDTH // HEADS},
    "zaya": {"num_experts_per_tok": 1},
}
"""Sizes of single architectures, by the type of their config."""
LARGER = {"pvt_v2": 2 * PIXELS}
"""Pixels of a side, where an image of `PIXELS` leaves a single key, of which no attention
learns."""
KERNELS: Mapping[str, str] = {"mra": "its attention is 0 without a kernel for CUDA"}
"""Architectures that do not compute on a processor what was published, and why."""
REFUSED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    RuntimeError,
    TimeoutError,
    TypeError,
    ValueError,
    StrictDataclassError,
)
"""What a config, or code, raises of sizes that do not go together."""


class Row(NamedTuple):
    """An architecture, the name of its class, and what it reads."""

    name: str
    model: str
    reads: str


TABLES = {
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES": "text",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES": "texts",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES": "masked",
    "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES": "image",
}


def rows() -> Iterator[Row]:
    """Every architecture of the tables, once."""
    seen: set[str] = set()
    for table, reads in TABLES.items():
        for name, model in getattr(modeling_auto, table).items():
            if name not in seen:
                seen.add(name)
                yield Row(name, model if isinstance(model, str) else model[0], reads)


def shrunk(kind: Any) -> Any:
    """A config of a class with all sizes small, those of its parts, too."""
    usual = kind()
    named = usual.to_dict()
    fields = {name: size for name, size in SMALL.items() if isinstance(named.get(name), int)}
    for name in kind.sub_configs:
        part = getattr(usual, name, None)
        if part is not None:
            fields[name] = shrunk(type(part)).to_dict()
    return kind(**{**fields, **OWN.get(kind.model_type, {})})


def build(row: Row) -> nn.Module:
    """The model, as its own code draws it. What normalizes over a batch is in training: it has seen
    no batch before.

    Raises:
        ValueError: it is large, or needs a kernel.
    """
    if row.name in KERNELS:
        raise ValueError(KERNELS[row.name])
    config = shrunk(CONFIG_MAPPING[row.name])
    if row.reads == "text" and hasattr(config, "is_decoder"):
        config.is_decoder = True  # else an encoder that predicts the next token, which it sees
    kind = getattr(transformers, row.model)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in kind(config).parameters())
    if count > LARGEST:
        raise ValueError(f"{count / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model: nn.Module = kind(config)
    return model.train(any(isinstance(part, nn.BatchNorm2d) for part in model.modules()))


def batch(row: Row) -> dict[str, torch.Tensor]:
    """Random tokens and random labels, those of a masked language model at some of the tokens; or
    images."""
    draw = torch.Generator().manual_seed(1)
    if row.reads == "image":
        side = LARGER.get(row.name, PIXELS)
        return {"pixel_values": torch.randn(BATCH, 3, side, side, generator=draw)}
    ids, labels = torch.randint(3, WORDS - 7, (2, BATCH, TOKENS), generator=draw)
    if row.reads == "masked":
        labels = labels.where(torch.arange(TOKENS) % 4 == 0, -100)  # what a loss leaves out
    decoded = {"decoder_input_ids": ids} if row.reads == "texts" else {}
    return {"input_ids": ids, "labels": labels, **decoded}


def late(*_: object) -> None:
    """Ends an architecture that takes too long."""
    raise TimeoutError(f"more than {LIMIT} s")


def findings(row: Row) -> ex.Findings:
    """What is said of an architecture; one of `REFUSED` where it could not be built or run."""
    signal.alarm(LIMIT)
    try:
        return ex.diagnose(ex.probe(build(row), batch(row)))
    finally:
        signal.alarm(0)


def report(wanted: Sequence[str]) -> None:
    """Prints a line for each architecture and finding, what was left out, and the count."""
    left: list[str] = []
    said: Counter[str] = Counter()
    count = 0
    for row in rows():
        if wanted and row.name not in wanted:
            continue
        try:
            found = findings(row)
        except REFUSED as error:
            left.append(f"{row.name}: {type(error).__name__}: {' '.join(str(error).split())[:120]}")
            continue
        count += 1
        severities = Counter(finding.severity for finding in found)
        print(
            f"{row.name:<24}"
            + "  ".join(f"{name} {severities[name]}" for name in ("bad", "warning", "good"))
        )
        for finding in found:
            if wanted:
                print(f"    {finding}")
            elif finding.severity != "good":
                said[f"{finding.severity}: {finding.meaning}"] += 1
                print(f"    {finding.severity}: {finding.meaning} {finding.evidence}")
    print(f"\n{len(left)} not built:\n" + "\n".join(f"    {line}" for line in left))
    print(f"\n{count} built. Sentences:")
    for sentence, times in said.most_common():
        print(f"    {times:>4}  {sentence}")


def main() -> None:
    """Reads the names, and reports."""
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")  # of the models' code
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, late)
    begun = time.perf_counter()
    report(sys.argv[1:])
    print(f"{time.perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
