# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Calls of the library with torch tensors: outputs, workspace and stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from . import _library

# cu_seqlens_q, _k, max_seqlen_q, _k of a dense call.
DENSE = (None, None, 0, 0)


def _empty_rows(like: Tensor, head_dim: int) -> Tensor:
    """An uninitialised tensor of `like`'s shape and memory order, but for the last size."""
    if like.dim() == 4:
        b, h, n, _ = like.shape
        if like.stride(1) < like.stride(2):  # [batch, seqlen, heads, head_dim] in memory
            return like.new_empty((b, n, h, head_dim)).transpose(1, 2)
        return like.new_empty((b, h, n, head_dim))
    t, h, _ = like.shape
    if like.stride(0) < like.stride(1):
        return like.new_empty((h, t, head_dim)).transpose(0, 1)
    return like.new_empty((t, h, head_dim))


def empty_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """out, lse."""
    *rows, head_dim = q.shape
    if len(rows) == 2:
        rows.reverse()  # [tokens, heads] -> [heads, tokens]
    lse = q.new_empty(rows, dtype=torch.float32)
    dim_v = v.shape[-1]
    return torch.empty_like(q) if dim_v == head_dim else _empty_rows(q, dim_v), lse


def empty_gradients(
    q: Tensor, k: Tensor, v: Tensor, mask: Any, sink: Any, needed: Sequence[bool]
) -> list[Tensor | None]:
    """dq, dk, dv, dattn_mask, dsink; None where not needed."""
    return [torch.empty_like(t) if n else None for t, n in zip((q, k, v, mask, sink), needed)]


def native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pack: tuple[Any, ...],
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    sink: Tensor | None = None,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    rng: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    deterministic: bool = True,
    limit: int = -1,
    backend: str = "auto",
    backward_backend: str = "auto",
) -> tuple[Any, ...]:
    """The library's inputs and options. `pack`: cu_seqlens_q, _k, max_seqlen_q, _k."""
    seed, offset = (0, 0) if rng is None else rng.tolist()
    if rng is None and dropout_p > 0:
        raise ValueError("dropout_rng: expected int64 [seed, offset] for dropout_p > 0, got None")
    if backend not in _library.BACKENDS:
        names = ", ".join(_library.BACKENDS)
        raise ValueError(f"backend: expected one of {names}, got {backend!r}")
    inputs = (q, k, v, *pack, used_q, used_k, mask, alibi, sink)
    threads = torch.get_num_threads() if q.is_cpu else 0
    return (
        *inputs,
        *(scale, causal, left, right, softcap, dropout_p, seed, offset),
        *(_library.BACKENDS[backend], deterministic, limit, threads),
    )


# Bytes of workspace of calls of known shapes. A guess: the call itself says if it needs more.
_sizes: dict[Any, int] = {}
_MOST_SIZES = 4096


def _key(arguments: tuple[Any, ...], needed: tuple[bool, ...]) -> tuple[Any, ...]:
    q, k, v = arguments[:3]
    # The last arguments: backend, deterministic, workspace_limit, threads.
    return q.shape, k.shape, v.shape, q.dtype, q.device, arguments[20:], needed


def _remember(key: tuple[Any, ...], size: int) -> None:
    if len(_sizes) >= _MOST_SIZES:
        _sizes.clear()
    _sizes[key] = size


def _run(function: Any, arguments: tuple[Any, ...], key: tuple[Any, ...]) -> None:
    """Calls `function` of the library with a workspace and the current stream of q's device."""
    q = arguments[0]
    # The plain number: torch.cuda.current_stream() makes an object around it.
    stream = torch._C._cuda_getCurrentRawStream(q.get_device()) if q.is_cuda else 0
    size = _sizes.get(key, 0)
    while True:
        workspace = None
        if size > 0:
            size += _library.WORKSPACE_SLACK
            workspace = torch.empty(size, dtype=torch.uint8, device=q.device)
        size = function(*arguments, workspace, stream)
        if size == 0:
            return
        _remember(key, size)


def run_forward(arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    """-> out, lse. `arguments`: of `native`."""
    key = _key(arguments, ())
    if key not in _sizes:  # checks all arguments too
        _remember(key, _library.forward_workspace_bytes(*arguments))
    out, lse = empty_outputs(arguments[0], arguments[2])
    _run(_library.forward, (*arguments, out, lse), key)
    return out, lse


def run_backward(
    dout: Tensor,
    dlse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    needed: Sequence[bool],
    arguments: tuple[Any, ...],
) -> list[Tensor | None]:
    """-> dq, dk, dv, dattn_mask, dsink; None where not needed."""
    if dout.stride(-1) != 1:  # out.sum().backward() gives an expanded scalar
        dout = dout.contiguous()
    q, k, v, *_, mask, _, sink = arguments[:12]
    gradients = empty_gradients(q, k, v, mask, sink, needed)
    dq, dk, dv, dmask, dsink = gradients
    outputs = (dq, dk, dv, dsink, dmask)
    key = _key(arguments, tuple(needed))
    if key not in _sizes:
        _remember(key, _library.backward_workspace_bytes(*arguments, *outputs))
    _run(_library.backward, (*arguments, out, lse, dout, dlse, *outputs), key)
    return gradients
