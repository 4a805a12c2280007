# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""What the public functions were asked for, in one form for every kind of array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


def _pair(window_size: Any) -> tuple[int, int]:
    if window_size is None:
        return -1, -1
    if isinstance(window_size, (tuple, list)) and len(window_size) == 2:
        left, right = window_size
        if type(left) is bool or type(right) is bool:
            raise TypeError(f"window_size: expected two integers, got {window_size!r}")
        return left, right
    raise TypeError(f"window_size: expected a pair (left, right), got {window_size!r}")


def _number(name: str, x: Any) -> float:
    """A float of a number, or of a tensor or array of one."""
    if type(x) is float or type(x) is int:
        return float(x)
    try:
        if isinstance(x, (str, bytes, bool)):
            raise TypeError
        return float(x)
    except (TypeError, ValueError, RuntimeError):
        got = repr(x) if isinstance(x, (str, bool, complex)) else type(x).__name__
        raise TypeError(f"{name}: expected a number, got {got}") from None


def check_int32(name: str, t: Any) -> None:
    """`t`: a tensor or array of int64."""
    for value in (int(t.min()), int(t.max())) if 0 not in t.shape else ():
        if not -(2**31) <= value < 2**31:
            raise ValueError(f"{name}: expected values that int32 holds, got {value}")


def _flag(name: str, x: Any) -> bool:
    if x is True or x is False:
        return x
    if type(x).__name__ in ("bool", "bool_") or (type(x) is int and x in (0, 1)):
        return bool(x)
    raise TypeError(f"{name}: expected True or False, got {x!r}")


@dataclass(slots=True)
class Call:
    """One call. Tensors are still what the caller gave."""

    q: Any
    k: Any
    v: Any
    attn_mask: Any
    dropout_p: float
    causal: bool
    softmax_scale: float | None
    enable_gqa: bool | None
    window_size: Any
    softcap: float | None
    sink: Any
    alibi_slopes: Any
    seqused_q: Any
    seqused_k: Any
    return_lse: bool
    deterministic: bool
    workspace_limit: int | None
    forward_backend: str
    backward_backend: str
    nhd: bool = False
    packed: bool = False
    cu_seqlens_q: Any = None
    cu_seqlens_k: Any = None
    max_seqlen_q: Any = 0
    max_seqlen_k: Any = 0
    block_table: Any = None

    def __post_init__(self) -> None:
        self.dropout_p = _number("dropout_p", self.dropout_p)
        self.causal = _flag("causal" if self.packed else "is_causal", self.causal)
        self.return_lse = _flag("return_lse", self.return_lse)
        self.deterministic = _flag("deterministic", self.deterministic)

    @property
    def options(self) -> tuple[Any, ...]:
        """softmax_scale .. workspace_limit, as the operators take them."""
        scale = None if self.softmax_scale is None else _number("softmax_scale", self.softmax_scale)
        limit = -1 if self.workspace_limit is None else self.workspace_limit
        softcap = 0.0 if self.softcap is None else _number("softcap", self.softcap)
        return (
            scale,
            self.causal,
            *_pair(self.window_size),
            softcap,
            self.dropout_p,
            self.deterministic,
            limit,
        )

    def check_heads(self, q: Any, k: Any) -> None:
        """`enable_gqa=False` insists on as many key heads as query heads; None takes any."""
        if self.enable_gqa is None or self.enable_gqa or len(q.shape) < 3 or len(k.shape) < 3:
            return
        if q.shape[1] != k.shape[1]:
            raise ValueError(
                f"enable_gqa: expected True for {q.shape[1]} query heads on {k.shape[1]} key "
                "heads, got False"
            )
