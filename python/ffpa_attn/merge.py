# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Attention over parts of the keys, merged: for ring and split attention."""

from __future__ import annotations

import torch
from torch import Tensor


def merge_states(
    out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor
) -> tuple[Tensor, Tensor]:
    """The attention over the keys of a and of b, from that over each.

    Args:
        out_a, out_b: [B, H, N, D] or packed [T, H, D], any floating dtype.
        lse_a, lse_b: float32 [B, H, N] or [H, T]; -inf where a query saw no key.

    Returns:
        (out, lse) of the same shapes: lse = log(exp(lse_a) + exp(lse_b)), out weighted by
        exp(lse_a - lse) and exp(lse_b - lse), computed in lse's dtype. `out` is in the wider dtype
        of out_a and out_b: keep it in float32 while merging more than two. Differentiable.
    """
    if out_a.shape != out_b.shape:
        raise ValueError(
            f"out_b: expected out_a's shape {tuple(out_a.shape)}, got {tuple(out_b.shape)}"
        )
    rows = (out_a.shape[1], out_a.shape[0]) if out_a.dim() == 3 else out_a.shape[:-1]
    for name, lse in (("lse_a", lse_a), ("lse_b", lse_b)):
        if lse.shape != rows:
            raise ValueError(f"{name}: expected shape {tuple(rows)}, got {tuple(lse.shape)}")
    top = torch.maximum(lse_a, lse_b).detach()
    top = torch.where(top == -torch.inf, 0, top)
    weight_a, weight_b = torch.exp(lse_a - top), torch.exp(lse_b - top)
    total = weight_a + weight_b
    some = total > 0
    divisor = torch.where(some, total, 1)
    lse = torch.where(some, torch.log(divisor) + top, -torch.inf)
    share_a, share_b = ((w / divisor) for w in (weight_a, weight_b))
    if out_a.dim() == 3:
        share_a, share_b = share_a.mT, share_b.mT
    out = share_a[..., None] * out_a + share_b[..., None] * out_b
    return out.to(torch.promote_types(out_a.dtype, out_b.dtype)), lse
