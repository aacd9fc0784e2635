"""Text of the modules that mix several streams, or the outputs of all earlier branches."""

from __future__ import annotations

from explorer.config import Config
from explorer.export.spelling import cited, doc, number
from explorer.export.template import fill
from explorer.schemes.attention import attends
from explorer.schemes.stream import stream

STREAMS = '''
class HyperConnections(nn.Module):
    """Several streams: H_pre mixes them to what a branch reads, H_post says where its output goes, H_res mixes them.

    ${source}.
    """

    def __init__(self, number):  #? !constrained
    def __init__(self):  #? constrained
        super().__init__()
        self.mix = nn.Parameter(torch.zeros(${branches}, N_STREAMS, N_STREAMS + 2))  # [branch, from stream, H]
        self.mix_scale = nn.Parameter(torch.full((${branches}, 3), 0.01))
        self.mix_by_token = nn.Parameter(torch.zeros(${branches}, N_STREAMS + 2, D_MODEL))  #? !constrained
        rows = N_STREAMS * (N_STREAMS + 2)  #? constrained
        self.mix_by_token = nn.Parameter(0.02 * torch.randn(${branches}, rows, N_STREAMS * D_MODEL))  #? constrained
        with torch.no_grad():  #? !constrained
            for branch, table in enumerate(self.mix):  # reads one stream, and adds to all  #? !constrained
                table[(${branches} * (number - 1) + branch) % N_STREAMS, 0] = 1  #? !constrained
                table[:, 1] = 1  #? !constrained
                table[:, 2:] = torch.eye(N_STREAMS)  #? !constrained

    def read(self, streams, branch):
        """The branch's input [batch, token, d_model], and H [stream, batch, token, n + 2]: pre, post and res."""
        scale = self.mix_scale[branch]
        scale = torch.cat([scale[:2], scale[2:].expand(N_STREAMS)])  # [n + 2]
        seen = F.rms_norm(streams, streams.shape[-1:])  #? !constrained
        by_token = F.linear(seen, self.mix_by_token[branch]).tanh()  # [stream, batch, token, n + 2]  #? !constrained
        seen = streams.movedim(0, 2).flatten(2)  # [batch, token, stream · d_model]  #? constrained
        by_token = F.linear(F.rms_norm(seen, seen.shape[-1:]), self.mix_by_token[branch])  #? constrained
        by_token = by_token.view(*seen.shape[:2], N_STREAMS, N_STREAMS + 2).movedim(2, 0)  #? constrained
        H = self.mix[branch][:, None, None] + scale * by_token
        res = H[..., 2:]  #? constrained
        for _ in range(20):  # Sinkhorn and Knopp: rows and columns divided in turn by their sums  #? constrained
            res = res.log_softmax(-1).log_softmax(0)  #? constrained
        H = torch.cat([H[..., :1].sigmoid(), 2 * H[..., 1:2].sigmoid(), res.exp()], dim=-1)  #? constrained
        return torch.einsum("sbt,sbtd->btd", H[..., 0], streams), H

    def write(self, streams, H, out):
        """The streams after a branch, from its output [batch, token, d_model]."""
        return torch.einsum("sbtr,sbtd->rbtd", H[..., 2:], streams) + H[..., 1, None] * out
'''
OUTPUTS = '''
class DepthAttention(nn.Module):
    ${words}

    def __init__(self):
        super().__init__()
        self.depth_query = nn.Parameter(torch.zeros(${branches}, D_MODEL))

    def average(self, outputs, branch):
        """Σ a_i v_i, a = softmax over i of w · RMSNorm(v_i): what is read next, [batch, token, d_model]."""
        v = torch.stack(outputs, dim=-2)  # [batch, token, output, d_model]
        scores = (v @ self.depth_query[branch]) * (v.square().mean(-1) + ${epsilon}).rsqrt()  # [batch, token, output]
        return (scores.softmax(-1)[..., None] * v).sum(-2)
'''
MIXED = {"streams": "HyperConnections", "outputs": "DepthAttention"}
"""Names of the classes, by `StreamRule.mixes`."""


def mixes(config: Config) -> str:
    """The kind of mixing: of streams, of outputs, or none."""
    return stream(config).mixes


def starts_by_number(config: Config) -> bool:
    """Whether the initial mix depends on the layer's number: each branch reads a stream of its own at first."""
    return mixes(config) == "streams" and not stream(config).constrained


def mixing(config: Config) -> str:
    """The class that mixes; empty where nothing is mixed."""
    if not mixes(config):
        return ""
    flags = {"constrained"} if stream(config).constrained else set()
    return fill(STREAMS if mixes(config) == "streams" else OUTPUTS, flags, {
        "words": doc(cited(stream(config)) + "."), "source": stream(config).source,
        "branches": str(1 + attends(config)), "epsilon": number(config.norm_epsilon),
    })
