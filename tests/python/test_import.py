# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""What `import ffpa_attn` needs, does and costs."""

import os
import subprocess
import sys

import pytest
from conftest import HAS_TORCH


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_without_torch_and_numpy():
    run(
        "import sys; sys.modules['torch'] = sys.modules['numpy'] = None\n"
        "import ffpa_attn; from ffpa_attn._library import version, kernels\n"
        "assert version() == ffpa_attn.__version__ and 'cpu_forward' in kernels()"
    )


def test_import_loads_no_native_code():
    run(
        "import sys; sys.modules['torch'] = None\n"
        "import ffpa_attn; assert 'tvm_ffi' not in sys.modules and 'numpy' not in sys.modules"
    )


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_case_135_import_needs_no_cuda_device_and_starts_none():
    run(
        "import torch, ffpa_attn\n"
        "q = torch.randn(1, 1, 4, 8)\n"
        "ffpa_attn.ffpa_attn_func(q, q, q)\n"
        "assert not torch.cuda.is_initialized()",
        CUDA_VISIBLE_DEVICES="",
    )


def test_import_time():
    text = run(
        "import sys, time\n"
        "try:\n    import torch\nexcept ImportError:\n    pass\n"
        "t = time.process_time(); import ffpa_attn; print(time.process_time() - t)"
    )
    # Typically 0.03 s; the limit leaves room for a busy machine.
    assert float(text) < 0.5


def test_a_missing_library_is_named():
    done = subprocess.run(
        [sys.executable, "-c", "from ffpa_attn._library import version"],
        env={**os.environ, "FFPA_LIBRARY": "/nowhere/libffpa_attn.so"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0 and "/nowhere/libffpa_attn.so" in done.stderr


def test_signatures():
    import inspect

    from ffpa_attn import ffpa_attn_func, ffpa_attn_varlen_func

    dense = list(inspect.signature(ffpa_attn_func).parameters.values())
    names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]
    assert [p.name for p in dense[:8]] == names
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD for p in dense[:8])
    assert all(p.kind is p.KEYWORD_ONLY for p in dense[8:])
    packed = list(inspect.signature(ffpa_attn_varlen_func).parameters.values())
    names = ["q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"]
    assert [p.name for p in packed[:7]] == names
    assert all(p.kind is p.KEYWORD_ONLY for p in packed[7:])
    for function in (ffpa_attn_func, ffpa_attn_varlen_func):
        assert "Returns:" in function.__doc__


def test_doctor():
    done = subprocess.run(
        [sys.executable, "-m", "ffpa_attn", "doctor"], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu_forward" in done.stdout and "runs here" in done.stdout
    assert "FAILED" not in done.stdout


def test_doctor_without_the_library():
    done = subprocess.run(
        [sys.executable, "-m", "ffpa_attn", "doctor"],
        env={**os.environ, "FFPA_LIBRARY": "/nowhere/libffpa_attn.so"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1 and "CANNOT BE LOADED" in done.stdout and not done.stderr


def test_wheel_tag_holds_for_the_glibc_that_the_library_needs():
    import importlib.metadata
    import re

    from ffpa_attn import _library

    try:
        wheel = importlib.metadata.distribution("ffpa-attn").read_text("WHEEL")
    except importlib.metadata.PackageNotFoundError:
        wheel = None
    if wheel is None or "FFPA_LIBRARY" in os.environ:
        pytest.skip("not installed from a wheel")
    (tag,) = re.findall(r"^Tag: (\S+)$", wheel, re.M)
    python, abi, platform = tag.split("-")
    assert (python, abi) == ("py3", "none")
    limit = int(re.fullmatch(r"manylinux_2_(\d+)_\w+", platform)[1])
    needed = re.findall(rb"GLIBC_2\.(\d+)\b", _library.path().read_bytes())
    assert needed and max(map(int, needed)) <= limit
