"""Config: what is accepted, what is refused and in which words, and what survives a round trip."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from explorer import PRESETS, Config, ConfigError, Recipe, limits, preset
from explorer.display import shown


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"n_layers": 0}, "n_layers must be a whole number between 1 and 1024; got 0"),
        ({"n_layers": 2.5}, "n_layers must be a whole number between 1 and 1024; got 2.5"),
        ({"n_layers": "many"}, "n_layers must be a whole number between 1 and 1024; got 'many'"),
        ({"d_model": None}, "d_model must be a whole number between 8 and 2048; got None"),
        ({"alpha": -0.1}, "alpha must be a finite number between 0 and 4; got -0.1"),
        ({"alpha": float("nan")}, "alpha must be a finite number between 0 and 4; got nan"),
        (
            {"init_variance": float("inf")},
            "init_variance must be a finite number between 0.001 and 1000; got inf",
        ),
        ({"norm": "batch"}, "norm must be one of layer, rms, dyt, derf; got 'batch'"),
        ({"causal": 3}, "causal must be true or false; got 3"),
        ({"logit_cap": 1e-9}, "logit_cap must be 0 or at least 0.01; got 1e-09"),
        ({"output_cap": 1e-9}, "output_cap must be 0 or at least 0.01; got 1e-09"),
        (
            {"n_layers": 0, "alpha": 9},
            "n_layers must be a whole number between 1 and 1024; got 0; alpha must be",
        ),
    ],
)
def test_a_refusal_names_the_field_the_rule_and_the_value(
    choices: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        Config(**choices)
    assert str(refusal.value).startswith(sentence)
    assert "\n" not in str(refusal.value)


def test_an_unknown_field_is_told_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match=r"^depth is not a field; the fields are n_layers, .*; got 12$"
    ):
        Config(depth=12)


def test_a_long_value_is_cut_in_the_message() -> None:
    with pytest.raises(ConfigError) as refusal:
        Config(norm="x" * 10_000)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    "choices",
    [{"d_model": 2048, "n_ctx": 4}, {"d_model": 64, "n_ctx": 1024, "batch_size": 256}],
    ids=str,
)
def test_what_is_too_large_is_refused_unless_the_machine_says_otherwise(
    choices: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = "EXPLORER_MAX_MEMORY_MB"
    with pytest.raises(ConfigError, match=variable):
        Config(n_layers=1024, **choices)
    monkeypatch.setenv(variable, "1e12")
    assert Config(n_layers=1024, **choices).n_layers == 1024
    monkeypatch.setenv(variable, "plenty")
    with pytest.raises(
        ConfigError, match=f"{variable} must be a number of at least 0; got 'plenty'"
    ):
        Config()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "config must be JSON; got '{'"),
        (b"\xff", "config must be JSON; got b'\\xff'"),
        ("[1]", "config must be a JSON object of fields; got [1]"),
        ('{"n_layers": 1e400}', "n_layers must be a whole number between 1 and 1024; got inf"),
    ],
)
def test_json_that_is_no_config_is_refused_in_words(text: str | bytes, sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        Config.from_json(text)
    assert str(refusal.value).startswith(sentence)


@pytest.mark.parametrize(
    "sentence", ["", "x", "x" * 33, "two\nlines", "a\u202eb", "a\0b", "a\ud800b", 12, None, ["ab"]]
)
def test_a_sentence_is_refused_with_the_field_the_rule_and_the_value(sentence: Any) -> None:
    for kind in ("gaussian", "sentence"):
        with pytest.raises(ConfigError) as refusal:
            Config(input=kind, sentence=sentence)
        assert (
            str(refusal.value)
            == f"sentence must be a text of 2 to 32 printable characters; got {shown(sentence)}"
        )


@pytest.mark.parametrize("sentence", ["ab", "x" * 32, "<b>&\"'\\ %{x}", "我喜欢猫，猫也喜欢我"])
def test_a_sentence_has_a_token_for_each_character(sentence: str) -> None:
    config = Config(input="sentence", sentence=sentence, n_ctx=64)
    assert config.n_ctx == len(sentence)
    assert Config.from_json(config.to_json()) == config
    assert config.replace(sentence="four").n_ctx == 4
    assert config.replace(n_ctx=9) == config
    assert config.replace(input="text", n_ctx=9).n_ctx == 9
    assert not config.matters("n_ctx")
    assert config.matters("sentence")
    assert not Config(sentence=sentence).matters("sentence")
    assert Config(sentence=sentence).n_ctx == 64


@pytest.mark.parametrize("kind", ["made up", 3, ["sentence"], None])
def test_an_input_that_there_is_not_is_refused_beside_a_sentence(kind: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"^input must be one of gaussian, correlated, text, sentence; got"
    ):
        Config(input=kind, sentence="any")


def test_it_is_frozen_hashable_and_equal_by_value() -> None:
    config = Config(n_layers=3)
    assert {config: 1}[Config(n_layers=3)] == 1
    assert config.replace(n_layers=4) != config
    with pytest.raises(ConfigError, match="d_model must be divisible by n_heads; got 256 and 3"):
        config.replace(n_heads=3)


@pytest.mark.parametrize("name", ["n_layers", "d_head", "made_up", "_specs", "__class__"])
def test_an_assignment_is_refused_with_another_way(name: str) -> None:
    config, recipe = Config(n_layers=3), Recipe()
    for record, kind in ((config, "Config"), (recipe, "Recipe")):
        rule = (
            f"{name} cannot be changed, because a {kind} is frozen: replace({name}=…) makes another"
        )
        with pytest.raises(ConfigError) as refused:
            setattr(record, name, 4)
        assert str(refused.value) == f"{rule}; got 4"
        with pytest.raises(ConfigError) as refused:
            delattr(record, name)
        assert str(refused.value) == f"{rule}; it was to be deleted"
    assert (config, recipe) == (Config(n_layers=3), Recipe())


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("llama", "llama3"),
        ("LLaMA 3", "llama3"),
        ("Post-LN", "post_ln"),
        ("gpt", "gpt2, gptj, gpt_oss"),
        ("mistral", "llama3"),
        ("realfromer", "realformer, realformer_qk, pre_ln"),
        ("sandwich", "peri_ln"),
        ("bert-base", "bert"),
        ("T5 v1.1", "t5_v1_1"),
    ],
)
def test_a_name_that_is_no_preset_is_answered_with_near_ones(name: str, meant: str) -> None:
    with pytest.raises(ValueError, match="preset must be") as refused:
        preset(name)
    assert str(refused.value) == f"preset must be a name in PRESETS, such as {meant}; got {name!r}"


@pytest.mark.parametrize("name", ["", "?", "zzzz", "a" * 300])
def test_a_name_that_is_near_no_preset_is_answered_with_all(name: str) -> None:
    with pytest.raises(ValueError, match=f"preset must be one of {', '.join(PRESETS)}; got '"):
        preset(name)


def test_a_head_has_its_part_of_the_width_or_a_width_of_its_own() -> None:
    assert (Config(n_heads=8).d_head, Config(n_heads=8).kv_heads) == (32, 8)
    free = Config(d_model=50, n_heads=6, head_size=24, n_kv_heads=3)
    assert (free.d_head, free.kv_heads) == (24, 3)
    with pytest.raises(ConfigError) as refusal:
        free.replace(n_heads=8)
    assert refusal.value.fixes is not None
    assert refusal.value.fixes["n_kv_heads"] == 2


@given(st.data())
def test_every_accepted_config_survives_json(data: st.DataObject) -> None:
    choices: dict[str, Any] = {}
    for name, spec in Config.specs().items():
        if spec.kind == "choice":
            choices[name] = data.draw(st.sampled_from(spec.choices))
        elif spec.kind == "switch":
            choices[name] = data.draw(st.booleans())
        elif spec.kind == "number":
            choices[name] = data.draw(st.floats(spec.low, spec.high))
        elif spec.kind == "text":
            choices[name] = data.draw(st.text(max_size=40))
        else:
            choices[name] = data.draw(st.integers(int(spec.low), int(spec.high)))
    try:
        config = Config(**choices)
    except ConfigError as refusal:
        assert "; got" in str(refusal)
    else:
        assert Config.from_json(config.to_json()) == config


def test_every_field_is_explained_well_enough_to_draw_its_control() -> None:
    for name, spec in Config.specs().items():
        assert spec.description.endswith("."), name
        assert spec.about.label, name
        assert tuple(spec.about.options) == spec.choices, name
        used = {used for option in spec.about.options.values() for used in option.uses}
        assert used <= set(Config.specs()), name
        if spec.kind in ("integer", "number"):
            assert spec.low <= spec.default <= spec.high, name


def test_sizes() -> None:
    config = Config(n_layers=12, d_model=768, n_heads=12)
    assert (config.d_head, config.d_mlp) == (64, 3072)
    assert config.sizes.n_parameters == 12 * 12 * 768**2  # GPT-2 small without embeddings


def test_a_design_that_takes_too_long_is_refused_with_its_estimate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EXPLORER_MAX_SECONDS", "20")
    seconds = Config(n_layers=48).sizes.seconds
    with pytest.raises(
        ConfigError,
        match=r"at most 20 s of a processor; got about .* s \(n_seeds = 4, n_layers = 400, "
        r"d_model = 256, n_ctx = 64, n_heads = 4; EXPLORER_MAX_SECONDS raises the limit\)",
    ) as refused:
        Config(n_layers=400)
    assert (
        float(str(refused.value).partition("got about ")[2].split()[0])
        > 4 * seconds * 400 / 48
        > 20
    )


DIVISIBLE = "d_model must be divisible by n_heads; got"
TEXT = "loss = next_token needs input = text; got input ="
TURNED = "position = rotary needs an even number of coordinates of each head to turn; got"
LOOPS = "n_layers must be divisible by n_loops; got"


@pytest.mark.parametrize(
    ("choices", "sentence"),
    [
        ({"d_model": 250}, f"{DIVISIBLE} 250 and 4"),
        ({"d_model": 8, "n_heads": 64}, f"{DIVISIBLE} 8 and 64"),
        ({"d_model": 2048, "n_heads": 5}, f"{DIVISIBLE} 2048 and 5"),
        ({"layer_weights": "looped", "n_loops": 5}, f"{LOOPS} 12 and 5"),
        ({"layer_weights": "looped", "n_layers": 3, "n_loops": 9}, f"{LOOPS} 3 and 9"),
        ({"loss": "next_token"}, f"{TEXT} gaussian"),
        ({"loss": "next_token", "input": "sentence"}, f"{TEXT} sentence"),
        ({"position": "rotary", "rope_fraction": 0.05}, f"{TURNED} 3 of 64"),
        ({"position": "rotary", "rope_fraction": 0.0}, TURNED),
        ({"position": "rotary", "d_model": 12, "n_heads": 4}, TURNED),
        ({"position": "alibi"}, "position = alibi needs .*causal"),
        (
            {"attention": "none", "residual_attention": "scores"},
            "residual_attention must be none where attention = none; got .* = scores",
        ),
        ({"attention": "none", "residual_attention": "qk"}, "got residual_attention = qk"),
        (
            {"norm_placement": "none", "final_norm": "yes"},
            "final_norm = yes needs a norm_placement other than none; got norm_placement = none",
        ),
        (
            {"residual": "fixup", "parametrization": "ntk"},
            "residual = fixup needs parametrization = standard or mup",
        ),
        (
            {"residual": "fixup", "norm_placement": "peri"},
            "residual = fixup needs a norm_placement with no norm",
        ),
        (
            {"residual": "deepnorm", "norm_placement": "keel"},
            "norm_placement = keel needs residual = constant, .*; got residual",
        ),
        ({"residual": "rezero", "norm_placement": "keel"}, "norm_placement = keel needs residual"),
        ({"norm": "dyt", "qk_norm": True}, "qk_norm = True needs a norm that divides"),
        (
            {"norm": "derf", "norm_placement": "hybrid"},
            "norm_placement = hybrid needs a norm that divides",
        ),
        (
            {"norm": "derf", "norm_placement": "subln"},
            "norm_placement = subln needs a norm that divides",
        ),
        ({"value_residual": True, "norm_placement": "hybrid"}, "value_residual"),
        (
            {"residual": "scaled_init", "scale_rule": "gpt2"},
            "residual = scaled_init needs another scale_rule",
        ),
        (
            {"scale_rule": "mitchell", "layer_weights": "shared"},
            "scale_rule = mitchell needs layer_weights = independent, .*; got layer_w",
        ),
        (
            {"scale_rule": "torchtitan", "parametrization": "ntk"},
            "scale_rule = torchtitan needs parametrization = standard, .*; got parametrization = ntk",
        ),
    ],
    ids=str,
)
def test_designs_that_exclude_each_other_and_two_changes_that_each_fix_it(
    choices: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        Config(**choices)
    assert len(refusal.value.fixes) == 2, "whichever field was moved last, the other can follow"
    for name, value in refusal.value.fixes.items():
        Config(**{**choices, name: value})


def test_a_refusal_is_a_sentence_whose_fields_can_be_called_otherwise() -> None:
    with pytest.raises(ConfigError) as refusal:
        Config(loss="next_token", n_layers=2)
    names = [
        (part.name, part.label, part.value)
        for part in refusal.value.phrases
        if not isinstance(part, str)
    ]
    assert names == [
        ("loss", "Loss", "next_token"),
        ("input", "Input", "text"),
        ("input", "Input", "gaussian"),
    ]
    assert str(refusal.value) == "loss = next_token needs input = text; got input = gaussian"


def test_a_small_machine_refuses_what_it_cannot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two gigabytes, as on Binder: a thousand layers of width 64 fit, of width 256 they do not;
    eight hold both."""
    monkeypatch.setattr(limits, "machine_memory", lambda: 2e9)
    assert Config(n_layers=1000, d_model=64).sizes.block > 0
    with pytest.raises(
        ConfigError,
        match=r"must fit into 1.8 GB; got about 4.13 GB \(n_layers = 1000, d_model = 256",
    ):
        Config(n_layers=1000, d_model=256)
    monkeypatch.setattr(limits, "machine_memory", lambda: 9e9)
    assert Config(n_layers=1000, d_model=256).sizes.memory_bytes < 8e9
