"""Which parameters learn, and why others do not: in a probe's passes, and in the first steps of a
training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import check, joined, split
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import explorer as ex
from explorer import Profile
from explorer.diagnosis import Findings

WIDTH, WORDS, TOKENS, LAYERS = 16, 13, 8, 4
IDS = torch.randint(WORDS, (3, TOKENS), generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(WORDS, (3, TOKENS), generator=torch.Generator().manual_seed(1))


class Adapter(nn.Module):
    """A matrix and a product of two thin ones beside it, as LoRA."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.lora_A, self.lora_B = (
            base,
            nn.Linear(WIDTH, 2, bias=False),
            nn.Linear(2, WIDTH, bias=False),
        )
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.lora_B(self.lora_A(x))  # type: ignore[no-any-return]


class Block(nn.Module):
    """One layer: attention and an MLP, before which, or after which, norms stand; `gate` multiplies
    both branches."""

    def __init__(self, post: bool = False, gate: float | None = None, vector: bool = False) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        self.norm_1, self.norm_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.gate = (
            None if gate is None else nn.Parameter(torch.full((WIDTH if vector else 1,), gate))
        )
        self.post, self.cut = post, False

    def branch(self, x: Tensor, norm: nn.Module, run: Callable[[Tensor], Tensor]) -> Tensor:
        added = norm(run(x)) if self.post else run(norm(x))
        added = added.detach() if self.cut else added
        return added if self.gate is None else self.gate * added

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = split(2, self.q(x), self.k(x), self.v(x))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(joined(mixed))  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.branch(x, self.norm_1, self.attend)
        return x + self.branch(x, self.norm_2, lambda y: self.down(F.gelu(self.up(y))))


class Model(nn.Module):
    """Embedding, layers, readout, and a cross-entropy."""

    def __init__(self, reentrant: bool | None = None, **block: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block(**block) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)
        self.reentrant, self.detached = reentrant, -1

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer, block in enumerate(self.blocks):
            x = x.detach() if layer == self.detached else x
            x = (
                block(x)
                if self.reentrant is None
                else checkpoint(block, x, use_reentrant=self.reentrant)
            )
        return self.head(self.norm(x))  # type: ignore[no-any-return]


def loss(out: Tensor) -> Tensor:
    return F.cross_entropy(out.flatten(0, 1), TARGETS.flatten())


def probed(model: nn.Module) -> tuple[Profile, Findings]:
    profile = ex.probe(model, IDS, loss)
    return profile, ex.diagnose(profile)


def watching(model: nn.Module, steps: int = 3, parameters: Sequence[Any] | None = None) -> ex.Watch:
    """So many steps of SGD, of which the first is read."""
    optimizer = torch.optim.SGD(
        list(model.parameters()) if parameters is None else list(parameters), lr=0.1
    )
    with ex.watch(model) as watch:
        for _ in range(steps):
            optimizer.zero_grad()
            loss(model(IDS).float()).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return watch


def watched(model: nn.Module, parameters: Sequence[Any] | None = None) -> Findings:
    return watching(model, parameters=parameters).diagnose()


def states(learning: Any) -> set[tuple[str, str, tuple[int, ...]]]:
    return {(part.state, part.name, part.layers) for part in learning.parts}


def words(findings: Findings) -> str:
    return "\n".join(f"{one.severity}: {one.meaning} {one.evidence}" for one in findings)


def zero_gains(model: Model) -> None:
    for block in model.blocks:
        for norm in (block.norm_1, block.norm_2):
            nn.init.zeros_(norm.weight)


def adapted(model: Model, zeros: bool = False, frozen: bool = True) -> Model:
    model.requires_grad_(not frozen)
    for block in model.blocks:
        block.q = Adapter(block.q)
        if zeros:
            nn.init.zeros_(block.q.lora_A.weight)
    return model


def zero_head(model: Model) -> Model:
    nn.init.zeros_(model.head.weight)
    return model


