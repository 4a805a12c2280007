# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The public functions for NumPy arrays, on the CPU, and CuPy arrays, on a GPU: no torch needed.

`xp` is the module of the arrays, numpy or cupy. NumPy knows bfloat16 only from ml_dtypes and hands
no such array over; they are widened to float32 for the kernels, the results rounded back.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import numpy as np

from . import _library
from ._arguments import Call, check_int32


class _Memory:
    """The memory of an array as writable: DLPack does not export read-only arrays, such as those of
    np.broadcast_to. Inputs are never written."""

    def __init__(self, t: np.ndarray):
        interface = dict(t.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = t


def kind_of(q: Any) -> Any:
    """numpy or cupy, whichever q is an array of; None if neither."""
    for name in ("cupy", "numpy"):
        xp = sys.modules.get(name)
        if xp is not None and isinstance(q, xp.ndarray):
            return xp
    return None


def _device(xp: Any, q: Any) -> Any:
    """Inside, memory is of q's device."""
    return contextlib.nullcontext() if xp is np else q.device


def _stream(xp: Any) -> int:
    return 0 if xp is np else xp.cuda.get_current_stream().ptr


def _is_bfloat16(t: Any) -> bool:
    return t.dtype.name == "bfloat16"


def _array(xp: Any, name: str, t: Any) -> Any:
    if not isinstance(t, xp.ndarray):
        kind = "NumPy" if xp is np else "CuPy"
        raise TypeError(f"{name}: expected a {kind} array, as q, got {type(t).__name__}")
    if xp is not np:
        return t
    if isinstance(t, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected a NumPy array, got a masked array")
    if not t.dtype.isnative or t.dtype.hasobject:
        raise TypeError(f"{name}: expected numbers in this machine's byte order, got {t.dtype}")
    if _is_bfloat16(t):
        return t.astype(np.float32)
    return t if t.flags.writeable else np.asarray(_Memory(t))


def _rows(xp: Any, name: str, t: Any) -> Any:
    """An array with a unit last stride: a copy where it has another one."""
    t = _array(xp, name, t)
    if t.ndim == 0 or t.shape[-1] <= 1 or t.strides[-1] == t.itemsize:
        return t
    return xp.ascontiguousarray(t)


def _int_vector(xp: Any, name: str, t: Any) -> Any:
    """int32, contiguous; lists and NumPy arrays are converted."""
    t = xp.asarray(t) if isinstance(t, (list, tuple, np.ndarray)) else t
    t = _array(xp, name, t)
    if t.dtype not in (np.int32, np.int64):
        raise TypeError(f"{name}: expected dtype int32 or int64, got {t.dtype}")
    if t.dtype == np.int64 and xp is np:
        check_int32(name, t)
    return xp.ascontiguousarray(t, dtype=np.int32)


def _float_vector(xp: Any, name: str, t: Any) -> Any:
    t = _array(xp, name, t)
    return t.astype(np.float32) if t.dtype.kind == "f" and t.dtype != np.float32 else t


def _max_seqlen(name: str, n: Any) -> int:
    if isinstance(n, (bool, float)):
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}")
    try:
        return n.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}") from None


def _empty_rows(xp: Any, like: Any, head_dim: int) -> Any:
    """An uninitialised array of `like`'s shape and memory order, but for the last size."""
    inner = like.ndim - 3  # heads and rows, or rows and heads: the two dimensions before the last
    shape = (*like.shape[:-1], head_dim)
    if like.strides[inner] >= like.strides[inner + 1]:
        return xp.empty(shape, like.dtype)
    shape = (*shape[:inner], shape[inner + 1], shape[inner], head_dim)
    return xp.empty(shape, like.dtype).swapaxes(inner, inner + 1)


