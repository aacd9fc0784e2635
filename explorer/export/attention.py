"""Text of the attention sublayer."""

from __future__ import annotations

import math

import numpy as np

from explorer.config import Config
from explorer.export.positions import slopes_text
from explorer.export.spelling import cited, doc, number, spell
from explorer.export.template import fill
from explorer.export.weights import draws, times
from explorer.schemes.attention import DIVISORS, divisor, gates, inherits, joins, row_factors, sink
from explorer.schemes.placement import normalizes_heads, placements
from explorer.schemes.position import rotates, slopes

ATTENTION = '''
class Attention(nn.Module):
    ${words}

    def __init__(self):
        super().__init__()
${draws}
        self.sink = nn.Parameter(${learned} * torch.randn(N_HEADS)${mean})  # [head]  #? sink learned
        slopes = ${slopes}  # m_h, [head]  #? alibi
        self.register_buffer("slopes", slopes, persistent=False)  #? alibi

    def forward(self, x${carried}):
        """[batch, token, d_model] to the same${passed}."""
        B, T, _ = x.shape
        q = ${q}  # [batch, token, head · d_head]
        k = ${k}
        v = ${v}
        q, k = norm(q), norm(k)  # of all heads at once  #? joined
        q = q.view(B, T, N_HEADS, D_HEAD).transpose(1, 2)  # [batch, head, query, d_head]
        k = k.view(B, T, ${kv}, D_HEAD).transpose(1, 2)  # [batch, head, key, d_head]
        v = v.view(B, T, ${kv}, D_HEAD).transpose(1, 2)
        v1 = v if v1 is None else v1  # the first layer's values  #? value_residual
        v = (v1 + v) / 2  #? value_residual
        v = norm(v)  #? norm_v
        q, k = norm(q), norm(k)  #? norm_qk
        q = ${gain} * q  #? gain
        q, k = rotate(q), rotate(k)  #? rotates
        q = q_sum = q_sum + q  #? qk
        k = k_sum = k_sum + k  #? qk
        q = ${row} * q  #? row
        k = k.repeat_interleave(N_HEADS // N_KV_HEADS, dim=1)  # a group of heads shares one  #? grouped !fused
        v = v.repeat_interleave(N_HEADS // N_KV_HEADS, dim=1)  #? grouped !fused
        out = F.scaled_dot_product_attention(q, k, v${options})  #? fused
        scores = scores + ${logits}  # [batch, head, query, key]  #? scores
        logits = scores  #? scores
        logits = ${logits}  # [batch, head, query, key]  #? !scores !fused
        logits = ${cap} * torch.tanh(logits / ${cap})  #? cap
        place = torch.arange(T, device=x.device)  #? alibi
        logits = logits - self.slopes[:, None, None] * (place[:, None] - place)  # m_h (t − s)  #? alibi
        later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(1)  # [query, key]  #? causal !fused
        logits = logits.masked_fill(later, -math.inf)  #? causal !fused
        sink = self.sink.view(N_HEADS, 1, 1).expand(B, -1, T, 1)  # one more key, without a value  #? sink learned
        pattern = torch.cat([logits, sink], dim=-1).softmax(dim=-1)[..., :-1]  #? sink learned
        logits = F.pad(logits, (0, 1), value=${sink})  # one more key, without a value  #? sink !learned
        pattern = logits.softmax(dim=-1)[..., :-1]  #? sink !learned
        pattern = logits.softmax(dim=-1)  #? !sink !fused
        out = pattern @ v  #? !fused
        out = out.transpose(1, 2).reshape(B, T, N_HEADS * D_HEAD)  # [batch, token, head · d_head]
        out = out * torch.sigmoid(${gate})  #? gated by_coordinate
        gate = torch.sigmoid(${gate})  # [batch, token, gate]  #? gated !by_coordinate
        out = (out.view(B, T, gate.shape[-1], -1) * gate[..., None]).view(B, T, -1)  #? gated !by_coordinate
        out = norm(out)  #? norm_out
        return ${result}
'''
def carries(config: Config) -> tuple[str, ...]:
    """Names of the values that attention passes from layer to layer beside the stream."""
    inherited = {"scores": ("scores",), "qk": ("q_sum", "k_sum")}.get(inherits(config), ())
    return (*(("v1",) if config.value_residual else ()), *inherited)


