# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Hugging Face transformers: attention and mask functions under the name "ffpa"."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

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


def _parts(function: Any) -> Iterator[str]:
    """The names of a mask function and of those that it is made of."""
    if isinstance(function, (tuple, list)):
        for part in function:
            yield from _parts(part)
    elif callable(function) and not isinstance(function, Tensor):
        yield getattr(function, "__qualname__", type(function).__qualname__)
        for cell in getattr(function, "__closure__", None) or ():
            yield from _parts(cell.cell_contents)


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
    """None where the attention function needs no mask, a 2-D padding mask where rows are padding,
    and a 4-D boolean mask, right but O(N^2), for everything else."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    parts = set(_parts(function))
    aligned = (  # the last query is the last key, as without a cache or with a growing one
        isinstance(q_offset, int)
        and isinstance(kv_offset, int)
        and q_offset + q_length == kv_offset + kv_length
    )
    padding = None if attention_mask is None else attention_mask[:, -kv_length:]
    simple = parts <= _KNOWN and (aligned or "bidirectional_mask_function" in parts)
    if simple and padding is not None and padding.shape[1] != kv_length:
        simple = False
    if simple and torch.compiler.is_compiling():
        simple = padding is None and _PACKED not in parts  # their lengths are data
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
    return None if padding is None or bool(padding.all()) else padding.bool()


class _LastResult:
    """What `compute` made of a tensor, kept for the next layer, which asks the same."""

    def __init__(self, compute: Callable[[Tensor], Any]):
        self.compute = compute
        self.tensor: Any = lambda: None
        self.version = -1
        self.result: Any = None

    def __call__(self, t: Tensor) -> Any:
        if t.is_inference():  # such tensors have no version
            return self.compute(t)
        if self.tensor() is not t or self.version != t._version:
            self.result = self.compute(t)
            self.tensor, self.version = weakref.ref(t), t._version
        return self.result


def _offsets(lengths: Tensor) -> Tensor:
    return torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))


@_LastResult
def _packs(position_ids: Tensor) -> tuple[Tensor, int] | None:
    """cu_seqlens and the longest sequence of position_ids [B, N] that restart, else None."""
    first = torch.ones_like(position_ids, dtype=torch.bool)
    first[:, 1:] = position_ids.diff(dim=-1) != 1
    starts = first.flatten().nonzero().flatten()
    if len(starts) == position_ids.shape[0]:
        return None
    end = starts.new_tensor([position_ids.numel()])
    cu = torch.cat([starts, end]).to(torch.int32)
    return cu, int(cu.diff().max())


@_LastResult
def _unpadding(mask: Tensor) -> tuple[Tensor, Tensor, int]:
    """Indices of the rows of a mask [B, N] that are no padding, cu_seqlens, the longest length."""
    lengths = mask.sum(-1, dtype=torch.int32)
    return mask.flatten().nonzero().flatten(), _offsets(lengths), int(lengths.max())


_query_unpadding = _LastResult(_unpadding.compute)


def _flat(t: Tensor) -> Tensor:
    """[B, H, N, D] -> [B * N, H, D]."""
    return t.transpose(1, 2).flatten(0, 1)


def _packed(
    q: Tensor, k: Tensor, v: Tensor, cu_q: Any, cu_k: Any, max_q: Any, max_k: Any, options: Any
) -> Tensor:
    out = ffpa_attn_varlen_func(
        _flat(q),
        _flat(k),
        _flat(v),
        cu_q,
        cu_k,
        q.shape[0] * q.shape[2] if max_q is None else max_q,
        k.shape[0] * k.shape[2] if max_k is None else max_k,
        **options,
    )
    return out.view(q.shape[0], q.shape[2], *out.shape[1:])


def _padded(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, options: Any) -> Tensor:
    """`mask` [B, Nk]: True where a key is no padding; the queries are the last Nq positions."""
    keys, cu_k, max_k = _unpadding(mask)
    queries, cu_q, max_q = keys, cu_k, max_k
    if q.shape[2] != k.shape[2]:
        queries, cu_q, max_q = _query_unpadding(mask[:, -q.shape[2] :])
    rows = ffpa_attn_varlen_func(
        _flat(q)[queries], _flat(k)[keys], _flat(v)[keys], cu_q, cu_k, max_q, max_k, **options
    )
    out = rows.new_zeros(q.shape[0] * q.shape[2], *rows.shape[1:])
    out = out.index_copy(0, queries, rows)
    return out.view(q.shape[0], q.shape[2], *rows.shape[1:])


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
    holds decides: given cu_seq_lens are a pack; a 4-D mask says all, causality and window included;
    a 2-D mask is padding, whose rows are left out; position_ids that restart are a pack; otherwise
    a dense batch. `sliding_window` W lets a query see W keys, itself included.
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

    if cu_seq_lens_q is not None and cu_seq_lens_k is not None:
        pack = (cu_seq_lens_q, cu_seq_lens_k, max_length_q, max_length_k)
        return _packed(query, key, value, *pack, packed_options), None
    if attention_mask is not None and attention_mask.dim() == 2 and position_bias is None:
        return _padded(query, key, value, attention_mask.bool(), packed_options), None
    if attention_mask is not None and attention_mask.dim() == 4:
        causal, window = False, {}
    elif attention_mask is None and position_bias is None:
        pack = _pack_of(position_ids, query, key)
        if pack is not None:
            cu, longest = pack
            return _packed(query, key, value, cu, cu, longest, longest, packed_options), None
    elif attention_mask is not None:
        raise ValueError(
            "attention_mask: expected [B, Nk] without a position_bias or [B, .., Nq, Nk], got "
            f"{tuple(attention_mask.shape)}"
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


def _pack_of(position_ids: Tensor | None, q: Tensor, k: Tensor) -> tuple[Tensor, int] | None:
    """cu_seqlens and the longest sequence if position_ids restart. Compiled graphs get a 4-D mask
    instead: the answer is data."""
    if position_ids is None or position_ids.dim() != 2 or torch.compiler.is_compiling():
        return None
    batch, _, n, _ = q.shape
    if n == 1 or n != k.shape[2] or n != position_ids.shape[1]:
        return None
    if position_ids.shape[0] != batch:
        position_ids = position_ids.expand(batch, -1)
    return _packs(position_ids)


def register_transformers() -> None:
    """Registers the attention and mask functions of this library under "ffpa".

    Then `attn_implementation="ffpa"` in `from_pretrained` or `from_config`, or
    `model.set_attn_implementation("ffpa")`, uses them. Needs transformers >= 4.56; registering
    twice does nothing more.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, attention_function)
    AttentionMaskInterface.register(NAME, mask_function)
