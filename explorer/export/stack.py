"""Text of the whole model: embedding, layers, last norm and readout."""

from __future__ import annotations

import math

from explorer.config import Config
from explorer.export.attention import carries
from explorer.export.mixing import mixes
from explorer.export.runs import stacked
from explorer.export.spelling import doc, number, spell
from explorer.export.template import fill
from explorer.schemes.attention import attends
from explorer.schemes.data import READOUTS, predicts_text, reads_text, ties
from explorer.schemes.distribution import copies, shares
from explorer.schemes.parametrization import PARAMETRIZATIONS
from explorer.schemes.placement import has_final_norm
from explorer.schemes.position import embeds, own_part
from explorer.schemes.residual import learned_shape, profiles
from explorer.schemes.scale import readout_variance

ROOTS = ("math.sqrt(0.5)", "math.sqrt(2)")
STACK = '''
class Transformer(nn.Module):
    ${words}

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(${layers})
        first = self.layers[0]  #? copies
        for layer in self.layers[1:]:  # one set of parameters for all layers  #? shares
            ${shared}  #? shares
        for layer in self.layers[1:]:  # all layers start alike  #? copies !shares
            layer.attention.load_state_dict(first.attention.state_dict())  #? copies !shares attends
            layer.mlp.load_state_dict(first.mlp.state_dict())  #? copies !shares
        self.register_buffer("profiled", torch.tensor(False))  #? profiles
        self.E = nn.Parameter(torch.randn(VOCABULARY, D_MODEL)${enlarged})  #? ids
        self.P = nn.Parameter(torch.randn(N_CTX, D_MODEL))  #? embeds
        self.W_U = nn.Parameter(torch.randn(VOCABULARY, D_MODEL)${readout})  #? reads !ties

    def forward(self, ${input}):
        """${shape}."""
        x = ${size}F.embedding(ids, self.E)  # [batch, token, d_model]  #? ids
        x = ${token}x + ${place}self.P[:x.shape[1]]  #? embeds
        if not self.profiled:  # the first pass sets the factors on the stream  #? profiles
            with torch.no_grad():  #? profiles
                self.through(x, [float(x.square().mean())])  #? profiles
            self.profiled.fill_(True)  #? profiles
        x = self.through(x)  #? profiles
        streams = x.expand(N_STREAMS, *x.shape)  # [stream, batch, token, d_model]  #? streams
        outputs = [x]  # of the embedding and of all branches  #? outputs
        ${start}  #? carries !profiles
        for layer in self.layers:  #? !profiles
            ${state} = layer(${state})  #? !profiles
        x = streams.mean(0)  #? streams
        x = len(outputs) * x  #? outputs
        x = norm(x)  #? final
        return x  #? !reads
        return F.linear(x, self.${matrix})  #? reads

    #? profiles
    def through(self, x, moments=()):
        """All layers, [batch, token, d_model] to the same."""
        ${start}  #? carries
        for layer in self.layers:
            ${state} = layer(${state}, moments)
        return x
'''


def stack(config: Config) -> str:
    """The class Transformer."""
    passed = carries(config)
    state = {"streams": ("streams",), "outputs": ("x", "outputs"), "": ("x",)}[mixes(config)]
    reads = predicts_text(config)
    given = "Ids [batch, token]" if reads_text(config) else "Embedded tokens [batch, token, d_model]"
    made = "logits [batch, token, vocabulary]" if reads else "the last stream [batch, token, d_model]"
    return fill(STACK, _flags(config), {
        "words": doc(_words(config)), "layers": stacked(config), "shared": _shared(config),
        "input": "ids" if reads_text(config) else "x", "shape": f"{given} to {made}", **_sizes(config),
        "start": _start(passed), "state": ", ".join((*state, *passed)), "matrix": "E" if ties(config) else "W_U",
    })


def _flags(config: Config) -> set[str]:
    flags = {
        "copies": copies(config), "shares": shares(config), "attends": attends(config), "profiles": profiles(config),
        "ids": reads_text(config), "embeds": embeds(config), "reads": predicts_text(config), "ties": ties(config),
        "carries": bool(carries(config)), "final": has_final_norm(config), mixes(config): True,
    }
    return {name for name, holds in flags.items() if holds}


def _words(config: Config) -> str:
    parts = ["embedding"] * reads_text(config) + ["N_LAYERS layers"] + ["a last norm"] * has_final_norm(config)
    parts += [f"a readout{', which is the embedding' * ties(config)}"] * predicts_text(config)
    return f"The whole model: {', '.join(parts)}."


def _shared(config: Config) -> str:
    parts = ["attention"] * attends(config) + ["mlp"]
    parts += ["alpha"] * (learned_shape(config) is not None) + ["mixing"] * bool(mixes(config))
    return ", ".join(f"layer.{part}" for part in parts) + " = " + ", ".join(f"first.{part}" for part in parts)


def _start(passed: tuple[str, ...]) -> str:
    """The line that gives what attention passes on its first value."""
    values = ["None" if name == "v1" else "0.0" for name in passed]
    return f"{', '.join(passed)} = {', '.join(values)}"


def _sizes(config: Config) -> dict[str, str]:
    """Factors on the embeddings, in the forward pass and as drawn, with their sign; empty where they are 1."""
    size, share = math.sqrt(config.input_second_moment), math.sqrt(0.5) if embeds(config) else 1.0
    deviation = math.sqrt(readout_variance(config))
    enlarged = 1 / deviation if ties(config) else 1.0
    spelled = {
        "size": spell(config, size * share * enlarged, "1.0", *(["math.sqrt(D_MODEL)"] * ties(config)), *ROOTS),
        "token": spell(config, 1.0 if reads_text(config) else share, *ROOTS),
        "place": spell(config, size * share, "1.0", *ROOTS),
    }
    drawn = f" * {spell(config, deviation, *_deviations(config))}"
    return {**{name: "" if text == "1.0" else f"{text} * " for name, text in spelled.items()},
            "enlarged": drawn * ties(config), "readout": drawn}


def _deviations(config: Config) -> tuple[str, ...]:
    """Formulas of the standard deviation of the readout."""
    powers = PARAMETRIZATIONS[config.parametrization].powers
    if not ties(config):
        return {0.0: "D_MODEL ** -0.5", -1.0: "8 / D_MODEL"}.get(powers["output"].variance.width, ""),
    embedded = config.input_second_moment * own_part(config)
    by_width = READOUTS[config.readout].variance(4, 1.0) != READOUTS[config.readout].variance(1, 1.0)
    return (f"{number(math.sqrt(embedded))} * D_MODEL ** -0.5",) if by_width else ()
