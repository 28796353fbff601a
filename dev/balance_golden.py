#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/balance/golden/optima.txt: placement problems and the least load
of the fullest rank that any plan can reach, proven by a MILP solver.

    pip install highspy
    dev/balance_golden.py --data ../shared/data tests/balance/golden/optima.txt

One integer program per problem, docs/balance.md says why it is the same as
matching experts in pairs: x[e,b] = 1 where expert e goes to rank b; each expert
moves at most once; as many go from a to b as from b to a; at most B of such
pairs. Copies: c[e,b] = 1 where rank b gets a replica of e, which is in no swap
then; m[e,t] = 1 where there are t of them, y[e,b,t] where both; loads can be
divided by t + 1, so that even parts are whole. Or, exactly split, as much as
one likes flows to a replica. Loads are stored, so that nothing depends on the
generator of random numbers. What the solver does not prove in time is left out.
"""
import argparse
import datetime
import math
import random
import sys
import time

import highspy

MEDIAN_LOAD = 2048
COPIES_LOAD = 840  # what all of 1..8 divide


class Problem:
    """One instance: experts lie in slot order, each rank's spare slots last."""

    def __init__(self, name, loads, experts_of_rank, swaps, **more):
        self.name, self.loads, self.swaps = name, loads, swaps
        self.experts_of_rank = experts_of_rank
        self.source = more.get("source")
        self.spare, self.copies = more.get("spare", 0), more.get("copies", 0)
        self.split = more.get("split", "even")
        self.n_ranks = len(experts_of_rank)
        self.rank = [r for r, n in enumerate(experts_of_rank)
                     for _ in range(n)]

    def rank_loads(self):
        """Load of every rank before anything moves."""
        at = [0] * self.n_ranks
        for e, load in enumerate(self.loads):
            at[self.rank[e]] += load
        return at


