#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times other libraries' dispatch and combine on this machine's GPUs, so that
their figures and Ferry's come from one machine, shape and way of measuring.

    bench/peers.py --peer pplx --commit 12cecfd --json pplx.json

The library must be installed beside PyTorch; where it is not, the exit status
is 77 and the reason is printed. Each rank is a process with a GPU of its own.
A row of the JSON has one `method`:

  graph           pairs of dispatch and combine chained in one CUDA graph; time
                  of a replay over its pairs
  kernel          in those replays, from the start of an operation's first
                  kernel to the end of its last, as the profiler saw them
  kernel-barrier  the same for single calls, all ranks let go by a barrier
                  first, as these libraries' own benchmarks do it
  calls           pairs called one behind the other without a graph, between
                  events; host_us is what a call keeps the CPU

Percentiles are over iterations, the worst rank counts. `wrong` counts elements
of a checked round trip that are not what it should give. peer_libraries.py has
the calls themselves.
"""
import argparse
import datetime
import faulthandler
import functools
import importlib.util
import json
import os
import platform
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import types

PAIRS = 20  # of a graph
REPLAYS = 50
CALLS = 200
PROFILED = 10  # replays
GUARDED = 30  # calls behind a barrier


def parse():
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n\n")[0],
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--json", help="where to write; default: stdout")
    parser.add_argument("--commit", default="", help="of the library")
    parser.add_argument("--note", default="", help="how it was built, say")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--tokens", default="1,8,32,64,128")
    parser.add_argument("--hidden", type=int, default=7168)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--topk", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case-seconds", type=int, default=60,
                        help="after which a rank gives up")
    args = parser.parse_args()
    args.tokens = [int(word) for word in args.tokens.split(",")]
    return args


class Data:
    """Tokens, choices and weights of this rank; uniform routing."""

    def __init__(self, torch, args, tokens, rank):
        random = torch.Generator(device="cuda")
        random.manual_seed(args.seed * 1000003 + tokens * 64 + rank)
        self.x = torch.randn(tokens, args.hidden, device="cuda",
                             generator=random).to(torch.bfloat16)
        scores = torch.rand(tokens, args.experts, device="cuda",
                            generator=random)
        self.weights, self.ids = scores.topk(args.topk, dim=1)
        self.weights = self.weights / self.weights.sum(1, keepdim=True)
        self.rank = rank

    def ranks_of(self, args):
        """How many ranks each token goes to, one column."""
        return self.to_rank(args).sum(1, keepdim=True).float()

    def to_rank(self, args):
        """tokens x ranks: does a token go there?"""
        owner = self.ids // (args.experts // args.ranks)
        return (owner.unsqueeze(2) ==
                owner.new_tensor(range(args.ranks))).any(1)

    def bytes(self, args, dtype, copies):
        """Of one dispatch: to other ranks, and of all (token, choice) rows."""
        row = args.hidden * 2 if dtype == "bf16" else (
            args.hidden + args.hidden // 128 * 4)
        owner = self.ids // (args.experts // args.ranks)
        sent = (int((owner != self.rank).sum()) if copies == "expert" else
                int(self.to_rank(args).sum()) -
                int(self.to_rank(args)[:, self.rank].sum()))
        return sent * row, self.ids.numel() * row


def percentile(values, part):
    """The smallest value that `part` of all do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def operation_of(name):
    """Which operation a kernel belongs to."""
    low = name.lower()
    return ("combine" if "combine" in low else
            "dispatch" if "dispatch" in low else None)


def short_name(name):
    """A kernel's name without namespaces, types and parameters. The profiler
    leaves the names of static kernels mangled."""
    mangled = re.search(r"_Z.*\d([A-Za-z_]+)I", name)
    if mangled:
        return mangled.group(1)
    words = name.partition("(anonymous namespace)::")[2] or name
    return words.partition("<")[0].partition("(")[0].split("::")[-1].split()[-1]


