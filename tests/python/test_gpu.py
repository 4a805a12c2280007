# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""On an NVIDIA GPU: the bug report's shapes, streams, CUDA graphs, compile, operators.

The kernels themselves are tested in C++; this is the way to them from torch.
"""

import itertools

import pytest
import reference
import torch
import torch._dynamo.testing
from ffpa_attn import explain, ffpa_attn_func, ffpa_attn_varlen_func

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
OPS = torch.ops.ffpa_attn


def rows(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()


def offsets(lengths):
    return torch.tensor([0, *itertools.accumulate(lengths)], device="cuda", dtype=torch.int32)


def check_pack(tensors, lengths):
    """Outputs and gradients against float64 on the CPU, at most twice the error of bfloat16."""
    cu, longest = offsets(lengths), max(lengths)
    out, lse = ffpa_attn_varlen_func(
        *tensors, cu, cu, longest, longest, causal=True, return_lse=True
    )
    dout = torch.randn_like(out)
    got = [out, *torch.autograd.grad(out, tensors, dout)]
    results = []
    for dtype in (torch.float64, torch.bfloat16):
        inputs = [t.detach().cpu().to(dtype).requires_grad_() for t in tensors]
        want, want_lse = reference.packed(*inputs, lengths, lengths, causal=True)
        results.append([want, *torch.autograd.grad(want, inputs, dout.cpu().to(dtype))])
        if dtype is torch.float64:
            torch.testing.assert_close(lse.cpu().double(), want_lse, rtol=1e-6, atol=2e-4)
    for name, a, b, peer in zip(("out", "dq", "dk", "dv"), got, *results):
        reference.assert_close(name, a.cpu(), b, peer)


@pytest.mark.parametrize(
    "shape", [(1, 128, 2, 2), (1, 128, 32, 4), (1, 512, 32, 4), (2, 300, 32, 4)], ids=str
)
def test_case_1_the_shapes_of_the_bug_report(shape):
    count, length, heads_q, heads_kv = shape
    tensors = [rows(count * length, h, 512) for h in (heads_q, heads_kv, heads_kv)]
    cu = offsets([length] * count)
    ffpa_attn_varlen_func(*tensors, cu, cu, length, length, causal=True).sum().backward()
    torch.cuda.synchronize()
    assert all(t.grad.isfinite().all() for t in tensors)
    check_pack([t.detach().requires_grad_() for t in tensors], [length] * count)


def test_explain_names_a_gpu_kernel():
    q = rows(1, 4, 64, 512)
    text = explain(q, q, q, is_causal=True)
    assert "sm" in text and "cpu" not in text
    with pytest.raises(ValueError, match="backend"):
        ffpa_attn_func(q, q, q, backend="cpu")


def test_case_s3_offsets_on_the_cpu_are_moved():
    q, cu = rows(100, 2, 64), offsets([40, 60])
    want = ffpa_attn_varlen_func(q, q, q, cu, cu, 60, 60)
    assert torch.equal(ffpa_attn_varlen_func(q, q, q, cu.cpu().long(), None, 60, 60), want)


def test_another_stream():
    q = rows(1, 4, 300, 128)
    want = ffpa_attn_func(q, q, q, is_causal=True)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        late = q * 1  # ready only after the sleep: another stream would read it too early
        out = ffpa_attn_func(late, late, late, is_causal=True)
    stream.synchronize()
    assert torch.equal(out, want)


def test_case_43_cuda_graph_with_other_lengths_on_replay():
    q, k, v = rows(512, 16, 512), rows(512, 2, 512), rows(512, 2, 512)
    dout, cu = torch.randn_like(q), offsets([256, 256])

    def step():
        out = ffpa_attn_varlen_func(q, k, v, cu, cu, 512, 512, causal=True)
        return (out, *torch.autograd.grad(out, (q, k, v), dout))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):  # fails on any synchronisation
        captured = step()
    for lengths in ([256, 256], [100, 412], [0, 512]):
        cu.copy_(offsets(lengths))
        graph.replay()
        for a, b in zip(captured, step()):
            assert torch.equal(a, b)


@pytest.mark.parametrize("packed", [False, True])
def test_opcheck(packed):
    if packed:
        cu = offsets([30, 70])
        inputs = (rows(100, 4, 64), rows(100, 2, 64), rows(100, 2, 64), cu, cu, 70, 70)
        forward, backward = OPS.varlen_forward.default, OPS.varlen_backward.default
    else:
        inputs = (rows(2, 4, 30, 64), rows(2, 2, 30, 64), rows(2, 2, 30, 64))
        forward, backward = OPS.forward.default, OPS.backward.default
    torch.library.opcheck(forward, inputs)
    inputs = [t.detach() if isinstance(t, torch.Tensor) else t for t in inputs]
    out, lse = forward(*inputs)
    saved = (torch.randn_like(out), None, *inputs[:3], out, lse)
    torch.library.opcheck(backward, (*saved, [True, True, True, False, False], *inputs[3:]))


def test_compile():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v, cu, n: ffpa_attn_varlen_func(q, k, v, cu, cu, n, n, causal=True),
        fullgraph=True,
        backend=counter,
    )
    for lengths in ([30, 50], [40, 90, 20], [70, 7]):
        q, k, v = (rows(sum(lengths), 2, 64) for _ in range(3))
        out = compiled(q, k, v, offsets(lengths), max(lengths))
        cu = offsets(lengths)
        want = ffpa_attn_varlen_func(q, k, v, cu, cu, max(lengths), max(lengths), causal=True)
        assert torch.equal(out, want)
        out.sum().backward()
    assert counter.frame_count == 2


def test_memory_is_flat():
    q = rows(1, 4, 128, 128)

    def step():
        ffpa_attn_func(q, q, q, is_causal=True).sum().backward()

    step()
    before = torch.cuda.memory_allocated()
    for _ in range(200):
        step()
    assert torch.cuda.memory_allocated() == before


def test_case_39_dropout_advances_the_generator_of_the_device():
    q = rows(1, 2, 60, 64)
    generator = torch.cuda.default_generators[q.device.index or 0]
    torch.cuda.manual_seed(5)
    a = ffpa_attn_func(q, q, q, dropout_p=0.3)
    assert generator.get_offset() == 1 * 2 * 60 * 60
    b = ffpa_attn_func(q, q, q, dropout_p=0.3)
    torch.cuda.manual_seed(5)
    assert torch.equal(a, ffpa_attn_func(q, q, q, dropout_p=0.3)) and not torch.equal(a, b)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_case_85_tensors_on_another_device():
    q = torch.randn(1, 2, 60, 64, device="cuda:1", dtype=torch.bfloat16)
    out = ffpa_attn_func(q, q, q)
    assert torch.equal(out.cpu(), ffpa_attn_func(*[q.to("cuda:0")] * 3).cpu())
