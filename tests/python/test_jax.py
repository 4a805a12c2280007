# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""JAX arrays, on the CPU."""

import os

import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")
jnp = jax.numpy


def reference(q, k, v, causal):
    k, v = (jnp.repeat(t, q.shape[1] // t.shape[1], 1) for t in (k, v))
    s = jnp.einsum("bhid,bhjd->bhij", q, k, precision="highest") * q.shape[-1] ** -0.5
    if causal:
        n, m = s.shape[-2:]
        s = jnp.where(jnp.arange(m) > jnp.arange(n)[:, None] + m - n, -jnp.inf, s)
    lse = jax.nn.logsumexp(s, -1)
    return jnp.einsum("bhij,bhjd->bhid", jnp.exp(s - lse[..., None]), v, precision="highest"), lse


def inputs(dtype=jnp.float32):
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    shapes = ((2, 4, 9, 16), (2, 2, 20, 16), (2, 2, 20, 24))
    return [jax.random.normal(key, shape).astype(dtype) for key, shape in zip(keys, shapes)]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_attention_and_gradients(causal, jit, dtype):
    from ffpa_attn.jax import attention

    tensors = inputs(dtype)
    wide = [t.astype(jnp.float32) for t in tensors]
    tolerance = {"float32": 1e-5, "float16": 5e-3, "bfloat16": 4e-2}[dtype]

    def ours(*t):
        out, lse = attention(*t, causal=causal, return_lse=True)
        return (out.astype(jnp.float32) ** 2).sum() + jnp.sin(lse).sum(), (out, lse)

    def exact(*t):
        out, lse = reference(*t, causal)
        return (out**2).sum() + jnp.sin(lse).sum(), (out, lse)

    function = jax.value_and_grad(ours, (0, 1, 2), has_aux=True)
    (_, results), gradients = (jax.jit(function) if jit else function)(*tensors)
    (_, want), want_gradients = jax.value_and_grad(exact, (0, 1, 2), has_aux=True)(*wide)
    for got, w in zip((*results, *gradients), (*want, *want_gradients)):
        error = jnp.linalg.norm(got.astype(jnp.float32) - w) / jnp.linalg.norm(w)
        assert error < tolerance
    assert all(g.dtype == t.dtype for g, t in zip(gradients, tensors))


def test_vmap():
    from ffpa_attn.jax import attention

    q = jax.random.normal(jax.random.PRNGKey(0), (3, 1, 2, 9, 16))
    out = jax.vmap(lambda t: attention(t, t, t))(q)
    assert jnp.array_equal(out, jnp.stack([attention(t, t, t) for t in q]))


def test_errors():
    from ffpa_attn.jax import attention

    q, k, v = inputs()
    with pytest.raises(TypeError, match="k: expected"):
        attention(q, k.astype(jnp.float16), v)
    with pytest.raises(ValueError, match="q: expected 4 dimensions"):
        attention(q[0], k, v)