def post_norms_of_zero() -> Model:
    model = Model(post=True)
    zero_gains(model)
    return model


SOUND: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "ReZero": (lambda: Model(gate=0.0), "embedding, norm, head and gate;"),
    "LayerScale of 0": (lambda: Model(gate=0.0, vector=True), "embedding, norm, head and gate;"),
    "post-norms with gains of 0": (post_norms_of_zero, "embedding, norm, head, norm_1 and norm_2;"),
    "a readout of 0": (lambda: zero_head(Model()), "head.weight alone"),
    "a readout of 0 over gates of 0": (lambda: zero_head(Model(gate=0.0)), "head.weight alone"),
    "adapters": (lambda: adapted(Model(), frozen=False), ""),
    "LayerScale of 1e-6": (lambda: Model(gate=1e-6, vector=True), ""),
}


@pytest.mark.parametrize("name", SOUND)
def test_what_starts_at_zero_by_design_is_judged_over_several_steps(name: str) -> None:
    """Every parameter gets its gradient at the very step that the probe says."""
    build, first = SOUND[name]
    profile, findings = probed(build())
    assert all(one.severity == "good" for one in findings if "known design" not in one.meaning), (
        words(findings)
    )
    assert not profile.learning.of("zeros", "never", "waiting", "unreached")
    assert (
        any(one.meaning.startswith(f"The first step moves {first}") for one in findings)
        or not first
    )
    watch = watching(build(), steps=5)
    assert all(one.severity != "bad" for one in watch.diagnose())
    if name != "LayerScale of 1e-6":
        assert states(watch.learning()) == states(profile.learning)


def everything(model: nn.Module) -> list[Tensor]:
    return [*(one.clone() for one in model.state_dict().values()), torch.get_rng_state()]


@pytest.mark.parametrize("fails", [False, True])
def test_further_passes_leave_no_trace(fails: bool) -> None:
    """Bit for bit, with dropout and a buffer that counts, and also where the second pass fails."""

    class Counting(Model):
        def __init__(self) -> None:
            super().__init__(gate=0.0)
            self.register_buffer("calls", torch.zeros(()))
            self.passes = 0

        def forward(self, ids: Tensor) -> Tensor:
            self.calls += 1
            self.passes += 1
            if fails and self.passes == 2:
                raise RuntimeError("this pass fails")
            return F.dropout(super().forward(ids), 0.1)

    model = Counting().train()
    before, identity = everything(model), [one.data_ptr() for one in model.parameters()]
    profile = ex.probe(model, IDS, loss)
    assert all(map(torch.equal, before, everything(model)))
    assert [one.data_ptr() for one in model.parameters()] == identity
    assert all(one.grad is None for one in model.parameters())
    if fails:
        assert profile.learning.of("waiting")
        assert "could not be run a second time" in words(ex.diagnose(profile))
        assert "RuntimeError: this pass fails" in words(ex.diagnose(profile))
    else:
        assert model.passes == 2


def test_an_ordinary_model_takes_one_pass() -> None:
    model, passes = Model(), []
    model.head.register_forward_hook(lambda *_: passes.append(1))
    profile, (only,) = probed(model)
    assert len(passes) == 1
    assert only.meaning.startswith("Healthy: signal grows")
    assert {part.state for part in profile.learning.parts} == {"first"}
    assert Profile.from_json(profile.to_json()).learning == profile.learning


# Mistakes: parameters that never learn.


def test_parameters_that_no_optimizer_holds() -> None:
    model = Model()
    some = [
        one
        for name, one in model.named_parameters()
        if not name.startswith(("blocks.1", "blocks.2", "embedding"))
    ]
    first = watched(model, parameters=some)[0]
    check(first, "bad", "optimizer", "embedding", "layers 2 to 3")
    assert "in 2 steps" in first.evidence
    assert "add_param_group" in first.code
    head = Model()
    (only,) = watched(
        head, parameters=[one for one in head.parameters() if one is not head.head.bias]
    )[:1]
    check(only, "warning", "optimizer", "head.bias")


