# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Cases from public bug reports of this field, each named after its row in the list of cases.
Rows whose fault needs a GPU kernel are elsewhere."""

import gc
import itertools
import math
import resource

import pytest
import reference
import torch
import torch._dynamo.testing
from ffpa_attn import explain, ffpa_attn_func, ffpa_attn_varlen_func

HEAD_DIMS = [64, 256, 320, 512]


def rows(*shape, dtype=torch.float32, scale=1.0):
    return (torch.randn(*shape) * scale).to(dtype).requires_grad_()


def offsets(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)


def dense(tensors, ours=None, theirs=None, with_lse=True):
    reference.check(
        lambda *t: ffpa_attn_func(*t, return_lse=True, **(ours or {})),
        lambda q, k, v, mask=None: reference.dense(q, k, v, mask=mask, **(theirs or {})),
        tensors,
        with_lse=with_lse,
    )


def causal(tensors, **options):
    dense(tensors, {"is_causal": True, **options}, {"causal": True})


def pack(q, k, v, lengths_q, lengths_k, longest=None, **options):
    longest = longest or (max([0, *lengths_q]), max([0, *lengths_k]))
    return ffpa_attn_varlen_func(
        q, k, v, offsets(lengths_q), offsets(lengths_k), *longest, return_lse=True, **options
    )


def check_pack(tensors, lengths_q, lengths_k, longest=None, is_causal=True):
    reference.check(
        lambda q, k, v: pack(q, k, v, lengths_q, lengths_k, longest, causal=is_causal),
        lambda q, k, v: reference.packed(q, k, v, lengths_q, lengths_k, causal=is_causal),
        tensors,
        with_lse=True,
    )


@pytest.mark.parametrize("heads", [(2, 2), (32, 4)], ids=str)
def test_case_1_packed_backward_returns(heads):
    S, D = 128, 512
    cu = torch.arange(0, S + 1, S, dtype=torch.int32)
    q, k, v = (rows(S, h, D, dtype=torch.bfloat16) for h in (heads[0], heads[1], heads[1]))
    ffpa_attn_varlen_func(q, k, v, cu, cu, S, S, causal=True).sum().backward()
    assert all(t.grad.isfinite().all() for t in (q, k, v))
    check_pack([t.detach().requires_grad_() for t in (q, k, v)], [S], [S])


def test_case_2_no_queries_and_one_key():
    check_pack([rows(64, 2, 128), rows(130, 2, 128), rows(130, 2, 128)], [0, 0, 64], [0, 1, 129])
    q, k = torch.randn(65, 2, 128), torch.randn(130, 2, 128)
    with pytest.raises(ValueError, match="cu_seqlens_k"):
        pack(q, k, k, [0, 0, 65], [0, 1, 130])


@pytest.mark.parametrize("is_causal", [False, True])
def test_case_3_a_sequence_without_keys(is_causal):
    tensors = [rows(50, 2, 256), rows(40, 2, 256), rows(40, 2, 256)]
    check_pack(tensors, [20, 10, 20], [30, 0, 10], is_causal=is_causal)


def test_case_5_whole_tiles_masked():
    mask = torch.zeros(300, 400, dtype=torch.bool)
    mask[128:, 256:] = True  # the first rows see no key, the others not the first 256
    dense([rows(1, 1, 300, 64), rows(1, 1, 400, 64), rows(1, 1, 400, 64), mask])


@pytest.mark.parametrize("lengths", [(64, 128), (128, 64)], ids=str)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_case_7_causal_cross_attention_has_one_alignment(lengths, head_dim):
    n, m = lengths
    causal([rows(1, 2, n, head_dim), rows(1, 2, m, head_dim), rows(1, 2, m, head_dim)])


def test_case_8_many_short_sequences_of_all_lengths():
    lengths = list(range(1, 64))
    total = sum(lengths)
    check_pack([rows(total, 2, 64), rows(total, 1, 64), rows(total, 1, 64)], lengths, lengths)


@pytest.mark.parametrize("head_dim", [72, 104])
def test_case_9_head_dims_that_are_no_multiple_of_32(head_dim):
    dense([rows(1, 8, 128, head_dim, dtype=torch.bfloat16) for _ in range(3)])


def test_case_11_group_count_differs_from_head_count():
    causal([rows(1, 8, 33, 64), rows(1, 2, 33, 64), rows(1, 2, 33, 128)])


def test_case_12_padding_gaps_between_packed_sequences():
    cu, used = torch.tensor([0, 3, 7, 9]), torch.tensor([2, 3, 1])
    q, k, v = (torch.randn(9, 2, 16) for _ in range(3))
    padding = torch.tensor([2, 6, 8])
    for t in (q, k, v):
        t[padding] = math.nan
    for t in (q, k, v):
        t.requires_grad_()
    out, lse = ffpa_attn_varlen_func(
        q, k, v, cu, cu, 4, 4, seqused_q=used, seqused_k=used, return_lse=True
    )
    assert (out[padding] == 0).all() and (lse[:, padding] == -math.inf).all()
    dout = torch.randn_like(out)
    gradients = torch.autograd.grad(out, (q, k, v), dout)
    kept = torch.tensor([0, 1, 3, 4, 5, 7])
    inner = [t.detach()[kept].requires_grad_() for t in (q, k, v)]
    want, _ = pack(*inner, [2, 3, 1], [2, 3, 1])
    assert torch.equal(out[kept], want)
    for got, exact in zip(gradients, torch.autograd.grad(want, inner, dout[kept])):
        assert (got[padding] == 0).all() and torch.equal(got[kept], exact)


@pytest.mark.parametrize("kv_len", [33, 65])
def test_case_18_expanded_keys_and_boolean_mask(kv_len):
    mask = torch.rand(1, 1, 17, kv_len) > 0.2
    q = rows(1, 4, 17, 512, dtype=torch.bfloat16)
    k, v = (torch.randn(1, 1, kv_len, 512).bfloat16().expand(1, 4, -1, -1) for _ in range(2))
    out = ffpa_attn_func(q, k, v, mask)
    assert torch.equal(out, ffpa_attn_func(q, k.contiguous(), v.contiguous(), mask))
    dense([q, k, v, mask])


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_case_20_transposed_inputs(head_dim):
    bases = [rows(2, 33, 2, head_dim) for _ in range(3)]
    views = [t.transpose(1, 2) for t in bases]
    copies = [t.detach().contiguous().requires_grad_() for t in views]
    out, want = ffpa_attn_func(*views), ffpa_attn_func(*copies)
    assert torch.equal(out, want)
    dout = torch.randn_like(out)
    got = torch.autograd.grad(out, bases, dout)
    for a, b in zip(got, torch.autograd.grad(want, copies, dout)):
        assert torch.equal(a.transpose(1, 2), b)


def test_case_23_zero_output_gradient_gives_zeros():
    tensors = [rows(1, 2, 33, 64, dtype=torch.float16) for _ in range(3)]
    mask = torch.zeros(33, 33, dtype=torch.float16)
    mask[:, 5:] = torch.finfo(torch.float16).min
    mask.requires_grad_()
    out = ffpa_attn_func(*tensors, mask, is_causal=True)
    for g in torch.autograd.grad(out, [*tensors, mask], torch.zeros_like(out)):
        assert (g == 0).all()


def test_case_25_packed_causal_with_longer_queries():
    tensors = [rows(n, 1, 32, dtype=torch.float16, scale=3) for n in (256, 3, 3)]
    check_pack(tensors, [76, 34, 146], [1, 1, 1])
    out, _ = pack(*tensors, [76, 34, 146], [1, 1, 1], causal=True)
    dq = torch.autograd.grad(out.sum(), tensors[0])[0]
    hidden = torch.ones(256, dtype=torch.bool)
    hidden[[75, 109, 255]] = False
    assert (out[hidden] == 0).all() and (dq[hidden] == 0).all()


@pytest.mark.parametrize("shape", [(1, 1, 1, 16), (2, 3, 1, 512)], ids=str)
def test_case_26_single_token_has_zero_dq(shape):
    q, k, v = (rows(*shape, dtype=torch.float16, scale=3) for _ in range(3))
    out = ffpa_attn_func(q, k, v)
    dq, dk, dv = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    assert (dq == 0).all() and (dk == 0).all() and (dv == 1).all() and torch.equal(out, v)


def test_case_27_a_sequence_without_queries():
    q, k, v = rows(64, 2, 64), rows(128, 2, 64), rows(128, 2, 64)
    out, _ = pack(q, k, v, [0, 64], [64, 64])
    for g in torch.autograd.grad(out.sum(), (k, v)):
        assert (g[:64] == 0).all() and g.isfinite().all()
    check_pack([q, k, v], [0, 64], [64, 64])


def test_case_30_very_negative_logits_keep_their_softmax():
    q = torch.full((1, 1, 3, 128), 448.0) + torch.randn(1, 1, 3, 128)
    k = torch.full((1, 1, 9, 128), -1880.0 / 40) + torch.randn(1, 1, 9, 128) * 0.01
    v = torch.randn(1, 1, 9, 128)
    out, lse = ffpa_attn_func(q, k, v, scale=1.0, return_lse=True)
    _, want_lse = reference.dense(q.double(), k.double(), v.double(), scale=1.0)
    assert want_lse.max() < -5e4
    torch.testing.assert_close(lse.double(), want_lse, rtol=1e-6, atol=0)
    # A rounded logit of 2.7e6 is off by up to 0.2, hence bounds only.
    assert (out != 0).any() and out.isfinite().all() and out.abs().max() <= v.abs().max()


def test_case_31_rows_without_keys_have_lse_minus_inf():
    q, k = torch.randn(1, 2, 4, 64), torch.randn(1, 2, 2, 64)
    out, lse = ffpa_attn_func(q, k, k, is_causal=True, return_lse=True)
    assert (lse[:, :, :2] == -math.inf).all() and lse[:, :, 2:].isfinite().all()
    assert (out[:, :, :2] == 0).all()


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_case_35_masked_values_do_not_leak(value):
    q, k, v = (torch.randn(1, 2, 33, 64) for _ in range(3))
    used = torch.tensor([20], dtype=torch.int32)
    want = ffpa_attn_func(q, k[:, :, :20], v[:, :, :20])
    v[:, :, 20:] = value
    k[:, :, 20:] = value
    assert torch.equal(ffpa_attn_func(q, k, v, seqused_k=used), want)


def test_case_37_sequences_without_queries_at_256():
    lengths_q, lengths_k = [0, 30, 20, 0], [25, 17, 8, 29]
    k, v = rows(79, 1, 256), rows(79, 1, 256)
    q = rows(50, 4, 256)
    check_pack([q, k, v], lengths_q, lengths_k)
    out, _ = pack(q, k, v, lengths_q, lengths_k)
    for g in torch.autograd.grad(out, (k, v), torch.randn_like(out)):
        assert (g[:25] == 0).all() and (g[50:] == 0).all()


@pytest.mark.parametrize("is_causal", [False, True])
def test_case_38_no_keys(is_causal):
    q, k, v = rows(2, 2, 5, 64), rows(2, 2, 0, 64), rows(2, 2, 0, 64)
    out, lse = ffpa_attn_func(q, k, v, is_causal=is_causal, return_lse=True)
    assert (out == 0).all() and (lse == -math.inf).all()
    dq, dk, dv = torch.autograd.grad(out.sum(), (q, k, v))
    assert (dq == 0).all() and dk.shape == k.shape and dv.shape == v.shape


def test_case_40_one_query_at_most_and_some_empty():
    tensors = [rows(2, 9, 64), rows(8, 3, 64), rows(8, 3, 64)]
    check_pack(tensors, [0, 1, 0, 1], [0, 3, 0, 5])


def test_case_41_fewer_tokens_than_sequences():
    tensors = [rows(1, 21, 120), rows(1, 7, 120), rows(1, 7, 120)]
    check_pack(tensors, [0, 0, 0, 1], [0, 0, 0, 1])


def test_case_44_backward_of_one_token():
    q, k, v = (rows(1, 2, 1, 512, dtype=torch.bfloat16) for _ in range(3))
    dout = torch.randn(1, 2, 1, 512).bfloat16()
    dq, dk, dv = torch.autograd.grad(ffpa_attn_func(q, k, v), (q, k, v), dout)
    assert (dq == 0).all() and (dk == 0).all() and torch.equal(dv, dout)


@pytest.mark.parametrize("lengths", [(2, 5), (5, 2), (1, 100)], ids=str)
def test_case_46_47_48_causal_is_aligned_bottom_right(lengths):
    n, m = lengths
    q, k, v = rows(1, 2, n, 64), rows(1, 2, m, 64), rows(1, 2, m, 64)
    visible = torch.arange(m) <= torch.arange(n)[:, None] + m - n
    out = ffpa_attn_func(q, k, v, is_causal=True)
    torch.testing.assert_close(out, ffpa_attn_func(q, k, v, visible))
    assert (out[:, :, : max(0, n - m)] == 0).all()
    assert "bottom-right" in ffpa_attn_func.__doc__


def test_case_49_window_of_a_decode_step():
    q, k, v = torch.randn(1, 2, 1, 64), torch.randn(1, 2, 256, 64), torch.randn(1, 2, 256, 64)
    out = ffpa_attn_func(q, k, v, is_causal=True, window_size=(128, 0))
    torch.testing.assert_close(out, ffpa_attn_func(q, k[:, :, -129:], v[:, :, -129:]))


def test_case_52_window_is_honoured_and_zero_means_self():
    q, k, v = (rows(1, 2, 40, 64) for _ in range(3))
    assert torch.equal(ffpa_attn_func(q, k, v, window_size=(0, 0)), v)
    dense([q, k, v], {"window_size": (7, 0)}, {"window": (7, 0)})
    with pytest.raises(ValueError, match="window"):
        ffpa_attn_func(q, k, v, window_size=(-2, 0))


def test_case_53_mask_comes_after_softcap():
    tensors = [rows(1, 2, 20, 64, scale=10) for _ in range(3)]
    options = {"softcap": 1.0}
    dense(tensors, {"is_causal": True, **options}, {"causal": True, **options})


def test_case_55_softcap_gradient_of_large_logits():
    q, k, v = rows(1, 2, 20, 64, scale=40), rows(1, 2, 20, 64, scale=40), rows(1, 2, 20, 64)
    dense([q, k, v], {"softcap": 30.0}, {"softcap": 30.0})


def test_case_65_many_keys():
    k = torch.randn(1, 1, 1, 8).expand(1, 1, 5_000_000, 8)
    q = torch.randn(1, 1, 1, 8)
    out, lse = ffpa_attn_func(q, k, k, return_lse=True)
    # A float32 sum of 5 million equal terms is off by 6e-4; that of the values likewise.
    assert ((out - k[:, :, :1]).abs() <= 2**-8 * k[:, :, 0].abs().max()).all()
    want = (q * k[:, :, :1]).sum(-1).double() * 8**-0.5 + math.log(5_000_000)
    torch.testing.assert_close(lse.double(), want, rtol=0, atol=1e-3)


def test_case_67_a_batch_of_65536():
    q, k, v = (rows(65536, 1, 2, 8) for _ in range(3))
    out = ffpa_attn_func(q, k, v)
    some = [0, 1, 65534, 65535]
    few = [t.detach()[some].requires_grad_() for t in (q, k, v)]
    want = ffpa_attn_func(*few)
    assert torch.equal(out[some], want)
    dout = torch.randn_like(out)
    for a, b in zip(
        torch.autograd.grad(out, (q, k, v), dout), torch.autograd.grad(want, few, dout[some])
    ):
        assert torch.equal(a[some], b)


def test_case_70_many_short_sequences():
    count = 80_000
    q, k, v = (rows(count * 2, 1, 8) for _ in range(3))
    cu = torch.arange(0, 2 * count + 1, 2, dtype=torch.int32)
    out = ffpa_attn_varlen_func(q, k, v, cu, cu, 2, 2, causal=True)
    inner = [t.detach().view(count, 2, 1, 8).transpose(1, 2).requires_grad_() for t in (q, k, v)]
    want = ffpa_attn_func(*inner, is_causal=True)
    assert torch.equal(out.view(count, 2, 1, 8).transpose(1, 2), want)
    dout = torch.randn_like(want)
    flat = dout.transpose(1, 2).reshape(count * 2, 1, 8)
    got = torch.autograd.grad(out, (q, k, v), flat)
    for a, b in zip(got, torch.autograd.grad(want, inner, dout)):
        assert torch.equal(a.view(count, 2, 1, 8).transpose(1, 2), b)


def test_case_73_transposed_inputs_with_a_mask():
    views = [rows(2, 17, 3, 64).transpose(1, 2) for _ in range(3)]
    mask = torch.randn(2, 3, 17, 17).transpose(2, 3)
    out = ffpa_attn_func(*views, mask)
    assert torch.equal(out, ffpa_attn_func(*(t.contiguous() for t in views), mask.contiguous()))


def test_case_74_stride_of_a_dimension_of_one():
    for t in (torch.randn(1, 1, 8, 1).transpose(-1, -2), torch.randn(8, 1)[None, None].mT):
        assert t.shape == (1, 1, 1, 8)
        assert torch.equal(ffpa_attn_func(t, t, t), t)


def test_case_75_arbitrary_stride_of_one_head():
    base = torch.randn(2, 33, 64)
    k = base.as_strided((2, 1, 33, 64), (33 * 64, 1, 64, 1))
    q = torch.randn(2, 4, 33, 64)
    assert torch.equal(ffpa_attn_func(q, k, k), ffpa_attn_func(q, *[base[:, None]] * 2))
    p = base[0].as_strided((33, 1, 64), (64, 1, 1))
    cu = offsets([33])
    a, b = (ffpa_attn_varlen_func(t, t, t, cu, cu, 33, 33) for t in (p, base[0][:, None]))
    assert torch.equal(a, b)


def test_case_79_a_compiled_call_with_stride_0_and_then_without():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: ffpa_attn_func(q, k, v, is_causal=True))
    base = torch.randn(1, 2, 9, 16)
    for batch in (1, 2, 3):
        broadcast = base.as_strided((batch, 2, 9, 16), (0, *base.stride()[1:]))
        for q in (broadcast, torch.randn(batch, 2, 9, 16)):
            assert torch.equal(compiled(q, q, q), ffpa_attn_func(q, q, q, is_causal=True))


def test_case_81_head_dim_100_is_refused_by_name():
    q = torch.randn(1, 2, 9, 100, dtype=torch.float16)
    with pytest.raises(ValueError, match=r"q: expected a head_dim .* got 100"):
        ffpa_attn_func(q, q, q)


class _SavesOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        out, lse = q + k + v, q.sum(-1)
        ctx.save_for_backward(q, k, v, out, lse)
        return out, lse

    @staticmethod
    def backward(ctx, dout, dlse):
        ctx.saved_tensors  # noqa: B018
        return dout, dout, dout


def growth(attention, steps):
    """Tensors and KiB that checkpointed steps leave behind, without the collector's help."""
    block = torch.nn.Linear(16, 3 * 16)
    x = torch.randn(1, 8, 16)

    def attend(x):
        q, k, v = block(x).view(1, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        return attention(q, k, v).transpose(1, 2).reshape(1, 8, 16)

    def run(steps):
        for _ in range(steps):
            y = torch.utils.checkpoint.checkpoint(attend, x, use_reentrant=False)
            y.square().sum().backward()

    def measure():
        tensors = sum(isinstance(o, torch.Tensor) for o in gc.get_objects())
        return tensors, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    run(100)
    gc.collect()
    gc.disable()
    try:
        before = measure()
        run(steps)
        return [b - a for a, b in zip(before, measure())]
    finally:
        gc.enable()


def test_case_95_memory_is_flat_over_many_steps():
    if growth(lambda *t: _SavesOutputs.apply(*t)[0], 10)[0] > 10:
        pytest.skip(f"torch {torch.__version__} itself leaks what a checkpointed Function saves")
    tensors, kib = growth(lambda *t: ffpa_attn_func(*t, is_causal=True), 1000)
    assert tensors <= 10 and kib < 16 * 1024


@pytest.mark.parametrize("deterministic", [False, True])
def test_case_99_every_run_gives_the_same_bits(deterministic):
    tensors = [rows(2, 4, 130, 64, dtype=torch.float16) for _ in range(3)]
    dout = torch.randn(2, 4, 130, 64).half()

    def run():
        out = ffpa_attn_func(*tensors, is_causal=True, deterministic=deterministic)
        return (out, *torch.autograd.grad(out, tensors, dout))

    first = run()
    for _ in range(10):
        assert all(torch.equal(a, b) for a, b in zip(run(), first))


def test_case_102_the_order_of_packed_sequences_changes_no_bit():
    lengths = [33, 5, 70, 1]
    sequences = [[torch.randn(n, h, 64) for h in (4, 2, 2, 4)] for n in lengths]
    results = {}
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        parts = (torch.cat(t) for t in zip(*(sequences[i] for i in order)))
        q, k, v, dout = parts
        tensors = [t.requires_grad_() for t in (q, k, v)]
        own = [lengths[i] for i in order]
        out, _ = pack(*tensors, own, own, causal=True)
        all_parts = (out, *torch.autograd.grad(out, tensors, dout))
        for i, split in zip(order, zip(*(t.split(own) for t in all_parts))):
            for a, b in zip(split, results.setdefault(i, split)):
                assert torch.equal(a, b)


@pytest.mark.parametrize("head_dim", [16, 24])
def test_case_107_fake_strides_are_the_real_ones(head_dim):
    from torch._subclasses import FakeTensorMode

    inputs = [torch.randn(1, 20, 12, d).transpose(1, 2) for d in (16, 16, head_dim)]
    real = torch.ops.ffpa_attn.forward(*inputs)
    with FakeTensorMode() as mode:
        fake = torch.ops.ffpa_attn.forward(*(mode.from_tensor(t) for t in inputs))
    for a, b in zip(real, fake):
        assert a.shape == b.shape and a.stride() == b.stride() and a.dtype == b.dtype


def test_case_108_fake_gradients_have_the_shapes_of_real_ones():
    q, k, v = torch.randn(9, 4, 16), torch.randn(9, 2, 16), torch.randn(9, 2, 16)
    cu = offsets([4, 5])
    out, lse = torch.ops.ffpa_attn.varlen_forward(q, k, v, cu, cu, 5, 5)
    mask = [True, True, True, False, False]
    arguments = (torch.randn_like(out), None, q, k, v, out, lse, mask, cu, cu, 5, 5)
    torch.library.opcheck(torch.ops.ffpa_attn.varlen_backward.default, arguments)


def test_case_109_packed_batches_of_changing_lengths_compile_once():
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v, cu, n: ffpa_attn_varlen_func(q, k, v, cu, cu, n, n, causal=True),
        fullgraph=True,
        backend=counter,
    )
    for lengths in ([3, 5], [4, 9, 2], [7, 7, 1, 1], [30, 2]):
        q, k, v = (rows(sum(lengths), 2, 16) for _ in range(3))
        cu, n = offsets(lengths), max(lengths)
        out = compiled(q, k, v, cu, n)
        want = ffpa_attn_varlen_func(q, k, v, cu, cu, n, n, causal=True)
        assert torch.equal(out, want)
        dout = torch.randn_like(out)
        for a, b in zip(*(torch.autograd.grad(o, (q, k, v), dout) for o in (out, want))):
            assert torch.equal(a, b)
    # Once with the first lengths, once with symbols.
    assert counter.frame_count == 2


