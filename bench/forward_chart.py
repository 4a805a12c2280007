#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""A Markdown table and a chart of forward timings, ours against the peers'.

  forward_chart.py OURS.jsonl [--peers PEERS.jsonl] [--png CHART.png]

OURS: lines of ffpa_gpu_bench. PEERS: lines with "dir": "fwd" and a case "PEER:CASE".
Each is given as TFLOP/s and as a share of the cuBLAS product beside it, since the clock falls with
the heat.
"""

import argparse
import json
import pathlib


def read_lines(path):
    for line in pathlib.Path(path).read_text().splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def read_ours(path):
    return {r["case"]: r for r in read_lines(path) if "tflops" in r}


def read_peers(path):
    """{case: {peer: (TFLOP/s, share of cuBLAS)}}, of several runs the fastest."""
    peers = {}
    for r in read_lines(path):
        if r.get("dir") != "fwd" or "tflops" not in r:
            continue
        peer, case = r["case"].split(":", 1)
        best = peers.setdefault(case, {})
        best[peer] = max(best.get(peer, (0, 0)), (r["tflops"], r.get("ratio", 0)))
    return peers


def share(tflops, cublas):
    return f"{tflops / cublas:.2f}" if cublas > 0 else "-"


def table(ours, peers):
    rows = [
        "| case | TFLOP/s | of cuBLAS | W | MHz | best peer | TFLOP/s | of cuBLAS |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, r in ours.items():
        mine = f"{r['tflops']:.0f} | {share(r['tflops'], r['cublas'])}"
        sensor = f"{r.get('watts', 0):.0f} | {r.get('mhz', 0):.0f}"
        best = max(peers.get(case, {}).items(), key=lambda p: p[1], default=None)
        theirs = f"{best[0]} | {best[1][0]:.0f} | {best[1][1]:.2f}" if best else "- | - | -"
        rows.append(f"| {case} | {mine} | {sensor} | {theirs} |")
    return "\n".join(rows)


def draw(ours, peers, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = list(ours)
    names = ["ffpa (this build)", *sorted({n for c in cases for n in peers.get(c, {})})]
    figure, axes = pyplot.subplots(figsize=(10, 1 + 0.16 * len(cases) * (len(names) + 1)))
    height = 0.85 / len(names)
    for i, name in enumerate(names):
        values = [
            ours[c]["tflops"] if i == 0 else peers.get(c, {}).get(name, (0, 0))[0] for c in cases
        ]
        axes.barh([y + i * height for y in range(len(cases))], values, height, label=name)
    axes.set_yticks([y + 0.425 for y in range(len(cases))], cases, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("TFLOP/s, forward")
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("ours")
    parser.add_argument("--peers")
    parser.add_argument("--png")
    options = parser.parse_args()
    ours = read_ours(options.ours)
    peers = read_peers(options.peers) if options.peers else {}
    print(table(ours, peers))
    if options.png:
        draw(ours, peers, options.png)


if __name__ == "__main__":
    main()
