# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Paged keys and values: gathered into one pack before the kernels, which read no pages."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import Call


def _check(k: Tensor, v: Tensor, table: Tensor, count: int) -> None:
    for name, t in (("k", k), ("v", v)):
        if t.dim() != 4:
            raise ValueError(
                f"{name}: expected [pages, page_size, heads, head_dim] with block_table, got "
                f"{t.dim()} dimensions"
            )
    if k.shape[0] == 0 and table.shape[-1] > 0:
        raise ValueError("k: expected at least one page, got none")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"v: expected k's first sizes {tuple(k.shape[:3])}, got {tuple(v.shape)}")
    if table.dim() != 2 or table.shape[0] != count:
        raise ValueError(
            f"block_table: expected shape [{count}, pages of a sequence], got {tuple(table.shape)}"
        )


def _check_lengths(cu_k: Tensor, used: Tensor, longest: int) -> None:
    """As for keys without pages. Looks at values, so on the CPU only."""
    lengths = cu_k[1:] - cu_k[:-1]
    if cu_k.numel() > 0 and int(cu_k[0]) != 0:
        raise ValueError(f"cu_seqlens_k: expected a first value of 0, got {int(cu_k[0])}")
    if (lengths < 0).any():
        raise ValueError("cu_seqlens_k: expected non-decreasing values, got smaller ones later")
    if used.numel() > 0 and int(used.max()) > longest:
        raise ValueError(f"max_seqlen_k: expected at least {int(used.max())}, got {longest}")


def _check_values(table: Tensor, used: Tensor, pages: int, page_size: int) -> None:
    """Every page that is used is there. Looks at values, so on the CPU only."""
    first_row = torch.arange(table.shape[1]) * page_size
    bad = (first_row < used[:, None]) & ((table < 0) | (table >= pages))
    if bad.any():
        raise ValueError(
            f"block_table: expected pages from 0 to {pages - 1}, got {int(table[bad][0])}"
        )
    if (used > table.shape[1] * page_size).any():
        raise ValueError(
            f"block_table: expected pages for {int(used.max())} keys, got "
            f"{table.shape[1]} pages of {page_size}"
        )


def gather(call: Call, table: Tensor, cu_q: Tensor, cu_k: Tensor, used: Tensor | None) -> None:
    """Makes `call` one without pages: each sequence has all rows of its pages, of which the first
    `used` (None: as many as cu_k says) take part. `table`: int32 [B, pages of a sequence]."""
    k, v = call.k, call.v
    count = cu_q.shape[0] - 1
    _check(k, v, table, count)
    if used is None:
        used = cu_k[1:] - cu_k[:-1]
    pages, page_size = k.shape[:2]
    if table.is_cpu and not torch.compiler.is_compiling():
        _check_lengths(cu_k, used, int(call.max_seqlen_k))
        _check_values(table, used, pages, page_size)
    # Entries behind the used pages may be anything.
    index = table.clamp(0, max(pages - 1, 0)).long()
    rows = table.shape[1] * page_size
    call.k, call.v = (t[index].reshape(count * rows, *t.shape[2:]) for t in (k, v))
    call.cu_seqlens_k = torch.arange(count + 1, dtype=torch.int32, device=table.device) * rows
    call.max_seqlen_k = rows
    call.seqused_k = used
    call.block_table = None