@pytest.mark.parametrize("compiled", [False, True])
def test_case_110_111_max_seqlen_may_be_a_0_dim_tensor(compiled):
    q = torch.randn(9, 2, 16)
    cu = offsets([4, 5])
    want = ffpa_attn_varlen_func(q, q, q, cu, cu, 5, 5)
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    function = ffpa_attn_varlen_func
    if compiled:
        function = torch.compile(function, fullgraph=True, backend=counter)
    for longest in (torch.tensor(5), torch.tensor(6), torch.tensor(7, dtype=torch.int32)):
        assert torch.equal(function(q, q, q, cu, cu, longest, longest), want)
    assert counter.frame_count <= 2


def _dense_self(x):
    return ffpa_attn_func(x, x, x)


def _packed_self(x):
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)
    return ffpa_attn_varlen_func(x, x, x, cu, cu, 5, 5)


TRANSFORMED = pytest.mark.parametrize(
    ("function", "shape"), [(_dense_self, (1, 2, 9, 16)), (_packed_self, (9, 2, 16))]
)


@TRANSFORMED
def test_case_113_jvp_and_vmap(function, shape):
    x = torch.randn(3, *shape)
    with pytest.raises(NotImplementedError, match="jvp"):
        torch.func.jvp(function, (x[0],), (x[0],))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x[0], x[0])
        with pytest.raises(NotImplementedError, match="jvp"):
            function(dual)
    for transform in (torch.func.grad, torch.func.hessian):
        with pytest.raises(NotImplementedError, match=r"torch\.func\.grad"):
            transform(lambda t: function(t).sum())(x[0])
    with pytest.raises(NotImplementedError, match=r"torch\.func\.grad"):
        torch.func.vjp(function, x[0])
    assert torch.equal(torch.vmap(function)(x), torch.stack([function(t) for t in x]))
    # The gradient of a batch of calls.
    batch, single = x.clone().requires_grad_(), x.clone().requires_grad_()
    torch.vmap(function)(batch).square().sum().backward()
    torch.stack([function(t) for t in single]).square().sum().backward()
    torch.testing.assert_close(batch.grad, single.grad)
    # A batch of gradients of one call.
    leaf = x[0].clone().requires_grad_()
    out = function(leaf)

    def gradient(dout, **options):
        return torch.autograd.grad(out, leaf, dout, retain_graph=True, **options)[0]

    for call in (
        lambda douts: gradient(douts, is_grads_batched=True),
        lambda douts: torch.vmap(gradient)(douts),
    ):
        with pytest.raises(NotImplementedError, match="a batch of output gradients"):
            call(torch.randn(2, *out.shape))


