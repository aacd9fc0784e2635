"""Text of attention's positions: turned queries and keys, and slopes of the logits."""

from __future__ import annotations

from explorer.config import Config
from explorer.export.spelling import number, spell
from explorer.export.template import fill
from explorer.schemes.position import rotated

ROTATE = '''
def rotate(x):
    """Turns pairs of coordinates, i and i + half, of [batch, head, token, d_head] by position · base^(−i / half)."""
    half = ${half}
    angles = ${base} ** (-torch.arange(half, dtype=torch.float64) / half)  # [pair]
    turns = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * angles  # [token, pair]
    cos, sin = turns.cos().to(x), turns.sin().to(x)
    first, second = x.chunk(2, dim=-1)  #? !partly
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]  #? partly
    return torch.cat([first * cos - second * sin, second * cos + first * sin${rest}], dim=-1)
'''


def slopes_text(config: Config) -> str:
    """Text of each head's slope."""
    lower = 1 << (config.n_heads.bit_length() - 1)
    if lower == config.n_heads:
        return "2.0 ** (-8 * torch.arange(1, N_HEADS + 1) / N_HEADS)"
    steps = f"[*range(2, {2 * lower + 1}, 2), *range(1, {2 * lower}, 2)]"
    return f"2.0 ** (-4 * torch.tensor({steps}[:N_HEADS]) / {lower})"


def rotate(config: Config) -> str:
    """The function that turns queries and keys by their positions."""
    half, partly = rotated(config) // 2, rotated(config) < config.d_head
    return fill(ROTATE, {"partly"} if partly else (), {
        "half": spell(config, half, "D_HEAD // 2", f"int({number(config.rope_fraction)} * D_HEAD) // 2"),
        "base": number(config.rope_base), "rest": ", rest" if partly else "",
    })