def attention(config: Config) -> str:
    """The class Attention."""
    matrices = ("W_Q", "W_K", "W_V", *(("W_G",) if gates(config) else ()), "W_O")
    passed, rule, by = carries(config), sink(config), spell(config, divisor(config), "math.sqrt(D_HEAD)", "D_HEAD")
    flags = _flags(config)
    products = {"q": "W_Q", "k": "W_K", "v": "W_V"} | ({"gate": "W_G"} if gates(config) else {})
    return fill(ATTENTION, flags, {
        **{name: times(config, "x", matrix) for name, matrix in products.items()},
        "words": doc(_words(config)), "draws": draws(config, matrices), "row": _row(config),
        "carried": "".join(f", {name}" for name in passed), "passed": f", and {', '.join(passed)}" if passed else "",
        "result": ", ".join((times(config, "out", "W_O"), *passed)), "slopes": slopes_text(config),
        "kv": "N_KV_HEADS" if "grouped" in flags else "N_HEADS", "gain": number(config.qk_gain),
        "cap": number(config.logit_cap), "sink": number(rule.logit or 0.0), "learned": number(rule.std),
        "mean": f" + {number(rule.logit)}" if rule.logit else "",
        "logits": "q @ k.transpose(-2, -1)" + (f" / {by}" if by != "1.0" else ""), "options": _options(config, by),
    })


def _flags(config: Config) -> set[str]:
    place, joined, rule = placements(config)[0], joins(config), sink(config)
    flags = {
        "sink": rule.logit is not None, "learned": rule.std > 0, "alibi": bool(slopes(config)), "joined": joined,
        "value_residual": config.value_residual, "norm_v": place.on_heads, "norm_out": place.on_read,
        "norm_qk": normalizes_heads(config) and not joined, "gain": config.qk_norm and config.qk_gain != 1,
        "rotates": rotates(config), inherits(config) or "alone": True, "cap": config.logit_cap > 0,
        "row": set(row_factors(config, config.n_ctx)) != {1.0}, "causal": config.causal,
        "grouped": config.kv_heads != config.n_heads, "gated": gates(config) > 0,
        "by_coordinate": gates(config) == config.n_heads * config.d_head,
    }
    flags["fused"] = not any(flags.get(name) for name in ("sink", "alibi", "cap", "scores"))
    return {name for name, holds in flags.items() if holds}


def _words(config: Config) -> str:
    """The formulas that differ from plain attention, and their sources."""
    fields = ["residual_attention", "sink", "attention_gate"] + ["position"] * bool(slopes(config) or rotates(config))
    specs = Config.specs()
    chosen = [(specs[name].about.options[getattr(config, name)]) for name in fields
              if getattr(config, name) != specs[name].default]
    rows = [DIVISORS[config.attention_scale], *chosen]
    return f"Self-attention{', causal' if config.causal else ''}: {'; '.join(map(cited, rows))}."


def _row(config: Config) -> str:
    """Factor on the queries: s ln n, n the keys that a row sees."""
    n, scale = config.n_ctx, config.ssmax_scale
    factors = row_factors(config, n)
    expected = [scale * math.log(t) for t in (range(1, n + 1) if config.causal else (n,))]
    if set(factors) != {1.0} and not np.allclose(factors, expected, rtol=1e-9):
        raise config.refusal("{attention_scale} must have a factor of 1 or s ln n on each row, to be written as torch; "
                             "got {attention_scale=}")
    keys = "torch.arange(1, T + 1, device=x.device).log()[:, None]" if config.causal else "math.log(T)"
    return f"{number(scale)} * {keys}"


def _options(config: Config, by: str) -> str:
    """Arguments of torch's attention after queries, keys and values."""
    scale = "" if by == "math.sqrt(D_HEAD)" else ", scale=1.0" if by == "1.0" else f", scale=1 / {by}"
    grouped = ", enable_gqa=True" if config.kv_heads != config.n_heads else ""
    return (", is_causal=True" if config.causal else "") + scale + grouped