def spans(events):
    """Times of each operation of a profile, and of each of its kernels: the
    kernels of one operation follow each other on the GPU."""
    out = {"dispatch": [], "combine": []}
    kernels = {"dispatch": {}, "combine": {}}
    now, first, last = None, 0.0, 0.0
    for name, start, length in sorted(events, key=lambda event: event[1]):
        operation = operation_of(name)
        if operation is None:
            continue
        if operation != now:
            if now:
                out[now].append(last - first)
            now, first, last = operation, start, start
        last = max(last, start + length)
        kernels[operation].setdefault(short_name(name), []).append(length)
    if now:
        out[now].append(last - first)
    return out, kernels


class Rank:
    """One rank's run."""

    def __init__(self, args, rank):
        import torch
        import torch.distributed as dist
        import peer_libraries
        self.torch, self.dist, self.args, self.rank = torch, dist, args, rank
        torch.cuda.set_device(rank)
        dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
        shape = types.SimpleNamespace(**vars(args))
        self.group = dist.group.WORLD
        self.peer = peer_libraries.LIBRARIES[args.peer][1](shape, self.group)
        self.rows = []
        self.barrier = self.find_barrier()

    def find_barrier(self):
        """Something enqueued that ends on no rank before all have begun it."""
        if type(self.peer).__name__ == "Elastic":
            return self.peer.barrier
        try:
            group = self.dist.new_group(backend="nccl")
            word = self.torch.ones(1, device="cuda")
            barrier = functools.partial(self.dist.all_reduce, word,
                                        group=group)
            barrier()
            self.torch.cuda.synchronize()
            return barrier
        except Exception as error:  # a figure less, no reason to stop
            print(f"peers: no barrier on the GPU: {error}", file=sys.stderr)
            return None

    def worst(self, values):
        """Of one figure on all ranks, its largest."""
        everybody = [None] * self.args.ranks
        self.dist.all_gather_object(everybody, values)
        return max(everybody)

    def add(self, case, data, phase, method, times, **more):
        """A row, from this rank's times in microseconds."""
        wire, logical = data.bytes(self.args, case.dtype if phase == "dispatch"
                                   else "bf16", self.peer.copies)
        if phase == "pair":
            there, logical_there = data.bytes(self.args, case.dtype,
                                              self.peer.copies)
            wire, logical = wire + there, logical + logical_there
        row = {"phase": phase, "impl": self.peer.impl, "method": method,
               "ranks": self.args.ranks, "hidden": self.args.hidden,
               "topk": self.args.topk, "experts": self.args.experts,
               "routing": "uniform", **case.facts, "iters": len(times),
               "p50_us": self.worst(percentile(times, 0.5)),
               "p99_us": self.worst(percentile(times, 0.99)),
               "max_us": self.worst(max(times)),
               "wire_bytes": self.worst(wire),
               "logical_bytes": self.worst(logical), "floor_us": 0,
               "wrong": self.wrong, **more}
        for key, value in row.items():
            if isinstance(value, float):
                row[key] = round(value, 3)
        self.rows.append(row)

    def check(self, case):
        """Elements of a round trip that are off by more than fp8 or bf16
        explains, of all ranks."""
        got, want = case.round_trip().float(), case.expected()
        part = 0.08 if case.dtype == "fp8" else 0.02
        bad = (got - want).abs() > part * want.abs() + 0.03
        bad |= got.isnan()
        everybody = [None] * self.args.ranks
        self.dist.all_gather_object(everybody, int(bad.sum()))
        self.wrong = sum(everybody)

    def together(self):
        """All ranks' GPUs idle, all ranks here."""
        self.torch.cuda.synchronize()
        self.dist.barrier()

    def pair(self, case):
        """As a layer of a model calls them."""
        case.dispatch()
        case.combine()

    def capture(self, case):
        """A graph of PAIRS pairs."""
        for _ in range(3):
            self.pair(case)
        self.together()
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            for _ in range(PAIRS):
                self.pair(case)
        self.together()
        return graph

    def timed(self, work, count, parts=1):
        """Microseconds of `count` calls of work, between events."""
        event = functools.partial(self.torch.cuda.Event, enable_timing=True)
        events = [event() for _ in range(count + 1)]
        self.together()
        events[0].record()
        for i in range(count):
            work()
            events[i + 1].record()
        self.torch.cuda.synchronize()
        return [a.elapsed_time(b) * 1e3 / parts
                for a, b in zip(events, events[1:])]

    def profile(self, work):
        """(name, start, length) of each kernel that work ran, microseconds."""
        from torch.profiler import ProfilerActivity, profile
        self.together()
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            work()
            self.torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profiler.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                trace = json.load(file)["traceEvents"]
        return [(event["name"], float(event["ts"]), float(event["dur"]))
                for event in trace if event.get("cat") == "kernel"]

    def add_profile(self, case, data, method, events, skip):
        """Rows of a profile, without the first `skip` of each operation."""
        times, kernels = spans(events)
        for phase in ("dispatch", "combine"):
            each = {name: round(percentile(some, 0.5), 3)
                    for name, some in kernels[phase].items()}
            self.add(case, data, phase, method,
                     times[phase][skip:] or [float("nan")], kernels_us=each)

    def in_graph(self, case, data):
        """Rows of methods graph and kernel."""
        graph = self.capture(case)
        self.timed(graph.replay, 3)
        self.add(case, data, "pair", "graph",
                 self.timed(graph.replay, REPLAYS, PAIRS))

        def replays():
            for _ in range(PROFILED):
                graph.replay()
        self.add_profile(case, data, "kernel", self.profile(replays), PAIRS)
        self.together()

    def guarded(self, case, data):
        """Rows of method kernel-barrier."""
        def calls():
            for _ in range(GUARDED):
                for work in (case.dispatch, case.combine):
                    self.torch.cuda._sleep(400000)  # till all have enqueued
                    self.barrier()
                    work()
        self.add_profile(case, data, "kernel-barrier", self.profile(calls), 5)

    def called(self, case, data):
        """Rows of method calls."""
        host = {"dispatch": [], "combine": []}
        event = functools.partial(self.torch.cuda.Event, enable_timing=True)
        events = [event() for _ in range(2 * CALLS + 1)]
        self.together()
        events[0].record()
        for i in range(CALLS):
            for j, phase in enumerate(host):
                begin = time.perf_counter()
                getattr(case, phase)()
                host[phase].append((time.perf_counter() - begin) * 1e6)
                events[2 * i + j + 1].record()
        self.torch.cuda.synchronize()
        times = [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]
        for j, phase in enumerate(host):
            self.add(case, data, phase, "calls", times[j::2][10:],
                     host_us=self.worst(percentile(host[phase], 0.5)))
        self.add(case, data, "pair", "calls",
                 [a + b for a, b in zip(times[20::2], times[21::2])],
                 host_us=self.worst(percentile(
                     [a + b for a, b in zip(*host.values())], 0.5)))

    def tune(self, case):
        """Keeps the chunk sizes under which a pair is fastest."""
        for name, sizes in getattr(case, "tune", {}).items():
            took = {}
            for size in sizes:
                case.chunks(**{name: size})
                self.timed(functools.partial(self.pair, case), 5)
                took[size] = self.worst(percentile(self.timed(
                    functools.partial(self.pair, case), 15), 0.5))
            case.chunks(**{name: min(took, key=took.get)})

    def measure(self, case, data):
        """All rows of a case."""
        faulthandler.dump_traceback_later(self.args.case_seconds, exit=True)
        self.check(case)
        self.tune(case)
        self.called(case, data)
        if case.graph:
            self.in_graph(case, data)
        if self.barrier:
            self.guarded(case, data)
        case.close()
        faulthandler.cancel_dump_traceback_later()

    def run(self, meta):
        """All cases; what there is is written after each."""
        for tokens in self.args.tokens:
            data = Data(self.torch, self.args, tokens, self.rank)
            for case in self.peer.cases(data):
                self.measure(case, data)
                if self.rank == 0 and self.args.json:
                    write(self.args, meta, self.rows)
        if self.rank == 0 and not self.args.json:
            write(self.args, meta, self.rows)
        self.together()
        self.peer.close()
        self.dist.destroy_process_group()


