# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""torch: operators, autograd, compile, autocast, checkpointing, dropout."""

import itertools

import pytest
import reference
import torch
import torch._dynamo.testing
from ffpa_attn import _library, ffpa_attn_func, ffpa_attn_varlen_func
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

OPS = torch.ops.ffpa_attn
ALL = [True] * 5
QKV = [True, True, True, False, False]


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def dense_inputs(layout="bhnd", dtype=torch.float32):
    if layout == "bnhd":
        return [
            rows(2, n, h, 16, dtype=dtype).transpose(1, 2) for n, h in ((9, 4), (12, 2), (12, 2))
        ]
    return [rows(2, h, n, 16, dtype=dtype) for n, h in ((9, 4), (12, 2), (12, 2))]


def detached(tensors):
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in tensors]


def options():
    """The operators' options from attn_mask to dropout_p."""
    used_q = torch.tensor([9, 3], dtype=torch.int32)
    tensors = [rows(1, 4, 1, 12), torch.rand(4), rows(4), used_q, None, torch.tensor([5, 8])]
    return [*tensors, 0.3, True, -1, -1, 0.0, 0.2]


CU = torch.tensor([0, 3, 9], dtype=torch.int32)


def packed_inputs():
    return [rows(9, 4, 16), rows(9, 2, 16), rows(9, 2, 24), CU, CU, 6, 6]


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_opcheck_forward(layout):
    torch.library.opcheck(OPS.forward.default, (*dense_inputs(layout),))
    torch.library.opcheck(OPS.forward.default, (*dense_inputs(layout), *options()))


def test_opcheck_varlen_forward():
    torch.library.opcheck(OPS.varlen_forward.default, (*packed_inputs(),))
    more = (None, None, rows(4), None, None, None, None, True)
    torch.library.opcheck(OPS.varlen_forward.default, (*packed_inputs(), *more))


@pytest.mark.parametrize("layout", ["bhnd", "bnhd"])
def test_opcheck_backward(layout):
    inputs, more = detached(dense_inputs(layout)), detached(options())
    out, lse = OPS.forward(*inputs, *more)
    saved = (torch.randn_like(out), torch.randn_like(lse), *inputs, out, lse)
    torch.library.opcheck(OPS.backward.default, (*saved, ALL, *more))
    torch.library.opcheck(OPS.backward.default, (*saved, [False, True, False, False, True], *more))


def test_opcheck_varlen_backward():
    inputs = detached(packed_inputs())
    out, lse = OPS.varlen_forward(*inputs)
    saved = (torch.randn_like(out), None, *inputs[:3], out, lse)
    torch.library.opcheck(OPS.varlen_backward.default, (*saved, QKV, *inputs[3:]))


def test_raw_operators_equal_the_functions():
    q, k, v = dense_inputs()
    out, lse = ffpa_attn_func(q, k, v, is_causal=True, return_lse=True)
    raw_out, raw_lse = OPS.forward(*detached((q, k, v)), causal=True)
    assert torch.equal(out, raw_out) and torch.equal(lse, raw_lse)
    dout, dlse = torch.randn_like(out), torch.randn_like(lse)
    want = torch.autograd.grad((out, lse), (q, k, v), (dout, dlse))
    got = OPS.backward(dout, dlse, *detached((q, k, v, out, lse)), QKV, causal=True)
    for a, b in zip(got, want):
        assert torch.equal(a, b)
    # With autograd, through the dispatcher.
    out, lse = OPS.forward(q, k, v, causal=True)
    for a, b in zip(torch.autograd.grad((out, lse), (q, k, v), (dout, dlse)), want):
        assert torch.equal(a, b)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile_dense(backend):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend(backend)

    def function(q, k, v, mask):
        return ffpa_attn_func(q * 2, k, v, mask, is_causal=True, enable_gqa=True).sin()

    compiled = torch.compile(function, fullgraph=True, backend=counter)
    for n in (5, 9, 17, 33):
        bases = [rows(2, n, h, 16) for h in (4, 2, 2)]
        mask = rows(1, 1, 1, n)
        views = [t.transpose(1, 2) for t in bases]
        results = []
        for f in (function, compiled):
            out = f(*views, mask)
            gradients = torch.autograd.grad(out, (*bases, mask), torch.ones_like(out))
            results.append((out, *gradients))
        for a, b in zip(*results):
            # Element-wise code may be fused otherwise; attention itself is the same kernel.
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
    assert counter.frame_count == 2


