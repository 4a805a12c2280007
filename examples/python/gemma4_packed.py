# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 the ffpa authors
"""A small Gemma-4-shaped model, packed as TRL packs, trained with eager attention and with ffpa.

    python gemma4_packed.py                  20 steps, prints both loss curves
    python gemma4_packed.py --plot loss.svg  and draws them

Two sliding-window layers (head_dim 256) and one global layer (head_dim 512), 4 query heads on 2 and
1 key heads, keys and values shared between layers. Several documents stand in one row, told apart
only by position_ids that restart; there is no attention mask.
"""

from __future__ import annotations

import argparse

import ffpa_attn
import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig

LENGTHS = [37, 5, 64, 22]


def config() -> Gemma4TextConfig:
    return Gemma4TextConfig(
        vocab_size=256,
        vocab_size_per_layer_input=256,
        hidden_size=64,
        hidden_size_per_layer_input=16,
        intermediate_size=128,
        num_hidden_layers=4,
        num_kv_shared_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_global_key_value_heads=1,
        head_dim=256,
        global_head_dim=512,
        sliding_window=16,
        layer_types=["sliding_attention", "sliding_attention", "full_attention", "full_attention"],
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )


def batches(steps: int, device: str, lengths: list[int] = LENGTHS) -> list[dict]:
    """Packed rows: input_ids and position_ids [1, tokens]."""
    generator = torch.Generator().manual_seed(1)
    positions = torch.cat([torch.arange(n) for n in lengths])[None].to(device)
    total = sum(lengths)
    # Arithmetic progressions: something to learn.
    rows = []
    for _ in range(steps):
        parts = []
        for n in lengths:
            start, step = torch.randint(3, 256, (2,), generator=generator).tolist()
            parts.append((start + (step % 5) * torch.arange(n)) % 253 + 3)
        rows.append({"input_ids": torch.cat(parts)[None].to(device), "position_ids": positions})
        assert rows[-1]["input_ids"].shape == (1, total)
    return rows


def build(attention: str, dtype: torch.dtype = torch.float32) -> Gemma4ForCausalLM:
    torch.manual_seed(0)
    model = Gemma4ForCausalLM._from_config(config(), attn_implementation=attention, dtype=dtype)
    for name, weight in model.named_parameters():
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            # As in a trained model. At 1, the logits (scale 1.0) reach head_dim, softmax picks one
            # key, and training is chaotic: rounding alone moves the losses by percents.
            torch.nn.init.constant_(weight, weight.numel() ** -0.25)
    return model


def train(
    attention: str, steps: int = 20, device: str = "cpu", autocast: torch.dtype | None = None
) -> list[float]:
    """The loss of each step. `autocast`: the dtype of mixed precision, None for float32."""
    model = build(attention).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for batch in batches(steps, device):
        labels = batch["input_ids"].clone()
        labels[batch["position_ids"] == 0] = -100  # nothing predicts the first token of a document
        with torch.autocast(device, dtype=autocast, enabled=autocast is not None):
            loss = model(**batch, labels=labels, use_cache=False).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plot(path: str, curves: dict[str, list[float]]) -> None:
    """A small SVG: one polyline for each curve."""
    width, height, margin = 640, 360, 48
    top = max(max(c) for c in curves.values())
    low = min(min(c) for c in curves.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{margin}" y="20">loss, {top:.2f} to {low:.2f}, over the steps</text>',
    ]
    styles = (("#c33", "5", "none"), ("#36c", "2", "6 4"))
    for i, (name, curve) in enumerate(curves.items()):
        points = " ".join(
            f"{margin + x * (width - 2 * margin) / (len(curve) - 1):.1f},"
            f"{height - margin - (y - low) * (height - 2 * margin) / (top - low):.1f}"
            for x, y in enumerate(curve)
        )
        color, stroke, dashes = styles[i % 2]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="{stroke}" '
            f'stroke-dasharray="{dashes}"/>'
        )
        at = width - margin - 80
        parts.append(f'<text x="{at}" y="{margin + 18 * i}" fill="{color}">{name}</text>')
    with open(path, "w") as file:
        file.write("\n".join([*parts, "</svg>\n"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--plot", metavar="FILE.svg")
    arguments = parser.parse_args()
    ffpa_attn.register_transformers()
    # The GPU kernels take no float32.
    autocast = None if arguments.device == "cpu" else torch.bfloat16
    curves = {
        name: train(name, arguments.steps, arguments.device, autocast) for name in ("eager", "ffpa")
    }
    print("step      eager       ffpa")
    for step, (a, b) in enumerate(zip(*curves.values())):
        print(f"{step:4d} {a:10.5f} {b:10.5f}")
    worst = max(abs(a - b) / a for a, b in zip(*curves.values()))
    print(f"largest relative difference: {worst:.1e}")
    if arguments.plot:
        plot(arguments.plot, curves)
        print(f"wrote {arguments.plot}")


if __name__ == "__main__":
    main()
