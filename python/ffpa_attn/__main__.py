# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""`python -m ffpa_attn doctor`: what is here, what serves what, and does it work."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

SELF_TEST_SECONDS = 2.0


def _line(name: str, text: str) -> None:
    print(f"{name:<12} {text}")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            lines = [line for line in file if line.startswith("model name")]
        return f"{lines[0].split(':', 1)[1].strip()}, {os.cpu_count()} threads"
    except (OSError, IndexError):
        return f"{platform.machine()}, {os.cpu_count()} threads"


def _torch_devices() -> tuple[str, list[tuple[str, int]]]:
    """A line on torch and its GPUs: (name, compute capability * 10) of each."""
    try:
        import torch
    except ImportError:
        return "not installed; NumPy arrays work without it", []
    if not torch.cuda.is_available():
        return f"{torch.__version__}, no CUDA device", []
    gpus = []
    for i in range(torch.cuda.device_count()):
        major, minor = torch.cuda.get_device_capability(i)
        gpus.append((torch.cuda.get_device_name(i), 10 * major + minor))
    return f"{torch.__version__}, CUDA {torch.version.cuda}", gpus


def _driver() -> str:
    try:
        with open("/proc/driver/nvidia/version") as file:
            return file.readline().strip()
    except OSError:
        return "no NVIDIA driver loaded"


def _kernel_rows(text: str) -> Iterator[dict[str, Any]]:
    """The lines of the library's kernel list."""
    names = ("name", "backend", "pass", "min_dim", "max_dim", "step", "min_sm", "max_sm")
    for line in text.splitlines():
        row: dict[str, Any] = dict(zip(names, line.split()))
        yield {k: v if k in names[:3] else int(v) for k, v in row.items()}


def _print_kernels(rows: Iterable[dict[str, Any]], sms: list[int]) -> None:
    for row in rows:
        if row["backend"] == "cpu":
            here, needs = True, "any CPU"
        else:
            here = any(row["min_sm"] <= sm <= row["max_sm"] for sm in sms)
            needs = f"GPU sm_{row['min_sm']} to sm_{row['max_sm']}"
        dims = f"head_dim {row['min_dim']} to {row['max_dim']} in steps of {row['step']}"
        mark = "runs here" if here else "not here "
        print(f"  {mark}  {row['pass']:<8}  {row['name']:<24} {dims}, {needs}")


def _progress(fraction: float, text: str) -> None:
    if sys.stdout.isatty():
        filled = int(24 * fraction)
        print(f"\r[{'#' * filled}{'.' * (24 - filled)}] {text:<40}", end="", flush=True)
        if fraction >= 1:
            print()


def _check_torch(device: str, head_dim: int) -> float:
    """Largest relative error of out, dq, dk, dv against float64."""
    import torch

    from .interface import ffpa_attn_func

    dtype = torch.float32 if device == "cpu" else torch.bfloat16
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 4, 100, head_dim), (1, 2, 130, head_dim), (1, 2, 130, head_dim))
    q, k, v = (torch.randn(s, generator=generator).to(dtype) for s in shapes)
    dout = torch.randn(shapes[0], generator=generator).to(dtype)
    ours = [t.to(device).requires_grad_() for t in (q, k, v)]
    out = ffpa_attn_func(*ours, is_causal=True)
    got = [out, *torch.autograd.grad(out, ours, dout.to(device))]

    wide = [t.double().requires_grad_() for t in (q, k, v)]
    rows = [t.repeat_interleave(2, 1) for t in wide[1:]]
    hidden = torch.ones(100, 130, dtype=torch.bool).triu(31)
    scores = (wide[0] @ rows[0].mT * head_dim**-0.5).masked_fill(hidden, float("-inf"))
    out = scores.softmax(-1) @ rows[1]
    want = [out, *torch.autograd.grad(out, wide, dout.double())]
    return max(((a.cpu() - b).norm() / b.norm()).item() for a, b in zip(got, want))


def _check_numpy(head_dim: int) -> float:
    import numpy as np

    from .interface import ffpa_attn_func

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 100, head_dim), np.float32) for _ in range(3))
    s = (q.astype(np.float64) @ k.swapaxes(-1, -2)) * head_dim**-0.5
    p = np.exp(s - s.max(-1, keepdims=True))
    want = p / p.sum(-1, keepdims=True) @ v
    got = ffpa_attn_func(q, k, v)
    return float(np.linalg.norm(got - want) / np.linalg.norm(want))


def _self_test(gpus: list[tuple[str, int]], has_torch: bool) -> bool:
    """Runs small problems for about two seconds; prints what failed."""
    limits = {"cpu": 1e-5, "cuda": 2e-2}
    devices = ["cpu", *(f"cuda:{i}" for i in range(len(gpus)))]
    cases = [(device, dim) for dim in (512, 64, 256, 320) for device in devices]
    began, worst, failed, done, refused = time.perf_counter(), 0.0, [], 0, []
    for device, dim in cases:
        if done and time.perf_counter() - began > SELF_TEST_SECONDS:
            break
        _progress(done / len(cases), f"{device}, head_dim {dim}")
        try:
            error = _check_torch(device, dim) if has_torch else _check_numpy(dim)
            worst = max(worst, error)
            if not error < limits[device.split(":")[0]]:
                failed.append(f"{device}, head_dim {dim}: relative error {error:.1e}")
        except NotImplementedError as error:
            refused.append(f"{device}, head_dim {dim}: {error}")
        except Exception as error:
            failed.append(f"{device}, head_dim {dim}: {type(error).__name__}: {error}")
        done += 1
    _progress(1, "done")
    what = "forward and backward" if has_torch else "forward"
    seconds = time.perf_counter() - began
    good = done - len(failed) - len(refused)
    _line("self test", f"{what}: {good} of {done} right, error {worst:.1e}, {seconds:.1f} s")
    for text in refused:
        print(f"  not served: {text}")
    for text in failed:
        print(f"  FAILED: {text}")
    return not failed


def doctor() -> int:
    """Prints the report; 0 if the library works."""
    from . import __version__, _library

    _line("package", f"ffpa_attn {__version__} in {os.path.dirname(__file__)}")
    _line("python", f"{platform.python_version()} on {platform.platform()}")
    _line("processor", _processor())
    _line("driver", _driver())
    torch_text, gpus = _torch_devices()
    _line("torch", torch_text)
    for name, sm in gpus:
        _line("gpu", f"{name}, sm_{sm}")
    for name, distribution in (
        ("numpy", "numpy"),
        ("tvm-ffi", "apache-tvm-ffi"),
        ("transformers", "transformers"),
    ):
        _line(name, _version(distribution) or "not installed")
    try:
        library, kernels = _library.version(), _library.kernels()
    except Exception as error:
        _line("library", f"CANNOT BE LOADED: {error}")
        print("Install with `pip install .`, or set FFPA_LIBRARY to a built libffpa_attn.so.")
        return 1
    _line("library", f"{library}, {_library.path()}")
    print("kernels, best first:")
    _print_kernels(_kernel_rows(kernels), [sm for _, sm in gpus])
    has_torch = not torch_text.startswith("not installed")
    if not has_torch and _version("numpy") is None:
        print("self test  skipped: neither torch nor numpy is installed")
        return 0
    return 0 if _self_test(gpus, has_torch) else 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m ffpa_attn", description=__doc__)
    parser.add_argument("command", choices=["doctor"])
    parser.parse_args()
    return doctor()


if __name__ == "__main__":
    sys.exit(main())
