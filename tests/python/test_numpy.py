# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""NumPy arrays, without torch: each test runs in a process that cannot import it."""

import os
import subprocess
import sys
import textwrap

import pytest

pytest.importorskip("numpy")

PRELUDE = """
import sys
sys.modules["torch"] = None  # any import of torch fails
import numpy as np
from ffpa_attn import explain, ffpa_attn_func, ffpa_attn_varlen_func

rng = np.random.default_rng(0)
def rand(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)
def reference(q, k, v, causal=False):
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    n, m = s.shape[-2:]
    if causal:
        s = np.where(np.arange(m) > np.arange(n)[:, None] + m - n, -np.inf, s)
    with np.errstate(invalid="ignore", divide="ignore"):
        top = np.maximum(s.max(-1, keepdims=True), -1e300)
        p = np.exp(s - top)
        total = p.sum(-1, keepdims=True)
        out = np.where(total > 0, p / np.where(total > 0, total, 1), 0) @ v
        return out, (np.log(total) + top)[..., 0]
"""


def run(body):
    code = PRELUDE + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_dense():
    run("""
    for dtype, limit in ((np.float32, 1e-5), (np.float16, 2e-3)):
        q, k = rand(2, 4, 33, 64, dtype=dtype), rand(2, 2, 50, 64, dtype=dtype)
        v = rand(2, 2, 50, 32, dtype=dtype)
        out, lse = ffpa_attn_func(q, k, v, is_causal=True, return_lse=True)
        want, want_lse = reference(q, k, v, True)
        assert out.dtype == dtype and out.shape == (2, 4, 33, 32) and lse.dtype == np.float32
        assert np.abs(out - want).max() < limit * np.abs(v).max()
        assert np.abs(lse - want_lse).max() < 2e-4
    """)


def test_packed():
    run("""
    q, k, v = rand(20, 4, 32), rand(25, 4, 32), rand(25, 4, 32)
    cu_q, cu_k = np.array([0, 5, 20]), np.array([0, 15, 25], np.int32)
    out = ffpa_attn_varlen_func(q, k, v, cu_q, cu_k, np.int64(15), 15, causal=True)
    for b in range(2):
        rows_q, rows_k = slice(*cu_q[b:b + 2]), slice(*cu_k[b:b + 2])
        own = [t.swapaxes(0, 1)[None] for t in (q[rows_q], k[rows_k], v[rows_k])]
        want = reference(*own, True)[0][0]
        assert np.abs(out[rows_q].swapaxes(0, 1) - want).max() < 1e-5
    assert "cpu_forward" in explain(q, k, v, cu_q, cu_k, 15, 15)
    """)


def test_options_and_layout():
    run("""
    q, k, v = (rand(2, 9, 4, 16).swapaxes(1, 2) for _ in range(3))
    out = ffpa_attn_func(q, k, v)
    assert out.strides == q.strides and np.abs(out - reference(q, k, v)[0]).max() < 1e-5
    mask = rng.random((9, 9)) > 0.3
    assert np.isfinite(ffpa_attn_func(q, k, v, mask, sink=rand(4, dtype=np.float64))).all()
    assert np.allclose(ffpa_attn_func(q[..., ::2], k[..., ::2], v), ffpa_attn_func(
        np.ascontiguousarray(q[..., ::2]), np.ascontiguousarray(k[..., ::2]), v))
    q.flags.writeable = False
    assert np.array_equal(ffpa_attn_func(q, k, v), out)
    """)


