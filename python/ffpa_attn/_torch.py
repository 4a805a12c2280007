# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""From the arguments of the public functions to the operators, for torch tensors."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from . import _library, _ops
from ._arguments import Call, check_int32
from ._native import DENSE, native
from ._paged import gather

logger = logging.getLogger("ffpa_attn")


def _tensor(name: str, t: Any) -> Tensor:
    if not isinstance(t, Tensor):
        raise TypeError(f"{name}: expected a torch tensor, as q, got {type(t).__name__}")
    if not torch.compiler.is_compiling() and t.is_neg():
        return t.resolve_neg()
    return t


def _rows(name: str, t: Tensor) -> Tensor:
    """`t` with a unit last stride: a copy where it has another one."""
    strides = t.stride()
    if not strides or strides[-1] == 1 or t.shape[-1] <= 1:
        return t
    if not torch.compiler.is_compiling():
        logger.debug("%s: copied, since its last stride is %d", name, strides[-1])
    return t.contiguous()


def _int_vector(name: str, t: Any, q: Tensor) -> Tensor:
    """int32, contiguous, on q's device: converted where it is int64, strided or on the CPU."""
    t = _tensor(name, t)
    if t.dtype is not torch.int32:
        if t.dtype is not torch.int64:
            raise TypeError(f"{name}: expected dtype int32 or int64, got {str(t.dtype)[6:]}")
        if t.is_cpu and not torch.compiler.is_compiling():
            check_int32(name, t)
        t = t.to(torch.int32)
    if t.device != q.device and t.device.type == "cpu":
        t = t.to(q.device)
    return t.contiguous()


def _float_vector(name: str, t: Any) -> Tensor:
    t = _tensor(name, t)
    return t if t.dtype is torch.float32 or not t.is_floating_point() else t.float()


def _autocast(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v in the dtype of an active autocast of q's device."""
    device = "cuda" if q.is_cuda else "cpu"
    if not torch.is_autocast_enabled(device):
        return q, k, v
    dtype = torch.get_autocast_dtype(device)
    with torch.autocast(device, enabled=False):
        return tuple(t.to(dtype) if t.is_floating_point() else t for t in (q, k, v))


def _max_seqlen(name: str, n: Any, total: int, needs_value: bool) -> int:
    """An int. A tensor's value is read only where the result depends on it or outside a compiled
    graph; inside, the number of tokens is a bound as good."""
    if type(n) is int:
        return n
    if isinstance(n, (bool, float)):
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}")
    if isinstance(n, Tensor):
        if n.numel() != 1 or n.is_floating_point() or n.dtype is torch.bool:
            raise TypeError(f"{name}: expected an integer or a 0-dim integer tensor, got {n!r}")
        return total if torch.compiler.is_compiling() and not needs_value else int(n)
    if isinstance(n, torch.SymInt):
        return n
    try:
        return n.__index__()
    except AttributeError:
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}") from None


def _draw_rng(q: Tensor, batch: int, max_q: int, max_k: int) -> Tensor:
    """Seed and offset of a dropout mask: from torch's generator of q's device, which advances."""
    if q.is_cuda and not torch.compiler.is_compiling():
        index = q.device.index if q.device.index is not None else torch.cuda.current_device()
        generator = torch.cuda.default_generators[index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        elements = batch * q.shape[1] * max_q * max_k
        generator.set_offset(offset + (elements + 3) // 4 * 4)
        return torch.tensor([seed - (seed >> 63 << 64), offset])
    return torch.randint(0, 1 << 62, (2,), dtype=torch.int64, device="cpu")


def _qkv(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = _tensor("q", call.q), _tensor("k", call.k), _tensor("v", call.v)
    if not (q.is_cuda or q.is_cpu):
        raise ValueError(f"q: expected a CPU or CUDA tensor, got one on {q.device.type}")
    if call.nhd:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    q, k, v = _autocast(q, k, v)
    q, k, v = _rows("q", q), _rows("k", k), _rows("v", v)
    call.check_heads(q, k)
    return q, k, v


def _pack(call: Call, q: Tensor, k: Tensor) -> tuple[Any, ...]:
    """cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k."""
    cu_q = _int_vector("cu_seqlens_q", call.cu_seqlens_q, q)
    same = call.cu_seqlens_k is None or call.cu_seqlens_k is call.cu_seqlens_q
    cu_k = cu_q if same else _int_vector("cu_seqlens_k", call.cu_seqlens_k, q)
    exact = call.attn_mask is not None or call.dropout_p > 0
    max_q = _max_seqlen("max_seqlen_q", call.max_seqlen_q, q.shape[0], exact)
    max_k = _max_seqlen("max_seqlen_k", call.max_seqlen_k, k.shape[0], exact)
    return cu_q, cu_k, max_q, max_k


def _gather_pages(call: Call) -> None:
    q = _tensor("q", call.q)
    _tensor("k", call.k), _tensor("v", call.v)
    cu_q = _int_vector("cu_seqlens_q", call.cu_seqlens_q, q)
    cu_k, used = call.cu_seqlens_k, call.seqused_k
    cu_k = cu_q if cu_k is None else _int_vector("cu_seqlens_k", cu_k, q)
    used = None if used is None else _int_vector("seqused_k", used, q)
    gather(call, _int_vector("block_table", call.block_table, q), cu_q, cu_k, used)


def _optional(call: Call, q: Tensor) -> tuple[Tensor | None, ...]:
    """attn_mask, alibi_slopes, sink, seqused_q, seqused_k."""
    mask, alibi, sink = call.attn_mask, call.alibi_slopes, call.sink
    used_q, used_k = call.seqused_q, call.seqused_k
    return (
        None if mask is None else _tensor("attn_mask", mask),
        None if alibi is None else _float_vector("alibi_slopes", alibi),
        None if sink is None else _float_vector("sink", sink),
        None if used_q is None else _int_vector("seqused_q", used_q, q),
        None if used_k is None else _int_vector("seqused_k", used_k, q),
    )


def _rng(q: Tensor, k: Tensor, pack: tuple[Any, ...] | None, draw: bool) -> Tensor | None:
    """The operators' dropout_rng. None for shapes that the library refuses."""
    if not draw:
        return torch.zeros(2, dtype=torch.int64)
    if pack is not None:
        return _draw_rng(q, pack[0].shape[0] - 1, pack[2], pack[3])
    if q.dim() == 4 and k.dim() == 4:
        return _draw_rng(q, q.shape[0], q.shape[2], k.shape[2])
    return None


def prepare(call: Call, draw: bool) -> tuple[Any, ...]:
    """-> q, k, v, pack (None if dense), the operators' options up to workspace_limit. `draw`: draw
    the dropout mask."""
    if call.block_table is not None:
        _gather_pages(call)
    q, k, v = _qkv(call)
    pack = _pack(call, q, k) if call.packed else None
    rng = _rng(q, k, pack, draw) if call.dropout_p > 0 else None
    return q, k, v, pack, (*_optional(call, q), rng, *call.options)


def attention(call: Call) -> Any:
    q, k, v, pack, options = prepare(call, draw=True)
    options = (*options, call.forward_backend, call.backward_backend)
    out, lse = _ops.attention(q, k, v, pack, options)
    if call.nhd:
        out = out.transpose(1, 2)
    return (out, lse) if call.return_lse else out


def explain(call: Call) -> str:
    q, k, v, pack, options = prepare(call, draw=False)
    arguments = native(q, k, v, pack or DENSE, *options, call.forward_backend)
    return _library.explain(*arguments)