@TRANSFORMED
def test_case_114_double_backward_is_refused(function, shape):
    x = torch.randn(shape, requires_grad=True)
    (dx,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="double backward"):
        dx.sum().backward()
    with pytest.raises(NotImplementedError, match="double backward"):
        torch.autograd.functional.hessian(lambda t: function(t).square().sum(), x.detach())
    # create_graph alone is no second differentiation.
    (plain,) = torch.autograd.grad(function(x).square().sum(), x)
    assert torch.equal(dx, plain)


def test_case_115_mixed_dtypes():
    q, v = rows(1, 2, 9, 16), rows(1, 2, 9, 16, dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"v: expected dtype float32, as q, got bfloat16"):
        ffpa_attn_func(q, q, v)
    with torch.autocast("cpu", torch.bfloat16):
        out = ffpa_attn_func(q, q, v)
    assert out.dtype is torch.bfloat16
    low = q.detach().bfloat16()
    assert torch.equal(out, ffpa_attn_func(low, low, v))
    out.sum().backward()
    assert q.grad.dtype is torch.float32 and v.grad.dtype is torch.bfloat16


def test_case_117_packed_lse_is_packed():
    lengths = [8, 25, 12]
    q = torch.randn(45, 8, 16)
    out, lse = pack(q, q, q, lengths, lengths)
    assert lse.shape == (8, 45) and lse.dtype is torch.float32 and out.shape == q.shape