def driver():
    """Its version, or nothing where it cannot be asked."""
    query = ["nvidia-smi", "--query-gpu=driver_version",
             "--format=csv,noheader"]
    try:
        return subprocess.run(query, capture_output=True, text=True,
                              check=False).stdout.partition("\n")[0].strip()
    except OSError:
        return ""


def machine(torch):
    """What it ran on."""
    gpus = [torch.cuda.get_device_properties(i)
            for i in range(torch.cuda.device_count())]
    return {"host": socket.gethostname(),
            "system": f"{platform.system()} {platform.release()} "
                      f"{platform.machine()}",
            "cpus": os.cpu_count(),
            "gpus": [{"name": gpu.name, "sms": gpu.multi_processor_count,
                      "memory_bytes": gpu.total_memory} for gpu in gpus],
            "driver": driver()}


def describe(args):
    """The head of the JSON."""
    import torch
    return {"peer": args.peer, "commit": args.commit, "note": args.note,
            "date": datetime.datetime.now(datetime.timezone.utc)
            .strftime("%Y-%m-%dT%H:%M:%SZ"),
            "command": ["bench/peers.py"] + sys.argv[1:],
            "torch": torch.__version__, "cuda": torch.version.cuda,
            "pairs": PAIRS, "machine": machine(torch)}


