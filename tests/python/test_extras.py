# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""flash-attn 2's names, merge_states and the patch of scaled_dot_product_attention."""

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F
from ffpa_attn import ffpa_attn_func, ffpa_attn_varlen_func, merge_states, register_sdpa
from ffpa_attn.flash import flash_attn_func, flash_attn_varlen_func
from torch.nn.attention import SDPBackend, sdpa_kernel


def rows(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype).requires_grad_()


# ---- flash-attn --------------------------------------------------------------------------------


def test_flash_attn_func():
    q, k, v = rows(2, 9, 4, 16), rows(2, 12, 2, 16), rows(2, 12, 2, 16)
    slopes = torch.rand(4)
    out = flash_attn_func(q, k, v, 0.0, 0.3, True, (5, 0), 2.0, slopes)
    want = ffpa_attn_func(
        *(t.transpose(1, 2) for t in (q, k, v)),
        is_causal=True,
        scale=0.3,
        window_size=(5, 0),
        softcap=2.0,
        alibi_slopes=slopes,
    )
    assert out.is_contiguous() and torch.equal(out.transpose(1, 2), want)
    out, lse, probabilities = flash_attn_func(q, k, v, return_attn_probs=True)
    assert out.shape == q.shape and lse.shape == (2, 4, 9) and probabilities is None
    out.sum().backward()
    assert q.grad.shape == q.shape
    with pytest.raises(NotImplementedError, match="return_attn_probs"):
        flash_attn_func(q, k, v, 0.1, return_attn_probs=True)
    with pytest.raises(TypeError):
        flash_attn_func(q, k, v, is_causal=True)


def test_flash_attn_varlen_func():
    q, k = rows(9, 4, 16), rows(9, 2, 16)
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)
    out, lse, _ = flash_attn_varlen_func(q, k, k, cu, cu, 5, 5, causal=True, return_attn_probs=True)
    want = ffpa_attn_varlen_func(q, k, k, cu, cu, 5, 5, causal=True, return_lse=True)
    assert torch.equal(out, want[0]) and torch.equal(lse, want[1])


@pytest.mark.parametrize("used", [None, [0, 5, 11]])
def test_block_table_of_paged_keys(used):
    q, pages_k, pages_v = rows(9, 4, 16), rows(8, 4, 2, 16), rows(8, 4, 2, 24)
    tables = torch.tensor([[-1, 99, 7], [6, 2, -1], [0, 7, 3]], dtype=torch.int32)
    cu_q = torch.tensor([0, 2, 5, 9], dtype=torch.int32)
    lengths = used or [3, 8, 12]
    if used is None:
        tables[0, 0] = 5
    cu_k = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    out, lse, _ = flash_attn_varlen_func(
        q,
        pages_k,
        pages_v,
        cu_q,
        cu_k,
        4,
        12,
        causal=True,
        return_attn_probs=True,
        block_table=tables,
    )
    k, v = (
        torch.cat(
            [t[table.clamp(0, 7).long()].flatten(0, 1)[:n] for table, n in zip(tables, lengths)]
        )
        for t in (pages_k, pages_v)
    )
    want, want_lse = ffpa_attn_varlen_func(q, k, v, cu_q, cu_k, 4, 12, causal=True, return_lse=True)
    assert torch.equal(out, want) and torch.equal(lse, want_lse)
    dout = torch.randn_like(out)
    inputs = (q, pages_k, pages_v)
    for a, b in zip(
        torch.autograd.grad(out, inputs, dout), torch.autograd.grad(want, inputs, dout)
    ):
        assert torch.equal(a, b)
    seqused = torch.tensor(lengths, dtype=torch.int32)
    again = ffpa_attn_varlen_func(
        q, pages_k, pages_v, cu_q, None, 4, 12, causal=True, seqused_k=seqused, block_table=tables
    )
    assert torch.equal(again, out)


def test_block_table_compiled():
    q, pages = torch.randn(9, 4, 16), torch.randn(8, 4, 2, 16)
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)
    table = torch.tensor([[3, 1], [7, 0]], dtype=torch.int32)

    def function(q, pages, cu, table):
        return ffpa_attn_varlen_func(q, pages, pages, cu, cu, 5, 5, block_table=table)

    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(q, pages, cu, table), function(q, pages, cu, table))