def test_case_122_a_sequence_longer_than_max_seqlen_is_refused():
    q = torch.randn(100, 2, 16)
    with pytest.raises(ValueError, match=r"cu_seqlens_q: .*max_seqlen = 64"):
        pack(q, q, q, [100], [100], (64, 64))


def test_case_123_number_of_offsets():
    q = torch.randn(9, 2, 16)
    with pytest.raises(ValueError, match="cu_seqlens_k: expected as many values as cu_seqlens_q"):
        ffpa_attn_varlen_func(q, q, q, offsets([4, 5]), offsets([9]), 9, 9)


def test_case_126_dtypes_of_q_and_kv():
    q, k = torch.randn(1, 2, 1, 64).half(), torch.randn(1, 2, 9, 64).bfloat16()
    with pytest.raises(TypeError, match=r"k: expected dtype float16, as q, got bfloat16"):
        ffpa_attn_func(q, k, k)


def test_case_127_gqa_at_512_needs_little_memory():
    sizes = []
    for n in (4096, 8192):
        q, k = (torch.empty(1, h, n, 512, dtype=torch.bfloat16) for h in (8, 1))
        text = explain(q, k, k, is_causal=True, enable_gqa=True)
        assert "cpu_forward" in text and "cpu_backward" in text
        lines = text.strip().splitlines()
        sizes.append([int(line.split("workspace ")[1].split()[0]) for line in lines])
    for small, large in zip(*sizes):
        assert large <= 2.1 * small  # O(N)
        assert small < 8 * 4096**2 * 2 / 3  # a fraction of one score matrix