def test_compile_dropout_and_autocast():
    q = rows(1, 2, 9, 16)
    compiled = torch.compile(
        lambda q: ffpa_attn_func(q, q, q, dropout_p=0.5), fullgraph=True, backend="aot_eager"
    )
    torch.manual_seed(3)
    a, b = compiled(q), compiled(q)
    torch.manual_seed(3)
    assert torch.equal(a, compiled(q)) and not torch.equal(a, b)
    with torch.autocast("cpu", torch.bfloat16):
        compiled = torch.compile(
            lambda q: ffpa_attn_func(q, q, q.bfloat16()), fullgraph=True, backend="aot_eager"
        )
        assert compiled(q).dtype is torch.bfloat16


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_activation_checkpointing(use_reentrant):
    q, k, v = dense_inputs()

    def function(q, k, v):
        return ffpa_attn_func(q, k, v, is_causal=True, dropout_p=0.3)

    torch.manual_seed(1)
    want = torch.autograd.grad(function(q, k, v).square().sum(), (q, k, v))
    torch.manual_seed(1)
    checkpoint(function, q, k, v, use_reentrant=use_reentrant).square().sum().backward()
    for t, g in zip((q, k, v), want):
        assert torch.equal(t.grad, g)


def test_selective_checkpointing_finds_the_operators_by_name(monkeypatch):
    q, k, v = dense_inputs()
    calls = []
    real = _library.forward
    monkeypatch.setattr(_library, "forward", lambda *a: calls.append(1) or real(*a))

    def policy(context, op, *args, **kwargs):
        if op is OPS.forward.default:
            return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

    def function(q, k, v):
        return ffpa_attn_func(q * 2, k, v).square()

    out = checkpoint(
        function,
        q,
        k,
        v,
        use_reentrant=False,
        context_fn=lambda: create_selective_checkpoint_contexts(policy),
    )
    gradients = torch.autograd.grad(out.sum(), (q, k, v))
    assert len(calls) == 1  # saved, not computed again
    for a, b in zip(gradients, torch.autograd.grad(function(q, k, v).sum(), (q, k, v))):
        assert torch.equal(a, b)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype):
    q, k, v = dense_inputs()
    with torch.autocast("cpu", dtype):
        out = ffpa_attn_func(q, k, v)
    low = [t.detach().to(dtype) for t in (q, k, v)]
    assert out.dtype is dtype and torch.equal(out, ffpa_attn_func(*low))


def test_lse_alone_is_differentiable():
    q, k, v = dense_inputs()
    _, lse = ffpa_attn_func(q, k, v, is_causal=True, return_lse=True)
    dlse = torch.randn_like(lse)
    got = torch.autograd.grad(lse, (q, k), dlse)
    wide = reference.cast((q, k, v), torch.float64)
    want = torch.autograd.grad(reference.dense(*wide, causal=True)[1], wide[:2], dlse.double())
    for a, b in zip(got, want):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-5)


def test_deterministic_and_independent_of_threads():
    q, k, v = dense_inputs(dtype=torch.bfloat16)
    dout = torch.randn(2, 4, 9, 16).bfloat16()
    threads = torch.get_num_threads()
    results = []
    try:
        for n in (1, 2, 2):
            torch.set_num_threads(n)
            out = ffpa_attn_func(q, k, v, is_causal=True)
            results.append((out, *torch.autograd.grad(out, (q, k, v), dout)))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


def test_parameters_and_retained_graphs():
    q = torch.nn.Parameter(torch.randn(1, 2, 9, 16))
    out = ffpa_attn_func(q, q, q)
    (a,) = torch.autograd.grad(out.sum(), q, retain_graph=True)
    (b,) = torch.autograd.grad(out.sum(), q)
    assert torch.equal(a, b)


def test_in_place_change_of_a_saved_input_is_found():
    q = rows(1, 2, 9, 16)
    k = torch.randn(1, 2, 9, 16)
    out = ffpa_attn_func(q, k, k)
    k.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


# ---- dropout -----------------------------------------------------------------------------------