def write(args, meta, rows):
    """The JSON as it is now."""
    text = json.dumps({"schema": "ferry-bench-1", "meta": meta, "rows": rows},
                      indent=1)
    if args.json:
        with open(args.json + ".new", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(args.json + ".new", args.json)
    else:
        print(text)


def run_rank(args, rank):
    """A rank's process."""
    try:
        meta = describe(args) if rank == 0 else None
        Rank(args, rank).run(meta)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)  # a peer's destructors may wait for the other rank
    os._exit(0)


def missing(args):
    """Why this peer cannot be timed here, or None."""
    if importlib.util.find_spec("torch") is None:
        return "no PyTorch"
    import torch
    if torch.cuda.device_count() < args.ranks:
        return f"{torch.cuda.device_count()} GPUs for {args.ranks} ranks"
    import peer_libraries
    if args.peer not in peer_libraries.LIBRARIES:
        sys.exit(f"peers: no peer {args.peer}, but "
                 + ", ".join(peer_libraries.LIBRARIES))
    module = peer_libraries.LIBRARIES[args.peer][0]
    if importlib.util.find_spec(module) is None:
        return f"{module} is not installed"
    return None


def main():
    """Starts the ranks and waits for them."""
    args = parse()
    reason = missing(args)
    if reason:
        print(f"peers: skipped: {reason}")
        sys.exit(77)
    import torch.multiprocessing as processes
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29611")
    start = processes.get_context("spawn").Process
    ranks = [start(target=run_rank, args=(args, rank))
             for rank in range(args.ranks)]
    for rank in ranks:
        rank.start()
    while any(rank.is_alive() for rank in ranks):
        time.sleep(0.1)
        if any(rank.exitcode for rank in ranks):
            time.sleep(2)  # for the others' messages
            for rank in ranks:
                rank.kill()
    for rank in ranks:
        rank.join()
    sys.exit(1 if any(rank.exitcode for rank in ranks) else 0)


if __name__ == "__main__":
    main()
