# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The public functions. Each builds a `Call`, which the module of the array's kind runs."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec

from ._arguments import Call
from .backends import resolve

try:
    import torch
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    torch = None
else:
    from . import _torch

P = ParamSpec("P")


def _implementation(q: Any) -> Any:
    """The module that serves arrays of q's kind."""
    if torch is not None and isinstance(q, torch.Tensor):
        return _torch
    if "numpy" in sys.modules:
        from . import _numpy

        if _numpy.kind_of(q) is not None:
            return _numpy
    raise TypeError(f"q: expected a torch tensor or a NumPy or CuPy array, got {type(q).__name__}")


def _attention(build: Callable[P, Call]) -> Callable[P, Any]:
    """The public function whose arguments `build` turns into a call."""

    @functools.wraps(build)
    def function(*args: P.args, **kwargs: P.kwargs) -> Any:
        call = build(*args, **kwargs)
        return _implementation(call.q).attention(call)

    return function


@_attention
def ffpa_attn_func(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool | None = None,
    *,
    backend: Any = None,
    forward_backend: Any = None,
    backward_backend: Any = None,
    window_size: tuple[int, int] | None = (-1, -1),
    softcap: float | None = 0.0,
    sink: Any = None,
    alibi_slopes: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    return_lse: bool = False,
    deterministic: bool = True,
    workspace_limit: int | None = None,
) -> Any:
    """Exact attention of a dense batch: softmax(scale * Q K^T) V.

    Arrays are torch tensors, NumPy or CuPy arrays (all of one kind). float32 (CPU only), float16 or
    bfloat16 (NumPy's from ml_dtypes, computed in float32); a copy is made of q, k, v whose last
    stride is not 1, all other strides run in place.
    Messages call query, key and value q, k and v.

    Args:
        query: [B, Hq, Nq, D], D from 8 to 1024 in steps of 8.
        key: [B, Hkv, Nk, D], Hq a multiple of Hkv.
        value: [B, Hkv, Nk, Dv]; may be the same tensor as key.
        attn_mask: broadcasts to [B, Hq, Nq, Nk] (it is not expanded). bool: True where visible.
            float32 or query's dtype: added to the scores; its gradient is computed if required.
        dropout_p: probability in [0, 1) that an element of softmax(...) becomes 0. The mask comes
            from torch's generator (torch.manual_seed), NumPy's global one for arrays.
        is_causal: key j is visible to query i iff j <= i + Nk - Nq (aligned bottom-right, unlike
            torch's is_causal where Nq != Nk). Queries without visible keys give 0, lse -inf.
        scale: of the scores; None means 1 / sqrt(D).
        enable_gqa: False refuses Hq != Hkv; None and True take any ratio.
        backend: "auto", "cpu", "sm80", "sm90", or what the reference system takes ("triton",
            "cutedsl", "cuda", "sdpa" and the option classes), which this library accepts.
        forward_backend: as backend, for the forward only.
        backward_backend: as backend, for the backward only.
        window_size: keys visible to the (left, right) of i + Nk - Nq besides that key itself;
            -1 means all.
        softcap: c > 0 turns scores s into c * tanh(s / c), before the mask.
        sink: [Hq]: logit of one more key for each head, which has no value. float32 inside.
        alibi_slopes: [Hq] or [B, Hq]: -slope * |i + Nk - Nq - j| is added to the scores. float32
            inside; no gradient.
        seqused_q: int32 or int64 [B]: only the first rows of each sequence take part; the others
            give 0 and lse -inf.
        seqused_k: as seqused_q, for keys.
        return_lse: return (out, lse); lse is differentiable.
        deterministic: accepted; every kernel gives the same bits every time.
        workspace_limit: bytes of scratch memory that a kernel should stay below; None: its default.

    Returns:
        out [B, Hq, Nq, Dv] in query's dtype and memory order, or (out, lse) with
        lse [B, Hq, Nq], float32, the natural logarithm of the softmax's denominator.

    Raises:
        TypeError: a dtype or kind of object that no kernel takes; an unknown keyword.
        ValueError: a shape, value or device that no kernel takes.
        NotImplementedError: a call that no kernel of this build serves.
        RuntimeError: the device or its driver failed.
    """
    forward, backward, nhd = resolve(backend, forward_backend, backward_backend)
    return Call(
        q=query,
        k=key,
        v=value,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        causal=is_causal,
        softmax_scale=scale,
        enable_gqa=enable_gqa,
        window_size=window_size,
        softcap=softcap,
        sink=sink,
        alibi_slopes=alibi_slopes,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        return_lse=return_lse,
        deterministic=deterministic,
        workspace_limit=workspace_limit,
        forward_backend=forward,
        backward_backend=backward,
        nhd=nhd,
    )


