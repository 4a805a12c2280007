# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Exact attention for large head dims, forward and backward, on the CPU and on NVIDIA GPUs.

    ffpa_attn_func         dense   [batch, heads, seqlen, head_dim]
    ffpa_attn_varlen_func  packed  [tokens, heads, head_dim]
    explain                which kernel would run, and why

torch is optional: without it the functions take NumPy arrays. With it, the operators
torch.ops.ffpa_attn.* are defined by this import.
"""

from .backends import Backend, CUDABackend, CuTeDSLBackend, SDPABackend, TritonBackend
from .interface import explain, ffpa_attn_func, ffpa_attn_varlen_func

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "CUDABackend",
    "CuTeDSLBackend",
    "SDPABackend",
    "TritonBackend",
    "__version__",
    "explain",
    "ffpa_attn_func",
    "ffpa_attn_varlen_func",
]