@pytest.mark.parametrize("kind", ["rate", "rounding"])
def test_steps_that_change_nothing(kind: str) -> None:
    model = Model() if kind == "rate" else Model().to(torch.bfloat16)
    rest = [one for name, one in model.named_parameters() if not name.startswith("blocks.3")]
    rate = 0.0 if kind == "rate" else 1e-12
    watch = watching(
        model,
        parameters=[{"params": rest}, {"params": list(model.blocks[3].parameters()), "lr": rate}],
    )
    first = watch.diagnose()[0]
    if kind == "rate":
        check(first, "bad", "rate", "layer 4 (blocks.3)", "is 0")
    else:
        check(first, "bad", "do not change 6 of the 69 parameters")
        assert (
            "q.weight, k.weight, v.weight, o.weight, up.weight and down.weight in layer 4"
            in first.evidence
        )


def test_a_rate_that_begins_at_zero_is_no_fault() -> None:
    """Warm-up from 0: the first step moves nothing, and gates of 0 have no gradient behind them for
    one step more."""
    model = Model(gate=0.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 4))
    with ex.watch(model) as watch:
        for step in range(5):
            optimizer.zero_grad()
            loss(model(IDS)).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            assert "bad" not in words(watch.diagnose()), step
    assert {part.state for part in watch.learning().parts} == {"first", "later"}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_a_reentrant_checkpoint_behind_frozen_embeddings() -> None:
    """Told by a probe, which goes around the checkpoint, and by a watch; without it, or not
    reentrant, all is well."""
    model = Model(reentrant=True)
    model.embedding.requires_grad_(False)
    profile, findings = probed(model)
    check(findings[0], "bad", "reentrant checkpoint", f"layers 1 to {LAYERS}", "no gradient")
    assert "use_reentrant=False" in findings[0].code
    assert "gradient checkpoints were gone around" in profile.notes["parameter_gradient"]
    assert "requires_grad was set for the pass" in profile.notes["parameter_gradient"]
    assert not any(one.meaning.startswith("Healthy") for one in findings)
    check(watched(model)[0], "bad", "torch.no_grad()", f"layers 1 to {LAYERS}")
    for other in (True, False):
        plain = Model(reentrant=other)
        plain.embedding.requires_grad_(other)
        assert all(one.severity == "good" for one in probed(plain)[1])
        assert "bad" not in words(watched(plain))


def test_adapters_whose_factors_are_both_zero() -> None:
    profile, findings = probed(adapted(Model(), zeros=True))
    first = findings[0]
    assert first.severity == "bad"
    assert "q.lora_A and q.lora_B in layers 1 to 4" in first.evidence
    assert "with small random numbers in their place it is not" in first.evidence
    assert first.remedy == "Start one factor of each product at random"
    assert not profile.learning.of("first")
    beside = adapted(Model(), zeros=True, frozen=False)
    for findings in (probed(beside)[1], watched(beside)):
        check(findings[0], "bad", "Zeros", "q.lora_A and q.lora_B in layers 1 to 4")


def test_frozen_parameters_are_a_note_and_what_trains_is_said() -> None:
    for findings in (probed(adapted(Model()))[1], watched(adapted(Model()))):
        assert all(one.severity == "good" for one in findings), words(findings)
        (note,) = (one for one in findings if "Frozen" in one.meaning)
        check(note, "good", "69 of 77")
        assert "q.lora_A and q.lora_B in layers 1 to 4" in note.evidence
        assert "embedding, norm and head" in note.evidence


@pytest.mark.parametrize("layer", [0, 2])
def test_a_stream_that_is_detached_from_the_first_step_on(layer: int) -> None:
    model = Model()
    model.detached = layer
    profile, findings = probed(model)
    lost = "embedding" if not layer else "embedding; all of layers 1 to 2"
    for each in (findings, watched(model)):
        check(each[0], "bad" if layer else "warning", "No path", lost)
    if layer:
        assert ("activation_gradient", "resid_post") not in profile
        assert "Healthy: " not in words(findings)


