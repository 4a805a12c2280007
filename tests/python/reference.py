# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""Attention written out, differentiable, in any dtype: in float64 the oracle, in the dtype under
test its peer, whose own error sets the tolerance."""

from __future__ import annotations

import math

import torch

# A peer in float32 can be exact by luck; errors below this many units in the last place of float32
# are never a fault.
FLOOR = 4 * 2.0**-24


def one_sequence(
    q,
    k,
    v,
    *,
    causal=False,
    scale=None,
    window=(-1, -1),
    softcap=0.0,
    mask=None,
    sink=None,
    slopes=None,
    keep=None,
    dropout_p=0.0,
):
    """q [Hq, n, D], k [Hkv, m, D], v [Hkv, m, Dv], mask and keep [.., n, m] -> out, lse."""
    heads, n, head_dim = q.shape
    m = k.shape[1]
    k, v = (t.repeat_interleave(heads // t.shape[0], 0) for t in (k, v))
    s = (q @ k.mT) * (head_dim**-0.5 if scale is None else scale)
    if softcap:
        s = softcap * torch.tanh(s / softcap)
    key = torch.arange(m)[None, :] - (torch.arange(n)[:, None] + m - n)  # relative to the diagonal
    if slopes is not None:
        s = s - slopes.to(s.dtype)[:, None, None] * key.abs()
    hidden = torch.zeros(heads, n, m, dtype=torch.bool)
    left, right = window[0], 0 if causal else window[1]
    if left >= 0:
        hidden = hidden | (key < -left)
    if right >= 0:
        hidden = hidden | (key > right)
    if mask is not None and mask.dtype is torch.bool:
        hidden = hidden | ~mask
    elif mask is not None:
        s = s + mask.to(s.dtype)
        hidden = hidden | (mask == -math.inf)
    s = s.masked_fill(hidden, -math.inf)
    some = (s > -math.inf).any(-1, keepdim=True)  # rows without: out 0, lse -inf, sink or not
    if sink is not None:
        s = torch.cat([s, sink.to(s.dtype)[:, None, None].expand(heads, n, 1)], -1)
    lse = torch.where(some, s, 0).logsumexp(-1, keepdim=True) if s.shape[-1] else s.sum(-1, True)
    p = torch.where(some, torch.exp(torch.where(some, s, 0) - lse), 0)[..., :m]
    if keep is not None:
        p = torch.where(keep, p / (1 - dropout_p), 0)
    v = torch.where((~hidden).any(-2)[..., None], v, 0)  # what no query sees may be inf or nan
    return p @ v, torch.where(some, lse, -math.inf)[..., 0]


def dense(q, k, v, *, mask=None, slopes=None, seqused_q=None, seqused_k=None, keep=None, **options):
    """[B, H, N, D] -> out, lse."""
    batch, heads, n, _ = q.shape
    m = k.shape[2]
    mask = None if mask is None else mask.expand(batch, heads, n, m)
    results = []
    for b in range(batch):
        nq = n if seqused_q is None else int(seqused_q[b])
        nk = m if seqused_k is None else int(seqused_k[b])
        out, lse = one_sequence(
            q[b, :, :nq],
            k[b, :, :nk],
            v[b, :, :nk],
            mask=None if mask is None else mask[b, :, :nq, :nk],
            slopes=slopes if slopes is None or slopes.dim() == 1 else slopes[b],
            keep=None if keep is None else keep[b, :, :nq, :nk],
            **options,
        )
        rest = n - nq
        results.append(
            (
                torch.cat([out, out.new_zeros(heads, rest, out.shape[-1])], 1),
                torch.cat([lse, lse.new_full((heads, rest), -math.inf)], 1),
            )
        )
    return tuple(torch.stack(list(t)) for t in zip(*results))


def packed(q, k, v, lengths_q, lengths_k, **options):
    """[T, H, D] -> out, lse: each sequence as a dense batch of one."""
    outs, lses, at_q, at_k = [], [], 0, 0
    for b, (n, m) in enumerate(zip(lengths_q, lengths_k)):
        own = {
            name: t[b : b + 1] if name.startswith("seqused") else t for name, t in options.items()
        }
        rows = (t.transpose(0, 1)[None] for t in (q[at_q : at_q + n], k[at_k : at_k + m]))
        values = v[at_k : at_k + m].transpose(0, 1)[None]
        out, lse = dense(*rows, values, **own)
        outs.append(out[0].transpose(0, 1))
        lses.append(lse[0])
        at_q, at_k = at_q + n, at_k + m
    return torch.cat(outs), torch.cat(lses, 1)


def cast(tree, dtype):
    """Leaves of floating dtype, detached, as `dtype`, requiring a gradient where they did."""
    return [
        t.detach().to(dtype).requires_grad_(t.requires_grad)
        if isinstance(t, torch.Tensor) and t.is_floating_point()
        else t
        for t in tree
    ]


def assert_close(name, got, want, peer):
    """`got` is at most twice as far from `want` as `peer` is; inf and nan stand where they do."""
    got, want, peer = (t.detach().double() for t in (got, want, peer))
    assert got.shape == want.shape, (name, got.shape, want.shape)
    assert torch.equal(got.isfinite(), want.isfinite()), f"{name}: other elements are finite"
    finite = want.isfinite()
    assert torch.equal(got[~finite], want[~finite]), f"{name}: inf or nan elsewhere"
    error = (got - want)[finite].norm().item()
    limit = (
        2 * (peer - want)[finite].nan_to_num().norm().item() + FLOOR * want[finite].norm().item()
    )
    assert error <= limit, f"{name}: error {error:.3g}, limit {limit:.3g}"


def check(function, reference, tensors, options=None, with_lse=False):
    """Outputs and gradients of `function(*tensors)` against `reference(*tensors)` -> (out, lse),
    with a random output gradient (and one of lse)."""
    leaves = [t for t in tensors if t is not None and t.requires_grad]
    out, lse = function(*tensors)
    wide = cast(tensors, torch.float64)
    want_out, want_lse = reference(*wide)
    low = cast(tensors, out.dtype)
    peer_out, peer_lse = reference(*low)
    assert_close("out", out, want_out, peer_out)
    # lse is float32 whatever the inputs are.
    assert lse.dtype is torch.float32
    exact, got = want_lse.detach(), lse.detach().double()
    assert torch.equal(got.isfinite(), exact.isfinite())
    finite = exact.isfinite()
    torch.testing.assert_close(got[finite], exact[finite], rtol=1e-6, atol=2e-4)
    assert torch.equal(got[~finite], exact[~finite])
    if not leaves:
        return
    dout = torch.randn(out.shape).to(out.dtype)
    dlse = torch.randn(lse.shape).masked_fill(~finite, 0)
    results = []
    for o, ls, inputs in (
        (out, lse, tensors),
        (want_out, want_lse, wide),
        (peer_out, peer_lse, low),
    ):
        outputs, gradients = [o], [dout.to(o.dtype)]
        if with_lse:
            outputs.append(torch.where(finite, ls, 0))
            gradients.append(dlse.to(ls.dtype))
        inputs = [t for t in inputs if t is not None and t.requires_grad]
        results.append(torch.autograd.grad(outputs, inputs, gradients))
    for i, (got, want, peer) in enumerate(zip(*results)):
        assert got.dtype == leaves[i].dtype
        assert_close(f"gradient {i}", got, want, peer.to(got.dtype))