def test_case_128_the_kernel_can_be_queried():
    q = torch.randn(1, 2, 9, 512)
    assert explain(q, q, q).startswith("forward:  cpu_forward")
    with pytest.raises(ValueError, match="backend"):
        ffpa_attn_func(q, q, q, backend="sm90")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_case_s1_output_gradient_from_sum(dtype):
    tensors = [rows(1, 2, 33, 64, dtype=dtype) for _ in range(3)]
    out = ffpa_attn_func(*tensors, is_causal=True)
    a = torch.autograd.grad(out, tensors, torch.ones_like(out), retain_graph=True)
    for x, y in zip(a, torch.autograd.grad(out.sum(), tensors)):
        assert torch.equal(x, y)


def test_case_s2_key_and_value_are_one_tensor():
    q, k = rows(1, 8, 33, 512), rows(1, 1, 33, 512)
    before = k.detach().clone()
    out = ffpa_attn_func(q, k, k, is_causal=True)
    k2, v2 = (k.detach().requires_grad_() for _ in range(2))
    want = ffpa_attn_func(q, k2, v2, is_causal=True)
    dout = torch.randn_like(out)
    dk = torch.autograd.grad(out, k, dout)[0]
    assert torch.equal(dk, sum(torch.autograd.grad(want, (k2, v2), dout)))
    assert torch.equal(k, before)


