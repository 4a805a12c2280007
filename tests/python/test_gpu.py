# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""On an NVIDIA GPU: the bug report's shapes, streams, CUDA graphs, compile, operators.

The kernels themselves are tested in C++; this is the way to them from torch and CuPy. `./run
gpu-test` runs it.
"""

import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import ffpa_attn
import pytest
import reference
import torch
import torch._dynamo.testing
from ffpa_attn import explain, ffpa_attn_func, ffpa_attn_varlen_func

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
OPS = torch.ops.ffpa_attn
QKV = [True, True, True, False, False]
EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
# The minimal program of the bug report: shapes, dtypes and calls of a user.
REPORT = """
import torch
from ffpa_attn import ffpa_attn_varlen_func

q, k, v = (
    torch.randn(128, 2, 512, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    for _ in range(3)
)
cu = torch.tensor([0, 128], device="cuda", dtype=torch.int32)
out = ffpa_attn_varlen_func(q, k, v, cu, cu, 128, 128, causal=True)
out.sum().backward()
torch.cuda.synchronize()
print(q.grad.float().norm().item())
"""


def rows(*shape, dtype=torch.bfloat16):
    return torch.randn(*shape, device="cuda", dtype=dtype).requires_grad_()


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
            torch.testing.assert_close(
                lse.detach().cpu().double(), want_lse.detach(), rtol=1e-6, atol=2e-4
            )
    for name, a, b, peer in zip(("out", "dq", "dk", "dv"), got, *results):
        reference.assert_close(name, a.cpu(), b, peer)


def test_case_1_the_program_of_the_bug_report():
    subprocess.run([sys.executable, "-c", REPORT], check=True, timeout=120)


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


def check_tail(tensors, count):
    """The last rows of a long windowed call, whose offsets pass 2^31, against a short call."""
    window = (63, 0)
    out = ffpa_attn_func(*tensors, window_size=window)
    dout = torch.zeros_like(out)
    dout[:, :, -count:] = torch.randn_like(dout[:, :, -count:])
    got = torch.autograd.grad(out, tensors, dout)
    # The first 64 rows of the short call see fewer keys.
    short = [t.detach()[:, :, -count - 64 :].contiguous().requires_grad_() for t in tensors]
    want = ffpa_attn_func(*short, window_size=window)
    short_dout = dout[:, :, -count - 64 :].contiguous()
    torch.testing.assert_close(out[:, :, -count:], want[:, :, 64:], rtol=2e-2, atol=2e-2)
    for a, b in zip(got, torch.autograd.grad(want, short, short_dout)):
        torch.testing.assert_close(a[:, :, -count - 64 :], b, rtol=2e-2, atol=2e-2)
        assert (a[:, :, :64] == 0).all()


def needs_memory(gigabytes):
    if torch.cuda.get_device_properties(0).total_memory < gigabytes << 30:
        pytest.skip(f"needs {gigabytes} GB of GPU memory")


def test_case_61_views_of_a_fused_projection_past_2_to_the_31():
    needs_memory(40)
    fused = torch.randn(1, 99_904, 3, 56, 128, device="cuda", dtype=torch.bfloat16)
    assert fused.numel() > 2**31
    check_tail([t.transpose(1, 2).requires_grad_() for t in fused.unbind(2)], 200)


def test_case_62_tensors_past_2_to_the_31_elements():
    needs_memory(80)
    check_tail([rows(1, 33, 131_072, 512) for _ in range(3)], 200)


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


def test_block_table():
    q, pages = rows(9, 4, 128), rows(8, 16, 2, 128)
    cu_q, cu_k = offsets([4, 5]), offsets([20, 30])
    table = torch.tensor([[3, 1], [7, 0]], device="cuda", dtype=torch.int32)
    out = ffpa_attn_varlen_func(q, pages, pages, cu_q, cu_k, 5, 30, causal=True, block_table=table)
    k = torch.cat([pages[t].flatten(0, 1)[:n] for t, n in zip(table.long(), (20, 30))])
    assert torch.equal(out, ffpa_attn_varlen_func(q, k, k, cu_q, cu_k, 5, 30, causal=True))


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


def captured(step):
    """A CUDA graph of `step`, and its outputs. Fails on any synchronisation."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = step()
    return graph, outputs


def test_case_87_90_s15_cuda_graph_of_a_pack_with_other_lengths_on_replay():
    q, k, v = rows(512, 16, 512), rows(512, 2, 512), rows(512, 2, 512)
    dout, cu = torch.randn_like(q), offsets([256, 256])

    def step():
        out = ffpa_attn_varlen_func(q, k, v, cu, cu, 512, 512, causal=True)
        return (out, *torch.autograd.grad(out, (q, k, v), dout))

    graph, outputs = captured(step)
    for lengths in ([256, 256], [100, 412], [0, 512], [60, 40]):
        cu.copy_(offsets(lengths))
        for t in outputs:
            t.detach().fill_(torch.nan)
        graph.replay()
        used = sum(lengths)
        parts = [t.detach()[:used].clone().requires_grad_() for t in (q, k, v)]
        out = ffpa_attn_varlen_func(*parts, cu, cu, 512, 512, causal=True)
        want = (out, *torch.autograd.grad(out, parts, dout[:used]))
        for a, b in zip(outputs, want):
            assert torch.equal(a[:used], b), lengths
            assert (a[used:] == 0).all(), lengths


def test_case_87_cuda_graph_of_a_dense_batch():
    q, k, v = rows(2, 8, 200, 256), rows(2, 2, 200, 256), rows(2, 2, 200, 256)
    dout = torch.randn_like(q)

    def step():
        out, lse = ffpa_attn_func(q, k, v, is_causal=True, return_lse=True)
        return (out, lse, *torch.autograd.grad(out, (q, k, v), dout))

    graph, outputs = captured(step)
    with torch.no_grad():
        for t in (q, k, v, dout):
            t.normal_()
    graph.replay()
    for a, b in zip(outputs, step()):
        assert torch.equal(a, b)


def opcheck_all(prefix, inputs, rest):
    """Both operators of a kind; `rest`: what stands behind q, k, v."""
    forward = getattr(OPS, f"{prefix}forward").default
    backward = getattr(OPS, f"{prefix}backward").default
    torch.library.opcheck(forward, (*inputs, *rest))
    inputs = [t.detach() for t in inputs]
    out, lse = forward(*inputs, *rest)
    saved = (torch.randn_like(out), torch.randn_like(lse), *inputs, out, lse)
    torch.library.opcheck(backward, (*saved, QKV, *rest))


@pytest.mark.parametrize("head_dim", [64, 512])
def test_opcheck_dense(head_dim):
    tensors = [rows(2, n, h, head_dim).transpose(1, 2) for n, h in ((30, 4), (40, 2), (40, 2))]
    opcheck_all("", tensors, ())
    opcheck_all("", [t.contiguous().detach().requires_grad_() for t in tensors], ())


@pytest.mark.parametrize("head_dim", [64, 512])
def test_opcheck_packed(head_dim):
    cu = offsets([30, 70])
    tensors = [rows(100, h, head_dim) for h in (4, 2, 2)]
    opcheck_all("varlen_", tensors, (cu, cu, 70, 70))


def test_compile():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda q, k, v, cu, n: ffpa_attn_varlen_func(q, k, v, cu, cu, n, n, causal=True),
        fullgraph=True,
        backend=counter,
    )
    for lengths in ([30, 50, 11], [40, 90, 20], [70, 7, 100]):
        q, k, v = (rows(sum(lengths), 2, 64) for _ in range(3))
        out = compiled(q, k, v, offsets(lengths), max(lengths))
        cu = offsets(lengths)
        want = ffpa_attn_varlen_func(q, k, v, cu, cu, max(lengths), max(lengths), causal=True)
        assert torch.equal(out, want)
        out.sum().backward()
    assert counter.frame_count <= 2