def philox(counter, key):
    """philox4x32-10 (Salmon et al. 2011) of the 64-bit counter and key: four 32-bit numbers."""
    c = [counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF, 0, 0]
    k = [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_philox_known_answer():
    # Random123's known answer for counter 0, key 0.
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def keep_mask(shape, seed, offset, p):
    draws = [
        philox((offset + e) // 4, seed)[(offset + e) % 4] for e in range(torch.Size(shape).numel())
    ]
    return torch.tensor([(u + 1) / 2**32 > p for u in draws]).reshape(shape)


@pytest.mark.parametrize("p", [0.1, 0.3])
@pytest.mark.parametrize("seed_offset", [(0, 0), (1234567890123, 7)], ids=str)
def test_dropout_mask_is_philox_forward_and_backward(p, seed_offset):
    tensors = dense_inputs()
    keep = keep_mask((2, 4, 9, 12), *seed_offset, p)
    rng = torch.tensor(seed_offset)
    reference.check(
        lambda q, k, v: OPS.forward(q, k, v, dropout_rng=rng, dropout_p=p, causal=True),
        lambda q, k, v: reference.dense(q, k, v, keep=keep, dropout_p=p, causal=True),
        tensors,
    )


def test_case_39_103_dropout_follows_torchs_generator():
    q, k, v = dense_inputs()
    torch.manual_seed(5)
    a, b = (ffpa_attn_func(q, k, v, dropout_p=0.3) for _ in range(2))
    state = torch.get_rng_state()
    ffpa_attn_func(q, k, v)
    assert torch.equal(state, torch.get_rng_state())  # without dropout nothing is drawn
    torch.manual_seed(5)
    c = ffpa_attn_func(q, k, v, dropout_p=0.3)
    assert torch.equal(a, c) and not torch.equal(a, b)
    # The backward uses the forward's mask: dv is linear in it.
    (dv,) = torch.autograd.grad(a.sum(), v)
    eye = torch.eye(12).expand(2, 2, 12, 12)
    padded = torch.cat([eye, torch.zeros(2, 2, 12, 4)], -1)
    torch.manual_seed(5)
    p = ffpa_attn_func(q, k, padded.contiguous(), dropout_p=0.3)[..., :12]  # the dropped P itself
    want = p.sum(2).reshape(2, 2, 2, 12).sum(2)
    torch.testing.assert_close(dv[..., 0], want)


def test_packed_dropout_counts_elements_with_max_seqlen():
    lengths, p, rng = [3, 6], 0.3, torch.tensor([11, 2])
    q, k, v = rows(9, 4, 16), rows(9, 2, 16), rows(9, 2, 16)
    keep = keep_mask((2, 4, 6, 6), 11, 2, p)
    out, _ = OPS.varlen_forward(q, k, v, CU, CU, 6, 6, dropout_rng=rng, dropout_p=p)
    for b, (begin, end) in enumerate(itertools.pairwise(CU.tolist())):
        own = [t[begin:end].transpose(0, 1)[None].detach().double() for t in (q, k, v)]
        n = end - begin
        want, _ = reference.dense(*own, keep=keep[b : b + 1, :, :n, :n], dropout_p=p)
        torch.testing.assert_close(out[begin:end].transpose(0, 1)[None], want.float())
    assert lengths == CU.diff().tolist()


def test_packed_dropout_gradients_are_finite():
    q, k, v = rows(9, 4, 16), rows(9, 2, 16), rows(9, 2, 16)
    ffpa_attn_varlen_func(q, k, v, CU, CU, 6, 6, causal=True, dropout_p=0.5).sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))


def test_attention_in_a_forked_process_returns():
    """The threads of an OpenMP pool do not survive a fork; nothing may wait for them."""
    import multiprocessing

    q, k, v = (torch.randn(1, 2, 512, 64) for _ in range(3))
    want = ffpa_attn_func(q, k, v)  # starts the pool
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(
        target=lambda: sender.send(ffpa_attn_func(q.numpy(), k.numpy(), v.numpy()))
    )
    child.start()
    try:
        assert receiver.poll(60)
        # Before the child ends: the result is larger than a pipe's buffer.
        assert torch.equal(torch.from_numpy(receiver.recv()), want)
        child.join(60)
        assert child.exitcode == 0
    finally:
        child.kill()


def test_lazy_negation_is_seen():
    """torch may hand over a tensor whose memory holds the negated numbers."""
    z = torch.randn(1, 2, 9, 16, dtype=torch.cfloat)
    q, k, v = (torch.randn(1, 2, 9, 16) for _ in range(3))
    mask = torch.randn(9, 9, dtype=torch.cfloat).conj().imag
    negated = z.conj().imag
    assert negated.is_neg() and mask.is_neg()
    want = ffpa_attn_func(negated.clone(), k, v, attn_mask=mask.clone())
    assert torch.equal(ffpa_attn_func(negated, k, v, attn_mask=mask), want)
    q.requires_grad_()
    out = ffpa_attn_func(q, k, v)
    (want,) = torch.autograd.grad(out, q, negated.clone(), retain_graph=True)
    (got,) = torch.autograd.grad(out, q, negated)
    assert torch.equal(got, want)
