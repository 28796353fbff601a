#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares moe_model.py with Qwen3MoeForCausalLM of transformers on a model, in fp32,
and writes what the latter says as golden values for other implementations.

    models/train/compare.py MODEL TEXTS [GOLDEN.json]

Of each text of TEXTS a prompt of about 40 tokens: ids as `tokenizers` gives them,
logits at the last position (the 16 largest, their sum, 8 at fixed ids), mean
negative log-likelihood, and the experts of the last token in each layer, the most
probable first. Fails if the two differ by more than rounding.
"""
import json
import pathlib
import sys

import tokenizers
import torch
import transformers

import hf_model
import moe_model

N_TOKENS, N_TOP = 40, 16
FIXED = [0, 13, 255, 256, 1000, 2500, 4096, 6000]
TOLERANCE = 2e-4


def prompt(tokenizer, text):
    """A piece of the text that is about N_TOKENS long, and its ids."""
    lines = text[len(text) // 3:].split("\n", 1)[1].lstrip("\n")
    ids = tokenizer.encode(lines[:2000])
    piece = lines[:ids.offsets[N_TOKENS - 1][1]]
    return piece, tokenizer.encode(piece).ids


def ours(model, ids):
    """Logits of all positions, and the experts in each layer."""
    seen = []
    h = model(torch.tensor([ids]), seen)
    return (h @ model.embed_tokens.weight.t())[0], [x[1] for x in seen]


def theirs(model, ids):
    """The same of transformers."""
    out = model(torch.tensor([ids]), output_router_logits=True)
    k = model.config.num_experts_per_tok
    return out.logits[0], [x.topk(k, -1).indices for x in out.router_logits]


def golden(text, ids, logits, experts):
    """Values that others are to reproduce."""
    nll = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    top = logits[-1].topk(N_TOP)
    return {"text": text, "ids": ids, "mean_nll": nll.item(),
            "top_ids": top.indices.tolist(), "top_logits": top.values.tolist(),
            "sum": logits[-1].double().sum().item(), "fixed_ids": FIXED,
            "fixed_logits": logits[-1][FIXED].tolist(),
            "experts": [x[-1].tolist() for x in experts]}


def write(path, found):
    """The golden values, a line for each."""
    head = {"what": "fp32 values of transformers' Qwen3MoeForCausalLM on the bf16 "
                    "weights, by models/train/compare.py",
            "transformers": transformers.__version__,
            "torch": torch.__version__}
    lines = [f" {json.dumps(key)}: {json.dumps(x)}" for key, x in head.items()]
    domains = [f"  {json.dumps(name)}: {{\n" + ",\n".join(
        f"   {json.dumps(key)}: {json.dumps(x, ensure_ascii=False)}"
        for key, x in values.items()) + "\n  }"
        for name, values in found.items()]
    lines.append(' "domains": {\n' + ",\n".join(domains) + "\n }")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


@torch.no_grad()
def main():
    """Command line."""
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    folder, texts = map(pathlib.Path, sys.argv[1:3])
    model = moe_model.Model(moe_model.read_config(folder))
    hf_model.read_weights(model, folder)
    reference, info = transformers.Qwen3MoeForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True)
    if info["missing_keys"] or info["unexpected_keys"]:
        sys.exit(f"compare: tensors of {folder}: {info}")
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    found, worst = {}, 0.0
    for name in sorted(texts.glob("*.txt")):
        text, ids = prompt(tokenizer, name.read_text())
        a, experts = ours(model, ids)
        b, reference_experts = theirs(reference, ids)
        worst = max(worst, (a - b).abs().max().item())
        same = sum((x.sort().values == y.sort().values).all(-1).sum().item()
                   for x, y in zip(experts, reference_experts))
        print(f"{name.stem}: {len(ids)} tokens, logits differ by "
              f"{(a - b).abs().max():.2e} at most, experts are the same in "
              f"{same} of {len(ids) * len(experts)}")
        found[name.stem] = golden(text, ids, b, reference_experts)
    if len(sys.argv) == 4:
        write(pathlib.Path(sys.argv[3]), found)
    if worst > TOLERANCE:
        sys.exit(f"compare: logits differ by {worst}, at most {TOLERANCE} "
                 "is rounding")


if __name__ == "__main__":
    main()