@pytest.mark.parametrize("kind", ["int64", "strided", "none", "float"])
def test_case_s3_offsets_are_converted_once_or_refused(kind):
    q = torch.randn(7, 2, 16)
    cu = torch.tensor([0, 3, 7], dtype=torch.int32)
    want = ffpa_attn_varlen_func(q, q, q, cu, cu, 4, 4)
    if kind == "float":
        with pytest.raises(TypeError, match="cu_seqlens_q: expected dtype int32 or int64"):
            ffpa_attn_varlen_func(q, q, q, cu.float(), cu, 4, 4)
        return
    given = {"int64": cu.long(), "strided": torch.stack([cu, cu], 1)[:, 0], "none": cu}[kind]
    keys = None if kind == "none" else given
    assert torch.equal(ffpa_attn_varlen_func(q, q, q, given, keys, 4, 4), want)


def test_case_s5_max_seqlen_may_be_larger():
    tensors = [rows(7, 2, 16) for _ in range(3)]
    a, _ = pack(*tensors, [3, 4], [3, 4], (4096, 4096))
    b, _ = pack(*tensors, [3, 4], [3, 4])
    assert torch.equal(a, b)
    empty = [rows(0, 2, 16) for _ in range(3)]
    out, lse = pack(*empty, [0, 0], [0, 0])
    assert out.shape == (0, 2, 16) and lse.shape == (2, 0)
    out.sum().backward()
    assert empty[0].grad.shape == (0, 2, 16)


