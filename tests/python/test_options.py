# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The options of the two public functions against the float64 reference."""

import itertools

import pytest
import reference
import torch
from ffpa_attn import ffpa_attn_func, ffpa_attn_varlen_func

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


def check_dense(tensors, dense_options, reference_options, with_lse=False):
    reference.check(
        lambda q, k, v, mask=None, sink=None: ffpa_attn_func(
            q, k, v, mask, sink=sink, return_lse=True, **dense_options
        ),
        lambda q, k, v, mask=None, sink=None: reference.dense(
            q, k, v, mask=mask, sink=sink, **reference_options
        ),
        tensors,
        with_lse=with_lse,
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [8, 64, 256, 320, 512])
@pytest.mark.parametrize("causal", [False, True])
def test_dense(dtype, head_dim, causal):
    q, k, v = rows(2, 4, 65, head_dim), rows(2, 2, 65, head_dim), rows(2, 2, 65, head_dim)
    tensors = [t.detach().to(dtype).requires_grad_() for t in (q, k, v)]
    check_dense(tensors, {"is_causal": causal, "enable_gqa": True}, {"causal": causal}, True)


OPTIONS = {
    "scale": ({"scale": 0.3}, {"scale": 0.3}),
    "scale zero": ({"scale": 0.0}, {"scale": 0.0}),
    "scale negative": ({"scale": -1.0}, {"scale": -1.0}),
    "window": ({"window_size": (5, 2)}, {"window": (5, 2)}),
    "window left": ({"window_size": (5, -1)}, {"window": (5, -1)}),
    "window causal": ({"window_size": (7, -1), "is_causal": True}, {"window": (7, 0)}),
    "window self": ({"window_size": (0, 0)}, {"window": (0, 0)}),
    "softcap": ({"softcap": 0.8}, {"softcap": 0.8}),
    "softcap causal": ({"softcap": 1.0, "is_causal": True}, {"softcap": 1.0, "causal": True}),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("lengths", [(33, 33), (17, 40), (40, 17)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_options(name, lengths, dtype):
    n, m = lengths
    tensors = [rows(2, 4, n, 32, dtype=dtype), *(rows(2, 2, m, 32, dtype=dtype) for _ in range(2))]
    check_dense(tensors, *OPTIONS[name], with_lse=True)


MASK_SHAPES = [(2, 4, 9, 21), (1, 4, 9, 21), (2, 1, 9, 21), (4, 9, 21), (9, 21), (9, 1), (21,)]
MASK_SHAPES += [(1, 1, 1, 21), (2, 1, 1, 21)]


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_additive_mask(shape, causal):
    tensors = [rows(2, 4, 9, 16), rows(2, 4, 21, 16), rows(2, 4, 21, 16), rows(*shape)]
    check_dense(tensors, {"is_causal": causal}, {"causal": causal}, True)


@pytest.mark.parametrize("mask_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_additive_mask_of_low_precision_input(mask_dtype):
    tensors = [rows(2, 4, n, 16, dtype=torch.bfloat16) for n in (9, 21, 21)]
    check_dense([*tensors, rows(1, 4, 1, 21, dtype=mask_dtype)], {}, {})


@pytest.mark.parametrize("shape", MASK_SHAPES, ids=str)
def test_boolean_mask(shape):
    mask = torch.rand(shape) > 0.4
    check_dense([rows(2, 4, 9, 16), rows(2, 4, 21, 16), rows(2, 4, 21, 16), mask], {}, {}, True)


def test_fully_masked_rows():
    mask = torch.ones(1, 1, 9, 21, dtype=torch.bool)
    mask[:, :, 3:5] = False
    tensors = [rows(2, 4, 9, 16), rows(2, 4, 21, 16), rows(2, 4, 21, 16)]
    out, lse = ffpa_attn_func(*tensors, mask, return_lse=True)
    assert (out[:, :, 3:5] == 0).all() and (lse[:, :, 3:5] == -torch.inf).all()
    dq, *_ = torch.autograd.grad(out, tensors, torch.randn_like(out))
    assert (dq[:, :, 3:5] == 0).all()
    check_dense([*tensors, mask], {}, {}, True)


@pytest.mark.parametrize("sink_dtype", [torch.float32, torch.bfloat16], ids=str)
def test_sink(sink_dtype):
    tensors = [rows(2, 4, n, 16) for n in (9, 21, 21)]
    sink = rows(4, dtype=sink_dtype)
    check_dense([*tensors, None, sink], {"is_causal": True}, {"causal": True}, True)


@pytest.mark.parametrize("batched", [False, True])
def test_alibi(batched):
    slopes = torch.rand(2, 4) if batched else torch.rand(4)
    tensors = [rows(2, 4, n, 16) for n in (9, 21, 21)]
    check_dense(tensors, {"alibi_slopes": slopes}, {"slopes": slopes})


def test_seqused():
    used_q, used_k = torch.tensor([9, 4], dtype=torch.int32), torch.tensor([0, 20])
    options = {"seqused_q": used_q, "seqused_k": used_k}
    tensors = [rows(2, 4, n, 16) for n in (9, 21, 21)]
    check_dense(tensors, {"is_causal": True, **options}, {"causal": True, **options}, True)


def test_head_dim_of_v_differs():
    tensors = [rows(2, 4, 9, 64), rows(2, 2, 21, 64), rows(2, 2, 21, 128)]
    check_dense(tensors, {"is_causal": True}, {"causal": True}, True)


@pytest.mark.parametrize("group", [1, 3, 5, 6, 7, 8, 12, 16, 64])
def test_every_head_ratio(group):
    tensors = [rows(1, group * 2, 9, 16), rows(1, 2, 9, 16), rows(1, 2, 9, 16)]
    check_dense(tensors, {"is_causal": True}, {"causal": True})


PACKS = [
    ([5, 17, 1], [5, 17, 1]),
    ([3, 0, 9], [12, 7, 0]),
    ([20, 1], [4, 30]),
    ([0], [0]),
    ([], []),
]


@pytest.mark.parametrize("pack", PACKS, ids=str)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_packed(pack, causal, dtype):
    lengths_q, lengths_k = pack
    cu_q, cu_k = (
        torch.tensor([0, *itertools.accumulate(n)], dtype=torch.int32)
        for n in (lengths_q, lengths_k)
    )
    longest = max([0, *lengths_q]), max([0, *lengths_k])
    total_q, total_k = sum(lengths_q), sum(lengths_k)
    tensors = [rows(total_q, 4, 16), rows(total_k, 2, 16), rows(total_k, 2, 24), None, rows(4)]
    tensors[:3] = [t.detach().to(dtype).requires_grad_() for t in tensors[:3]]

    def expected(q, k, v, _, sink):
        if not lengths_q:  # nothing, yet differentiable
            nothing = q.sum() + k.sum() + v.sum() + sink.sum() * 0
            return nothing.expand(0, 4, 24), nothing.expand(4, 0)
        return reference.packed(
            q, k, v, lengths_q, lengths_k, causal=causal, sink=sink, softcap=2.0
        )

    reference.check(
        lambda q, k, v, _, sink: ffpa_attn_varlen_func(
            q, k, v, cu_q, cu_k, *longest, causal=causal, sink=sink, softcap=2.0, return_lse=True
        ),
        expected,
        tensors,
        with_lse=total_q > 0,
    )


def test_packed_mask_and_seqused():
    lengths = [6, 11]
    cu = torch.tensor([0, 6, 17], dtype=torch.int32)
    mask = torch.randn(1, 4, 11, 11)
    used = torch.tensor([4, 11], dtype=torch.int32)
    tensors = [rows(17, 4, 16), rows(17, 2, 16), rows(17, 2, 16)]

    def expected(q, k, v):
        parts = []
        for b, (begin, end) in enumerate(((0, 6), (6, 17))):
            own = (t[begin:end].transpose(0, 1)[None] for t in (q, k, v))
            n = end - begin
            one = {"seqused_k": used[b : b + 1], "mask": mask[..., :n, :n].to(q.dtype)}
            parts.append(reference.dense(*own, **one))
        out = torch.cat([o[0].transpose(0, 1) for o, _ in parts])
        return out, torch.cat([lse[0] for _, lse in parts], 1)

    assert lengths == cu.diff().tolist()
    reference.check(
        lambda q, k, v: ffpa_attn_varlen_func(
            q, k, v, cu, cu, 11, 11, attn_mask=mask, seqused_k=used, return_lse=True
        ),
        expected,
        tensors,
    )


def test_packed_equals_each_sequence_bit_by_bit():
    lengths = [33, 5, 64, 1]
    cu = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    q, k, v = (torch.randn(103, h, 32) for h in (4, 2, 2))
    out = ffpa_attn_varlen_func(q, k, v, cu, cu, 64, 64, causal=True)
    for begin, end in itertools.pairwise(cu.tolist()):
        own = [t[begin:end].transpose(0, 1)[None] for t in (q, k, v)]
        alone = ffpa_attn_func(*own, is_causal=True)[0].transpose(0, 1)
        assert torch.equal(out[begin:end], alone)


def test_strided_inputs_equal_contiguous_ones():
    qkv = torch.randn(2, 13, 3, 4, 32, requires_grad=True)  # [B, N, 3, H, D]
    views = [t.transpose(1, 2) for t in qkv.unbind(2)]
    copies = [t.contiguous() for t in views]
    mask = torch.randn(13, 13).T
    a, b = (ffpa_attn_func(*t, mask, is_causal=True) for t in (views, copies))
    assert torch.equal(a, b)
    dout = torch.randn_like(a)
    for x, y in zip(torch.autograd.grad(a, qkv, dout), torch.autograd.grad(b, qkv, dout)):
        assert torch.equal(x, y)


def test_output_has_the_memory_order_of_q():
    q, k, v = (torch.randn(2, 13, 4, 32).transpose(1, 2) for _ in range(3))
    out = ffpa_attn_func(q, k, v)
    assert out.shape == q.shape and out.stride() == q.stride()
    assert ffpa_attn_func(q, k, torch.randn(2, 4, 13, 16)).transpose(1, 2).is_contiguous()
    assert ffpa_attn_func(q.contiguous(), k, v).is_contiguous()


def test_last_stride_other_than_one_is_copied():
    q = torch.randn(1, 2, 32, 9).transpose(2, 3)
    assert q.stride(-1) != 1
    assert torch.equal(ffpa_attn_func(q, q, q), ffpa_attn_func(*[q.contiguous()] * 3))


def test_nhd_layout_of_the_cuda_option_class():
    from ffpa_attn import CUDABackend

    q, k, v = (torch.randn(2, 9, 4, 16) for _ in range(3))
    out = ffpa_attn_func(q, k, v, backend=CUDABackend(tensor_layout="NHD"))
    want = ffpa_attn_func(*(t.transpose(1, 2) for t in (q, k, v))).transpose(1, 2)
    assert torch.equal(out, want)


@pytest.mark.parametrize("backend", ["auto", "cpu", "triton", "cutedsl", "cuda", "sdpa"])
def test_backend_strings(backend):
    q = torch.randn(1, 2, 9, 16)
    cu = torch.tensor([0, 18], dtype=torch.int32)
    want = ffpa_attn_func(q, q, q)
    assert torch.equal(ffpa_attn_func(q, q, q, backend=backend), want)
    assert torch.equal(ffpa_attn_func(q, q, q, forward_backend=backend), want)
    p = q.reshape(18, 1, 16)
    ffpa_attn_varlen_func(p, p, p, cu, cu, 18, 18, backend=backend, backward_backend=backend)


def test_option_classes_are_accepted_with_one_debug_line(caplog):
    from ffpa_attn import CuTeDSLBackend, SDPABackend, TritonBackend

    caplog.set_level("DEBUG", logger="ffpa_attn")
    q = torch.randn(1, 2, 9, 16)
    for options in (
        TritonBackend(backward=True, enable_tma=True, persist_dkdv=True),
        CuTeDSLBackend(grad_kv_storage_dtype=torch.float32),
        SDPABackend(high_precision_grad=True),
    ):
        caplog.clear()
        ffpa_attn_func(q, q, q, backward_backend=options)
        assert len(caplog.records) == 1, caplog.text
        assert options.name in caplog.text
