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

from typing import Any

import torch
from torch import Tensor

from . import _library

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


def _empty_rows(like: Tensor, head_dim: int) -> Tensor:
    """An uninitialised tensor of `like`'s shape and memory order, but for the last size."""
    if like.shape[-1] == head_dim:
        return torch.empty_like(like)
    if like.dim() == 4:
        b, h, n, _ = like.shape
        if like.stride(1) < like.stride(2):  # [batch, seqlen, heads, head_dim] in memory
            return like.new_empty((b, n, h, head_dim)).transpose(1, 2)
        return like.new_empty((b, h, n, head_dim))
    t, h, _ = like.shape
    if like.stride(0) < like.stride(1):
        return like.new_empty((h, t, head_dim)).transpose(0, 1)
    return like.new_empty((t, h, head_dim))


def _empty_outputs(q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    rows = q.shape[:3] if q.dim() == 4 else (q.shape[1], q.shape[0])
    lse = torch.empty(rows, dtype=torch.float32, device=q.device)
    return _empty_rows(q, v.shape[-1]), lse


def _empty_gradients(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sink: Tensor | None, needed: list[bool]
) -> list[Tensor | None]:
    """dq, dk, dv, dattn_mask, dsink; None where not needed."""
    return [
        torch.empty_like(q) if needed[0] else None,
        torch.empty_like(k) if needed[1] else None,
        torch.empty_like(v) if needed[2] else None,
        torch.empty_like(mask) if needed[3] else None,
        torch.empty_like(sink) if needed[4] else None,
    ]


def native(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pack: tuple[Any, ...],
    mask: Tensor | None = None,
    alibi: Tensor | None = None,
    sink: Tensor | None = None,
    used_q: Tensor | None = None,
    used_k: Tensor | None = None,
    rng: Tensor | None = None,
    scale: float | None = None,
    causal: bool = False,
    left: int = -1,
    right: int = -1,
    softcap: float = 0.0,
    dropout_p: float = 0.0,
    deterministic: bool = True,
    limit: int = -1,
    backend: str = "auto",
    backward_backend: str = "auto",
) -> tuple[Any, ...]:
    """The library's inputs and options. `pack`: cu_seqlens_q, _k, max_seqlen_q, _k."""
    seed, offset = (0, 0) if rng is None else rng.tolist()
    if rng is None and dropout_p > 0:
        raise ValueError("dropout_rng: expected int64 [seed, offset] for dropout_p > 0, got None")
    if backend not in _library.BACKENDS:
        names = ", ".join(_library.BACKENDS)
        raise ValueError(f"backend: expected one of {names}, got {backend!r}")
    threads = torch.get_num_threads() if q.device.type == "cpu" else 0
    inputs = (q, k, v, *pack, used_q, used_k, mask, alibi, sink)
    options = (scale, causal, left, right, softcap, dropout_p, seed, offset)
    return (
        *inputs,
        *options,
        _library.BACKENDS[backend],
        deterministic,
        limit,
        threads,
    )


_DENSE = (None, None, 0, 0)


# Workspace of calls of known shapes. A guess, which saves a question: the call itself says if it
# needs more.
_sizes: dict[Any, int] = {}
_MOST_SIZES = 4096


def _run(function: Any, key: Any, size: int, q: Tensor, arguments: tuple[Any, ...]) -> None:
    """Calls `function` of the library with a workspace and the current stream of q's device."""
    stream = torch.cuda.current_stream(q.device).cuda_stream if q.is_cuda else 0
    while True:
        if len(_sizes) >= _MOST_SIZES:
            _sizes.clear()
        _sizes[key] = size
        workspace = None
        if size > 0:
            size += _library.WORKSPACE_SLACK
            workspace = torch.empty(size, dtype=torch.uint8, device=q.device)
        size = function(*arguments, workspace, stream)
        if size == 0:
            return


def _run_forward(q: Tensor, arguments: tuple[Any, ...]) -> tuple[Tensor, Tensor]:
    key = (q.shape, arguments[1].shape, arguments[2].shape, q.dtype, q.device, *arguments[20:])
    size = _sizes.get(key)
    if size is None:
        size = _library.forward_workspace_bytes(*arguments)
    out, lse = _empty_outputs(q, arguments[2])
    _run(_library.forward, key, size, q, (*arguments, out, lse))
    return out, lse


def _run_backward(
    dout: Tensor,
    dlse: Tensor | None,
    out: Tensor,
    lse: Tensor,
    needed: list[bool],
    arguments: tuple[Any, ...],
) -> list[Tensor]:
    q, k, v = arguments[:3]
    if dout.stride(-1) != 1:  # out.sum().backward() gives an expanded scalar
        dout = dout.contiguous()
    dq, dk, dv, dmask, dsink = gradients = _empty_gradients(
        q, k, v, arguments[9], arguments[11], needed
    )
    outputs = (dq, dk, dv, dsink, dmask)
    key = (q.shape, k.shape, v.shape, q.dtype, q.device, *arguments[20:], *needed)
    size = _sizes.get(key)
    if size is None:
        size = _library.backward_workspace_bytes(*arguments, *outputs)
    _run(_library.backward, key, size, q, (*arguments, out, lse, dout, dlse, *outputs))
    return [g for g in gradients if g is not None]


def _forward(q: Tensor, k: Tensor, v: Tensor, *options: Any) -> tuple[Tensor, Tensor]:
    return _run_forward(q, native(q, k, v, _DENSE, *options))


def _varlen_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    *options: Any,
) -> tuple[Tensor, Tensor]:
    return _run_forward(q, native(q, k, v, (cu_q, cu_k, max_q, max_k), *options))


