"""Fields of a config that say what attention does, from what most layers do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from explorer.numbers import number
from explorer.probes.majority import EXACT, GAINED, Majority
from explorer.schemes.attention import DIVISORS


def attention(found: Majority) -> dict[str, Any]:
    """Everything about attention."""
    if not found.usual("layer", "attends"):
        if "attn_out" in found.usual("layer", "branches", ()):
            found.parts.append("the first of its two branches is no attention that is read; the twin has MLPs alone")
        return {"attention": "none"}
    if found.usual("attn_scores", "d_head") is None:
        found.unread.append("attention's logits: its product of queries and keys was not seen")
        return {}
    read = {name: found.usual("attn_scores", name) for name in (
        "d_head", "n_heads", "cap", "normed", "mask", "position", "turn", "sink", "mixes_values", "inherits")}
    width, heads = found.usual("layer", "width"), max(1, read["n_heads"])
    fields: dict[str, Any] = {"n_heads": heads, "logit_cap": read["cap"], "sink": read["sink"]}
    if read["d_head"] * heads != width:
        fields["head_size"] = read["d_head"]
    shape = found.usual("W_K", "shape")
    keys = shape[1] // read["d_head"] if shape else heads
    if shape and 0 < keys < heads:
        fields["n_kv_heads"] = keys
    fields |= _logits(found, read["d_head"])
    fields |= _places(found, read)
    # read["normed"] is of q, k and v; a placement that normalizes values needs no QK-norm beside it
    if read["normed"][0] and read["normed"][1] and not read["normed"][2]:
        fields |= {"qk_norm": True, "qk_norm_over": read["normed"][0] if heads > 1 else "head"}
        gain = found.middle("attn_scores", "gain")
        gain *= fields.get("qk_gain", 1.0)
        fields["qk_gain"] = gain if abs(math.log(max(gain, 1e-9))) > GAINED else 1.0
    gates = found.usual("attn_out", "gates", 0)
    fields["attention_gate"] = {0: "none", heads: "head", heads * read["d_head"]: "coordinate"}.get(gates, "none")
    if found.layers[-1].get(("attn_scores", "mixes_values")):
        fields["value_residual"] = True
    if (inherited := found.layers[-1].get(("attn_scores", "inherits"), "none")) != "none":
        fields["residual_attention"] = inherited
    return fields


def _logits(found: Majority, d_head: int) -> dict[str, Any]:
    """The divisor's row."""
    read = found.middle("attn_scores", "divisor")
    for name, row in DIVISORS.items():
        if "ssmax_scale" not in row.uses and abs(read / row.of(d_head) - 1) <= EXACT:
            return {"attention_scale": name}
    if any(found.usual("attn_scores", "normed", ("",))):
        return {"attention_scale": "sqrt_d", "qk_gain": math.sqrt(d_head) / read}
    found.differs.append(f"its attention logits are divided by {number(read)}, with heads of {d_head} coordinates")
    return {"attention_scale": min((abs(math.log(abs(read) / row.of(d_head))), name)
                                   for name, row in DIVISORS.items() if not row.uses)[1]}


def _places(found: Majority, read: Mapping[str, Any]) -> dict[str, Any]:
    """Mask and positions."""
    fields: dict[str, Any] = {"causal": read["mask"] == "causal"}
    if read["mask"] == "another":
        found.differs.append("its attention hides keys by a mask that is neither causal nor none")
    turn = read["turn"]
    if read["position"] == "another":
        found.differs.append("its positions are neither rotary angles of one base nor ALiBi's slopes")
    elif read["position"] == "rotary" and turn is not None:
        fields |= {"position": "rotary", "rope_base": min(max(turn.base, 1.0), 1e8), "rope_fraction": turn.share}
    elif read["position"] == "alibi":
        fields |= {"position": "alibi"}
    return fields