def test_block_table_errors():
    q, k = rows(9, 2, 16), rows(3, 4, 2, 16)
    cu = torch.tensor([0, 4, 9], dtype=torch.int32)

    def call(k, *table):
        return ffpa_attn_varlen_func(q, k, k, cu, cu, 5, 5, block_table=torch.tensor(table))

    for bad in ([[0, 1], [2, 3]], [[0, 1], [2, -1]], [[0], [1]], [[0, 1]], [0, 1]):
        with pytest.raises(ValueError, match="block_table: expected"):
            call(k, *bad)
    with pytest.raises(ValueError, match="k: expected"):
        call(k[0], [0, 1], [1, 2])
    with pytest.raises(TypeError, match="block_table: expected dtype int32 or int64, got float32"):
        call(k, [0.0, 1.0], [1.0, 2.0])
    table = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="max_seqlen_k: expected at least 5, got 3"):
        ffpa_attn_varlen_func(q, k, k, cu, cu, 5, 3, block_table=table)
    for bad in ([1, 4, 9], [0, 5, 3]):
        with pytest.raises(ValueError, match="cu_seqlens_k: expected"):
            ffpa_attn_varlen_func(q, k, k, cu, torch.tensor(bad), 5, 5, block_table=table)


# ---- merging -----------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_merge_states(packed):
    q, k, v = (torch.randn(1, 2, n, 16) for n in (9, 20, 20))

    def attend(i, j):
        return ffpa_attn_func(q, k[:, :, i:j], v[:, :, i:j], return_lse=True)

    want, want_lse = attend(0, 20)
    a, b, none = attend(0, 7), attend(7, 20), attend(20, 20)
    if packed:
        a, b, none, (want, want_lse) = (
            (out[0].transpose(0, 1), lse[0]) for out, lse in (a, b, none, (want, want_lse))
        )
    out, lse = merge_states(*a, *b)
    torch.testing.assert_close(out, want)
    torch.testing.assert_close(lse, want_lse)
    out, lse = merge_states(*none, *a)
    assert torch.equal(out, a[0]) and torch.equal(lse, a[1])
    out, lse = merge_states(*none, *none)
    assert (out == 0).all() and (lse == -torch.inf).all()


def test_merge_states_is_differentiable():
    q, k, v = rows(1, 2, 9, 16), rows(1, 2, 20, 16), rows(1, 2, 20, 16)
    mask = torch.arange(20) < torch.tensor([[0]] * 3 + [[20]] * 6)  # three rows see nothing

    def attend(i, j):
        return ffpa_attn_func(q, k[:, :, i:j], v[:, :, i:j], mask[:, i:j], return_lse=True)

    out, lse = merge_states(*attend(0, 7), *attend(7, 20))
    want, want_lse = attend(0, 20)
    dout, dlse = torch.randn_like(out), torch.randn_like(lse)
    dlse[:, :, :3] = 0
    got = torch.autograd.grad((out, lse), (q, k, v), (dout, dlse))
    for a, b in zip(got, torch.autograd.grad((want, want_lse), (q, k, v), (dout, dlse))):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_merge_states_errors():
    out, lse = torch.zeros(1, 2, 9, 16), torch.zeros(1, 2, 9)
    with pytest.raises(ValueError, match="out_b"):
        merge_states(out, lse, out[:, :, :5], lse)
    with pytest.raises(ValueError, match="lse_b"):
        merge_states(out, lse, out, lse[:, :1])


# ---- scaled_dot_product_attention --------------------------------------------------------------


@pytest.fixture
def calls(monkeypatch):
    """How many calls this library served."""
    from ffpa_attn import sdpa

    count = []
    real = sdpa.ffpa_attn_func

    def counted(*args, **kwargs):
        out = real(*args, **kwargs)
        count.append(1)
        return out

    monkeypatch.setattr(sdpa, "ffpa_attn_func", counted)
    return count


def compare(*tensors, served=True, calls, **options):
    original = F.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.MATH):
        want = original(*tensors, **options)
    before = len(calls)
    with register_sdpa():
        out = F.scaled_dot_product_attention(*tensors, **options)
    assert F.scaled_dot_product_attention is original
    assert (len(calls) > before) == served
    torch.testing.assert_close(out, want)
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    dout = torch.randn_like(out)
    for a, b in zip(*(torch.autograd.grad(o, leaves, dout) for o in (out, want))):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("head_dim", [64, 256, 512, 1024])