def _backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    needed: list[bool],
    *options: Any,
) -> list[Tensor]:
    return _run_backward(dout, dlse, out, lse, needed, native(q, k, v, _DENSE, *options))


def _varlen_backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    needed: list[bool],
    cu_q: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    *options: Any,
) -> list[Tensor]:
    arguments = native(q, k, v, (cu_q, cu_k, max_q, max_k), *options)
    return _run_backward(dout, dlse, out, lse, needed, arguments)


# ---- fakes: shapes, dtypes, strides ------------------------------------------------------------


def _fake_forward(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _empty_outputs(q, v)


def _some_gradients(
    q: Tensor, k: Tensor, v: Tensor, needed: list[bool], options: tuple[Any, ...]
) -> list[Tensor]:
    mask, _, sink = (*options, None, None, None)[:3]
    return [g for g in _empty_gradients(q, k, v, mask, sink, needed) if g is not None]


def _fake_backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    needed: list[bool],
    *options: Any,
) -> list[Tensor]:
    return _some_gradients(q, k, v, needed, options)


def _fake_varlen_backward(
    dout: Tensor,
    dlse: Tensor | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    needed: list[bool],
    *options: Any,
) -> list[Tensor]:
    return _some_gradients(q, k, v, needed, options[4:])


# ---- autograd ----------------------------------------------------------------------------------

# Arguments of the forward operators that are tensors besides q, k, v: [begin, end) after them.
_DENSE_TENSORS = (0, 6)  # attn_mask .. dropout_rng
_VARLEN_TENSORS = (4, 10)
_NO_DOUBLE = (
    "ffpa_attn: expected one differentiation, got a second one; "
    "double backward is not implemented (use torch's math attention for it)"
)
_NO_FUNCTORCH = (
    "ffpa_attn: torch.func.grad, vjp, jvp and their like are not implemented; "
    "use torch.autograd.grad or backward()"
)
_NO_JVP = "ffpa_attn: forward-mode differentiation (jvp) is not implemented; use reverse mode"


