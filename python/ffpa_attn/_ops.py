# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The operators torch.ops.ffpa_attn.{forward, backward, varlen_forward, varlen_backward}.

They are public and stable: selective checkpointing finds them by name, ring attention calls the
backward with merged `out` and `lse`.

    forward(q, k, v, attn_mask, alibi_slopes, sink, seqused_q, seqused_k, dropout_rng,
            softmax_scale, causal, window_left, window_right, softcap, dropout_p, deterministic,
            workspace_limit, backend, backward_backend) -> (out, lse)
    varlen_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, ...)
    backward(dout, dlse, q, k, v, out, lse, output_mask, ...) -> Tensor[]
    varlen_backward(dout, dlse, q, k, v, out, lse, output_mask, cu_seqlens_q, ...)

Shapes, dtypes and formulas: include/ffpa/attention.h. `dropout_rng` is int64 [2] on the CPU: seed
and offset. `output_mask` is bool[5] for q, k, v, attn_mask, sink; the gradients that it asks for
come back in this order. Outputs have the memory order of q (dq: q, dk: k, dv: v), whose last stride
must be 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ._native import DENSE, empty_gradients, empty_outputs, native, run_backward, run_forward

_OPTIONS = (
    "Tensor? attn_mask=None, Tensor? alibi_slopes=None, Tensor? sink=None, "
    "Tensor? seqused_q=None, Tensor? seqused_k=None, Tensor? dropout_rng=None, "
    "float? softmax_scale=None, bool causal=False, SymInt window_left=-1, "
    "SymInt window_right=-1, float softcap=0.0, float dropout_p=0.0, "
    'bool deterministic=True, int workspace_limit=-1, str backend="auto"'
)
_PACK = "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt max_seqlen_q, SymInt max_seqlen_k, "
_SAVED = (
    "Tensor dout, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, "
    "bool[5] output_mask, "
)
_FORWARD = f'{_OPTIONS}, str backward_backend="auto") -> (Tensor out, Tensor lse)'

_library_ops = torch.library.Library("ffpa_attn", "DEF")


_Pack = tuple[Any, Any, int, int]


def _split(packed: bool, rest: tuple[Any, ...]) -> tuple[_Pack, tuple[Any, ...]]:
    """Arguments after q, k, v or output_mask -> pack, options."""
    return (rest[:4], rest[4:]) if packed else (DENSE, rest)


# ---- on tensors with memory --------------------------------------------------------------------