class Model:
    """The integer program of a problem."""

    def __init__(self, problem, limit_s):
        self.p = problem
        self.h = highspy.Highs()
        for name, value in (("output_flag", False), ("threads", 1),
                            ("time_limit", float(limit_s)),
                            ("mip_rel_gap", 0.0), ("mip_abs_gap", 0.99)):
            self.h.setOptionValue(name, value)
        at = problem.rank_loads()
        self.z = self.h.addVariable(
            lb=math.ceil(sum(at) / problem.n_ranks), ub=max(at), obj=1.0,
            type=highspy.HighsVarType.kInteger)
        self.x, self.c, self.m, self.y, self.flow = {}, {}, {}, {}, {}
        self.choices()
        self.balance()
        self.ranks(at)

    def elsewhere(self, e):
        """Ranks that e is not on."""
        return (b for b in range(self.p.n_ranks) if b != self.p.rank[e])

    def choices(self):
        """What an expert may do: stay, go, or be copied."""
        for e in range(len(self.p.loads)):
            for b in self.elsewhere(e):
                self.x[e, b] = self.h.addBinary()
            goes = sum(self.x[e, b] for b in self.elsewhere(e))
            self.h.addConstr(goes <= 1)
            for b in self.elsewhere(e) if self.p.copies else ():
                self.c[e, b] = self.h.addBinary()
                self.h.addConstr(goes + self.c[e, b] <= 1)
            if self.p.copies and self.p.split == "exact":
                self.exact_parts(e)
            elif self.p.copies:
                self.even_parts(e)

    def exact_parts(self, e):
        """A replica takes what it likes."""
        load = self.p.loads[e]
        for b in self.elsewhere(e):
            self.flow[e, b] = self.h.addVariable(lb=0, ub=load)
            self.h.addConstr(self.flow[e, b] - load * self.c[e, b] <= 0)

    def even_parts(self, e):
        """t replicas and the first one take equal parts."""
        most = range(1, self.p.n_ranks)
        for t in most:
            self.m[e, t] = self.h.addBinary()
            for b in self.elsewhere(e):
                self.y[e, b, t] = self.h.addVariable(lb=0, ub=1)
                self.h.addConstr(self.y[e, b, t] - self.m[e, t] <= 0)
            self.h.addConstr(sum(self.y[e, b, t] for b in self.elsewhere(e))
                             - t * self.m[e, t] == 0)
        self.h.addConstr(sum(self.m[e, t] for t in most) <= 1)
        for b in self.elsewhere(e):
            self.h.addConstr(sum(self.y[e, b, t] for t in most)
                             - self.c[e, b] == 0)

    def balance(self):
        """Swaps exchange as many experts as they take; copies fit."""
        there = {}
        for (e, b), var in self.x.items():
            there.setdefault((self.p.rank[e], b), []).append(var)
        up = [key for key in there if key[0] < key[1]]
        for a, b in up:
            self.h.addConstr(sum(there[a, b]) - sum(there[b, a]) == 0)
        self.h.addConstr(sum(v for key in up for v in there[key])
                         <= self.p.swaps)
        for b in range(self.p.n_ranks) if self.c else ():
            self.h.addConstr(sum(v for (_, to), v in self.c.items()
                                 if to == b)
                             <= min(self.p.copies, self.p.spare))

    def taken(self, e, b):
        """Load that leaves e's rank for b: terms of a sum."""
        load = self.p.loads[e]
        terms = [load * self.x[e, b]]
        if self.flow:
            terms.append(1 * self.flow[e, b])
        elif self.c:
            terms += [load // (t + 1) * self.y[e, b, t]
                      for t in range(1, self.p.n_ranks)]
        return sum(terms)

    def ranks(self, at):
        """No rank is fuller than z."""
        for r in range(self.p.n_ranks):
            lost = sum(self.taken(e, b) for e, b in self.x
                       if self.p.rank[e] == r)
            won = sum(self.taken(e, b) for e, b in self.x if b == r)
            self.h.addConstr(at[r] - lost + won - self.z <= 0)

    def moved(self, values, e, b):
        """Whole tokens that leave e's rank for b in a solution."""
        load = self.p.loads[e]
        if not self.c or not round(values[self.c[e, b].index]):
            return load * round(values[self.x[e, b].index])
        n = sum(round(values[self.c[e, r].index]) for r in self.elsewhere(e))
        return load // (n + 1)

    def solve(self):
        """(optimum, what is proven, seconds)."""
        start = time.time()
        self.h.minimize()
        spent = time.time() - start
        values = self.h.getSolution().col_value
        proven = math.ceil(self.h.getInfo().mip_dual_bound - 1e-3)
        if self.flow:
            return round(values[self.z.index]), proven, spent
        at = self.p.rank_loads()
        for e, b in self.x:
            moved = self.moved(values, e, b)
            at[self.p.rank[e]] -= moved
            at[b] += moved
        return max(at), proven, spent


def log_normal(n, sigma, seed):
    """Loads of n experts; DeepEP issue 393 finds real ones log-normal."""
    g = random.Random(seed)
    return [round(MEDIAN_LOAD * math.exp(g.gauss(0.0, sigma)))
            for _ in range(n)]


def even(n_experts, n_ranks):
    """Experts of every rank, as even as possible, the first one more."""
    return [n_experts // n_ranks + (r < n_experts % n_ranks)
            for r in range(n_ranks)]


def made(n_experts, ranks, swaps, seeds, sigma=1.4, **more):
    """Log-normal problems; ranks: a number, or the experts of each."""
    sizes = ranks if isinstance(ranks, list) else even(n_experts, ranks)
    for seed in range(1, seeds + 1):
        kind = (f"-c{more['copies']}-{more['split']}" if more else "")
        shape = "-uneven" if max(sizes) - min(sizes) > 1 else ""
        loads = log_normal(n_experts, sigma, seed)
        if more:
            loads = [COPIES_LOAD * round(x / 100) for x in loads]
        yield Problem(f"E{n_experts}-R{len(sizes)}{shape}-B{swaps}"
                      f"-s{sigma}{kind}-seed{seed}", loads, sizes, swaps,
                      **more)


