# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Loads the shared library on first use: `import ffpa_attn` itself loads no native code.

The functions are `forward`, `backward`, `forward_workspace_bytes`, `backward_workspace_bytes`,
`explain`, `kernels` and `version`. They take arrays by DLPack and raise ValueError (a shape, stride
or value), TypeError (a dtype or kind of object), NotImplementedError (valid, but no kernel of this
build serves it) or RuntimeError (the device failed). Positional arguments only:

    inputs    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k,
              attn_mask, alibi_slopes, sink
    options   softmax_scale, causal, window_left, window_right, softcap, dropout_p, dropout_seed,
              dropout_offset, backend (BACKENDS), deterministic, workspace_limit, num_threads
    forward   inputs, options, out, lse, workspace, stream
    backward  inputs, options, out, lse, dout, dlse, dq, dk, dv, dsink, dattn_mask, workspace,
              stream

`forward` and `backward` return 0 when done. With too small a workspace they write nothing and
return the bytes that they need.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

FUNCTIONS = (
    "forward",
    "backward",
    "forward_workspace_bytes",
    "backward_workspace_bytes",
    "explain",
    "kernels",
    "version",
)
# Values of the option `backend`, as in include/ffpa/attention.h.
BACKENDS = {"auto": 0, "cpu": 1, "sm80": 2, "sm90": 3}
# The library aligns the workspace to 256 bytes inside what it is given.
WORKSPACE_SLACK = 255


def path() -> Path:
    """The shared library: $FFPA_LIBRARY if set, otherwise the one of this package."""
    override = os.environ.get("FFPA_LIBRARY")
    return Path(override) if override else Path(__file__).parent / "lib" / "libffpa_attn.so"


def _import_tvm_ffi() -> Any:
    # Without this, tvm_ffi compiles an extension for older torch versions at run time and asks
    # torch whether CUDA is there.
    name = "TVM_FFI_DISABLE_TORCH_C_DLPACK"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        import tvm_ffi
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
    return tvm_ffi


def _load() -> None:
    library = path()
    if not library.is_file():
        raise ImportError(
            f"ffpa_attn: no shared library at {library}; install with `pip install .`"
        )
    tvm_ffi = _import_tvm_ffi()
    tvm_ffi.register_error("NotImplementedError", NotImplementedError)
    module = tvm_ffi.load_module(library)
    for name in FUNCTIONS:
        globals()[name] = module.get_function(name)


def __getattr__(name: str) -> Any:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _load()
    return globals()[name]