@pytest.mark.parametrize("lengths", [(9, 9), (9, 20), (20, 9)], ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
def test_case_47_sdpa_patch(head_dim, lengths, is_causal, calls):
    n, m = lengths
    tensors = rows(2, 2, n, head_dim), rows(2, 2, m, head_dim), rows(2, 2, m, head_dim)
    compare(*tensors, is_causal=is_causal, calls=calls)


MASKS = [(9, 20), (2, 1, 9, 20), (1, 2, 1, 20), (2, 9, 20), (1, 20)]


@pytest.mark.parametrize("shape", MASKS, ids=str)
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_sdpa_masks(shape, kind, calls):
    mask = torch.rand(shape) > 0.2 if kind == "bool" else rows(*shape)
    compare(rows(2, 2, 9, 16), rows(2, 2, 20, 16), rows(2, 2, 20, 16), mask, calls=calls)


@pytest.mark.parametrize("batch", [(), (3,), (2, 3, 2)], ids=str)
def test_sdpa_of_other_ranks(batch, calls):
    tensors = [rows(*batch, n, 16) for n in (9, 20, 20)]
    compare(*tensors, torch.randn(9, 20), calls=calls)
    if len(batch) == 3:
        compare(*tensors, torch.randn(3, 1, 9, 20), calls=calls)


def test_sdpa_gqa_scale_and_dropout(calls):
    q, k = rows(2, 4, 9, 16), rows(2, 2, 9, 16)
    compare(q, k, k, enable_gqa=True, scale=0.5, is_causal=True, calls=calls)
    with register_sdpa():
        torch.manual_seed(0)
        out = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
        torch.manual_seed(0)
        assert torch.equal(out, ffpa_attn_func(q, q, q, dropout_p=0.5))


def test_sdpa_of_what_is_not_served(calls, caplog):
    caplog.set_level("DEBUG", logger="ffpa_attn")
    double = [rows(1, 2, 9, 16, dtype=torch.float64) for _ in range(3)]
    compare(*double, served=False, calls=calls)
    odd = [rows(1, 2, 9, 12) for _ in range(3)]
    compare(*odd, served=False, calls=calls)
    assert "torch.float64" in caplog.text and "12" in caplog.text
    with register_sdpa(strict=True), pytest.raises(NotImplementedError, match=r"torch\.float64"):
        F.scaled_dot_product_attention(*double)
    q = torch.zeros(1, 2, 4, 16)
    before = len(calls)
    with register_sdpa(), contextlib.suppress(RuntimeError):  # newer torch refuses this itself
        F.scaled_dot_product_attention(q, q, q, torch.zeros(4, 4), is_causal=True)
    assert len(calls) == before


def test_sdpa_registrations_nest():
    original = F.scaled_dot_product_attention
    outer = register_sdpa()
    with register_sdpa():
        assert F.scaled_dot_product_attention is not original
    assert F.scaled_dot_product_attention is not original
    outer.unregister()
    outer.unregister()
    assert F.scaled_dot_product_attention is original


def test_sdpa_in_modules_and_compiled(calls):
    layer = torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0.0, batch_first=True).train()
    x = torch.randn(2, 9, 32)
    want = layer(x)
    with register_sdpa():
        torch.testing.assert_close(layer(x), want)
        assert calls
        torch._dynamo.reset()
        q = torch.randn(1, 2, 9, 16)
        compiled = torch.compile(
            lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True),
            backend="aot_eager",
            fullgraph=True,
        )
        assert torch.equal(compiled(q), ffpa_attn_func(q, q, q, is_causal=True))


def test_ring_attention_example():
    """examples/python/ring_attention.py: 4 processes over gloo equal one."""
    import subprocess
    import sys
    from pathlib import Path

    example = Path(__file__).parents[2] / "examples" / "python" / "ring_attention.py"
    done = subprocess.run(
        [sys.executable, str(example), "--processes", "4"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "equal" in done.stdout


def test_every_public_name_is_there():
    import ffpa_attn

    for name in itertools.chain(ffpa_attn.__all__, ("flash",)):
        assert getattr(ffpa_attn, name) is not None
