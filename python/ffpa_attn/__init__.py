# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Exact attention for large head dims, forward and backward, on the CPU and on NVIDIA GPUs.

    ffpa_attn_func         dense   [batch, heads, seqlen, head_dim]
    ffpa_attn_varlen_func  packed  [tokens, heads, head_dim]
    explain                which kernel would run, and why
    flash                  flash-attn 2's functions under their names (a module)
    jax                    attention of JAX arrays with a gradient (a module)
    merge_states           attention over parts of the keys, merged
    register_sdpa          torch's scaled_dot_product_attention by these kernels
    register_transformers  attn_implementation="ffpa" in Hugging Face transformers

torch is optional: without it the functions take NumPy and CuPy arrays. With it, the operators
torch.ops.ffpa_attn.* are defined by this import.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from .backends import Backend, CUDABackend, CuTeDSLBackend, SDPABackend, TritonBackend
from .interface import explain, ffpa_attn_func, ffpa_attn_varlen_func

if TYPE_CHECKING:
    from ._transformers import register_transformers
    from .merge import merge_states
    from .sdpa import register_sdpa, unregister_sdpa

__version__ = "0.1.0"

# Imported when first asked for: they need torch.
_LAZY = {
    "merge_states": "merge",
    "register_sdpa": "sdpa",
    "register_transformers": "_transformers",
    "unregister_sdpa": "sdpa",
}


def __getattr__(name: str) -> Any:
    if name in ("flash", "jax"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, "flash", "jax"})


# Names that need torch are left out where it is missing, so that `import *` works.
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
if importlib.util.find_spec("torch") is not None:
    __all__ += ["merge_states", "register_sdpa", "register_transformers", "unregister_sdpa"]
