# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Every argument is checked: one line, the right type, the argument's name."""

import pytest
import torch
from ffpa_attn import Backend, CUDABackend, explain, ffpa_attn_func, ffpa_attn_varlen_func


def dense(**changes):
    base = {name: torch.randn(2, 4, 9, 16) for name in ("query", "key", "value")}
    return lambda: ffpa_attn_func(**{**base, **changes})


def packed(**changes):
    base = {name: torch.randn(9, 4, 16) for name in ("q", "k", "v")}
    base["cu_seqlens_q"] = base["cu_seqlens_k"] = torch.tensor([0, 4, 9], dtype=torch.int32)
    base["max_seqlen_q"] = base["max_seqlen_k"] = 5
    return lambda: ffpa_attn_varlen_func(**{**base, **changes})


def rand(*shape, dtype=torch.float32, device=None):
    return torch.zeros(shape, dtype=dtype, device=device)


def ints(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


BAD = [
    # rank
    ("q", ValueError, dense(query=rand(4, 9, 16))),
    ("k", ValueError, dense(key=rand(2, 1, 4, 9, 16))),
    ("v", ValueError, dense(value=rand(9, 16))),
    ("q", ValueError, dense(query=torch.tensor(1.0))),
    ("q", ValueError, packed(q=rand(1, 9, 4, 16))),
    ("k", ValueError, packed(k=rand(9, 16))),
    # dtype
    ("q", TypeError, dense(query=rand(2, 4, 9, 16, dtype=torch.float64))),
    ("q", TypeError, dense(query=rand(2, 4, 9, 16, dtype=torch.int32))),
    ("k", TypeError, dense(key=rand(2, 4, 9, 16, dtype=torch.bfloat16))),
    ("v", TypeError, dense(value=rand(2, 4, 9, 16, dtype=torch.float16))),
    ("q", TypeError, packed(q=rand(9, 4, 16, dtype=torch.complex64))),
    # kind of object
    ("q", TypeError, dense(query=3)),
    ("q", TypeError, dense(query=None)),
    ("k", TypeError, dense(key=[[1.0]])),
    ("v", TypeError, dense(value="v")),
    ("attn_mask", TypeError, dense(attn_mask=1.0)),
    ("sink", TypeError, dense(sink=[0.0] * 4)),
    ("alibi_slopes", TypeError, dense(alibi_slopes=0.5)),
    ("seqused_k", TypeError, dense(seqused_k=[1, 2])),
    ("cu_seqlens_q", TypeError, packed(cu_seqlens_q=[0, 4, 9])),
    ("cu_seqlens_q", TypeError, packed(cu_seqlens_q=None)),
    ("dropout_p", TypeError, dense(dropout_p="0.1")),
    ("dropout_p", TypeError, dense(dropout_p=None)),
    ("dropout_p", TypeError, dense(dropout_p=torch.tensor([0.1, 0.2]))),
    ("softmax_scale", TypeError, dense(scale="x")),
    ("softmax_scale", TypeError, dense(scale=1j)),
    ("softcap", TypeError, dense(softcap=torch.ones(2))),
    ("is_causal", TypeError, dense(is_causal="x")),
    ("is_causal", TypeError, dense(is_causal=torch.tensor([True, False]))),
    ("causal", TypeError, packed(causal=2)),
    ("return_lse", TypeError, dense(return_lse="no")),
    ("deterministic", TypeError, dense(deterministic="x")),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(0, 2**32 + 4, 9, dtype=torch.int64))),
    # shapes of k and v
    ("k", ValueError, dense(key=rand(3, 4, 9, 16))),
    ("v", ValueError, dense(value=rand(2, 4, 8, 16))),
    ("k", ValueError, dense(key=rand(2, 4, 9, 24))),
    ("v", ValueError, packed(v=rand(8, 4, 16))),
    # heads
    ("k", ValueError, dense(key=rand(2, 3, 9, 16), value=rand(2, 3, 9, 16))),
    ("v", ValueError, dense(key=rand(2, 2, 9, 16), value=rand(2, 1, 9, 16))),
    ("k", ValueError, dense(key=rand(2, 8, 9, 16), value=rand(2, 8, 9, 16))),
    ("k", ValueError, dense(key=rand(2, 0, 9, 16), value=rand(2, 0, 9, 16))),
    ("q", ValueError, dense(query=rand(2, 0, 9, 16))),
    (
        "enable_gqa",
        ValueError,
        dense(key=rand(2, 2, 9, 16), value=rand(2, 2, 9, 16), enable_gqa=False),
    ),
    ("enable_gqa", ValueError, packed(k=rand(9, 2, 16), v=rand(9, 2, 16), enable_gqa=False)),
    # head dims
    *(
        (("q", ValueError, dense(query=rand(2, 4, 9, d), key=rand(2, 4, 9, d))))
        for d in (0, 4, 12, 100, 1032)
    ),
    ("v", ValueError, dense(value=rand(2, 4, 9, 20))),
    # offsets
    ("cu_seqlens_q", TypeError, packed(cu_seqlens_q=torch.tensor([0.0, 4, 9]))),
    ("cu_seqlens_k", TypeError, packed(cu_seqlens_k=torch.tensor([True, False, True]))),
    ("cu_seqlens_q", TypeError, packed(cu_seqlens_q=ints(0, 4, 9, dtype=torch.int16))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(1, 4, 9))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(0, 4, 8))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(0, 4, 10))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(0, 9, 4))),
    ("cu_seqlens_k", ValueError, packed(cu_seqlens_k=ints(0, -1, 9))),
    ("cu_seqlens_k", ValueError, packed(cu_seqlens_k=ints(0, 9))),
    ("cu_seqlens_k", ValueError, packed(cu_seqlens_k=ints(0, 4, 4, 9))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints(0, 4, 9).reshape(1, 3))),
    ("cu_seqlens_q", ValueError, packed(cu_seqlens_q=ints())),
    # max_seqlen
    ("max_seqlen", ValueError, packed(max_seqlen_q=4)),
    ("max_seqlen", ValueError, packed(max_seqlen_k=-1)),
    ("max_seqlen_q", TypeError, packed(max_seqlen_q=5.0)),
    ("max_seqlen_k", TypeError, packed(max_seqlen_k="5")),
    ("max_seqlen_k", TypeError, packed(max_seqlen_k=None)),
    ("max_seqlen_q", TypeError, packed(max_seqlen_q=torch.tensor(5.0))),
    ("max_seqlen_q", TypeError, packed(max_seqlen_q=torch.tensor([5, 5]))),
    # seqused
    ("seqused_q", ValueError, dense(seqused_q=ints(1, 2, 3))),
    ("seqused_q", ValueError, dense(seqused_q=ints(10, 1))),
    ("seqused_k", ValueError, dense(seqused_k=ints(1, -1))),
    ("seqused_k", ValueError, packed(seqused_k=ints(5, 5))),
    ("seqused_k", TypeError, packed(seqused_k=torch.tensor([1.0, 2.0]))),
    # masks
    ("attn_mask", ValueError, dense(attn_mask=rand(9, 8))),
    ("attn_mask", ValueError, dense(attn_mask=rand(3, 1, 9, 9))),
    ("attn_mask", ValueError, dense(attn_mask=rand(2, 2, 9, 9))),
    ("attn_mask", ValueError, dense(attn_mask=rand(1, 2, 4, 9, 9))),
    ("attn_mask", ValueError, dense(attn_mask=torch.tensor(0.0))),
    ("attn_mask", TypeError, dense(attn_mask=rand(9, 9, dtype=torch.float64))),
    ("attn_mask", TypeError, dense(attn_mask=rand(9, 9, dtype=torch.bfloat16))),
    ("attn_mask", TypeError, dense(attn_mask=rand(9, 9, dtype=torch.int64))),
    ("attn_mask", ValueError, packed(attn_mask=rand(9, 9))),
    # sink, slopes
    ("sink", ValueError, dense(sink=rand(3))),
    ("sink", ValueError, dense(sink=rand(1, 4))),
    ("sink", TypeError, dense(sink=ints(0, 0, 0, 0))),
    ("alibi_slopes", ValueError, dense(alibi_slopes=rand(5))),
    ("alibi_slopes", ValueError, dense(alibi_slopes=rand(3, 4))),
    # window
    ("window", ValueError, dense(window_size=(-2, 0))),
    ("window", ValueError, packed(window_size=(0, -7))),
    ("window_size", TypeError, dense(window_size=5)),
    ("window_size", TypeError, dense(window_size=(1, 2, 3))),
    ("window_size", TypeError, dense(window_size=(True, 0))),
    # numbers
    ("dropout_p", ValueError, dense(dropout_p=1.0)),
    ("dropout_p", ValueError, dense(dropout_p=-0.1)),
    ("dropout_p", ValueError, packed(dropout_p=1.5)),
    ("dropout_p", ValueError, dense(dropout_p=float("nan"))),
    ("scale", ValueError, dense(scale=float("inf"))),
    ("softmax_scale", ValueError, packed(softmax_scale=float("nan"))),
    ("softcap", ValueError, dense(softcap=-1.0)),
    ("softcap", ValueError, packed(softcap=float("inf"))),
    ("workspace_limit", ValueError, dense(workspace_limit=-2)),
    # backends
    ("backend", ValueError, dense(backend="fastest")),
    ("backend", ValueError, dense(backend="sm90")),
    ("forward_backend", ValueError, packed(forward_backend="")),
    ("backward_backend", TypeError, packed(backward_backend=1)),
    ("backend", ValueError, lambda: Backend("cublas")),
    ("acc", ValueError, lambda: CUDABackend(acc="f64")),
    ("tensor_layout", ValueError, lambda: CUDABackend(tensor_layout="HDN")),
    # not implemented
    ("k", ValueError, packed(block_table=ints(0, 1))),
    # devices
    ("q", ValueError, dense(query=rand(2, 4, 9, 16, device="meta"))),
    # unknown and missing
    ("determinstic", TypeError, dense(determinstic=True)),
    ("determinstic", TypeError, packed(determinstic=True)),
    ("is_causal", TypeError, packed(is_causal=True)),
    ("score_mod", TypeError, packed(score_mod=None)),
    ("value", TypeError, lambda: ffpa_attn_func(rand(1, 1, 1, 8), rand(1, 1, 1, 8))),
    ("causal", TypeError, lambda: explain(*[rand(1, 1, 1, 8)] * 3, causal=True)),
]