def synthetic():
    """All made problems."""
    for swaps in (1, 2, 4, 8):
        yield from made(64, 8, swaps, 6 if swaps in (2, 4) else 2)
    for swaps in (2, 3, 4, 8):
        yield from made(128, 8, swaps, 6 if swaps in (2, 3) else 2)
    for swaps in (2, 4):
        yield from made(128, 8, swaps, 2, sigma=1.6)
        yield from made(64, 16, swaps, 3)
        yield from made(32, 8, swaps, 3)
        yield from made(61, 8, swaps, 2)
        yield from made(50, [12, 3, 9, 6, 10, 4, 6], swaps, 2)
        yield from made(128, 8, swaps, 3, sigma=0.9)
    yield from made(128, 8, 3, 3, sigma=1.2)
    yield from made(256, 16, 4, 2, sigma=1.2)
    yield from made(256, 32, 8, 2, sigma=1.2)
    for split in ("even", "exact"):
        yield from made(24, 4, 2, 3, spare=1, copies=1, split=split)
        yield from made(24, 4, 1, 2, spare=2, copies=2, split=split)
        yield from made(32, 4, 2, 3, spare=1, copies=1, split=split)
        yield from made(16, 4, 2, 3, spare=1, copies=1, split=split)
    yield from made(64, 8, 2, 2, spare=1, copies=1, split="exact")
    yield from made(32, 8, 2, 2, spare=2, copies=2, split="exact")


def real(path, seed=4, n_rows=40):
    """Rows of the table of gpt-oss-20b, by number; the loads stay there."""
    with open(f"{path}/gptoss20b_expert_freq_by_task.csv",
              encoding="utf-8") as table:
        rows = [line for line in table if not line.startswith("#")][1:]
    for row in sorted(random.Random(seed).sample(range(len(rows)), n_rows)):
        loads = [int(x) for x in rows[row].split(",")[6:]]
        for ranks, swaps in ((8, 1), (8, 2), (8, 4), (16, 4), (4, 2)):
            yield Problem(f"row{row}-R{ranks}-B{swaps}", loads,
                          even(len(loads), ranks), swaps, source=row)


def words(problem, optimum, spent):
    """One problem as lines of words."""
    yield f"\ncase {problem.name}"
    yield (f"ranks {problem.n_ranks} swaps {problem.swaps} copies "
           f"{problem.copies} spare {problem.spare} split {problem.split}")
    yield "experts " + " ".join(map(str, problem.experts_of_rank))
    if problem.source is None:
        yield "loads " + " ".join(map(str, problem.loads))
    else:
        yield f"row {problem.source} {sum(problem.loads)}"
    yield (f"optimum {optimum} before {max(problem.rank_loads())} "
           f"seconds {spent:.1f}")


def main():
    """Solves all problems in turn."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", help="folder of the gpt-oss-20b tables")
    parser.add_argument("--limit", type=float, default=120,
                        help="seconds for one problem (120)")
    parser.add_argument("out", help="file to write")
    args = parser.parse_args()
    problems = list(synthetic())
    if args.data:
        problems += real(args.data)
    lines = ["# SPDX-License-Identifier: Apache-2.0",
             "# Made by dev/balance_golden.py; docs/balance.md says how to "
             "read it.",
             f"# HiGHS {highspy.Highs().version()}, {datetime.date.today()}, "
             f"Python {sys.version.split()[0]}, {args.limit:.0f} s at most "
             "for each"]
    for i, problem in enumerate(problems):
        optimum, proven, spent = Model(problem, args.limit).solve()
        if optimum == proven:
            lines += words(problem, optimum, spent)
        print(f"{i + 1}/{len(problems)} {problem.name} {optimum}, proven "
              f"{proven}, {spent:.1f} s", file=sys.stderr)
    with open(args.out, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
