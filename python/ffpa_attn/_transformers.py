# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Hugging Face transformers: attention and mask functions under the name "ffpa"."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .interface import ffpa_attn_func, ffpa_attn_varlen_func

NAME = "ffpa"

# Mask functions of transformers.masking_utils that the attention function works out by itself, from
# is_causal, sliding_window and position_ids. A mask that contains any other one is materialised.
_KNOWN = {
    "causal_mask_function",
    "bidirectional_mask_function",
    "and_masks.<locals>.and_mask",
    "sliding_window_overlay.<locals>.inner_mask",
    "packed_sequence_mask_function.<locals>.inner_mask",
    "remap_positions_for_packed_sequence.<locals>.inner_mask",
}
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"
# Arguments that change the result and that the attention function does not know.
_REFUSED = ("head_mask", "block_table", "k_cache", "v_cache", "output_attentions")


def _parts(function: Any) -> Iterator[tuple[str, list[Any]]]:
    """A mask function and those that it is made of: names and what they hold."""
    if isinstance(function, (tuple, list)):
        for part in function:
            yield from _parts(part)
    elif callable(function) and not isinstance(function, Tensor):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        held = [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]
        yield name, held
        for part in held:
            yield from _parts(part)


def _sequence_ids(held: list[Any]) -> Tensor | None:
    """The tensor [B, N] of a mask function of packed sequences: equal within one sequence."""
    tensors = [t for t in held if isinstance(t, Tensor) and t.dim() == 2]
    return tensors[0].to(torch.int32) if len(tensors) == 1 else None