def test_there_are_a_hundred():
    assert len(BAD) >= 100


@pytest.mark.parametrize("case", range(len(BAD)), ids=lambda i: f"{i}-{BAD[i][0]}")
def test_bad_input(case):
    name, kind, call = BAD[case]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message and name in message, message


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU is here")
def test_the_dtype_that_came_is_named():
    for dtype in ("float64", "uint8", "complex64"):
        q = torch.ones(1, 2, 9, 16).to(getattr(torch, dtype))
        with pytest.raises(TypeError, match=f"^q: expected dtype .*, got {dtype}$"):
            ffpa_attn_func(q, q, q)
    q = torch.ones(1, 2, 9, 16)
    with pytest.raises(TypeError, match=r"^attn_mask: expected dtype .*, got float64$"):
        ffpa_attn_func(q, q, q, torch.ones(9, 9, dtype=torch.float64))


def test_explain_raises_as_the_call_does():
    q = rand(2, 4, 9, 16)
    for call in (ffpa_attn_func, explain):
        with pytest.raises(ValueError, match="backend"):
            call(q, q, q, backend="sm80")


def test_nothing_is_written_to_inputs():
    tensors = [torch.randn(2, 4, 9, 16, requires_grad=True) for _ in range(3)]
    before = [t.detach().clone() for t in tensors]
    ffpa_attn_func(*tensors, is_causal=True).sum().backward()
    assert all(torch.equal(a, b) for a, b in zip(tensors, before))
