# SPDX-License-Identifier: Apache-2.0
"""The Qwen3-MoE architecture in PyTorch, as small as it can be written: the same
function as Qwen3MoeForCausalLM of transformers (export.py writes its checkpoints,
compare.py compares the two), made for training on few cores or on one GPU.

The experts of a layer are one tensor each for gate and up, and for down. Rows of
tokens are sorted by expert into tiles of TILE rows, and a batched product multiplies
each tile with the weights of its expert.
"""
import json
import math
import pathlib

import torch
from torch import nn
from torch.nn import functional as F


# Rows of one expert that are multiplied at once.
TILE = 64


def read_config(folder):
    """config.json of a model."""
    return json.loads((pathlib.Path(folder) / "config.json").read_text())


class Norm(nn.Module):
    """RMSNorm, computed in fp32."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + self.eps)
        return self.weight.to(x.dtype) * y.to(x.dtype)


def rotary(length, head_dim, theta, device):
    """cos and sin [length, head_dim]."""
    steps = torch.arange(0, head_dim, 2, device=device).float() / head_dim
    angles = torch.outer(torch.arange(length, device=device).float(),
                         1.0 / theta ** steps)
    angles = torch.cat((angles, angles), -1)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotary embedding of x [batch, heads, length, head_dim]."""
    a, b = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat((-b, a), -1) * sin.to(x.dtype)


class Attention(nn.Module):
    """Grouped-query attention with normalised queries and keys."""

    def __init__(self, c):
        super().__init__()
        hidden, self.head = c["hidden_size"], c["head_dim"]
        q, kv = c["num_attention_heads"], c["num_key_value_heads"]
        self.q_proj = nn.Linear(hidden, q * self.head, bias=False)
        self.k_proj = nn.Linear(hidden, kv * self.head, bias=False)
        self.v_proj = nn.Linear(hidden, kv * self.head, bias=False)
        self.o_proj = nn.Linear(q * self.head, hidden, bias=False)
        self.q_norm = Norm(self.head, c["rms_norm_eps"])
        self.k_norm = Norm(self.head, c["rms_norm_eps"])
        self.repeat = q // kv

    def forward(self, x, cos, sin):
        batch, length, _ = x.shape
        split = (batch, length, -1, self.head)
        q = self.q_norm(self.q_proj(x).view(split)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(split)).transpose(1, 2)
        v = self.v_proj(x).view(split).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k = k.repeat_interleave(self.repeat, 1)
        v = v.repeat_interleave(self.repeat, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))


class Scatter(torch.autograd.Function):
    """Rows of x, each k times, to the places at in an array of so many rows."""

    @staticmethod
    def forward(ctx, x, at, k, rows):
        ctx.save_for_backward(at)
        ctx.k = k
        return x.new_zeros(rows, x.shape[1]).index_copy_(
            0, at, x.repeat_interleave(k, 0))

    @staticmethod
    def backward(ctx, dy):
        at, = ctx.saved_tensors
        dx = dy.index_select(0, at).view(-1, ctx.k, dy.shape[1]).sum(1)
        return dx, None, None, None


class Gather(torch.autograd.Function):
    """The rows at the places at, no two of which are the same."""

    @staticmethod
    def forward(ctx, x, at):
        ctx.save_for_backward(at)
        ctx.rows = x.shape[0]
        return x.index_select(0, at)

    @staticmethod
    def backward(ctx, dy):
        at, = ctx.saved_tensors
        return dy.new_zeros(ctx.rows, dy.shape[1]).index_copy_(0, at, dy), None


class Tiles(torch.autograd.Function):
    """y[i] = x[i] @ w[expert[i]]^T for tiles x [tiles, rows, in]."""

    @staticmethod
    def forward(ctx, x, w, expert):
        ctx.save_for_backward(x, w, expert)
        return torch.bmm(x, w.index_select(0, expert).mT)

    @staticmethod
    def backward(ctx, dy):
        x, w, expert = ctx.saved_tensors
        dw = torch.zeros_like(w, dtype=torch.float32).index_add_(
            0, expert, torch.bmm(dy.mT, x).float())
        return torch.bmm(dy, w.index_select(0, expert)), dw.to(w.dtype), None


