#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures a model on the held-out texts: loss, load of the ranks, and how well the
router of a layer tells its experts from the hidden state of the layer before.

    models/train/imbalance.py MODEL TEXTS [RESULT.json] [--seed S] [--ranks R]
                              [--sequences N] [--length L]

A batch is N sequences of L tokens, taken from one text at places that the seed
determines; mixed is a batch with sequences of all of them. The ratio of a layer is the load
of the fullest rank over the mean load when rank r has the experts from r E/R on. The
hit rate is the share of the true top k that the same router puts into its top k when
it sees what entered the layer, before attention, normalised as after it. Loss is
over the whole text in sequences of L tokens, in nats per token, and per byte in bits,
computed in bf16 as in training; routing is computed in fp32.
"""
import argparse
import json
import math
import pathlib

import numpy
import tokenizers
import torch

import hf_model
import moe_model


def take(ids, n, length, rng):
    """n sequences of the ids."""
    starts = rng.integers(0, len(ids) - length, n)
    return torch.stack([torch.tensor(ids[a:a + length]) for a in starts])


def load_ratio(ids, n_experts, ranks):
    """Fullest rank over mean."""
    counts = torch.bincount(ids.flatten(), minlength=n_experts).float()
    counts = counts.view(ranks, -1).sum(1)
    return (counts.max() / counts.mean()).item()


def routing(model, batch, ranks):
    """Of each layer: ratio, hit rate, experts with half of the load."""
    seen, hidden = [], []
    model(batch, seen, hidden)
    ratios, hits, halves = [], [], []
    for layer, (_, ids), h in zip(model.layers, seen, hidden):
        x = layer.post_attention_layernorm(h).flatten(0, 1)
        _, _, early = layer.mlp.route(x)
        hit = (ids[:, :, None] == early[:, None]).any(-1).float().mean()
        counts = torch.bincount(ids.flatten(), minlength=layer.mlp.n)
        share = counts.sort(descending=True).values.cumsum(0) / counts.sum()
        ratios.append(load_ratio(ids, layer.mlp.n, ranks))
        hits.append(hit.item())
        halves.append(int((share < 0.5).sum()) + 1)
    return {"ratio": ratios, "hit_rate": hits, "experts_of_half": halves}


def loss(model, ids, length, n_bytes):
    """Nats per token and bits per byte of a text."""
    n = (len(ids) - 1) // length * length
    x = torch.tensor(ids[:n]).view(-1, length)
    y = torch.tensor(ids[1:n + 1]).view(-1, length)
    with torch.autocast("cpu", torch.bfloat16):
        total = sum(model.losses(model(a), b).double().sum().item()
                    for a, b in zip(x.split(16), y.split(16)))
    bits = total / n * len(ids) / math.log(2) / n_bytes
    return {"tokens": len(ids), "bytes": n_bytes, "nats_per_token": total / n,
            "bits_per_byte": bits}


def rounded(x):
    """Four digits are enough for people."""
    if isinstance(x, float):
        return round(x, 4)
    if isinstance(x, dict):
        return {key: rounded(value) for key, value in x.items()}
    return [rounded(value) for value in x] if isinstance(x, list) else x


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("result", type=pathlib.Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--sequences", type=int, default=16)
    parser.add_argument("--length", type=int, default=256)
    return parser.parse_args()


def mean(values):
    """Mean."""
    return sum(values) / len(values)


@torch.no_grad()
def main():
    """Prints a line for each text."""
    o = parse()
    model = moe_model.Model(moe_model.read_config(o.model))
    hf_model.read_weights(model, o.model)
    tokenizer = tokenizers.Tokenizer.from_file(str(o.model / "tokenizer.json"))
    found, batches = {}, []
    print(f"{'':12} nats/token bits/byte  ratio (least, most)  hit rate")
    for name in sorted(o.texts.glob("*.txt")):
        text = name.read_text()
        ids = tokenizer.encode(text).ids
        batch = take(ids, o.sequences, o.length,
                     numpy.random.default_rng(o.seed))
        batches.append(batch)
        found[name.stem] = {**loss(model, ids, o.length, len(text.encode())),
                            **routing(model, batch, o.ranks)}
    mixed = torch.cat(batches)[::len(batches)]
    found["mixed"] = routing(model, mixed, o.ranks)
    for name, x in found.items():
        print(f"{name:12} {x.get('nats_per_token', 0):10.3f} "
              f"{x.get('bits_per_byte', 0):9.3f}  {mean(x['ratio']):5.3f} "
              f"({min(x['ratio']):.3f}, {max(x['ratio']):.3f})  "
              f"{mean(x['hit_rate']):.3f}")
    single = [x for name, x in found.items() if name != "mixed"]
    total = {key: mean([mean(x[key]) for x in single])
             for key in ("ratio", "hit_rate")}
    print(f"mean of single texts: ratio {total['ratio']:.3f}, "
          f"hit rate {total['hit_rate']:.3f}")
    if o.result:
        o.result.write_text(json.dumps(rounded(
            {"seed": o.seed, "ranks": o.ranks, "sequences": o.sequences,
             "length": o.length, "mean_of_single": total, "texts": found}),
            indent=1) + "\n")


if __name__ == "__main__":
    main()
