#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""The CPU backend against torch's CPU scaled_dot_product_attention, causal, forward and backward.

Both run in one process, on the same tensors and threads, in turns; the table gives medians. Memory
is measured in a process of its own per case: inputs plus what the call adds at its peak, over
inputs + outputs + statistics (the least that any implementation can have).

    cpu_attention.py                       D = 512, 256, 64; N = 1024, 4096; float32 and bfloat16
    cpu_attention.py --head-dims 512 --lengths 1024 --dtypes bfloat16 --rounds 9
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import subprocess
import sys
import time

import ffpa_attn
import torch
import torch.nn.functional as F

LIBRARIES = ("ffpa", "torch")


@dataclasses.dataclass(frozen=True)
class Case:
    dtype: str
    head_dim: int
    length: int
    heads: int

    def tensors(self):
        """q, k, v (with gradients) and dout, [1, heads, length, head_dim]."""
        torch.manual_seed(0)
        shape = (1, self.heads, self.length, self.head_dim)
        q, k, v, dout = (torch.randn(shape, dtype=getattr(torch, self.dtype)) for _ in range(4))
        return [t.requires_grad_() for t in (q, k, v)], dout

    def flops(self, products):
        """Multiply-adds count twice; causal halves them. 2 products forward, 5 backward."""
        return products * self.heads * self.length**2 * self.head_dim


def attention(library):
    if library == "ffpa":
        return lambda q, k, v: ffpa_attn.ffpa_attn_func(q, k, v, is_causal=True)
    return lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)


def seconds(function, *inputs):
    start = time.perf_counter()
    result = function(*inputs)
    return time.perf_counter() - start, result


def measure_times(case, rounds, warmups=1):
    """{library: (forward, backward)}: median seconds; the libraries alternate."""
    inputs, dout = case.tensors()
    times = {library: ([], []) for library in LIBRARIES}
    for turn in range(warmups + rounds):
        for library in LIBRARIES if turn % 2 else reversed(LIBRARIES):
            # With gradients on: the forward of a training step, which also keeps its statistics.
            forward, out = seconds(attention(library), *inputs)
            backward, _ = seconds(torch.autograd.grad, out, inputs, dout)
            if turn >= warmups:
                times[library][0].append(forward)
                times[library][1].append(backward)
    return {name: tuple(map(statistics.median, both)) for name, both in times.items()}


def status_bytes(field):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def peak_growth(function, *inputs):
    """Bytes of resident memory that the call adds at its peak, and its result."""
    before = status_bytes("VmRSS")
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")  # resets VmHWM
    result = function(*inputs)
    return status_bytes("VmHWM") - before, result


def measure_memory(case, library):
    """(forward, backward): peak over the least. Meant for a process of its own."""
    # The first call of each library loads code and starts threads.
    small, dout = dataclasses.replace(case, length=64).tensors()
    torch.autograd.grad(attention(library)(*small), small, dout)
    inputs, dout = case.tensors()
    tensor = dout.numel() * dout.element_size()
    statistics_bytes = case.heads * case.length * 4
    forward, out = peak_growth(attention(library), *inputs)
    backward, _ = peak_growth(torch.autograd.grad, out, inputs, dout)
    return (
        (3 * tensor + forward) / (4 * tensor + statistics_bytes),
        (5 * tensor + statistics_bytes + backward) / (8 * tensor + statistics_bytes),
    )


def measure_memory_apart(case, library, threads):
    # Freed memory goes back to the system at once, so that it is not counted as free room.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    case_text = json.dumps(dataclasses.asdict(case))
    command = [
        sys.executable,
        __file__,
        "--threads",
        str(threads),
        "--memory-of",
        library,
        case_text,
    ]
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(output.stdout)


def measure(case, options):
    """Two rows of the table: forward and backward."""
    times = measure_times(case, options.rounds)
    memory = {
        library: (None, None)
        if options.no_memory
        else measure_memory_apart(case, library, options.threads)
        for library in LIBRARIES
    }
    for i, (name, products) in enumerate((("forward", 2), ("backward", 5))):
        row = dataclasses.asdict(case) | {"pass": name, "threads": options.threads}
        for library in LIBRARIES:
            row[library + "_ms"] = times[library][i] * 1e3
            row[library + "_gflops"] = case.flops(products) / times[library][i] / 1e9
            row[library + "_memory"] = memory[library][i]
        yield row | {"speedup": times["torch"][i] / times["ffpa"][i]}


HEADER = (
    f"{'dtype':9} {'D':>4} {'N':>5} {'heads':>5}  {'pass':8} {'ffpa ms':>9} {'torch ms':>9}"
    f" {'speedup':>8} {'ffpa GF/s':>10} {'torch GF/s':>10}  {'memory: ffpa':>12} {'torch':>6}"
)


def table_line(row):
    memory = [f"{m:.2f}" if m else "-" for m in (row["ffpa_memory"], row["torch_memory"])]
    return (
        f"{row['dtype']:9} {row['head_dim']:4} {row['length']:5} {row['heads']:5}  {row['pass']:8}"
        f" {row['ffpa_ms']:9.1f} {row['torch_ms']:9.1f} {row['speedup']:7.2f}x"
        f" {row['ffpa_gflops']:10.0f} {row['torch_gflops']:10.0f}  {memory[0]:>12} {memory[1]:>6}"
    )


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--head-dims", type=int, nargs="+", default=[512, 256, 64])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 4096])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--heads", type=int, help="default: 8, from 4096 tokens on 4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true", help="times only")
    parser.add_argument("--json", help="also write one line per row to this file")
    parser.add_argument("--memory-of", nargs=2, metavar=("LIBRARY", "CASE"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    options = arguments()
    torch.set_num_threads(options.threads)
    if options.memory_of:
        library, case = options.memory_of
        print(json.dumps(measure_memory(Case(**json.loads(case)), library)))
        return
    cases = [
        Case(dtype, head_dim, length, options.heads or (8 if length < 4096 else 4))
        for head_dim, length, dtype in itertools.product(
            options.head_dims, options.lengths, options.dtypes
        )
    ]
    rows = []
    for number, case in enumerate(cases, 1):
        print(f"[{number}/{len(cases)}] {case}", file=sys.stderr, flush=True)
        rows += measure(case, options)
    print(
        f"causal, batch 1, {options.threads} threads, medians of {options.rounds} rounds, "
        f"torch {torch.__version__}"
    )
    print("memory: peak / (inputs + outputs + statistics)")
    print(HEADER)
    for row in rows:
        print(table_line(row))
    if options.json:
        with open(options.json, "w") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