@pytest.mark.parametrize("needed", list(itertools.product([False, True], repeat=5)), ids=str)
def test_case_s7_only_needed_gradients(needed, monkeypatch):
    from ffpa_attn import _native

    tensors = [torch.randn(1, 2, 9, 16) for _ in range(3)]
    tensors += [torch.randn(1, 2, 1, 9), torch.randn(2)]
    for t in tensors:
        t.requires_grad_()
    *qkv, mask, sink = tensors
    full = torch.autograd.grad(ffpa_attn_func(*qkv, mask, sink=sink).square().sum(), tensors)
    asked = []
    real = _native.empty_gradients
    monkeypatch.setattr(
        _native, "empty_gradients", lambda *a: asked.append(list(a[-1])) or real(*a)
    )
    some = [t.detach().requires_grad_(n) for t, n in zip(tensors, needed)]
    *qkv, mask, sink = some
    out = ffpa_attn_func(*qkv, mask, sink=sink)
    if not any(needed):
        assert not out.requires_grad
        return
    out.square().sum().backward()
    assert asked == [list(needed)]
    for t, g, n in zip(some, full, needed):
        assert torch.equal(t.grad, g) if n else t.grad is None


def test_case_s13_padding_may_hold_anything():
    q, k, v = (torch.randn(2, 2, 9, 64) for _ in range(3))
    used = torch.tensor([5, 9], dtype=torch.int32)
    want = ffpa_attn_func(q, k, v, seqused_k=used)
    k[0, :, 5:], v[0, :, 5:] = math.inf, math.nan
    tensors = [t.requires_grad_() for t in (q, k, v)]
    out = ffpa_attn_func(*tensors, seqused_k=used)
    assert torch.equal(out, want)
    for g in torch.autograd.grad(out.sum(), tensors):
        assert g.isfinite().all()


@pytest.mark.parametrize("length", [64, 512])
def test_case_s14_gemma_4_shape(length):
    q, k, v = (torch.randn(1, h, length, 512) for h in (8, 1, 1))
    q, k = (t / t.square().mean(-1, keepdim=True).sqrt() for t in (q, k))
    tensors = [t.bfloat16().requires_grad_() for t in (q, k, v)]
    options = {"scale": 1.0, "is_causal": True}
    _, lse = ffpa_attn_func(*tensors, return_lse=True, **options)
    wide = reference.cast(tensors, torch.float64)
    _, want = reference.dense(*wide, scale=1.0, causal=True)
    assert want.max() > 50
    assert ((lse - want).abs() < 1e-3 * want.abs().clamp(min=1)).all()
    dense(tensors, options, {"scale": 1.0, "causal": True})