@_attention
def ffpa_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    *,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    enable_gqa: bool | None = None,
    return_lse: bool = False,
    backend: Any = None,
    forward_backend: Any = None,
    backward_backend: Any = None,
    window_size: tuple[int, int] | None = (-1, -1),
    softcap: float | None = 0.0,
    sink: Any = None,
    alibi_slopes: Any = None,
    attn_mask: Any = None,
    seqused_q: Any = None,
    seqused_k: Any = None,
    block_table: Any = None,
    deterministic: bool = True,
    workspace_limit: int | None = None,
) -> Any:
    """Exact attention of B sequences packed one behind the other.

    Args:
        q: [Tq, Hq, D].
        k: [Tk, Hkv, D].
        v: [Tk, Hkv, Dv].
        cu_seqlens_q: int32 [B + 1]: where each sequence begins; first 0, last Tq. int64, strided
            or CPU values are converted. CPU values are checked.
        cu_seqlens_k: the same for keys; None means cu_seqlens_q.
        max_seqlen_q: int or 0-dim integer tensor, at least the longest sequence.
        max_seqlen_k: the same for keys.
        attn_mask: broadcasts to [B, Hq, max_seqlen_q, max_seqlen_k].
        block_table: int32 or int64 [B, P] (torch tensors only): k and v are pages
            [pages, page_size, Hkv, D] and sequence b has those numbered block_table[b], of whose
            rows the first seqused_k[b] take part (None: as many as cu_seqlens_k says). The kernels
            read no pages: all P * page_size rows are copied into a pack first, and they are what
            attn_mask and dropout count as max_seqlen_k. CPU values are checked.

    The other arguments, dtypes and errors are those of `ffpa_attn_func`; `causal` is its
    `is_causal`, `softmax_scale` its `scale`. Nq and Nk are each sequence's own lengths.

    Returns:
        out [Tq, Hq, Dv] or (out, lse) with lse [Hq, Tq].
    """
    forward, backward, _ = resolve(backend, forward_backend, backward_backend)
    return Call(
        q=q,
        k=k,
        v=v,
        packed=True,
        cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k,
        max_seqlen_q=max_seqlen_q,
        max_seqlen_k=max_seqlen_k,
        attn_mask=attn_mask,
        dropout_p=dropout_p,
        causal=causal,
        softmax_scale=softmax_scale,
        enable_gqa=enable_gqa,
        window_size=window_size,
        softcap=softcap,
        sink=sink,
        alibi_slopes=alibi_slopes,
        seqused_q=seqused_q,
        seqused_k=seqused_k,
        return_lse=return_lse,
        deterministic=deterministic,
        workspace_limit=workspace_limit,
        forward_backend=forward,
        backward_backend=backward,
        block_table=block_table,
    )


def explain(q: Any, k: Any, v: Any, *args: Any, **kwargs: Any) -> str:
    """Which kernels would run, why, and their workspace, as a few lines of text.

    Takes the arguments of `ffpa_attn_func` or, with q of 3 dimensions, `ffpa_attn_varlen_func`.
    Nothing is computed and no random number is drawn.
    """
    packed = len(getattr(q, "shape", ())) == 3
    function = ffpa_attn_varlen_func if packed else ffpa_attn_func
    call = function.__wrapped__(q, k, v, *args, **kwargs)
    return _implementation(call.q).explain(call)
