# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The public functions for NumPy arrays, on the CPU: no torch needed."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _library
from ._arguments import Call


class _Memory:
    """The memory of an array as writable: DLPack does not export read-only arrays, such as those of
    np.broadcast_to. Inputs are never written."""

    def __init__(self, t: np.ndarray):
        interface = dict(t.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self.owner = t


def _array(name: str, t: Any) -> np.ndarray:
    if not isinstance(t, np.ndarray):
        raise TypeError(f"{name}: expected a NumPy array, as q, got {type(t).__name__}")
    return t if t.flags.writeable else np.asarray(_Memory(t))


def _rows(name: str, t: Any) -> np.ndarray:
    """An array with a unit last stride: a copy where it has another one."""
    t = _array(name, t)
    if t.ndim == 0 or t.shape[-1] <= 1 or t.strides[-1] == t.itemsize:
        return t
    return np.ascontiguousarray(t)


def _int_vector(name: str, t: Any) -> np.ndarray:
    t = np.asarray(t) if isinstance(t, (list, tuple)) else _array(name, t)
    if t.dtype not in (np.int32, np.int64):
        raise TypeError(f"{name}: expected dtype int32 or int64, got {t.dtype}")
    return np.ascontiguousarray(t, dtype=np.int32)


def _float_vector(name: str, t: Any) -> np.ndarray:
    t = _array(name, t)
    return t.astype(np.float32) if t.dtype.kind == "f" and t.dtype != np.float32 else t


def _max_seqlen(name: str, n: Any) -> int:
    if isinstance(n, (bool, float)):
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}")
    try:
        return n.__index__()
    except (AttributeError, TypeError):
        raise TypeError(f"{name}: expected an integer, got {type(n).__name__}") from None


def _empty_rows(like: np.ndarray, head_dim: int) -> np.ndarray:
    """An uninitialised array of `like`'s shape and memory order, but for the last size."""
    inner = like.ndim - 3  # heads and rows, or rows and heads: the two dimensions before the last
    shape = (*like.shape[:-1], head_dim)
    if like.strides[inner] >= like.strides[inner + 1]:
        return np.empty(shape, like.dtype)
    shape = (*shape[:inner], shape[inner + 1], shape[inner], head_dim)
    return np.empty(shape, like.dtype).swapaxes(inner, inner + 1)


def _native(call: Call, draw: bool) -> tuple[Any, ...]:
    """The library's inputs and options. `draw`: draw the dropout mask."""
    if call.block_table is not None:
        raise NotImplementedError("block_table: expected None for NumPy arrays, got a table")
    q, k, v = (_array(n, t) for n, t in (("q", call.q), ("k", call.k), ("v", call.v)))
    if call.nhd:
        q, k, v = (t.swapaxes(1, 2) for t in (q, k, v))
    q, k, v = _rows("q", q), _rows("k", k), _rows("v", v)
    call.check_heads(q, k)
    pack: tuple[Any, ...] = (None, None, 0, 0)
    if call.packed:
        cu_q = _int_vector("cu_seqlens_q", call.cu_seqlens_q)
        cu_k = call.cu_seqlens_k
        cu_k = cu_q if cu_k is None else _int_vector("cu_seqlens_k", cu_k)
        max_q = _max_seqlen("max_seqlen_q", call.max_seqlen_q)
        max_k = _max_seqlen("max_seqlen_k", call.max_seqlen_k)
        pack = (cu_q, cu_k, max_q, max_k)
    optional = [
        None if t is None else convert(name, t)
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


def _workspace(size: int) -> np.ndarray | None:
    return np.empty(size + _library.WORKSPACE_SLACK, np.uint8) if size else None


def forward(call: Call) -> tuple[np.ndarray, np.ndarray]:
    """-> out, lse."""
    native = _native(call, draw=True)
    q, v = native[0], native[2]
    workspace = _workspace(_library.forward_workspace_bytes(*native))
    out = _empty_rows(q, v.shape[-1])
    rows = (q.shape[1], q.shape[0]) if call.packed else q.shape[:3]
    lse = np.empty(rows, np.float32)
    _library.forward(*native, out, lse, workspace, 0)
    return out, lse


def backward(
    call: Call, out: np.ndarray, lse: np.ndarray, dout: np.ndarray, dlse: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """-> dq, dk, dv of a call without dropout."""
    native = _native(call, draw=False)
    dq, dk, dv = gradients = tuple(_empty_rows(t, t.shape[-1]) for t in native[:3])
    outputs = (*gradients, None, None)
    saved = [_array("out", out), _array("lse", lse), _rows("dout", dout)]
    saved.append(None if dlse is None else _array("dlse", dlse))
    workspace = _workspace(_library.backward_workspace_bytes(*native, *outputs))
    _library.backward(*native, *saved, *outputs, workspace, 0)
    return dq, dk, dv


def attention(call: Call) -> Any:
    out, lse = forward(call)
    if call.nhd:
        out = out.swapaxes(1, 2)
    return (out, lse) if call.return_lse else out


def explain(call: Call) -> str:
    return _library.explain(*_native(call, draw=False))
