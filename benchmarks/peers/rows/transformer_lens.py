"""TransformerLens: hooks on named points of a model of its own, which is given the same weights."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformer_lens import TransformerBridge
from transformer_lens.config import TransformerBridgeConfig

from benchmarks.peers.model import Subject, Values


def built(subject: Subject) -> nn.Module:
    """Its native Pre-LN model; what the plain one does not have is neutral, and frozen."""
    size, weights = subject.config, subject.model.state_dict()
    bridge = TransformerBridge.boot_native(
        TransformerBridgeConfig(
            d_model=size.d_model,
            d_head=size.d_model // size.n_heads,
            n_heads=size.n_heads,
            n_layers=size.n_layers,
            n_ctx=size.n_ctx,
            d_mlp=4 * size.d_model,
            d_vocab=size.d_model,
            act_fn="relu",
            normalization_type="LNPre",
            attention_dir="bidirectional",
        )
    )
    words = (
        ("_original_component.", ""),
        ("layers.", "blocks."),
        ("attn.o.", "attn.out."),
        ("attn.", "attention."),
        ("fc_in.", "0."),
        ("fc_out.", "2."),
    )
    with torch.no_grad():
        for name, parameter in bridge.original_model.named_parameters():
            for word, ours in words:
                name = name.replace(word, ours)
            parameter.requires_grad_(name in weights)
            parameter.copy_(
                weights.get(
                    name, torch.eye(size.d_model) if name == "head.weight" else torch.zeros(())
                )
            )
    return bridge


def passed(subject: Subject, bridge: nn.Module) -> None:
    """Forward, loss and backward; the head is the identity, so that logits are the output."""
    subject.loss(bridge(subject.inputs)).backward()
    bridge.zero_grad()


def bare(subject: Subject) -> Callable[[], Values]:
    """Its own model's pass, without hooks."""
    bridge = built(subject)

    def run() -> Values:
        passed(subject, bridge)
        return {}

    return run


def prepare(subject: Subject) -> Callable[[], Values]:
    """Hooks for one pass."""
    bridge, layers = built(subject), range(subject.config.n_layers)

    def run() -> Values:
        moments, entropies, gradients = [], [], []

        def between(x: Tensor, hook: object) -> None:  # noqa: ARG001 - it is called by that name
            moments.append(x.detach().square().mean())

        def attended(pattern: Tensor, hook: object) -> None:  # noqa: ARG001
            entropies.append(torch.special.entr(pattern.detach()).sum(dim=-1).mean())

        def back(gradient: Tensor, hook: object) -> None:  # noqa: ARG001
            gradients.append(gradient.square().mean())

        with bridge.hooks(
            fwd_hooks=[(f"blocks.{layer}.hook_resid_post", between) for layer in layers]
            + [(f"blocks.{layer}.attn.hook_pattern", attended) for layer in layers],
            bwd_hooks=[(f"blocks.{layer}.hook_resid_post", back) for layer in layers],
        ):
            passed(subject, bridge)
        return {
            "second_moment": torch.stack(moments).tolist(),
            "attention_entropy": torch.stack(entropies).tolist(),
            "activation_gradient": torch.stack(gradients[::-1]).tolist(),
        }

    return run
