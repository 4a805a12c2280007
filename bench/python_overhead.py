# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""What Python costs for one eager forward and backward, on top of the kernels.

The problem is one token of one head, so that the kernels themselves take next to nothing; what they
take is measured and subtracted. Times are processor time of this thread, the best of many runs. For
comparison: an autograd.Function that does nothing, and torch's own attention.
"""

import time

import torch
from ffpa_attn import _library, _ops, ffpa_attn_func, ffpa_attn_varlen_func

CALLS, RUNS = 300, 15


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


class Nothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v):
        ctx.save_for_backward(q, k, v)
        return torch.empty_like(q)

    @staticmethod
    def backward(ctx, dout):
        return ctx.saved_tensors


def main():
    torch.set_num_threads(1)
    q, k, v = (torch.randn(1, 1, 1, 8, requires_grad=True) for _ in range(3))
    packed = [t.detach()[0].requires_grad_() for t in (q, k, v)]
    cu = torch.tensor([0, 1], dtype=torch.int32)
    dout = torch.randn(1, 1, 1, 8)

    inputs = [t.detach() for t in (q, k, v)]
    native = _ops.native(*inputs, (None, None, 0, 0))
    out, lse = torch.ops.ffpa_attn.forward(*inputs)
    gradients = [torch.empty_like(t) for t in inputs]
    workspace = torch.empty(1 << 24, dtype=torch.uint8)

    def kernels():
        _library.forward(*native, out, lse, workspace, 0)
        _library.backward(*native, out, lse, dout, None, *gradients, None, None, workspace, 0)

    def step(function, tensors, gradient):
        return lambda: torch.autograd.grad(function(*tensors), tensors, gradient)

    base = best(kernels)
    print(f"kernels alone           {base:7.1f} us")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    for name, function, tensors, gradient in (
        ("ffpa_attn_func", lambda *t: ffpa_attn_func(*t, is_causal=True), (q, k, v), dout),
        (
            "ffpa_attn_varlen_func",
            lambda *t: ffpa_attn_varlen_func(*t, cu, cu, 1, 1, causal=True),
            packed,
            dout[0],
        ),
    ):
        cost = best(step(function, tensors, gradient))
        print(f"{name:22}  {cost:7.1f} us, {cost - base:.1f} us on top of the kernels")
    print(f"an empty autograd.Function {best(step(Nothing.apply, (q, k, v), dout)):4.1f} us")
    print(f"torch's own attention   {best(step(sdpa, (q, k, v), dout)):7.1f} us, all of it")


if __name__ == "__main__":
    main()
