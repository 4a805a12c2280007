# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""torch.nn.functional.scaled_dot_product_attention, served by this library."""

from __future__ import annotations

import logging
import threading
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .interface import ffpa_attn_func

logger = logging.getLogger("ffpa_attn")
_lock = threading.Lock()
_original = F.scaled_dot_product_attention
_patches: list[_Patch] = []


def _why_not(q: Any, k: Any, v: Any, mask: Any, is_causal: bool) -> str | None:
    """Why this library does not serve the call; None if it may. Looks at no data."""
    if not all(isinstance(t, Tensor) and not t.is_nested for t in (q, k, v)):
        return "not plain tensors"
    if mask is not None and is_causal:
        return "attn_mask and is_causal"  # torch refuses it
    if not 2 <= q.dim() == k.dim() == v.dim():
        return "numbers of dimensions"
    if q.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"dtype {q.dtype}"
    if not (q.is_cpu or q.is_cuda):
        return f"device {q.device}"
    if any(d % 8 or not 8 <= d <= 1024 for d in (q.shape[-1], v.shape[-1])):
        return f"head dims {q.shape[-1]}, {v.shape[-1]}"
    if q.shape[:-3] != k.shape[:-3] or k.shape[:-2] != v.shape[:-2]:
        return "batch shapes that broadcast"
    return None


def _as_4d(t: Tensor, rank: int) -> Tensor:
    """[.., N, D] of `rank` dimensions -> [B, H, N, D]."""
    if rank == 4:
        return t
    return t[(None,) * (4 - rank)] if rank < 4 else t.reshape(-1, *t.shape[-3:])


def _mask_as_4d(mask: Tensor, batch: torch.Size) -> Tensor:
    """A mask that broadcasts to [*batch, H, Nq, Nk] -> to [B, H, Nq, Nk], expanded only where more
    than one leading dimension has to become one."""
    if mask.dim() <= 4 and len(batch) <= 1:
        return mask
    mask = mask[(None,) * (len(batch) + 3 - mask.dim())]
    return mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])


def _served(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    rank, n, m = q.dim(), q.shape[-2], k.shape[-2]
    shape = (*q.shape[:-1], v.shape[-1])
    if mask is not None and rank > 4:
        mask = _mask_as_4d(mask, q.shape[:-3])
    if mask is not None and mask.dim() == 0:
        mask = mask[None]
    q, k, v = (_as_4d(t, rank) for t in (q, k, v))
    window = (-1, -1)
    if is_causal and n != m:
        # torch aligns top-left: query i sees the keys up to i.
        if m > n:
            k, v = k[:, :, :n], v[:, :, :n]
        else:
            is_causal, window = False, (-1, n - m)
    out = ffpa_attn_func(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa, window_size=window)
    return out.reshape(shape)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """torch's function of this name, same arguments and semantics (is_causal aligned top-left),
    by this library's kernels; by torch's where they do not serve the call, unless the patch is
    strict."""
    strict = len(_patches) > 0 and _patches[-1].strict
    arguments = (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    why = _why_not(query, key, value, attn_mask, is_causal)
    if why is None and (strict or torch.compiler.is_compiling()):
        return _served(*arguments)
    if why is None:
        try:
            return _served(*arguments)
        except (NotImplementedError, TypeError, ValueError) as error:
            why = str(error)
    if strict:
        raise NotImplementedError(f"scaled_dot_product_attention: not served by ffpa_attn: {why}")
    if not torch.compiler.is_compiling():
        logger.debug("scaled_dot_product_attention: torch's own runs: %s", why)
    return _original(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


class _Patch:
    """One registration; a context manager that ends it."""

    def __init__(self, strict: bool):
        self.strict = strict

    def __enter__(self) -> _Patch:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.unregister()

    def unregister(self) -> None:
        """Ends this registration; the last one to end restores torch's function."""
        with _lock:
            if self in _patches:
                _patches.remove(self)
            if not _patches:
                F.scaled_dot_product_attention = _original


def register_sdpa(strict: bool = False) -> _Patch:
    """Makes torch.nn.functional.scaled_dot_product_attention use this library, everywhere.

    Calls that it does not serve (a dtype, a head dim, a device without a kernel) go to torch's own
    function, with a debug line on the logger "ffpa_attn"; `strict` raises NotImplementedError.

    Returns:
        a handle with `unregister()`, which is also a context manager:
        `with register_sdpa(): ...`.
    """
    patch = _Patch(strict)
    with _lock:
        _patches.append(patch)
        F.scaled_dot_product_attention = scaled_dot_product_attention
    return patch


def unregister_sdpa() -> None:
    """Ends every registration."""
    for patch in list(_patches):
        patch.unregister()