def _forward(packed: bool) -> Callable[..., Any]:
    def forward(q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
        pack, options = _split(packed, rest)
        return run_forward(native(q, k, v, pack, *options))

    return forward


def _backward(packed: bool) -> Callable[..., Any]:
    def backward(
        dout: Tensor,
        dlse: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        needed: list[bool],
        *rest: Any,
    ) -> list[Tensor]:
        pack, options = _split(packed, rest)
        gradients = run_backward(dout, dlse, out, lse, needed, native(q, k, v, pack, *options))
        return [g for g in gradients if g is not None]

    return backward


# ---- fakes: shapes, dtypes, strides ------------------------------------------------------------


def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return empty_outputs(q, v)


def _fake_backward(packed: bool) -> Callable[..., Any]:
    def fake(
        dout: Tensor,
        dlse: Tensor | None,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        out: Tensor,
        lse: Tensor,
        needed: list[bool],
        *rest: Any,
    ) -> list[Tensor]:
        mask, _, sink = (*_split(packed, rest)[1], None, None, None)[:3]
        return [g for g in empty_gradients(q, k, v, mask, sink, needed) if g is not None]

    return fake


# ---- autograd ----------------------------------------------------------------------------------

_TENSORS = 6  # the first options are tensors: attn_mask .. dropout_rng
_NO_DOUBLE = (
    "ffpa_attn: expected one differentiation, got a second one; "
    "double backward is not implemented (use torch's math attention for it)"
)
_NO_FUNCTORCH = (
    "ffpa_attn: torch.func.grad, vjp, jvp and their like are not implemented; "
    "use torch.autograd.grad or backward()"
)
_NO_BATCH = (
    "ffpa_attn: a batch of output gradients (vmap, is_grads_batched=True) is not implemented; "
    "call backward for each"
)
_NO_JVP = "ffpa_attn: forward-mode differentiation (jvp) is not implemented; use reverse mode"


def _refuse_batched(*gradients: Tensor | None) -> None:
    functorch = torch._C._functorch
    for t in gradients:
        if t is not None and (
            functorch.is_legacy_batchedtensor(t) or functorch.is_batchedtensor(t)
        ):
            raise NotImplementedError(_NO_BATCH)


class _Attention(torch.autograd.Function):
    """A forward operator and its backward. `call`: keyset, packed, the arguments after q, k, v.
    Without a keyset, no operator is called: see `is_plain`."""

    @staticmethod
    def forward(
        ctx: Any,
        call: tuple[Any, bool, tuple[Any, ...]],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        sink: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        keyset, packed, rest = call
        pack, options = _split(packed, rest)
        if keyset is None:
            out, lse = run_forward(native(q, k, v, pack, *options))
        else:
            out, lse = _below_autograd(keyset, _forward_op(packed), q, k, v, *rest)
        ctx.save_for_backward(q, k, v, out, lse, *pack[:2], *options[:_TENSORS])
        # The backward's backend is the last argument of the forward; it stands where the
        # forward's stood.
        ctx.rest = packed, pack[2:], (*options[_TENSORS:-2], options[-1])
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[1:]
        _refuse_batched(dout, dlse)
        if (dout is None and dlse is None) or not any(needed):
            return (None,) * 6
        q, k, v, out, lse, cu_q, cu_k, *tensors = ctx.saved_tensors
        packed, longest, options = ctx.rest
        if dout is None:
            dout = torch.zeros_like(out)
        pack = (cu_q, cu_k, *longest)
        if is_plain(dout) and not torch.is_grad_enabled():
            arguments = native(q, k, v, pack, *tensors, *options)
            return (None, *run_backward(dout, dlse, out, lse, needed, arguments))
        op = _ops.varlen_backward.default if packed else _ops.backward.default
        rest = (*(pack if packed else ()), *tensors, *options)
        given = iter(op(dout, dlse, q, k, v, out, lse, needed, *rest))
        return (None, *(next(given) if n else None for n in needed))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_JVP)


def _forward_op(packed: bool) -> Any:
    return _ops.varlen_forward.default if packed else _ops.forward.default


def is_plain(t: Tensor) -> bool:
    """Does nothing observe the operators (compilers, dispatch modes, transforms, subclasses)? Then
    they are not called: the dispatcher's way to Python and back costs more than all the rest."""
    return (
        not torch.compiler.is_compiling()
        and (type(t) is Tensor or type(t) is torch.nn.Parameter)
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._are_functorch_transforms_active()
    )


def attention(
    q: Tensor, k: Tensor, v: Tensor, pack: tuple[Any, ...] | None, options: tuple[Any, ...]
) -> tuple[Tensor, Tensor]:
    """What torch.ops.ffpa_attn.forward or, with a `pack`, .varlen_forward returns."""
    packed = pack is not None
    rest = (*pack, *options) if packed else options
    if not is_plain(q):
        return _forward_op(packed)(q, k, v, *rest)
    mask, sink = options[0], options[2]
    if _needs_graph(q, k, v, mask, sink):
        return _Attention.apply((None, packed, rest), q, k, v, mask, sink)
    return run_forward(native(q, k, v, pack or DENSE, *options))


def _needs_graph(*tensors: Tensor | None) -> bool:
    """Is a gradient wanted, or a tangent given?"""
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    if torch.is_grad_enabled():
        for t in tensors:
            if t is not None and t.requires_grad:
                return True
    return False


def _refuse_functorch() -> None:
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(_NO_FUNCTORCH)


def _below_autograd(keyset: Any, op: Any, *args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


# The dispatcher leaves trailing arguments that equal their defaults out.
_DEFAULTS = (None,) * 7 + (False, -1, -1, 0.0, 0.0, True, -1, "auto", "auto")


def _differentiable(packed: bool) -> Callable[..., Any]:
    """The Autograd kernel of a forward operator."""

    def autograd_forward(keyset: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        given = len(rest) - 4 if packed else len(rest)
        rest = (*rest, *_DEFAULTS[given:])
        mask, _, sink, *_ = _split(packed, rest)[1]
        _refuse_functorch()
        if _needs_graph(q, k, v, mask, sink):
            return _Attention.apply((keyset, packed, rest), q, k, v, mask, sink)
        return _below_autograd(keyset, _forward_op(packed), q, k, v, *rest)

    return autograd_forward


class _Once(torch.autograd.Function):
    """A backward operator: it refuses to be differentiated by name."""

    @staticmethod
    def forward(ctx: Any, keyset: Any, op: Any, *args: Any) -> tuple[Tensor, ...]:
        return tuple(_below_autograd(keyset, op, *args))

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(_NO_DOUBLE)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_JVP)


def _differentiable_once(name: str) -> Any:
    """The Autograd kernel of a backward operator."""

    def autograd_backward(keyset: Any, *args: Any) -> list[Tensor]:
        op = getattr(_ops, name).default
        _refuse_functorch()
        if _needs_graph(*(a for a in args if isinstance(a, Tensor))):
            return list(_Once.apply(keyset, op, *args))
        return _below_autograd(keyset, op, *args)

    return autograd_backward


# ---- definitions -------------------------------------------------------------------------------


def _define(name: str, schema: str, run: Any, fake: Any, autograd: Any) -> None:
    _library_ops.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
    for key in ("CPU", "CUDA"):
        _library_ops.impl(name, run, key)
    torch.library.register_fake(f"ffpa_attn::{name}", fake, lib=_library_ops)
    _library_ops.impl(name, autograd, "Autograd", with_keyset=True)


_QKV = "(Tensor q, Tensor k, Tensor v, "
_GRADIENTS = f"{_OPTIONS}) -> Tensor[]"
for _prefix, _packed, _pack_schema in (("", False, ""), ("varlen_", True, _PACK)):
    _define(
        f"{_prefix}forward",
        f"{_QKV}{_pack_schema}{_FORWARD}",
        _forward(_packed),
        _fake_forward,
        _differentiable(_packed),
    )
    _define(
        f"{_prefix}backward",
        f"({_SAVED}{_pack_schema}{_GRADIENTS}",
        _backward(_packed),
        _fake_backward(_packed),
        _differentiable_once(f"{_prefix}backward"),
    )
_ops = torch.ops.ffpa_attn