class Experts(nn.Module):
    """Router and experts of a layer."""

    def __init__(self, c):
        super().__init__()
        hidden, inner = c["hidden_size"], c["moe_intermediate_size"]
        self.n, self.k = c["num_experts"], c["num_experts_per_tok"]
        self.gate = nn.Linear(hidden, self.n, bias=False)
        self.gate_up = nn.Parameter(torch.empty(self.n, 2 * inner, hidden))
        self.down = nn.Parameter(torch.empty(self.n, hidden, inner))

    def route(self, x):
        """Logits, weights and ids of the experts of x [tokens, hidden]."""
        with torch.autocast(x.device.type, enabled=False):
            logits = x.float() @ self.gate.weight.float().t()
        weights, ids = logits.softmax(-1).topk(self.k, -1)
        return logits, weights / weights.sum(-1, keepdim=True), ids

    def places(self, ids):
        """Where the rows of ids [tokens, k] lie when each expert has whole tiles:
        (place of each, expert of each tile). The number of tiles depends on the
        number of rows only, since shapes that change cost more than they spare."""
        flat = ids.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=self.n)
        tiles = (counts + TILE - 1) // TILE
        ends = tiles.cumsum(0)
        sorted_ids = flat[order]
        shift = (ends - tiles) * TILE - (counts.cumsum(0) - counts)
        at = torch.empty_like(flat)
        at[order] = torch.arange(len(flat), device=at.device) \
            + shift[sorted_ids]
        most = torch.arange(len(flat) // TILE + self.n, device=at.device)
        expert = torch.bucketize(most, ends, right=True)
        return at, expert.clamp_(max=self.n - 1)

    def forward(self, x, seen=None):
        shape, x = x.shape, x.reshape(-1, x.shape[-1])
        logits, weights, ids = self.route(x)
        if seen is not None:
            seen.append((logits, ids))
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.bfloat16)
        at, expert = self.places(ids)
        rows = Scatter.apply(x, at, self.k, len(expert) * TILE)
        rows = rows.view(-1, TILE, shape[-1])
        gate, up = Tiles.apply(rows, self.gate_up.to(x.dtype),
                               expert).chunk(2, -1)
        rows = Tiles.apply(F.silu(gate) * up, self.down.to(x.dtype), expert)
        y = Gather.apply(rows.flatten(0, 1), at).view(-1, self.k, shape[-1])
        return (weights.to(y.dtype)[:, None] @ y).view(shape)


class Layer(nn.Module):
    """Attention, then experts."""

    def __init__(self, c):
        super().__init__()
        self.self_attn = Attention(c)
        self.mlp = Experts(c)
        self.input_layernorm = Norm(c["hidden_size"], c["rms_norm_eps"])
        self.post_attention_layernorm = Norm(c["hidden_size"],
                                             c["rms_norm_eps"])

    def forward(self, h, cos, sin, seen):
        h = h + self.self_attn(self.input_layernorm(h), cos, sin)
        return h + self.mlp(self.post_attention_layernorm(h), seen)


class Model(nn.Module):
    """Tokens to hidden states; the head is the embedding."""

    def __init__(self, c):
        super().__init__()
        self.config = c
        self.embed_tokens = nn.Embedding(c["vocab_size"], c["hidden_size"])
        self.layers = nn.ModuleList(
            Layer(c) for _ in range(c["num_hidden_layers"]))
        self.norm = Norm(c["hidden_size"], c["rms_norm_eps"])

    def start(self, seed):
        """Random weights: what adds to the residual stream is small."""
        torch.manual_seed(seed)
        small = 1 / math.sqrt(2 * len(self.layers))
        for name, p in self.named_parameters():
            if name.startswith("embed") or name.endswith("gate.weight"):
                nn.init.normal_(p, std=0.02)
            elif p.dim() > 1:
                adds = "o_proj" in name or name.endswith("down")
                nn.init.normal_(p, std=(small if adds else 1)
                                / math.sqrt(p.shape[-1]))

    def forward(self, ids, seen=None, hidden=None):
        """Normalised hidden states of ids [batch, length]. seen gets (router
        logits, ids of experts) of each layer, hidden what enters each."""
        h = self.embed_tokens(ids)
        cos, sin = rotary(ids.shape[1], self.config["head_dim"],
                          self.config["rope_theta"], ids.device)
        for layer in self.layers:
            if hidden is not None:
                hidden.append(h)
            h = layer(h, cos, sin, seen)
        return self.norm(h)

    def losses(self, h, targets):
        """Negative log-likelihood of each target, a few rows of logits at once."""
        head = self.embed_tokens.weight
        found = [F.cross_entropy((rows @ head.t().to(rows.dtype)).float(), ids,
                                 reduction="none")
                 for rows, ids in zip(h.flatten(0, 1).split(4096),
                                      targets.flatten().split(4096))]
        return torch.cat(found).view(targets.shape)
