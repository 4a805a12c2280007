# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The option classes of the reference system, accepted so that its callers need no change.

They choose among that system's kernels. This library has one kernel for each device and call, so
only `name` of the classes of this library's own backends, and `CUDABackend.tensor_layout`, mean
something here; the other fields are accepted and one debug line says so.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import Any

from ._library import BACKENDS

logger = logging.getLogger("ffpa_attn")


@dataclass
class Backend:
    """Which kernels to use: "auto", "cpu", "sm80" or "sm90", for the forward and the backward.

    `forward` and `backward` say which pass this object configures when it is given as `backend=`;
    None means both.
    """

    name: str = "auto"
    forward: bool | None = None
    backward: bool | None = None

    def __post_init__(self) -> None:
        if self.name not in BACKENDS and self.name not in REFERENCE_BACKENDS:
            names = ", ".join([*BACKENDS, *REFERENCE_BACKENDS])
            raise ValueError(f"backend: expected one of {names}, got {self.name!r}")


@dataclass
class SDPABackend(Backend):
    """torch's attention in the reference system. Accepted; this library's kernels run."""

    name: str = "sdpa"
    high_precision_grad: bool = False


@dataclass
class CUDABackend(Backend):
    """The reference system's CUDA kernels. `tensor_layout` is honoured: with "NHD", q, k, v and
    the output of `ffpa_attn_func` are [batch, seqlen, heads, head_dim]."""

    name: str = "cuda"
    acc: str = "f32"
    stages: int | None = None
    enable_tma: bool | None = None
    enable_cute: bool | None = None
    enable_ws: bool = False
    enable_fp8: bool = False
    enable_fp4: bool = False
    fp8_smooth_k: bool = True
    fp8_smooth_v: bool = False
    fp8_q_quant_method: str = "per_block"
    fp8_k_quant_method: str = "per_block"
    fp8_v_quant_method: str = "per_channel"
    fp8_pv_acc_type: str = "f32"
    fp8_qk_mm_type: str = "fp8"
    fp8_hybrid: bool | None = None
    fp8_hybrid_n_early: int = 256
    fp4_hybrid: bool | None = None
    fp4_hybrid_n_early: int = 256
    fp8_hadamard: bool = False
    fp4_hadamard: bool = False
    fp4_pv_mm_type: str = "fp4"
    fp4_smooth_v: bool = False
    tensor_layout: str = "HND"
    is_causal: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.acc not in ("f16", "f32"):
            raise ValueError(f"acc: expected 'f16' or 'f32', got {self.acc!r}")
        if self.tensor_layout not in ("HND", "NHD"):
            raise ValueError(f"tensor_layout: expected 'HND' or 'NHD', got {self.tensor_layout!r}")


@dataclass
class TritonBackend(Backend):
    """The reference system's Triton kernels. Accepted; this library's kernels run."""

    name: str = "triton"
    autotune: bool = False
    autotune_mode: str = "fast"
    enable_tma: bool = False
    enable_ws: bool = False
    persist_dkdv: bool = False
    split_launch: bool = False
    preprocess_d_chunk: bool = False
    grad_kv_storage_dtype: Any = None
    grad_q_storage_dtype: Any = None


@dataclass
class CuTeDSLBackend(Backend):
    """The reference system's CuTe-DSL kernels. Accepted; this library's kernels run."""

    name: str = "cutedsl"
    grad_kv_storage_dtype: Any = None


REFERENCE_BACKENDS = {
    "triton": TritonBackend,
    "cutedsl": CuTeDSLBackend,
    "cuda": CUDABackend,
    "sdpa": SDPABackend,
}


def _coerce(argument: str, value: Any) -> Backend | None:
    if value is None or isinstance(value, Backend):
        return value
    if not isinstance(value, str):
        got = type(value).__name__
        raise TypeError(f"{argument}: expected a string or an ffpa_attn.Backend, got {got}")
    if value not in BACKENDS and value not in REFERENCE_BACKENDS:
        names = ", ".join([*BACKENDS, *REFERENCE_BACKENDS])
        raise ValueError(f"{argument}: expected one of {names}, got {value!r}")
    return REFERENCE_BACKENDS.get(value, lambda: Backend(value))()


def _name(backend: Backend | None) -> str:
    """The backend of this library that serves the request."""
    if backend is None:
        return "auto"
    if backend.name in BACKENDS:
        return backend.name
    if logger.isEnabledFor(logging.DEBUG):
        plain = type(backend)()
        changed = {f.name for f in fields(backend)} - {"tensor_layout"}
        changed = {n for n in changed if getattr(backend, n) != getattr(plain, n, None)}
        options = f" and its options {', '.join(sorted(changed))}" if changed else ""
        logger.debug("backend %r%s accepted; ffpa's own kernels run", backend.name, options)
    return "auto"


def resolve(backend: Any, forward_backend: Any, backward_backend: Any) -> tuple[str, str, bool]:
    """-> (forward backend, backward backend, are tensors [batch, seqlen, heads, head_dim])."""
    if backend is None and forward_backend is None and backward_backend is None:
        return "auto", "auto", False
    both = _coerce("backend", backend)
    forward = _coerce("forward_backend", forward_backend)
    backward = _coerce("backward_backend", backward_backend)
    if both is not None:
        if forward is None and both.forward is not False:
            forward = both
        if backward is None and both.backward is not False:
            backward = both
    nhd = any(isinstance(b, CUDABackend) and b.tensor_layout == "NHD" for b in (forward, backward))
    return _name(forward), _name(backward), nhd