def test_a_branch_that_is_detached_in_all_layers() -> None:
    model = Model()
    for block in model.blocks:
        block.cut = True
    check(probed(model)[1][0], "bad")
    check(watched(model)[0], "bad", "No path", f"layers 1 to {LAYERS}")


def test_modules_that_are_not_used() -> None:
    class Spare(Model):
        def __init__(self) -> None:
            super().__init__()
            self.pooler = nn.Linear(WIDTH, WIDTH)
            for block in self.blocks:
                block.spare = nn.Linear(WIDTH, WIDTH)

    unused = "pooler; spare in layers 1 to 4"
    check(probed(Spare())[1][0], "warning", "No operation reads", unused)
    check(watched(Spare())[0], "warning", "No call runs", unused)
    note = ex.diagnose(ex.probe(Spare(), IDS))
    assert any("another loss may reach them" in one.evidence for one in note)


class Experts(nn.Module):
    """An MLP of which each token takes one expert, by its number."""

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.norm, self.chosen = nn.LayerNorm(WIDTH), chosen
        experts = (
            nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH)) for _ in range(6)
        )
        self.experts = nn.ModuleList(experts)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        parts = y.chunk(2, 1)
        return x + torch.cat(
            [self.experts[self.chosen](parts[0]), self.experts[self.chosen + 1](parts[1])], 1
        )


def test_experts_without_a_token_are_not_blamed() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(Experts(chosen) for chosen in (0, 2, 4, 1)))
    profile = ex.probe(model, torch.randn(2, TOKENS, WIDTH))
    assert {part.state for part in profile.learning.parts} == {"first", "idle"}
    assert all(
        one.severity == "good" for one in ex.diagnose(profile) if "known design" not in one.meaning
    )


def test_a_profile_without_gradients_is_not_called_healthy_of_them() -> None:
    profile, _ = probed(Model())
    values = {
        key: value for key, value in profile.values.items() if key[0] != "activation_gradient"
    }
    first = ex.diagnose(Profile("measured", values, model="GPT", layers=profile.layers))[0]
    assert first.meaning.startswith("Healthy signal: grows")
    assert first.meaning.endswith("; the gradient is not known.")


class Choosing(Block):
    """A layer whose attention is to the keys that another matrix chooses, which gets no gradient by
    that."""

    def __init__(self) -> None:
        super().__init__()
        self.indexer = nn.Linear(WIDTH, 1)

    def attend(self, x: Tensor) -> Tensor:
        chosen = self.indexer(x).squeeze(-1).topk(TOKENS // 2).indices  # [sequence, key]
        mask = torch.zeros(x.shape[:2], dtype=torch.bool).scatter(1, chosen, True)[:, None, None]
        q, k, v = split(2, self.q(x), self.k(x), self.v(x))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.o(joined(mixed))  # type: ignore[no-any-return]


def test_a_hard_choice_has_no_gradient_and_is_no_fault_of_the_layers() -> None:
    """DeepSeek-V3.2's indexer has a loss of its own."""
    model = Model()
    model.blocks = nn.ModuleList(Choosing() for _ in range(LAYERS))
    found = [one for one in probed(model)[1] if "indexer" in one.meaning + one.evidence]
    assert [one.severity for one in found] == ["warning"]
    assert found[0].meaning.startswith("No path leads from the loss to indexer")


@pytest.mark.parametrize("said", [lambda model: probed(model)[1], watched])
def test_a_parameter_without_numbers_is_not_said_to_stay_zero(
    said: Callable[[nn.Module], Findings],
) -> None:
    model = Model()
    for part in (model, model.blocks[2]):
        part.projection = nn.Parameter(torch.empty(0, WIDTH))
    assert "projection" not in words(said(model))
