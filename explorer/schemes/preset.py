"""Named designs of papers and models, as changes to `Config`. One row each, with its source.

A preset says what makes the design, and nothing of size, input or seeds: `preset("deepnorm", n_layers=100)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from explorer.display import table

if TYPE_CHECKING:
    import pandas as pd


class Preset(NamedTuple):
    """One design."""

    title: str
    group: str
    """A key of `GROUPS`."""
    words: str
    """The design in a sentence."""
    changes: Mapping[str, Any]
    """Fields of `Config` that differ from the defaults."""
    source: str
    differs: str = ""
    """Differences of the model or the paper; empty where none is known."""
    aliases: str = ""
    """Other names that somebody may look for."""


def _letters(text: str) -> str:
    """Letters and digits alone, in lower case."""
    return "".join(filter(str.isalnum, text.lower()))


class Presets(dict[str, Preset]):
    """Named designs: a key is an argument of `preset`, a value has words, source and differences."""

    def grouped(self) -> list[tuple[str, str, Preset]]:
        """Words of the group, name and row of each design, group by group."""
        return [(words, name, row) for group, words in GROUPS.items() for name, row in self.items()
                if row.group == group]

    def near(self, text: str) -> list[str]:
        """Up to three names: of designs whose name, title, alias or source begins with the text, else of similar words.

        Case, spaces and punctuation do not matter.
        """
        if not (wanted := _letters(text)):
            return []
        spelled = [(_letters(word), name) for name, row in self.items()
                   for word in (name, row.title, *row.aliases.split(), *row.source.split())]
        begins = sorted((name for word, name in spelled if word.startswith(wanted)),
                        key=lambda name: not _letters(name).startswith(wanted))
        similar = get_close_matches(wanted, {word for word, _ in spelled})
        return list(dict.fromkeys(begins or [name for one in similar for word, name in spelled if word == one]))[:3]

    def __repr__(self) -> str:
        groups: dict[str, list[str]] = {}
        for words, name, _ in self.grouped():
            groups.setdefault(words, []).append(name)
        return "\n".join(fill(f"{words}: {', '.join(names)}", 100, subsequent_indent="  ")
                         for words, names in groups.items())

    def _repr_html_(self) -> str:
        header = ("Name", "Design", "Words", "Differs", "Source")
        rows = [(name, row.title, row.words, row.differs, row.source) for name, row in self.items()]
        return table("Named designs", header, rows)

    def frame(self) -> pd.DataFrame:
        """A row a design, by its name; columns as `Preset` has them."""
        import pandas as pd

        return pd.DataFrame(list(self.values()), index=pd.Index(self, name="name"), columns=list(Preset._fields))


GROUPS: Mapping[str, str] = {
    "model": "Real models", "norm": "Norms and their place", "residual": "Residual and streams",
    "attention": "Attention and positions", "mlp": "MLP",
}
"""Groups of designs, in the order of a list, and their words."""

POST = {"norm_placement": "post"}
NO_NORM = {"norm_placement": "none"}
NORM_FREE = "norm-free, normalization-free, without norms"
FIXED = {"scale_rule": "bert", "activation_rescaled": False, "input_second_moment": 4e-4}
"""N(0, 0.02²) for every matrix and for the embeddings."""
GPT = {**FIXED, "activation": "gelu_tanh", "causal": True}
BERT = {**FIXED, **POST, "norm_epsilon": 1e-12, "activation": "gelu", "position": "learned",
        "input_second_moment": 1.0}
T5 = {"norm": "rms", "norm_epsilon": 1e-6, "scale_rule": "t5", "attention_scale": "none", "activation_rescaled": False}
LLAMA = {**FIXED, "norm": "rms", "mlp": "gated", "activation": "silu", "position": "rotary", "causal": True}
GEMMA = {**LLAMA, "norm_placement": "peri", "norm_epsilon": 1e-6, "activation": "gelu_tanh", "n_kv_heads": 2,
         "input_second_moment": 0.1024}
BUCKETS = "The model adds a bias by distance, N(0, 1/d), to the logits, which takes 1/(2d) from the entropy."
BY_WIDTH = "The input's second moment is 4e-4 d, here that of width 256; heads have 256 coordinates, here d / heads."

PRESETS = Presets({
    "post_ln": Preset("Post-LN", "norm", "A norm on each sum.", POST, "Vaswani et al. 2017", aliases="post-norm"),
    "pre_ln": Preset("Pre-LN", "norm", "A norm before each branch, and a last one.", {}, "Xiong et al. 2020",
                     aliases="pre-norm, ViT, vision transformer"),
    "peri_ln": Preset("Peri-LN", "norm", "Norms before and after each branch.", {"norm_placement": "peri"},
                      "Sandwich-LN: Ding et al. 2021; Kim et al. 2025", aliases="peri-norm, sandwich-norm"),
    "branch_output": Preset("Branch-output norm", "norm", "A norm after each branch, none before it; QK-norm.",
                            {"norm_placement": "branch_output", "norm": "rms", "qk_norm": True}, "OLMo 2 2025",
                            aliases="res-post-norm, Swin v2"),
    "mix_ln": Preset("Mix-LN", "norm", "Post-LN in the first quarter of the layers, Pre-LN after them.",
                     {"norm_placement": "mix"}, "Li et al. 2025"),
    "layernorm_scaling": Preset("LayerNorm scaling", "norm", "Pre-LN whose norms are divided by √l in layer l.",
                                {"norm_placement": "scaled_pre"}, "Sun et al. 2025"),
    "keel": Preset("Keel", "norm", "Post-LN with a stream of weight 2N, and a norm before each branch.",
                   {"norm_placement": "keel", "norm": "rms"}, "Chen & Wei 2026",
                   "The paper's MLPs are gated; here they are plain."),
    "hybrid_norm": Preset("HybridNorm", "norm", "Norms on each head's queries, keys and values and on attention's sum.",
                          {"norm_placement": "hybrid", "norm": "rms"}, "Zhuo et al. 2025",
                          "The paper's MLPs are gated, and its last matrices drawn smaller; here they are not.",
                          "QKV-norm"),
    "sub_ln": Preset("Sub-LN", "norm", "Norms before each branch and before its last matrix; larger draws with depth.",
                     {"norm_placement": "subln", "residual": "magneto", "activation": "gelu"},
                     "Magneto: Wang et al. 2022",
                     "The paper draws the weights by Xavier's rule; here the scale rule is LeCun's.", "Magneto, SubLN"),
    "norm_former": Preset("NormFormer", "norm", "Pre-LN with a norm after attention and one before W_out.",
                          {"norm_placement": "normformer", "activation": "gelu"}, "Shleifer et al. 2021",
                          "The paper's gains of heads and branches are learned, from 1; here they stay at 1."),
    "dyt": Preset("Dynamic Tanh", "norm", "Pre-LN with tanh(x / 2) in place of each norm.", {"norm": "dyt"},
                  "DyT: Zhu et al. 2025", "", "DyT, normalization-free"),
    "derf": Preset("Derf", "norm", "Pre-LN with erf(x / 2) in place of each norm.", {"norm": "derf"},
                   "Derf: Chen et al. 2025", "", "normalization-free"),
    "deepnorm": Preset("DeepNorm", "residual", "Post-LN with a stronger stream and smaller branches.",
                       {**POST, "residual": "deepnorm"}, "DeepNet: Wang et al. 2022",
                       "The paper draws the weights by Xavier's rule; here the scale rule is LeCun's."),
    "admin": Preset("Admin", "residual",
                    "Post-LN with a weighted stream, so that the branches' variance stays small beside it.",
                    {**POST, "residual": "admin"}, "Liu et al. 2020",
                    "One ω for all branches, as in admin-torch; the authors profile an ω_i for each, from 1.0 to 4.2: "
                    "residual = admin_profiled."),
    "realformer": Preset("RealFormer", "attention", "Post-LN whose attention logits add up over the layers.",
                         {**POST, "residual_attention": "scores"}, "He et al. 2020"),
    "realformer_qk": Preset("RealFormer, Q and K added up", "attention",
                            "Queries and keys add up, instead of their products.", {**POST, "residual_attention": "qk"},
                            "a variant, not equivalent to RealFormer"),
    "rezero": Preset("ReZero", "residual", "No norm; each layer's branches times an α that is learned from 0.",
                     {**NO_NORM, "residual": "rezero"}, "Bachlechner et al. 2020", aliases=NORM_FREE),
    "skipinit": Preset("SkipInit", "residual", "No norm; each branch times an α of its own, learned from 0.",
                       {**NO_NORM, "residual": "skipinit"}, "De & Smith 2020", aliases=NORM_FREE),
    "fixup": Preset("Fixup", "residual", "No norm; the last matrix of each branch starts at zero, the first small.",
                    {**NO_NORM, "residual": "fixup"}, "Zhang et al. 2019", aliases=NORM_FREE),
    "t_fixup": Preset("T-Fixup", "residual", "No norm; values, outputs and MLP drawn smaller the deeper the model.",
                      {**NO_NORM, "residual": "t_fixup", "scale_rule": "xavier"}, "Huang et al. 2020",
                      "The paper scales the embeddings down with depth, too; here the input is never scaled.",
                      NORM_FREE),
    "layer_scale": Preset("LayerScale", "residual", "Pre-LN; each branch times a small learned vector.",
                          {"residual": "layer_scale"}, "CaiT: Touvron et al. 2021",
                          aliases="ViT, vision transformer"),
    "inverse_sqrt_depth": Preset("1/√(2N) branches", "residual",
                                 "Pre-LN; each branch divided by the root of their number.",
                                 {"residual": "inverse_sqrt_depth"}, "Taki 2017; Bordelon et al. 2023"),
    "completep": Preset("CompleteP", "residual", "Pre-LN in μP, each branch divided by the depth.",
                        {"parametrization": "completep", "attention_scale": "d"}, "Dey et al. 2025"),
    "parallel": Preset("Parallel block", "residual", "Pre-LN; attention and MLP read the same, and one sum adds both.",
                       {"stream": "parallel"}, "GPT-J: Wang & Komatsuzaki 2021; PaLM 2022"),
    "hyper_connections": Preset("Hyper-connections", "residual", "Pre-LN with several streams, which learn to mix.",
                                {"stream": "hyper"}, "Zhu et al. 2024",
                                "The paper adds the streams up at the end; here their mean is taken, which a last norm "
                                "makes the same."),
    "mhc": Preset("mHC", "residual", "Hyper-connections whose streams mix by doubly stochastic matrices.",
                  {"stream": "manifold", "norm": "rms"}, "Xie et al. 2025",
                  "The paper leaves open how φ and b start; here N(0, 0.02²), as in transformers, and 0.", "DeepSeek"),
    "attn_res": Preset("AttnRes", "residual", "Pre-LN whose branches read a softmax average over all earlier outputs.",
                       {"stream": "depth_attention", "norm": "rms"}, "Kimi Team 2026",
                       "The paper's large models average over blocks of layers; here over every output.",
                       "attention residuals, Kimi"),
    "gpt2": Preset("GPT-2", "model", "Pre-LN; N(0, 0.02²), the last matrix of each branch times 1/√(2N); causal.",
                   {**GPT, "scale_rule": "gpt2", "position": "learned", "input_second_moment": 8e-4},
                   "Radford et al. 2019", "The readout is the embedding; here it is only if readout = tied.",
                   "OpenAI nanoGPT"),
    "bert": Preset("BERT", "model", "Post-LN; every matrix N(0, 0.02²).", BERT, "Devlin et al. 2018",
                   "Tokens share the embedding of their type, a correlation of ⅓ at the input, and are normalized to "
                   "one length; here the input is as chosen, and lengths scatter, which raises the gradient at the "
                   "input by 5 % at width 64.", "RoBERTa encoder"),
    "albert": Preset("ALBERT", "model", "BERT with one layer, used N times.",
                     {**BERT, "activation": "gelu_tanh", "layer_weights": "shared", "input_second_moment": 0.0512},
                     "Lan et al. 2019", "Tokens share the embedding of their type; here the input is as chosen."),
    "t5": Preset("T5", "model", "Pre-RMSNorm; no √d divisor, W_Q drawn smaller instead.", T5, "Raffel et al. 2020",
                 BUCKETS, "encoder"),
    "t5_v1_1": Preset("T5 v1.1", "model", "T5 with a gated MLP of 2.5 d.",
                      {**T5, "mlp": "gated", "activation": "gelu_tanh", "mlp_ratio": 2.5},
                      "Shazeer 2020; sizes of the XL model", BUCKETS, "Flan mT5 encoder"),
    "deepnet": Preset("DeepNet", "model", "DeepNorm with the weights of its paper, by Xavier's rule.",
                      {**POST, "residual": "deepnorm", "scale_rule": "xavier", "activation_rescaled": False},
                      "DeepNet: Wang et al. 2022, figure 2, encoder or decoder only"),
    "gptj": Preset("GPT-J", "model", "Attention and MLP side by side, after one norm; a quarter of each head rotated.",
                   {**GPT, "stream": "parallel", "position": "rotary", "rope_fraction": 0.25},
                   "Wang & Komatsuzaki 2021; drawn as by transformers", aliases="EleutherAI, CodeGen, Phi-1, Phi-2"),
    "palm": Preset("PaLM", "model", "Attention and SwiGLU side by side, one key-value head, rotary positions.",
                   {"stream": "parallel", "mlp": "gated", "activation": "silu", "activation_rescaled": False,
                    "n_kv_heads": 1, "position": "rotary", "causal": True}, "Chowdhery et al. 2022, section 2",
                   aliases="Google multi-query"),
    "mpt": Preset("MPT", "model", "Pre-LN; attention leans to what is near, by ALiBi.",
                  {**GPT, "activation": "gelu", "position": "alibi"}, "MosaicML 2023; drawn as by transformers",
                  "The authors' own code draws by He's rule.", "MosaicML"),
    "command_r": Preset("Command R", "model", "Attention and gated MLP side by side, after one norm; rotary positions.",
                        {**LLAMA, "norm": "layer", "stream": "parallel", "mlp_ratio": 2.75, "rope_base": 8e6},
                        "Cohere 2024; drawn as by transformers", aliases="Cohere"),
    "llama3": Preset("Llama 3", "model", "Pre-RMSNorm, SwiGLU of 3.5 d, rotary positions, one key head for four.",
                     {**LLAMA, "n_kv_heads": 1, "mlp_ratio": 3.5, "rope_base": 5e5},
                     "Llama Team 2024; drawn as by transformers", "One key-value head of four stands for 8 of 32.",
                     "Meta Mistral, Phi-3"),
    "qwen3": Preset("Qwen 3", "model", "Llama with RMS norms on each head's queries and keys.",
                    {**LLAMA, "norm_epsilon": 1e-6, "qk_norm": True, "n_kv_heads": 1, "mlp_ratio": 3.0,
                     "rope_base": 1e6}, "Qwen Team 2025; sizes of the 8B model",
                    "One key-value head of four stands for 8 of 32.", "Alibaba"),
    "qwen3_next": Preset("Qwen3-Next", "model", "Qwen 3 whose attention passes a sigmoid gate by coordinate.",
                         {**LLAMA, "norm_epsilon": 1e-6, "qk_norm": True, "n_kv_heads": 1, "mlp_ratio": 2.75,
                          "attention_gate": "coordinate", "rope_base": 1e7, "rope_fraction": 0.25},
                         "Qwen Team 2025; Qiu et al. 2025", "Attention and a dense MLP in every layer; the model has "
                         "Gated DeltaNet in three of four, and 10 of 512 experts.",
                         "gated attention, MoE, mixture of experts"),
    "gemma2": Preset("Gemma 2", "model", "GEGLU, rotary positions, norms before and after each branch, capped logits.",
                     {**GEMMA, "logit_cap": 50.0}, "Gemma Team 2024",
                     BY_WIDTH + " Every other layer sees 4096 tokens.", "Google"),
    "gemma3": Preset("Gemma 3", "model", "Gemma 2 with QK-norm in place of the cap.", {**GEMMA, "qk_norm": True},
                     "Gemma Team 2025", BY_WIDTH + " One layer in six has base 1e6, which raises its "
                     "attention entropy by 0.02; the others see 1024 tokens.", "Google"),
    "olmo2": Preset("OLMo 2", "model", "A norm after each branch, none before it; QK-norm over all heads at once.",
                    {**LLAMA, "norm_placement": "branch_output", "norm_epsilon": 1e-6, "qk_norm": True,
                     "qk_norm_over": "all", "mlp_ratio": 2.6875, "rope_base": 5e5}, "OLMo Team 2024",
                    "Its code cuts weights off at ±3σ, which takes 2.7 % of their variance.", "Ai2 AllenAI"),
    "gpt_oss": Preset("gpt-oss style", "model", "Llama with a learned sink for each head, and one plus the MLP's v.",
                      {**LLAMA, "n_kv_heads": 1, "mlp": "gated_plus_one", "activation": "quick", "mlp_ratio": 1.0,
                       "sink": "learned", "rope_base": 1.5e5}, "OpenAI 2025",
                      "One expert for 4 of 32, whose mean leaves the second moment at 0.08 where ours is at 0.12, "
                      "after 12 layers of width 256; no YaRN, which multiplies the logits by 1.81; no windows of 128.",
                      "OpenAI, MoE, mixture of experts"),
    "ngpt": Preset("nGPT", "model", "Stream and branches on a sphere, with steps of 0.05; QK-norm, SwiGLU, rotary.",
                   {**LLAMA, "norm_placement": "ngpt", "qk_norm": True, "scale_rule": "lecun",
                    "input_second_moment": 1.0}, "Loshchilov et al. 2024",
                   "The model divides each row of its matrices by its length, now and after every step; here rows are "
                   "drawn, with a length that scatters by 1/√(2d), and training leaves them free. The published code "
                   "takes (−b cos, a sin) for the turned pair (a, b); here it is turned, as in the paper.",
                   "normalized transformer"),
    "qk_norm": Preset("QK-norm", "attention", "Pre-LN; queries and keys normalized before their product.",
                      {"qk_norm": True}, "Henry et al. 2020",
                      "The paper has a learned scale g and does not center; here there is no g, and the norm centers."),
    "plain_stack": Preset("Plain stack", "residual", "No residual and no norm.",
                          {**NO_NORM, "residual": "absent"}, "He et al. 2015 compare with it", aliases=NORM_FREE),
})
