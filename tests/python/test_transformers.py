# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""attn_implementation="ffpa" in Hugging Face transformers, against its eager attention."""

from pathlib import Path
from types import SimpleNamespace

import ffpa_attn
import pytest
import reference
import torch
from ffpa_attn import _transformers, ffpa_attn_func

transformers = pytest.importorskip("transformers")

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"


@pytest.fixture(scope="module", autouse=True)
def _registered():
    ffpa_attn.register_transformers()
    ffpa_attn.register_transformers()  # twice is no more than once


def example(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import gemma4_packed

    return gemma4_packed


def causal_lm(kind, **options):
    base = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "attention_dropout": 0.0,
    }
    config = getattr(transformers, f"{kind}Config")(**{**base, **options})
    models = []
    for attention in ("eager", "ffpa"):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")._from_config(
            config.__class__(**config.to_dict()), attn_implementation=attention
        )
        models.append(model.eval())
    return models


MODELS = {
    "Llama": {},
    "Mistral": {"sliding_window": 5},
    "Gemma2": {"sliding_window": 5, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 16},
    "GptOss": {
        "sliding_window": 5,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
        "layer_types": ["sliding_attention", "full_attention"],
    },
}


def compare(eager, ours, rows=None, **inputs):
    """Logits (of `rows`) and all parameter gradients."""
    results = []
    for model in (eager, ours):
        model.zero_grad()
        logits = model(**inputs, use_cache=False).logits
        logits = logits if rows is None else logits[rows]
        generator = torch.Generator().manual_seed(1)
        (logits * torch.randn(logits.shape, generator=generator)).sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([logits.detach(), *gradients])
    assert len(results[0]) == len(results[1])
    for a, b in zip(*results):
        torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-4 * max(1, a.abs().max().item()))


@pytest.fixture
def packs(monkeypatch):
    """The max_seqlen of every packed call."""
    seen = []
    real = _transformers.ffpa_attn_varlen_func

    def recorded(*args, **kwargs):
        seen.append(int(args[5]))
        return real(*args, **kwargs)

    monkeypatch.setattr(_transformers, "ffpa_attn_varlen_func", recorded)
    return seen


@pytest.mark.parametrize("kind", MODELS)
def test_dense(kind):
    compare(*causal_lm(kind, **MODELS[kind]), input_ids=torch.randint(3, 64, (2, 19)))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("batch", [1, 2])