def mask_function(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    **kwargs: Any,
) -> Tensor | None:
    """None where the attention function needs no mask. Where rows are padding or packs: the number
    of each key's sequence, 0 for padding, int32 [B, 1, Nq, Nk] with stride 0 over the queries,
    which are the last Nq positions (models may slice it to fewer). For everything else a boolean
    mask of this shape: right, but O(N^2)."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    parts = dict(_parts(function))
    aligned = (  # the last query is the last key, as without a cache or with a growing one
        isinstance(q_offset, int)
        and isinstance(kv_offset, int)
        and q_offset + q_length == kv_offset + kv_length
    )
    padding = None if attention_mask is None else attention_mask[:, -kv_length:]
    simple = parts.keys() <= _KNOWN and (aligned or "bidirectional_mask_function" in parts)
    ids = _sequence_ids(parts[_PACKED]) if _PACKED in parts else None
    if _PACKED in parts and (ids is None or padding is not None or q_length != kv_length):
        simple = False
    if simple and padding is not None and padding.shape[1] != kv_length:
        simple = False
    if simple and torch.compiler.is_compiling():
        simple = simple and padding is None and ids is None  # their lengths are data
    if not simple:
        kwargs["allow_is_causal_skip"] = kwargs["allow_is_bidirectional_skip"] = False
        return sdpa_mask(
            batch_size=batch_size,
            q_length=q_length,
            kv_length=kv_length,
            q_offset=q_offset,
            kv_offset=kv_offset,
            mask_function=function,
            attention_mask=attention_mask,
            **kwargs,
        )
    if ids is None and padding is not None and not bool(padding.all()):
        ids = padding.to(torch.int32) - 1
    return None if ids is None else _as_mask(ids + 1, q_length)


def _as_mask(sequence_ids: Tensor, q_length: int) -> Tensor:
    return sequence_ids[:, None, None, :].expand(-1, -1, q_length, -1)


class _Remembered:
    """What `compute` made of the last few tensors: the layers of a model ask the same."""

    def __init__(self, compute: Callable[[Tensor], Any]):
        self.compute = compute
        self.entries: list[tuple[Any, int, Any]] = []

    def __call__(self, t: Tensor) -> Any:
        if t.is_inference():  # such tensors have no version
            return self.compute(t)
        for reference, version, result in self.entries:
            if reference() is t and version == t._version:
                return result
        result = self.compute(t)
        self.entries = [(weakref.ref(t), t._version, result), *self.entries[:3]]
        return result


@_Remembered
def _restarting(position_ids: Tensor) -> Tensor | None:
    """Sequence numbers [B, N] from 1 if position_ids restart, else None."""
    jumps = position_ids.diff(dim=-1) != 1
    if not bool(jumps.any()):
        return None
    return torch.nn.functional.pad(jumps.cumsum(-1), (1, 0)).add_(1)


class _Layout(NamedTuple):
    """Rows of a batch as a pack. Indices are None where all rows take part."""

    queries: Tensor | None  # into [B * Nq]
    keys: Tensor | None  # into [B * Nk]
    cu_seqlens_q: Tensor
    cu_seqlens_k: Tensor
    max_seqlen_q: int
    max_seqlen_k: int


def _offsets(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))


def _layout(ids: Tensor, n: int) -> _Layout | None:
    """`ids` [B, Nk]: sequence numbers of the keys, 0 for padding; queries: the last n positions.
    None if every row is one whole sequence."""
    batch, m = ids.shape
    keys = ids.flatten().nonzero().flatten()
    row, position = keys // m, keys % m
    number = ids.flatten()[keys]
    new = torch.ones_like(keys, dtype=torch.bool)
    new[1:] = (number[1:] != number[:-1]) | (row[1:] != row[:-1])
    sequence = new.cumsum(0) - 1
    asks = position >= m - n
    queries = (row * n + position - (m - n))[asks]
    lengths_k = torch.bincount(sequence)
    lengths_q = torch.bincount(sequence[asks], minlength=len(lengths_k))
    if len(keys) == batch * m and len(lengths_k) == batch:
        return None
    longest = [int(t.max()) if len(t) else 0 for t in (lengths_q, lengths_k)]
    return _Layout(
        None if len(queries) == batch * n else queries,
        None if len(keys) == batch * m else keys,
        _offsets(lengths_q),
        _offsets(lengths_k),
        *longest,
    )


@_Remembered
def _layout_of_mask(mask: Tensor) -> _Layout | None:
    return _layout(mask[:, 0, 0], mask.shape[2])


@_Remembered
def _layout_of_positions(position_ids: Tensor) -> _Layout | None:
    ids = _restarting(position_ids)
    return None if ids is None else _layout(ids, ids.shape[1])


def _flat(t: Tensor) -> Tensor:
    """[B, H, N, D] -> [B * N, H, D]."""
    return t.transpose(1, 2).flatten(0, 1)


def _packed(q: Tensor, k: Tensor, v: Tensor, layout: _Layout, options: dict[str, Any]) -> Tensor:
    """-> [B, Nq, Hq, Dv], 0 in rows that take no part."""
    batch, _, n, _ = q.shape
    rows = [_flat(t) for t in (q, k, v)]
    for i, index in enumerate((layout.queries, layout.keys, layout.keys)):
        if index is not None:
            rows[i] = rows[i][index]
    out = ffpa_attn_varlen_func(*rows, *layout[2:], **options)
    if layout.queries is not None:
        padded = out.new_zeros(batch * n, *out.shape[1:])
        out = padded.index_copy(0, layout.queries, out)
    return out.view(batch, n, *out.shape[1:])


def _with_bias(mask: Tensor | None, bias: Tensor, dtype: torch.dtype) -> Tensor:
    """A 4-D mask and an additive position bias as one additive mask."""
    if mask is None:
        return bias.to(dtype)
    if mask.dtype is torch.bool:
        return torch.where(mask, bias, float("-inf")).to(dtype)
    return (mask + bias).to(dtype)


def attention_function(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    is_causal: bool | None = None,
    s_aux: Tensor | None = None,
    position_ids: Tensor | None = None,
    position_bias: Tensor | None = None,
    cu_seq_lens_q: Tensor | None = None,
    cu_seq_lens_k: Tensor | None = None,
    max_length_q: Any = None,
    max_length_k: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The interface of transformers' attention functions.

    query [B, Hq, Nq, D], key and value [B, Hkv, Nk, D] -> ([B, Nq, Hq, D], None). The first that
    holds decides: given cu_seq_lens are a pack; without a mask, position_ids that restart are one;
    a mask [B, Nk] is padding, whose rows are left out; one of `mask_function` is padding or a pack;
    any other 4-D mask says all, causality and window included. `sliding_window` W lets a query see
    W keys, itself included.
    """
    for name in _REFUSED:
        if kwargs.get(name) is not None and kwargs[name] is not False:
            raise NotImplementedError(f"{name}: expected None, got {type(kwargs[name]).__name__}")
    causal = getattr(module, "is_causal", True) if is_causal is None else bool(is_causal)
    if sliding_window is not None and sliding_window < 1:
        raise ValueError(f"sliding_window: expected None or at least 1, got {sliding_window}")
    left = -1 if sliding_window is None else sliding_window - 1
    common = {"dropout_p": dropout, "softcap": softcap or 0.0, "sink": s_aux}
    window = {"window_size": (left, -1 if causal else left)}
    packed_options = {**common, **window, "softmax_scale": scaling, "causal": causal}

    layout = None
    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        longest_q = query.shape[0] * query.shape[2] if max_length_q is None else max_length_q
        longest_k = key.shape[0] * key.shape[2] if max_length_k is None else max_length_k
        layout = _Layout(None, None, cu_seq_lens_q, cu_seq_lens_k, longest_q, longest_k)
    elif attention_mask is None:
        layout = _positions(position_ids, query, key)
    elif attention_mask.dim() == 2:
        ids = attention_mask[:, : key.shape[2]].bool().to(torch.int32)
        layout, attention_mask = _layout(ids, query.shape[2]), None
    elif attention_mask.dim() == 4 and attention_mask.dtype is torch.int32:  # of mask_function
        layout, attention_mask = _layout_of_mask(attention_mask), None
    if layout is not None:
        if position_bias is not None:
            raise NotImplementedError("position_bias: expected None for packed rows, got a tensor")
        return _packed(query, key, value, layout, packed_options), None
    if attention_mask is not None and attention_mask.dim() == 4:
        causal, window = False, {}
    elif attention_mask is not None:
        raise ValueError(
            f"attention_mask: expected 2 or 4 dimensions, got {tuple(attention_mask.shape)}"
        )
    if attention_mask is not None:
        attention_mask = attention_mask[..., : key.shape[2]]
    if position_bias is not None:
        bias = position_bias[..., : key.shape[2]]
        attention_mask = _with_bias(attention_mask, bias, query.dtype)
    out = ffpa_attn_func(
        query, key, value, attention_mask, is_causal=causal, scale=scaling, **common, **window
    )
    return out.transpose(1, 2).contiguous(), None


def _positions(position_ids: Tensor | None, q: Tensor, k: Tensor) -> _Layout | None:
    """The pack that position_ids tell of, if any. Compiled graphs get a mask of their own instead:
    the answer is data."""
    if position_ids is None or position_ids.dim() != 2 or torch.compiler.is_compiling():
        return None
    batch, _, n, _ = q.shape
    if n == 1 or n != k.shape[2] or n != position_ids.shape[1]:
        return None
    if position_ids.shape[0] != batch:
        position_ids = position_ids.expand(batch, -1)
    return _layout_of_positions(position_ids)


def register_transformers() -> None:
    """Registers the attention and mask functions of this library under "ffpa".

    Then `attn_implementation="ffpa"` in `from_pretrained` or `from_config`, or
    `model.set_attn_implementation("ffpa")`, uses them. Tested with transformers 5.24; registering
    twice does nothing more.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)
