"""Does the start check name what went wrong, and does it leave alone what is right?

    python -m benchmarks.start  # some minutes on one core; writes docs/start.csv and start.md

Mistakes that people reported are planted in models of transformers, by patching what its own code
has made. Each is compared with the start that the code's authors meant, stored before. Then every
causal language model of transformers that can be made small from its own config is stored with one
seed and compared with another: each departure is a false one. Needs `pip install -e .[models]`."""

from __future__ import annotations

import csv
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from statistics import median
from textwrap import wrap
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from explorer_models.expecting import verdict
from explorer_models.probe import probed
from explorer_models.starts import Start

DOCS = Path(__file__).parent.parent / "docs"
TABLE, PAGE = DOCS / "start.csv", DOCS / "start.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
TOKENS = torch.randint(1, 500, (4, 24), generator=torch.Generator().manual_seed(1))
SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "embed_dim", "word_embed_proj_dim"), 64),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"), 3
    ),
    **dict.fromkeys(
        ("num_attention_heads", "n_head", "num_heads", "n_heads", "decoder_attention_heads"), 4
    ),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "decoder_ffn_dim", "d_inner", "n_inner"), 160),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "max_seq_len"), 64),
    "is_decoder": True,  # else BERT's kin see later tokens, as they say themselves
    "num_key_value_heads": 2,
    "head_dim": 16,
    "rotary_dim": 16,
    "vocab_size": 500,
    "moe_intermediate_size": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"), 0),
}
"""Fields by which a config is made small, where it has them."""
LARGEST = 30e6
"""Parameters that a small model may have."""
SLOW = ("FalconH1ForCausalLM",)
"""Classes whose scan over tokens is written out: a check takes minutes."""


class Plant(NamedTuple):
    """A mistake that was reported, and what names it."""

    thread: str
    mistake: str
    model: str
    change: Callable[[nn.Module], object]
    named: str
    """Part of the departure that names it."""
    outside: bool = False
    """Whether a test from outside names it."""


def made(name: str, seed: int, **fields: Any) -> nn.Module:
    """A small model of a class of transformers, drawn by its own code."""
    import transformers

    kind = getattr(transformers, name)
    config = kind.config_class()
    sizes = {field: value for field, value in SMALL.items() if hasattr(config, field)}
    config = kind.config_class(**{**sizes, **fields})
    torch.manual_seed(seed)
    model: nn.Module = kind(config)
    return model.eval()


