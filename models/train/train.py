#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small model, on a CPU or on one GPU.

    models/train/train.py CACHE MODEL RUN [--minutes M] [--device cuda] ...

CACHE/tokens holds what tokens.py wrote, MODEL has config.json. RUN gets state.pt,
from which the next call goes on where this one stopped, and log.jsonl, a line for
each tenth step and each evaluation. The learning rate falls along half a cosine that
ends after --minutes of training, which may be spread over several calls of
--call-minutes. MODEL/model.safetensors is written whenever the state is.

Each batch has sequences of all domains. Matrices are trained with Muon, the
embedding, the router and the norms with AdamW. The balancing loss is that of
Switch Transformers, over the whole batch, so that no expert dies and yet a domain may
have its own; a little of it is taken of each domain alone, which sets by how much.
"""
import argparse
import json
import math
import os
import pathlib
import time

import numpy
import torch

import corpus
import hf_model
import moe_model

# Sequences of a domain in a batch are in proportion to this, else to 1.
SHARES = {"questions": 0.5}
RANKS = 8


class Muon(torch.optim.Optimizer):
    """Momentum, made orthogonal by five steps of Newton-Schulz (K. Jordan, Muon,
    2024). A parameter may be a stack of matrices."""

    def __init__(self, parameters, lr, momentum=0.95, decay=0.05):
        super().__init__(parameters,
                         {"lr": lr, "momentum": momentum, "decay": decay})

    @staticmethod
    def orthogonal(g):
        """Nearly U V^T of each matrix U S V^T of g [n, rows, columns]."""
        x = g.bfloat16() if g.is_cuda else g
        wide = x.shape[1] <= x.shape[2]
        x = x if wide else x.mT
        x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
        for _ in range(5):
            a = x @ x.mT
            x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
        return (x if wide else x.mT).float()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                state["mean"].lerp_(p.grad, 1 - group["momentum"])
                g = p.grad.lerp(state["mean"], group["momentum"])
                # gate and up of an expert are two matrices.
                rows = p.shape[-2] // (2 if p.dim() == 3
                                       and p.shape[1] < p.shape[2] else 1)
                g = self.orthogonal(g.reshape(-1, rows, p.shape[-1]))
                scale = 0.2 * math.sqrt(max(g.shape[1:]))
                p.mul_(1 - group["lr"] * group["decay"])
                p.add_(g.view_as(p), alpha=-group["lr"] * scale)


def optimizers(model, lr):
    """Muon for matrices of attention and experts, AdamW for the rest."""
    matrices, norms, rest = [], [], []
    for name, p in model.named_parameters():
        if p.dim() == 1:
            norms.append(p)
        elif name.startswith("embed") or name.endswith("gate.weight"):
            rest.append(p)
        else:
            matrices.append(p)
    found = [Muon(matrices, lr=lr),
             torch.optim.AdamW([{"params": rest, "weight_decay": 0.01},
                                {"params": norms, "weight_decay": 0.0}],
                               lr=lr, betas=(0.9, 0.95))]
    for optimizer in found:
        for group in optimizer.param_groups:
            group["peak"] = group["lr"]
    return found


class Batches:
    """Sequences of all domains, the same for the same seed and step."""

    def __init__(self, cache, n, length, seed, device):
        self.data, self.of, self.length = [], [], length
        shares = {d: SHARES.get(d, 1) for d in corpus.SOURCES}
        for i, domain in enumerate(corpus.SOURCES):
            ids = numpy.fromfile(cache / "tokens" / f"{domain}.bin", "<u2")
            self.data.append(torch.from_numpy(ids.astype("int32")))
            share = n * shares[domain] / sum(shares.values())
            self.of += [i] * max(1, round(share))
        self.seed, self.device = seed, device

    def __call__(self, step):
        rng = numpy.random.default_rng([self.seed, step])
        rows = []
        for i in self.of:
            at = rng.integers(len(self.data[i]) - self.length)
            rows.append(self.data[i][at:at + self.length + 1])
        ids = torch.stack(rows).long().to(self.device, non_blocking=True)
        return ids[:, :-1], ids[:, 1:]


def balance(seen, of, n):
    """Of all layers: balancing loss of the batch, the same of each domain alone,
    z loss of the router."""
    of = torch.tensor(of, device=seen[0][0].device)
    n_domains = int(of.max()) + 1
    sizes = torch.bincount(of).float() / len(of)
    aux, alone, z = 0, 0, 0
    for logits, ids in seen:
        domain = of.repeat_interleave(len(ids) // len(of))
        share = torch.bincount((domain[:, None] * n + ids).flatten(),
                               minlength=n_domains * n)
        share = share.view(n_domains, n).float() / ids.numel()
        chance = torch.zeros(n_domains, n, device=of.device).index_add(
            0, domain, logits.softmax(-1)) / len(ids)
        aux = aux + n * (share.sum(0) * chance.sum(0)).sum()
        alone = alone + n * ((share * chance).sum(1) / sizes).sum()
        z = z + logits.logsumexp(-1).square().mean()
    return [x / len(seen) for x in (aux, alone, z)]


def ratios(seen, of, n, length):
    """max/mean of the loads of RANKS ranks, mean over layers: of the batch, of
    each domain; and the least share of an expert, 1 if all are alike."""
    mixed, single, least = [], [], []
    domains = torch.tensor(of).repeat_interleave(length)
    for _, ids in seen:
        ids = ids.cpu()
        counts = torch.stack([
            torch.bincount(ids[domains == d].flatten(), minlength=n)
            for d in sorted(set(of))]).float()
        ranks = counts.view(len(counts), RANKS, -1).sum(-1)
        single.append(ranks.amax(1) / ranks.mean(1))
        ranks, counts = ranks.sum(0), counts.sum(0)
        mixed.append(ranks.max() / ranks.mean())
        least.append(counts.min() / counts.mean())
    return (torch.stack(mixed).mean().item(),
            torch.stack(single).mean(0).tolist(), min(least).item())


@torch.no_grad()
def evaluate(model, cache, length, limit, device, half):
    """Loss of each domain's held-out text, or its first sequences."""
    found = {}
    for domain in corpus.SOURCES:
        ids = numpy.fromfile(cache / "tokens" / f"{domain}.held.bin", "<u2")
        rows = min(limit, (len(ids) - 1) // length)
        x = torch.from_numpy(ids[:rows * length].astype("int64"))
        y = torch.from_numpy(ids[1:rows * length + 1].astype("int64"))
        x, y = x.view(rows, length).to(device), y.view(rows, length).to(device)
        total = 0.0
        for a, b in zip(x.split(16), y.split(16)):
            with torch.autocast(torch.device(device).type, torch.bfloat16,
                                enabled=half):
                total += model.losses(model(a), b).sum().item()
        found[domain] = total / y.numel()
    return found


def save(run, folder, model, opts, state):
    """Checkpoint and model, complete or not at all."""
    torch.save({"model": model.state_dict(), "state": state,
                "opts": [o.state_dict() for o in opts]}, run / "state.tmp")
    os.replace(run / "state.tmp", run / "state.pt")
    hf_model.write_weights(model, folder)


def parse():
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("run", type=pathlib.Path)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--call-minutes", type=float, default=1e9)
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--sequences", type=int, default=30)
    parser.add_argument("--length", type=int, default=256)
    parser.add_argument("--lr", type=float, default=4e-3)
    parser.add_argument("--aux", type=float, default=0.05,
                        help="weight of the balancing loss of the batch")
    parser.add_argument("--aux-alone", type=float, default=0.003,
                        help="and of that of each domain")
    parser.add_argument("--z", type=float, default=1e-4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", action="store_true",
                        help="begin a new run from the weights in MODEL")
    parser.add_argument("--fp32", action="store_true", help="no autocast")
    parser.add_argument("--max-steps", type=int, default=10 ** 9)
    return parser.parse_args()


def prepare(o):
    """Model, optimizers and the state of the run."""
    config = moe_model.read_config(o.model)
    model = moe_model.Model(config)
    state = {"step": 0, "tokens": 0, "seconds": 0.0}
    if o.start:
        hf_model.read_weights(model, o.model)
    else:
        model.start(o.seed)
    model.to(o.device)
    opts = optimizers(model, o.lr)
    o.run.mkdir(parents=True, exist_ok=True)
    if (o.run / "state.pt").is_file() and not o.start:
        kept = torch.load(o.run / "state.pt", map_location=o.device)
        model.load_state_dict(kept["model"])
        for optimizer, values in zip(opts, kept["opts"]):
            optimizer.load_state_dict(values)
        state.update(kept["state"])
    return model, opts, state


def train_step(model, opts, batch, of, o, rate):
    """One step: (loss of each sequence, balancing losses, routing)."""
    for optimizer in opts:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * rate
    seen = []
    with torch.autocast(torch.device(o.device).type, torch.bfloat16,
                        enabled=not o.fp32):
        losses = model.losses(model(batch[0], seen), batch[1])
    extra = balance(seen, of, model.config["num_experts"])
    (losses.mean() + o.aux * extra[0] + o.aux_alone * extra[1]
     + o.z * extra[2]).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer in opts:
        optimizer.step()
        optimizer.zero_grad()
    return losses.detach().mean(1), [x.item() for x in extra], seen


def report(log, **values):
    """A line of the log."""
    log.write(json.dumps({key: round(x, 4) if isinstance(x, float) else x
                          for key, x in values.items()}) + "\n")
    log.flush()


def by_domain(values, of):
    """Mean of the values of each domain."""
    of = torch.tensor(of)
    return {d: round(values.cpu()[of == i].mean().item(), 4)
            for i, d in enumerate(corpus.SOURCES)}


def main():
    """Trains until the time is over."""
    o = parse()
    torch.set_float32_matmul_precision("high")
    model, opts, state = prepare(o)
    batches = Batches(o.cache, o.sequences, o.length, o.seed, o.device)
    n = model.config["num_experts"]
    log = open(o.run / "log.jsonl", "a", encoding="utf-8")
    start = last = saved = time.monotonic()
    begun = state["seconds"]
    while True:
        now = time.monotonic()
        state["seconds"] = begun + now - start
        done = state["seconds"] / 60 / o.minutes
        over = (done >= 1 or now - start >= o.call_minutes * 60
                or state["step"] >= o.max_steps)
        if over or now - saved > o.save_minutes * 60:
            save(o.run, o.model, model, opts, state)
            report(log, step=state["step"], tokens=state["tokens"],
                   seconds=state["seconds"], held_out=evaluate(
                       model, o.cache, o.length, 999 if over else 16,
                       o.device, not o.fp32))
            saved = time.monotonic()
        if over:
            break
        warm = min(1.0, (state["step"] + 1) / 50)
        rate = warm * (0.03 + 0.97 * (1 + math.cos(math.pi * done)) / 2)
        losses, extra, seen = train_step(
            model, opts, batches(state["step"]), batches.of, o, rate)
        state["step"] += 1
        state["tokens"] += len(batches.of) * o.length
        if state["step"] % 10 == 0:
            mixed, single, least = ratios(seen, batches.of, n, o.length)
            now = time.monotonic()
            report(log, step=state["step"], tokens=state["tokens"],
                   seconds=begun + now - start, rate=rate,
                   loss=losses.mean().item(), aux=extra[0],
                   aux_alone=extra[1], z=extra[2],
                   ratio_mixed=mixed,
                   ratio_single=sum(single) / len(single), least=least,
                   tokens_per_s=10 * len(batches.of) * o.length
                   / (now - last),
                   domains=by_domain(losses, batches.of))
            last = now


if __name__ == "__main__":
    main()
