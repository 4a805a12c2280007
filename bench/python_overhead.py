# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""What Python costs for one eager forward and backward, on top of the kernels.

The problem is one token of one head. Times are processor time of this thread for one call, the best
of many runs, in us:

    step      forward and backward of one call, in all
    layers    the same of one call in a chain of 8, which has one backward pass: a model's layers
    Python    what is left of `layers` when the library's calls return at once
    nothing   an autograd.Function that does nothing, in the same chain

With --peer FOLDER also FFPA's own package, which has the same name and so runs in a process of its
own: pip install --no-deps --target FOLDER ffpa-attn. On the CPU it calls torch's attention; what is
left of `layers` without the latter's is its `Python`.
"""

import argparse
import os
import subprocess
import sys
import time

import torch

CALLS, RUNS, LAYERS = 100, 15, 8


def best(function):
    for _ in range(50):
        function()
    times = []
    for _ in range(RUNS):
        began = time.thread_time()
        for _ in range(CALLS):
            function()
        times.append((time.thread_time() - began) / CALLS * 1e6)
    return min(times)


def chain(function, tensors, dout, layers):
    """One call of `function` in a chain: forward and backward."""
    q, k, v = tensors

    def steps():
        out = q
        for _ in range(layers):
            out = function(out, k, v)
        torch.autograd.grad(out, tensors, dout)

    return best(steps) / layers


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx, dout):
        return ctx.saved_tensors


def kernels(tensors, dout):
    """The library's two calls."""
    from ffpa_attn import _library, _native

    q, k, v = (t.detach() for t in tensors)
    arguments = _native.native(q, k, v, _native.DENSE)
    out, lse = _native.run_forward(arguments)
    gradients = [torch.empty_like(t) for t in (q, k, v)]
    workspace = torch.empty(1 << 24, dtype=torch.uint8)

    def calls():
        _library.forward(*arguments, out, lse, workspace, 0)
        _library.backward(*arguments, out, lse, dout, None, *gradients, None, None, workspace, 0)

    return best(calls)


def python_alone(function, tensors, dout):
    from ffpa_attn import _library

    real = _library.forward, _library.backward
    _library.forward = _library.backward = lambda *arguments: 0
    try:
        return chain(function, tensors, dout, LAYERS)
    finally:
        _library.forward, _library.backward = real


def line(name, function, tensors, dout, *more):
    times = [chain(function, tensors, dout, n) for n in (1, LAYERS)]
    print(f"{name:24}" + "".join(f"{t:8.1f}" for t in (*times, *more)), flush=True)
    return times[-1]


def inputs():
    return [torch.randn(1, 1, 1, 8, requires_grad=True) for _ in range(3)], torch.randn(1, 1, 1, 8)


def ours():
    from ffpa_attn import ffpa_attn_func, ffpa_attn_varlen_func

    dense, dout = inputs()
    packed = [t.detach()[0].requires_grad_() for t in dense]
    cu = torch.tensor([0, 1], dtype=torch.int32)

    def attention(*tensors):
        return ffpa_attn_func(*tensors, is_causal=True)

    def varlen_attention(*tensors):
        return ffpa_attn_varlen_func(*tensors, cu, cu, 1, 1, causal=True)

    print(f"the library's two calls in a loop: {kernels(dense, dout):.1f} us")
    print(f"{'':24}{'step':>8}{'layers':>8}{'Python':>8}")
    line("ffpa_attn_func", attention, dense, dout, python_alone(attention, dense, dout))
    line(
        "ffpa_attn_varlen_func",
        varlen_attention,
        packed,
        dout[0],
        python_alone(varlen_attention, packed, dout[0]),
    )
    line("nothing", Nothing.apply, dense, dout)


def peer():
    """In the process that has FFPA's own package."""
    from ffpa_attn import ffpa_attn_func

    dense, dout = inputs()
    sdpa = torch.nn.functional.scaled_dot_product_attention
    base = line("torch's own attention", sdpa, dense, dout)
    cost = line("FFPA's own package", ffpa_attn_func, dense, dout)
    print(f"{'  its Python':24}{'':16}{cost - base:8.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", metavar="FOLDER", help="where FFPA's own package is")
    parser.add_argument("--in-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.in_peer:
        peer()
        return
    print(f"load {os.getloadavg()[0]:.1f}, torch {torch.__version__}", flush=True)
    ours()
    if arguments.peer:
        environment = {**os.environ, "PYTHONPATH": arguments.peer}
        subprocess.run([sys.executable, __file__, "--in-peer"], env=environment, check=True)


if __name__ == "__main__":
    main()