def scaled(ending: str, factor: float) -> Callable[[nn.Module], None]:
    """A change: parameters whose names end so are multiplied."""

    @torch.no_grad()
    def change(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(ending):
                parameter.mul_(factor)

    return change


def drawn(ending: str, draw: Callable[[Tensor], object]) -> Callable[[nn.Module], None]:
    """A change: parameters whose names end so are drawn again."""

    @torch.no_grad()
    def change(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            if name.endswith(ending):
                draw(parameter)

    return change


def each(*changes: Callable[[nn.Module], object]) -> Callable[[nn.Module], None]:
    """Several changes, one after another."""

    def change(model: nn.Module) -> None:
        for one_change in changes:
            one_change(model)

    return change


def untie(model: nn.Module) -> None:
    """The readout gets weights of its own."""
    head = model.get_submodule("lm_head")
    head.weight = nn.Parameter(head.get_parameter("weight").detach().clone())


def erase_buffers(model: nn.Module) -> None:
    """Buffers lose their numbers, as by `to_empty`, and nothing fills them again."""
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.zero_()


def undivided(model: nn.Module) -> None:
    """Logits of attention are not divided by √d."""
    for module in model.modules():
        if hasattr(module, "scaling"):
            module.scaling = 1.0


def add_to_norm(model: nn.Module) -> None:
    """One layer has no norm before attention."""
    model.get_submodule("model.layers.1").input_layernorm = nn.Identity()


def unseen_mask(model: nn.Module) -> None:
    """The mask that the batch brings is passed over."""
    inner = model.model
    forward = inner.forward
    inner.forward = lambda *given, attention_mask=None, **more: forward(*given, **more)


def fixed_places(model: nn.Module) -> None:
    """Each place has a vector of its own beside rotary positions."""
    table = torch.randn(64, 64) * 0.1
    inner = model.model.layers[0]
    forward = inner.forward
    inner.forward = lambda x, *given, position_ids=None, **more: forward(
        x + table[position_ids], *given, position_ids=position_ids, **more
    )


def mean_over_tokens(model: nn.Module) -> None:
    """The readout subtracts the mean over all tokens."""
    model.get_submodule("model.norm").register_forward_hook(
        lambda *given: given[-1] - given[-1].mean(dim=1, keepdim=True)
    )


DEPTH = (2 * 3) ** 0.5
GPT2, LLAMA, QWEN = "GPT2LMHeadModel", "LlamaForCausalLM", "Qwen3ForCausalLM"
PLANTS = (
    Plant(
        "transformers#47458",
        "no c_proj is drawn smaller by the depth",
        GPT2,
        scaled("c_proj.weight", DEPTH),
        "W_O (transformer.h.*.attn.c_proj.weight",
    ),
    Plant(
        "transformers#47478",
        "c_proj of the MLP alone is not",
        GPT2,
        scaled("mlp.c_proj.weight", DEPTH),
        "W_out (transformer.h.*.mlp.c_proj.weight",
    ),
    Plant(
        "OLMo#607",
        "W_out is drawn smaller by the depth twice",
        GPT2,
        scaled("mlp.c_proj.weight", 1 / DEPTH),
        "W_out (transformer.h.*.mlp.c_proj.weight",
    ),
    Plant(
        "happy-llm#200",
        "W_in is drawn smaller by the depth in W_out's place",
        LLAMA,
        scaled("up_proj.weight", 1 / DEPTH),
        "W_in (model.layers.*.mlp.up_proj.weight",
    ),
    Plant(
        "transformers#38987",
        "a matrix is left as torch draws it",
        LLAMA,
        drawn("1.self_attn.q_proj.weight", lambda w: nn.init.kaiming_uniform_(w, a=5**0.5)),
        "W_Q (model.layers.1.self_attn.q_proj.weight",
    ),
    Plant(
        "Fast-LLM#220",
        "gains that nothing draws: zeros",
        LLAMA,
        drawn("post_attention_layernorm.weight", nn.init.zeros_),
        "post_attention_layernorm.weight",
    ),
    Plant(
        "llm-foundry#1745",
        "a gain is what the memory held",
        QWEN,
        drawn("2.input_layernorm.weight", lambda w: nn.init.constant_(w, 1e-30)),
        "model.layers.2.input_layernorm.weight",
    ),
    Plant(
        "OLMo-core#698",
        "a buffer is erased by to_empty",
        LLAMA,
        erase_buffers,
        "inv_freq",
    ),
    Plant(
        "transformers#43523",
        "ties are cut",
        GPT2,
        untie,
        "lm_head.weight = transformer.wte.weight are not one",
    ),
    Plant(
        "deepmd-kit#5428",
        "biases are drawn, not 0",
        GPT2,
        drawn("c_fc.bias", lambda b: nn.init.normal_(b, std=0.1)),
        "mlp.c_fc.bias",
    ),
    Plant(
        "LayerNorm-Scaling#6",
        "embeddings are drawn 30 × as large",
        LLAMA,
        scaled("embed_tokens.weight", 30.0),
        "model.embed_tokens.weight: standard deviation is",
    ),
    Plant(
        "",
        "logits are not divided by √d",
        LLAMA,
        undivided,
        "divisor of the logits is 1, expected 4",
    ),
    Plant(
        "tt-metal#48716",
        "a wrong fan-in: 1.66 × too large",
        LLAMA,
        scaled("down_proj.weight", 1.66),
        "W_out (model.layers.*.mlp.down_proj.weight",
    ),
    Plant("", "one layer has no norm", LLAMA, add_to_norm, "norms around the branch is none"),
    Plant(
        "",
        "W_V is drawn 1.2 × as large in one layer",
        QWEN,
        scaled("1.self_attn.v_proj.weight", 1.2),
        "W_V (model.layers.1.self_attn.v_proj.weight",
    ),
    Plant(
        "",
        "bfloat16 in place of float32",
        LLAMA,
        lambda model: model.to(torch.bfloat16),
        "dtype is bfloat16, expected float32",
    ),
    Plant(
        "",
        "W_O of all layers is 0",
        QWEN,
        drawn("o_proj.weight", nn.init.zeros_),
        "W_O (model.layers.*.self_attn.o_proj.weight",
    ),
    Plant(
        "",
        "gains of norms on queries are 2",
        QWEN,
        drawn("q_norm.weight", lambda w: nn.init.constant_(w, 2.0)),
        "self_attn.q_norm.weight",
    ),
    Plant(
        "",
        "outputs mix later tokens in, beside a causal mask",
        LLAMA,
        mean_over_tokens,
        "outputs depend on later tokens",
        outside=True,
    ),
    Plant(
        "",
        "logits depend on more than distances",
        LLAMA,
        fixed_places,
        "outputs depend on more than distances",
        outside=True,
    ),
    Plant(
        "",
        "padding is not hidden",
        LLAMA,
        unseen_mask,
        "tokens of padding change other outputs",
        outside=True,
    ),
    Plant(
        "VeOmni#118",
        "all matrices of attention are 0",
        QWEN,
        each(drawn("o_proj.weight", nn.init.zeros_), drawn("v_proj.weight", nn.init.zeros_)),
        "no gradient reaches",
        outside=True,
    ),
    Plant(
        "",
        "the loss starts far above ln V",
        LLAMA,
        scaled("lm_head.weight", 20.0),
        "nats above ln V",
        outside=True,
    ),
)


def stored(model: nn.Module) -> Start:
    """A model's start, through the text of its file."""
    return Start.from_toml(str(Start.of(model, *probed(model, TOKENS))))


def plants() -> Iterator[list[Any]]:
    """A row for each plant: whether it is named, by which words, and how long that took."""
    for plant in PLANTS:
        expected = stored(made(plant.model, 0))
        model = made(plant.model, 1)
        plant.change(model)
        begun = time.perf_counter()
        judged = verdict("start.toml", expected, model, TOKENS, outside=plant.outside)
        words = [row.words for row in judged.departures if plant.named in row.words]
        seconds = time.perf_counter() - begun
        yield [
            "plant",
            plant.thread,
            plant.mistake,
            plant.model,
            len(words),
            f"{seconds:.1f}",
            *words[:1],
        ]


def architectures() -> Iterator[list[Any]]:
    """A row for each architecture: the departures of another seed, which are all false."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as NAMES

    for name in sorted({value for value in NAMES.values() if isinstance(value, str)}):
        begun = time.perf_counter()
        try:
            if name in SLOW:
                raise ValueError("a scan over tokens that takes minutes")
            with torch.device("meta"):
                count = sum(weight.numel() for weight in made(name, 0).parameters())
            if count > LARGEST:
                raise ValueError(f"{count / 1e6:.0f} million parameters, however small its config")
            model = made(name, 0)
            expected = stored(model)
            judged = verdict("start.toml", expected, made(name, 1), TOKENS, outside=True)
        except Exception as error:  # noqa: BLE001 - a config that cannot be made small so, or no blocks
            yield [
                "skipped",
                "",
                f"{type(error).__name__}: {error}".splitlines()[0][:90],
                name,
                "",
                "",
            ]
            continue
        seconds = time.perf_counter() - begun
        failed = [row.words for row in judged.departures if row.key[0] == "outside"]
        words = [row.words for row in judged.departures if row.key[0] != "outside"]
        yield ["stock", "", "", name, len(words), f"{seconds:.1f}", *(words + failed)[:1]]


def page(rows: list[list[str]]) -> str:
    """The measured part of the page."""
    plant = [row for row in rows if row[0] == "plant"]
    stock = [row for row in rows if row[0] == "stock"]
    skipped = sum(row[0] == "skipped" for row in rows)
    named = sum(int(row[4]) > 0 for row in plant)
    false = [row for row in stock if int(row[4])]
    failed = [row for row in stock if len(row) > 6 and not int(row[4])]
    typical = median(float(row[5]) for row in (*plant, *stock))
    first = (
        f"{named} of {len(plant)} mistakes are named. {len(false)} of {len(stock)} architectures depart from the "
        f"start of another seed; {len(failed)} fail a test from outside, below. The median check took "
        f"{typical:.0f} s on a busy core. {skipped} more classes were not checked: fields that configs share do not "
        "make them small, or no blocks are found in them; `start.csv` says why."
    )
    lines = [*wrap(first, 138), "", "| thread | mistake | class | named |", "|---|---|---|---|"]
    for row in plant:
        words = row[6].replace("|", "\\|") if len(row) > 6 else "no"
        lines.append(f"| {row[1]} | {row[2]} | {row[3]} | {words} |")
    lines += ["", "| stock architecture | |", "|---|---|"]
    lines += [f"| {row[3]} | {row[6]} |" for row in (*false, *failed)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measures, and writes table and page."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for row in chain(plants(), architectures()):
        rows.append([str(cell) for cell in row])
        print("\t".join(rows[-1]), flush=True)
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("kind", "thread", "mistake", "class", "departures", "seconds", "words"))
        writer.writerows(rows)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{page(rows)}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
