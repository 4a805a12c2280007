# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""flash-attn 2's names and semantics: `from ffpa_attn.flash import flash_attn_func` instead of
`from flash_attn import flash_attn_func`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .interface import ffpa_attn_func, ffpa_attn_varlen_func


def _call(
    function: Callable[..., Any],
    arguments: Sequence[Any],
    dropout_p: float,
    return_attn_probs: bool,
    **options: Any,
) -> Any:
    """out, or (out, lse, None) with `return_attn_probs`."""
    if return_attn_probs and dropout_p > 0:
        raise NotImplementedError(
            "return_attn_probs: expected False with dropout_p > 0 (the dropped probabilities are "
            "never stored), got True"
        )
    result = function(*arguments, dropout_p=dropout_p, return_lse=return_attn_probs, **options)
    return (*result, None) if return_attn_probs else result


def flash_attn_func(
    q: Any,
    k: Any,
    v: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Dense attention.

    Args:
        q: [B, Nq, Hq, D].
        k: [B, Nk, Hkv, D].
        v: [B, Nk, Hkv, Dv].
        dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes: as in
            `ffpa_attn.ffpa_attn_func`, whose meanings are flash-attn's.
        deterministic: accepted; every kernel is deterministic.
        return_attn_probs: return (out, lse [B, Hq, Nq], None) instead of out.

    Returns:
        out [B, Nq, Hq, Dv].
    """
    result = _call(
        ffpa_attn_func,
        [t.swapaxes(1, 2) for t in (q, k, v)],
        dropout_p,
        return_attn_probs,
        scale=softmax_scale,
        is_causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
    )
    if return_attn_probs:
        return result[0].swapaxes(1, 2), *result[1:]
    return result.swapaxes(1, 2)


def flash_attn_varlen_func(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any,
    max_seqlen_q: Any,
    max_seqlen_k: Any,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: Any = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: Any = None,
) -> Any:
    """Packed attention: q [Tq, Hq, D], k [Tk, Hkv, D], v [Tk, Hkv, Dv] -> out [Tq, Hq, Dv], or
    (out, lse [Hq, Tq], None) with `return_attn_probs`. The other arguments: `flash_attn_func` and
    `ffpa_attn.ffpa_attn_varlen_func`."""
    return _call(
        ffpa_attn_varlen_func,
        (q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k),
        dropout_p,
        return_attn_probs,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=window_size,
        softcap=softcap,
        alibi_slopes=alibi_slopes,
        deterministic=deterministic,
        block_table=block_table,
    )