def _qkv(xp: Any, call: Call) -> tuple[Any, Any, Any]:
    q, k, v = call.q, call.k, call.v
    for name, t in (("k", k), ("v", v)):
        # Widened, they would pass as of one dtype.
        if isinstance(t, xp.ndarray) and _is_bfloat16(t) != _is_bfloat16(q):
            raise TypeError(f"{name}: expected dtype {q.dtype}, as q, got {t.dtype}")
    q, k, v = (_array(xp, n, t) for n, t in (("q", q), ("k", k), ("v", v)))
    if call.nhd:
        q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))
    q, k, v = _rows(xp, "q", q), _rows(xp, "k", k), _rows(xp, "v", v)
    call.check_heads(q, k)
    return q, k, v


def _pack(xp: Any, call: Call) -> tuple[Any, ...]:
    """cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k."""
    if not call.packed:
        return None, None, 0, 0
    cu_q = _int_vector(xp, "cu_seqlens_q", call.cu_seqlens_q)
    cu_k = call.cu_seqlens_k
    cu_k = cu_q if cu_k is None else _int_vector(xp, "cu_seqlens_k", cu_k)
    max_q = _max_seqlen("max_seqlen_q", call.max_seqlen_q)
    return cu_q, cu_k, max_q, _max_seqlen("max_seqlen_k", call.max_seqlen_k)


def _native(xp: Any, call: Call, draw: bool) -> tuple[Any, ...]:
    """The library's inputs and options. `draw`: draw the dropout mask."""
    if call.block_table is not None:
        raise NotImplementedError(
            "block_table: expected None for arrays other than torch's, got a table"
        )
    q, k, v = _qkv(xp, call)
    pack = _pack(xp, call)
    optional = [
        None if t is None else convert(xp, name, t)
        for name, t, convert in (
            ("seqused_q", call.seqused_q, _int_vector),
            ("seqused_k", call.seqused_k, _int_vector),
            ("attn_mask", call.attn_mask, _array),
            ("alibi_slopes", call.alibi_slopes, _float_vector),
            ("sink", call.sink, _float_vector),
        )
    ]
    seed = int(np.random.randint(0, 1 << 62)) if draw and call.dropout_p > 0 else 0
    scale, causal, left, right, softcap, dropout_p, deterministic, limit = call.options
    return (
        *(q, k, v, *pack, *optional),
        *(scale, causal, left, right, softcap, dropout_p, seed, 0),
        *(_library.BACKENDS[call.forward_backend], deterministic, limit, 0),
    )


def _workspace(xp: Any, size: int) -> Any:
    return xp.empty(size + _library.WORKSPACE_SLACK, np.uint8) if size else None


def forward(call: Call) -> tuple[Any, Any]:
    """-> out, lse."""
    xp = kind_of(call.q)
    with _device(xp, call.q):
        native = _native(xp, call, draw=True)
        q, v = native[0], native[2]
        workspace = _workspace(xp, _library.forward_workspace_bytes(*native))
        out = _empty_rows(xp, q, v.shape[-1])
        rows = (q.shape[1], q.shape[0]) if call.packed else q.shape[:3]
        lse = xp.empty(rows, np.float32)
        _library.forward(*native, out, lse, workspace, _stream(xp))
    return out.astype(call.q.dtype, copy=False), lse


def backward(
    call: Call, out: np.ndarray, lse: np.ndarray, dout: np.ndarray, dlse: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """-> dq, dk, dv of a call without dropout, with NumPy arrays."""
    native = _native(np, call, draw=False)
    gradients = tuple(_empty_rows(np, t, t.shape[-1]) for t in native[:3])
    outputs = (*gradients, None, None)
    saved = [_array(np, "out", out), _array(np, "lse", lse), _rows(np, "dout", dout)]
    saved.append(None if dlse is None else _array(np, "dlse", dlse))
    workspace = _workspace(np, _library.backward_workspace_bytes(*native, *outputs))
    _library.backward(*native, *saved, *outputs, workspace, 0)
    return tuple(g.astype(t.dtype, copy=False) for g, t in zip(gradients, (call.q, call.k, call.v)))


def attention(call: Call) -> Any:
    out, lse = forward(call)
    if call.nhd:
        out = out.swapaxes(1, 2)
    return (out, lse) if call.return_lse else out


def explain(call: Call) -> str:
    return _library.explain(*_native(kind_of(call.q), call, draw=False))
