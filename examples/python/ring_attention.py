# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Ring attention over torch.distributed: every process holds one piece of a long sequence.

    python ring_attention.py --processes 4

The keys and values travel around the ring; each process attends to one piece after the other and
merges the results. The backward calls the operator with the merged `out` and `lse`, and dk, dv
travel along with their keys. At the end the result and all gradients are compared with one process
that sees the whole sequence.
"""

from __future__ import annotations

import argparse
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from ffpa_attn import ffpa_attn_func, merge_states
from torch import Tensor

OPS = torch.ops.ffpa_attn


def rotate(tensors: list[Tensor]) -> list[Tensor]:
    """Sends to the next process and receives from the previous one."""
    rank, size = dist.get_rank(), dist.get_world_size()
    received = [torch.empty_like(t) for t in tensors]
    work = []
    for sent, got in zip(tensors, received):
        work.append(dist.P2POp(dist.isend, sent.contiguous(), (rank + 1) % size))
        work.append(dist.P2POp(dist.irecv, got, (rank - 1) % size))
    for request in dist.batch_isend_irecv(work):
        request.wait()
    return received


class RingAttention(torch.autograd.Function):
    """Causal attention, q [B, Hq, N, D], k and v [B, Hkv, N, D]: this process's piece."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        rank, size = dist.get_rank(), dist.get_world_size()
        ctx.save_for_backward(q, k, v)
        out, lse = OPS.forward(q, k, v, causal=True)
        out = out.float()
        for step in range(1, size):
            k, v = rotate([k, v])
            if step <= rank:  # this piece of the keys comes from an earlier part of the sequence
                out, lse = merge_states(out, lse, *OPS.forward(q, k, v))
        ctx.merged = (out := out.to(q.dtype)), lse
        return out

    @staticmethod
    def backward(ctx, dout: Tensor) -> tuple[Tensor, ...]:
        rank, size = dist.get_rank(), dist.get_world_size()
        (q, k, v), (out, lse) = ctx.saved_tensors, ctx.merged
        needed = [True, True, True, False, False]
        dq, dk, dv = (
            g.float() for g in OPS.backward(dout, None, q, k, v, out, lse, needed, causal=True)
        )
        for step in range(1, size):
            k, v, dk, dv = rotate([k, v, dk, dv])
            if step <= rank:
                parts = OPS.backward(dout, None, q, k, v, out, lse, needed)
                dq, dk, dv = (a + b for a, b in zip((dq, dk, dv), parts))
        dk, dv = rotate([dk, dv])  # home again
        return tuple(g.to(q.dtype) for g in (dq, dk, dv))


def worker(rank: int, size: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=size)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    n = 48 * size
    whole = [torch.randn(1, h, n, 64, requires_grad=True) for h in (4, 2, 2)]
    dout = torch.randn(1, 4, n, 64)
    out = ffpa_attn_func(*whole, is_causal=True)
    want = [out, *torch.autograd.grad(out, whole, dout)]

    piece = [t.detach().chunk(size, 2)[rank].contiguous().requires_grad_() for t in whole]
    out = RingAttention.apply(*piece)
    got = [out, *torch.autograd.grad(out, piece, dout.chunk(size, 2)[rank].contiguous())]
    worst = 0.0
    for a, b in zip(got, want):
        b = b.chunk(size, 2)[rank]
        worst = max(worst, ((a - b).norm() / b.norm()).item())
    errors = [torch.tensor(0.0) for _ in range(size)]
    dist.all_gather(errors, torch.tensor(worst))
    if rank == 0:
        worst = max(e.item() for e in errors)
        print(f"{size} processes, {n} tokens: relative difference from one process {worst:.2e}")
        assert worst < 1e-5
        print("ring attention and a single process are equal")
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=4)
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    mp.spawn(worker, (arguments.processes, port), nprocs=arguments.processes)


if __name__ == "__main__":
    main()