class _Attention(torch.autograd.Function):
    """One forward operator and its backward. `rest`: the arguments after q, k, v. Without a
    `keyset`, no operator is called: see `is_plain`."""

    @staticmethod
    def forward(
        ctx: Any,
        keyset: Any,
        varlen: bool,
        rest: tuple[Any, ...],
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        sink: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        if keyset is None:
            out, lse = (_varlen_forward if varlen else _forward)(q, k, v, *rest)
        else:
            op = _ops.varlen_forward.default if varlen else _ops.forward.default
            out, lse = _below_autograd(keyset, op, q, k, v, *rest)
        begin, end = _VARLEN_TENSORS if varlen else _DENSE_TENSORS
        cu = rest[:2] if varlen else ()
        ctx.save_for_backward(q, k, v, out, lse, *cu, *rest[begin:end])
        ctx.varlen = varlen
        ctx.max_seqlens = rest[2:4] if varlen else ()
        # The backward's backend is the last argument of the forward; it stands where the
        # forward's stood.
        ctx.options = (*rest[end:-2], rest[-1])
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Any, ...]:
        needed = ctx.needs_input_grad[3:]
        if (dout is None and dlse is None) or not any(needed):
            return (None,) * 8
        q, k, v, out, lse, *rest = ctx.saved_tensors
        if dout is None:
            dout = torch.zeros_like(out)
        saved = (dout, dlse, q, k, v, out, lse, needed)
        plain = is_plain(dout) and not torch.is_grad_enabled()
        if ctx.varlen:
            backward = _varlen_backward if plain else _ops.varlen_backward.default
            gradients = backward(*saved, *rest[:2], *ctx.max_seqlens, *rest[2:], *ctx.options)
        else:
            backward = _backward if plain else _ops.backward.default
            gradients = backward(*saved, *rest, *ctx.options)
        given = iter(gradients)
        return (None, None, None, *(next(given) if n else None for n in needed))

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise NotImplementedError(_NO_JVP)


def is_plain(t: Tensor) -> bool:
    """Does nothing observe the operators (compilers, dispatch modes, transforms, subclasses)? Then
    they are not called: the dispatcher's way to Python and back costs more than all the rest."""
    return (
        not torch.compiler.is_compiling()
        and (type(t) is Tensor or type(t) is torch.nn.Parameter)
        and torch._C._len_torch_dispatch_stack() == 0
        and not torch._C._are_functorch_transforms_active()
    )


def attention(varlen: bool, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """What torch.ops.ffpa_attn.forward or .varlen_forward returns."""
    if not is_plain(q):
        return (_ops.varlen_forward if varlen else _ops.forward).default(q, k, v, *rest)
    skip = 4 if varlen else 0
    mask, sink = rest[skip], rest[skip + 2]
    if _needs_graph(q, k, v, mask, sink):
        return _Attention.apply(None, varlen, rest, q, k, v, mask, sink)
    return (_varlen_forward if varlen else _forward)(q, k, v, *rest)


def _needs_graph(*tensors: Tensor | None) -> bool:
    """Is a gradient wanted, or a tangent given?"""
    if torch._C._are_functorch_transforms_active():
        raise NotImplementedError(_NO_FUNCTORCH)
    if torch.autograd.forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _below_autograd(keyset: Any, op: Any, *args: Any) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return op.redispatch(keyset & torch._C._after_autograd_keyset, *args)


# The dispatcher leaves trailing arguments that equal their defaults out.
_DEFAULTS = (None,) * 7 + (False, -1, -1, 0.0, 0.0, True, -1, "auto", "auto")


def _differentiable(name: str, varlen: bool) -> Any:
    """The Autograd kernel of a forward operator."""
    skip = 4 if varlen else 0  # cu_seqlens and max_seqlens, before the options

    def autograd_forward(keyset: Any, q: Tensor, k: Tensor, v: Tensor, *rest: Any) -> Any:
        rest = (*rest, *_DEFAULTS[len(rest) - skip :])
        mask, sink = rest[skip], rest[skip + 2]
        if _needs_graph(q, k, v, mask, sink):
            return _Attention.apply(keyset, varlen, rest, q, k, v, mask, sink)
        return _below_autograd(keyset, getattr(_ops, name).default, q, k, v, *rest)

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
_define(
    "forward",
    _QKV + _FORWARD,
    _forward,
    _fake_forward,
    _differentiable("forward", varlen=False),
)
_define(
    "varlen_forward",
    _QKV + _PACK + _FORWARD,
    _varlen_forward,
    _fake_forward,
    _differentiable("varlen_forward", varlen=True),
)
_define(
    "backward",
    f"({_SAVED}{_GRADIENTS}",
    _backward,
    _fake_backward,
    _differentiable_once("backward"),
)
_define(
    "varlen_backward",
    f"({_SAVED}{_PACK}{_GRADIENTS}",
    _varlen_backward,
    _fake_varlen_backward,
    _differentiable_once("varlen_backward"),
)
_ops = torch.ops.ffpa_attn