def test_bfloat16_of_ml_dtypes():
    pytest.importorskip("ml_dtypes")
    run("""
    from ml_dtypes import bfloat16
    q, k, v = (rand(2, 9, 4, d).swapaxes(1, 2).astype(bfloat16) for d in (16, 16, 24))
    out, lse = ffpa_attn_func(q, k, v, is_causal=True, return_lse=True)
    want, want_lse = reference(q, k, v, True)
    assert out.dtype == bfloat16 and lse.dtype == np.float32
    assert np.abs(out.astype(np.float64) - want).max() < 2.0**-8 * np.abs(want).max()
    assert np.abs(lse - want_lse).max() < 2e-4
    assert np.array_equal(ffpa_attn_func(q, k, v, rand(9, 9).astype(bfloat16) * 0),
                          ffpa_attn_func(q, k, v))
    for a, b, c, name in ((q, k, v.astype(np.float32), "v: expected dtype bfloat16"),
                          (q.astype(np.float32), k, v, "k: expected dtype float32")):
        try:
            ffpa_attn_func(a, b, c)
        except TypeError as error:
            assert name in str(error), error
        else:
            raise AssertionError(name)
    """)


def test_cupy_arrays_by_a_stand_in():
    """CuPy's part of the interface, on the CPU: memory on the array's device, current stream."""
    run("""
    import contextlib, types

    class ndarray(np.ndarray):
        entered = 0

        @property
        def device(self):
            type(self).entered += 1
            return contextlib.nullcontext()

    def own(function):
        return lambda *a, **k: function(*a, **k).view(ndarray)

    stream = types.SimpleNamespace(ptr=0)
    sys.modules["cupy"] = types.SimpleNamespace(
        ndarray=ndarray, empty=own(np.empty), asarray=own(np.asarray),
        ascontiguousarray=own(np.ascontiguousarray),
        cuda=types.SimpleNamespace(get_current_stream=lambda: stream))
    q = rand(20, 4, 32)
    want = ffpa_attn_varlen_func(q, q, q, np.array([0, 5, 20]), None, 15, 15)
    c = q.view(ndarray)
    ndarray.entered = 0
    out = ffpa_attn_varlen_func(c, c, c, [0, 5, 20], None, 15, 15)
    assert type(out) is ndarray and ndarray.entered == 1 and np.array_equal(out, want)
    try:
        ffpa_attn_varlen_func(c, q, c, [0, 5, 20], None, 15, 15)
    except TypeError as error:
        assert "k: expected a CuPy array" in str(error)
    else:
        raise AssertionError
    """)


def test_dropout_follows_numpys_seed():
    run("""
    q = rand(1, 2, 9, 16)
    np.random.seed(3)
    a, b = ffpa_attn_func(q, q, q, dropout_p=0.3), ffpa_attn_func(q, q, q, dropout_p=0.3)
    np.random.seed(3)
    assert not np.array_equal(a, b)
    assert np.array_equal(a, ffpa_attn_func(q, q, q, dropout_p=0.3))
    """)


def test_errors():
    run("""
    q = rand(1, 2, 9, 16)
    cu = np.array([0, 2])
    packed = lambda cu, longest: ffpa_attn_varlen_func(q[0], q[0], q[0], cu, None, longest, 2)
    for kind, name, call in (
        (TypeError, "q", lambda: ffpa_attn_func(q.astype(np.float64), q, q)),
        (TypeError, "k", lambda: ffpa_attn_func(q, q.tolist(), q)),
        (TypeError, "q", lambda: ffpa_attn_func(q.tolist(), q, q)),
        (ValueError, "v", lambda: ffpa_attn_func(q, q, q[:, :, :5])),
        (TypeError, "cu_seqlens_q", lambda: packed(cu.astype(float), 2)),
        (TypeError, "max_seqlen_q", lambda: packed(cu, 2.0)),
        (TypeError, "determinstic", lambda: ffpa_attn_func(q, q, q, determinstic=True)),
    ):
        try:
            call()
        except Exception as error:
            assert type(error) is kind and name in str(error), repr(error)
        else:
            raise AssertionError(name)
    """)


def test_arrays_that_are_not_plain_numbers_are_refused():
    run("""
    q, k, v = (np.ones((1, 2, 4, 16), np.float32) for _ in range(3))
    for bad in (np.ma.masked_array(k, k > 2), k.astype(">f4"), k.astype(object)):
        try:
            ffpa_attn_func(q, bad, v)
        except TypeError as error:
            assert str(error).startswith("k: expected"), error
        else:
            raise AssertionError(type(bad))
    """)
