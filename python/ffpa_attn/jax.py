# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""JAX: attention with a gradient, on the CPU, inside and outside of jit.

The kernels run in a host callback on JAX's own buffers, which NumPy hands over: bfloat16 is
computed in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import _numpy
from .interface import ffpa_attn_func

_FLOATS = (jnp.float32, jnp.float16, jnp.bfloat16)


def _call(options: tuple[Any, ...], *arrays: Any) -> Any:
    causal, scale, window_size, softcap = options
    build = ffpa_attn_func.__wrapped__
    return build(
        *(np.asarray(t) for t in arrays),
        is_causal=causal,
        scale=scale,
        window_size=window_size,
        softcap=softcap,
    )


def _forward_on_host(options: tuple[Any, ...], q: Any, k: Any, v: Any) -> tuple[np.ndarray, ...]:
    return _numpy.forward(_call(options, q, k, v))


def _backward_on_host(options: tuple[Any, ...], *arrays: Any) -> tuple[np.ndarray, ...]:
    saved = (np.asarray(t) for t in arrays[3:])  # out, lse, dout, dlse
    return _numpy.backward(_call(options, *arrays[:3]), *saved)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(options: tuple[Any, ...], q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    shapes = (
        jax.ShapeDtypeStruct((*q.shape[:-1], v.shape[-1]), q.dtype),
        jax.ShapeDtypeStruct(q.shape[:-1], jnp.float32),
    )
    function = functools.partial(_forward_on_host, options)
    return jax.pure_callback(function, shapes, q, k, v, vmap_method="sequential")


def _attention_forward(options: tuple[Any, ...], q: Any, k: Any, v: Any) -> tuple[Any, Any]:
    out, lse = _attention(options, q, k, v)
    return (out, lse), (q, k, v, out, lse)


def _attention_backward(options: tuple[Any, ...], saved: Any, gradients: Any) -> tuple[Any, ...]:
    shapes = tuple(jax.ShapeDtypeStruct(t.shape, t.dtype) for t in saved[:3])
    function = functools.partial(_backward_on_host, options)
    return jax.pure_callback(function, shapes, *saved, *gradients, vmap_method="sequential")


_attention.defvjp(_attention_forward, _attention_backward)


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    causal: bool = False,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    return_lse: bool = False,
) -> Any:
    """Dense attention of JAX arrays, differentiable once, in q, k and v.

    Args:
        q: [B, Hq, Nq, D], float32, float16 or bfloat16.
        k: [B, Hkv, Nk, D], v: [B, Hkv, Nk, Dv]; Hq a multiple of Hkv.
        causal, scale, window_size, softcap: as in `ffpa_attn.ffpa_attn_func`.
        return_lse: return (out, lse [B, Hq, Nq]).

    Raises:
        TypeError, ValueError: as `ffpa_attn_func`; inside jit, where JAX wraps it, when the call
            runs.
        NotImplementedError: JAX runs on another platform than the CPU.
    """
    if jax.default_backend() != "cpu":
        raise NotImplementedError(f"q: expected JAX on the CPU, got {jax.default_backend()}")
    for name, t in (("q", q), ("k", k), ("v", v)):
        if t.ndim != 4:
            raise ValueError(f"{name}: expected 4 dimensions, got {t.ndim}")
        if t.dtype not in _FLOATS or t.dtype != q.dtype:
            raise TypeError(
                f"{name}: expected float32, float16 or bfloat16, all of one dtype, got {t.dtype}"
            )
    out, lse = _attention((causal, scale, tuple(window_size), softcap), q, k, v)
    return (out, lse) if return_lse else out
