#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the weights of the small model under the names that checkpoints
of Qwen3-MoE have on Hugging Face, as bf16 in model.safetensors.

    models/train/hf_model.py MODEL RUN     writes MODEL from RUN/state.pt
    models/train/hf_model.py MODEL --new   writes MODEL/config.json and random weights
"""
import json
import os
import pathlib
import sys

import safetensors.torch
import torch

import moe_model

CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 6143,
    "decoder_sparse_step": 1,
    "eos_token_id": 6143,
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 256,
    "max_position_embeddings": 2048,
    "max_window_layers": 8,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 32,
    "norm_topk_prob": True,
    "num_attention_heads": 4,
    "num_experts": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 8,
    "num_key_value_heads": 2,
    "output_router_logits": False,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "router_aux_loss_coef": 0.001,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 6144,
}


def named(model):
    """(name on Hugging Face, view of the weights) of all tensors."""
    for name, p in model.state_dict().items():
        if name.endswith(".gate_up"):
            for e, both in enumerate(p):
                gate, up = both.chunk(2)
                head = f"model.{name[:-len('gate_up')]}experts.{e}"
                yield f"{head}.gate_proj.weight", gate
                yield f"{head}.up_proj.weight", up
        elif name.endswith(".down"):
            for e, down in enumerate(p):
                yield (f"model.{name[:-len('down')]}experts.{e}"
                       ".down_proj.weight", down)
        else:
            yield f"model.{name}", p


def write_weights(model, folder):
    """MODEL/model.safetensors, complete or not at all."""
    tensors = {name: p.to(torch.bfloat16).cpu().contiguous().clone()
               for name, p in named(model)}
    temporary = pathlib.Path(folder) / "model.safetensors.tmp"
    safetensors.torch.save_file(tensors, temporary, {"format": "pt"})
    os.chmod(temporary, 0o644)
    os.replace(temporary, pathlib.Path(folder) / "model.safetensors")


def read_weights(model, folder):
    """Fills the model from MODEL/model.safetensors."""
    tensors = safetensors.torch.load_file(
        pathlib.Path(folder) / "model.safetensors")
    for name, p in named(model):
        p.copy_(tensors.pop(name))
    if tensors:
        raise ValueError(f"{folder}: {min(tensors)} is of no use here")


def main():
    """Command line."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    if sys.argv[2] == "--new":
        (folder / "config.json").write_text(
            json.dumps(CONFIG, indent=2) + "\n")
        model = moe_model.Model(CONFIG)
        model.start(1)
    else:
        model = moe_model.Model(moe_model.read_config(folder))
        kept = torch.load(pathlib.Path(sys.argv[2]) / "state.pt",
                          map_location="cpu")
        model.load_state_dict(kept["model"])
    write_weights(model, folder)


if __name__ == "__main__":
    main()