def test_case_58_position_ids_that_restart_are_packing(kind, batch, packs):
    ids = torch.randint(3, 64, (batch, 19))
    positions = torch.cat([torch.arange(n) for n in (7, 3, 9)])[None].expand(batch, -1)
    eager, ours = causal_lm(kind, **MODELS[kind])
    if kind != "GptOss":  # its eager attention does not look at position_ids
        compare(eager, ours, input_ids=ids, position_ids=positions)
        assert packs == [9] * 2
    got = ours(ids, position_ids=positions, use_cache=False).logits
    for begin, end in ((0, 7), (7, 10), (10, 19)):
        alone = eager(ids[:, begin:end], use_cache=False).logits
        torch.testing.assert_close(got[:, begin:end], alone, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_left_out(kind, side, packs):
    ids, mask = torch.randint(3, 64, (2, 19)), torch.ones(2, 19, dtype=torch.long)
    if side == "left":
        mask[1, :6] = 0
    else:
        mask[1, -6:] = 0
    compare(*causal_lm(kind, **MODELS[kind]), mask.bool(), input_ids=ids, attention_mask=mask)
    assert packs == [19] * 2


@pytest.mark.parametrize("kind", MODELS)
def test_generation_with_a_cache(kind):
    eager, ours = causal_lm(kind, **MODELS[kind])
    ids, mask = torch.randint(3, 64, (2, 11)), torch.ones(2, 11, dtype=torch.long)
    mask[1, :4] = 0
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": mask}
    options |= {"output_logits": True, "return_dict_in_generate": True}
    a, b = (m.generate(ids, **options) for m in (eager, ours))
    assert torch.equal(a.sequences, b.sequences)
    for x, y in zip(a.logits, b.logits):
        torch.testing.assert_close(x, y, rtol=1e-3, atol=1e-4)


def test_generation_of_gemma_4_which_drops_rows_of_shared_layers(monkeypatch):
    gemma4_packed = example(monkeypatch)
    ids, mask = torch.randint(3, 64, (2, 11)), torch.ones(2, 11, dtype=torch.long)
    mask[1, :4] = 0
    results = []
    for attention in ("eager", "ffpa"):
        model = gemma4_packed.build(attention).eval()
        options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": mask}
        results.append(model.generate(ids, **options))
    assert torch.equal(*results)


def test_generation_with_a_static_cache():
    eager, ours = causal_lm("Llama")
    ids = torch.randint(3, 64, (1, 11))
    options = {"max_new_tokens": 4, "do_sample": False, "cache_implementation": "static"}
    options |= {"disable_compile": True}
    assert torch.equal(*(m.generate(ids, **options) for m in (eager, ours)))


def test_4d_masks_say_all():
    eager, ours = causal_lm("Llama")
    visible = (torch.rand(2, 1, 19, 19) > 0.3) | torch.eye(19, dtype=torch.bool)
    additive = torch.where(visible, 0.0, torch.finfo(torch.float32).min)
    compare(eager, ours, input_ids=torch.randint(3, 64, (2, 19)), attention_mask=additive)


def test_a_mask_function_that_is_not_known_is_materialised():
    from transformers.masking_utils import causal_mask_function, or_masks

    def block(batch, head, q, k):
        return (q < 4) & (k < 4)

    function = or_masks(causal_mask_function, block)
    mask = _transformers.mask_function(1, 9, 9, mask_function=function)
    want = torch.ones(9, 9, dtype=torch.bool).tril()
    want[:4, :4] = True
    assert torch.equal(mask[0, 0], want)
    assert _transformers.mask_function(1, 9, 9, mask_function=causal_mask_function) is None
    # A cache that is larger than what it holds.
    static = _transformers.mask_function(1, 3, 12, mask_function=causal_mask_function)
    assert static[0, 0].sum(-1).tolist() == [1, 2, 3]


@pytest.mark.parametrize("tensor", [False, True])
def test_case_111_given_offsets_with_max_length_as_int_or_tensor(tensor):
    eager, ours = causal_lm("Llama")
    ids = torch.randint(3, 64, (1, 19))
    positions = torch.cat([torch.arange(n) for n in (7, 12)])[None]
    cu = torch.tensor([0, 7, 19], dtype=torch.int32)
    longest = torch.tensor(12) if tensor else 12
    want = eager(ids, position_ids=positions, use_cache=False).logits
    got = ours(
        ids,
        position_ids=positions,
        use_cache=False,
        cu_seq_lens_q=cu,
        cu_seq_lens_k=cu,
        max_length_q=longest,
        max_length_k=longest,
    ).logits
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def attend(q, k, v, mask=None, **options):
    module = SimpleNamespace(is_causal=True)
    return _transformers.attention_function(module, q, k, v, mask, **options)[0].transpose(1, 2)


def test_case_50_52_a_window_of_w_keys_counts_the_query():
    q, k, v = (torch.randn(1, 2, 20, 16) for _ in range(3))
    for w in (1, 4, 100):
        want, _ = reference.dense(
            q.double(), k.double(), v.double(), causal=True, window=(w - 1, 0)
        )
        torch.testing.assert_close(attend(q, k, v, sliding_window=w), want.float())
    assert torch.equal(attend(q, k, v, sliding_window=1), v)
    for w in (0, -1):
        with pytest.raises(ValueError, match="sliding_window"):
            attend(q, k, v, sliding_window=w)


def test_scaling_sinks_softcap_and_position_bias():
    q, k, v = torch.randn(1, 4, 9, 16), torch.randn(1, 2, 9, 16), torch.randn(1, 2, 9, 16)
    sink, bias = torch.randn(4), torch.randn(1, 4, 9, 9)
    got = attend(q, k, v, scaling=1.0, softcap=2.0, s_aux=sink.bfloat16())
    assert torch.equal(
        got,
        ffpa_attn_func(
            q, k, v, is_causal=True, scale=1.0, softcap=2.0, sink=sink.bfloat16().float()
        ),
    )
    got = attend(q, k, v, position_bias=bias)
    assert torch.equal(got, ffpa_attn_func(q, k, v, bias, is_causal=True))
    assert torch.equal(attend(q, k, v, is_causal=False), ffpa_attn_func(q, k, v))


def test_what_is_not_known_is_refused_by_name():
    q = torch.randn(1, 2, 9, 16)
    for name in ("output_attentions", "head_mask", "block_table"):
        with pytest.raises(NotImplementedError, match=name):
            attend(q, q, q, **{name: True})
        attend(q, q, q, **{name: None})
    with pytest.raises(ValueError, match="attention_mask"):
        attend(q, q, q, torch.ones(1, 9, 9))


def test_case_109_compiled_model():
    torch._dynamo.reset()
    _, ours = causal_lm("Mistral", sliding_window=5)
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for n in (9, 13, 19):
        ids, positions = torch.randint(3, 64, (1, n)), torch.arange(n)[None] % 6
        want = ours(ids, position_ids=positions, use_cache=False).logits
        got = compiled(input_ids=ids, position_ids=positions, use_cache=False).logits
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_gemma_4_trains_as_with_eager_attention(packs, monkeypatch):
    gemma4_packed = example(monkeypatch)
    want, got = (gemma4_packed.train(name) for name in ("eager", "ffpa"))
    assert len(want) == 20 and set(packs) == {64}
    for a, b in zip(want, got):
        assert abs(a - b) < 1e-3 * a
    assert sum(want[-5:]) < sum(want[:5])  # it learns