@pytest.mark.parametrize("packed", [False, True])
def test_case_95_memory_is_flat_over_1000_steps(packed):
    q = rows(128, 4, 128) if packed else rows(1, 4, 128, 128)
    cu = offsets([50, 78])

    def step():
        if packed:
            out = ffpa_attn_varlen_func(q, q, q, cu, cu, 78, 78, causal=True)
        else:
            out = ffpa_attn_func(q, q, q, is_causal=True)
        out.sum().backward()

    step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    peak = torch.cuda.max_memory_allocated()
    for _ in range(1000):
        step()
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() == peak


def test_autocast_and_float32():
    q = torch.randn(1, 2, 60, 64, device="cuda", requires_grad=True)
    with pytest.raises(NotImplementedError, match="float32"):
        ffpa_attn_func(q, q, q)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = ffpa_attn_func(q, q, q.bfloat16())
    assert torch.equal(out, ffpa_attn_func(*[q.bfloat16()] * 3))
    out.sum().backward()
    assert q.grad.dtype is torch.float32


def test_gemma_4_trains_as_with_eager_attention(monkeypatch):
    """In mixed precision: the kernels take no float32. Losses at most twice as far from those of
    float32 as eager attention's."""
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("needs transformers")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import gemma4_packed

    ffpa_attn.register_transformers()
    want = gemma4_packed.train("eager", device="cuda")
    peer, got = (
        gemma4_packed.train(name, device="cuda", autocast=torch.float16)
        for name in ("eager", "ffpa")
    )

    def distance(losses):
        return max(abs(a - b) / a for a, b in zip(want, losses))

    assert len(got) == 20 and distance(got) <= 2 * distance(peer) + 1e-3
    assert sum(got[-5:]) < sum(got[:5])  # it learns


def test_cupy():
    cupy = pytest.importorskip("cupy")
    q, k = (torch.randn(1, h, 90, 128, device="cuda", dtype=torch.float16) for h in (4, 2))
    want, want_lse = ffpa_attn_func(q, k, k, is_causal=True, return_lse=True)
    own_q, own_k = (cupy.from_dlpack(t) for t in (q, k))
    out, lse = ffpa_attn_func(own_q, own_k, own_k, is_causal=True, return_lse=True)
    assert isinstance(out, cupy.ndarray)
    assert torch.equal(torch.from_dlpack(out), want)
    assert torch.equal(torch.from_dlpack(lse), want_lse)
    pack = q[0].transpose(0, 1).contiguous()
    want = ffpa_attn_varlen_func(pack, pack, pack, offsets([40, 50]), None, 50, 50)
    own = cupy.from_dlpack(pack)
    torch.cuda.synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        out = ffpa_attn_varlen_func(own, own, own, [0, 40, 90], None, 50, 50)
    stream.synchronize()
    assert torch.equal(torch.from_dlpack(out), want)


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
    results = []
    for device in ("cuda:0", "cuda:1"):
        torch.manual_seed(3)
        q = torch.randn(1, 2, 60, 64).to(device, torch.bfloat16).requires_grad_()
        out = ffpa_attn_func(q, q, q, is_causal=True)
        out.float().square().sum().backward()
        results.append((out.detach().cpu(), q.grad.cpu()))
    assert torch.cuda.current_device() == 0
    for a, b in zip(*results):
        assert torch.equal(a, b)
