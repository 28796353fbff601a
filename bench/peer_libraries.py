# SPDX-License-Identifier: Apache-2.0
"""How other libraries for dispatch and combine are called: DeepEP V1 (its
low-latency and its normal kernels), DeepEP V2, pplx-kernels. Each class opens
its library for one run and makes cases; a case has dispatch() and combine(),
which only enqueue work, and round_trip(), whose output peers.py checks. Nothing
of those libraries is here: they are called through their public Python
interface and must be installed. Timing and JSON are in peers.py.
"""
import sys

import torch
import torch.distributed as dist

BLOCK = 128  # elements that share a scale of fp8
FP8_MAX = 448.0


def quantise(x):
    """Rows as e4m3 and one fp32 scale for each 128 elements."""
    blocks = x.float().view(x.size(0), -1, BLOCK)
    scale = blocks.abs().amax(dim=2).clamp(1e-4) / FP8_MAX
    return ((blocks / scale.unsqueeze(2)).to(torch.float8_e4m3fn)
            .view(x.shape).contiguous(), scale.contiguous())


def restore(rows):
    """bf16 of rows that may come as (e4m3, scales), whatever stands before
    the last dimension."""
    if not isinstance(rows, tuple):
        return rows.clone()
    x, scale = rows
    blocks = x.float().view(*x.shape[:-1], -1, BLOCK)
    return ((blocks * scale.float().unsqueeze(-1))
            .view(x.shape).to(torch.bfloat16).contiguous())


class Case:
    """One shape. Times what enqueue their work; `facts` go into the rows."""

    def __init__(self, shape, data, dtype, facts):
        self.shape, self.data, self.dtype = shape, data, dtype
        self.facts = {"tokens": data.x.size(0), "dtype": dtype, **facts}
        self.graph = True
        self.y = None

    def rows_in(self):
        """What the caller of a library that does not quantise passes."""
        return quantise(self.data.x) if self.dtype == "fp8" else self.data.x

    def close(self):
        """Gives back what the case took."""

    def round_trip(self):
        """Dispatch, an expert that changes nothing, combine; keeps the
        experts' output for the timed combines."""
        self.y = restore(self.dispatch())
        return self.combine()


class LowLatencyCase(Case):
    """DeepEP V1, low latency: expert-major, padded, weighted sum."""

    def __init__(self, peer, shape, data, dtype):
        super().__init__(shape, data, dtype, {"layout": "expert-padded",
                                              "mode": "low-latency"})
        self.buffer, self.max_tokens = peer.buffer, peer.max_tokens
        self.handle = None

    def dispatch(self):
        """Quantises inside the kernel for fp8."""
        rows, _, self.handle, _, _ = self.buffer.low_latency_dispatch(
            self.data.x, self.data.ids, self.max_tokens,
            self.shape.experts, use_fp8=self.dtype == "fp8")
        return rows

    def combine(self):
        """Sum with weights."""
        return self.buffer.low_latency_combine(
            self.y, self.data.ids, self.data.weights, self.handle)[0]

    def expected(self):
        """What a round trip gives."""
        return self.data.x.float() * self.data.weights.sum(1, keepdim=True)


class LowLatency:
    """DeepEP's Buffer in its low-latency mode, made once for the largest number
    of tokens."""
    impl, copies = "deepep-v1", "expert"

    def __init__(self, shape, group):
        sys.setdlopenflags(1)  # lazily: what only V2 needs may be absent
        import deep_ep
        self.module, self.shape, self.group = deep_ep, shape, group
        self.max_tokens = max(shape.tokens)
        size = deep_ep.Buffer.get_low_latency_rdma_size_hint(
            self.max_tokens, shape.hidden, shape.ranks, shape.experts)
        self.buffer = deep_ep.Buffer(
            group, 0, size, low_latency_mode=True,
            num_qps_per_rank=shape.experts // shape.ranks,
            allow_nvlink_for_low_latency_mode=True, explicitly_destroy=True)

    def cases(self, data):
        """All dtypes of one number of tokens."""
        for dtype in ("fp8", "bf16"):
            yield LowLatencyCase(self, self.shape, data, dtype)

    def barrier(self):
        """None of its own that ends on a stream."""

    def close(self):
        """Collective."""
        self.buffer.destroy()


class NormalCase(Case):
    """DeepEP V1, normal kernels: one copy of a token for each rank, plain sum.
    `worst` rows are received into when given, so that no CPU waits."""

    def __init__(self, peer, data, dtype, sms, worst):
        super().__init__(peer.shape, data, dtype,
                         {"layout": "token", "mode": "normal", "sms": sms,
                          "cpu_sync": worst == 0})
        self.buffer, self.worst, self.graph = peer.buffer, worst, worst > 0
        config = peer.module.Config
        self.send, self.back = (config(sms, 24, 256), config(sms, 10, 256))
        self.module, self.sms = peer.module, sms
        self.rows, self.handle = self.rows_in(), None

    def chunks(self, send=None, back=None):
        """Tokens of a step of the send queue and of the way back."""
        config = self.module.Config
        if send:
            self.send = config(self.sms, send, 256)
            self.facts["send_chunk"] = send
        if back:
            self.back = config(self.sms, back, 256)
            self.facts["back_chunk"] = back

    def dispatch(self):
        """Layout, then dispatch."""
        ids, weights = self.data.ids, self.data.weights
        per_rank, _, per_expert, in_rank, _ = self.buffer.get_dispatch_layout(
            ids, self.shape.experts)
        rows, _, _, _, self.handle, _ = self.buffer.dispatch(
            self.rows, num_tokens_per_rank=per_rank, is_token_in_rank=in_rank,
            num_tokens_per_expert=per_expert, topk_idx=ids,
            topk_weights=weights, num_worst_tokens=self.worst,
            config=self.send)
        return rows

    def combine(self):
        """Sum over ranks, without weights."""
        return self.buffer.combine(self.y, self.handle, config=self.back)[0]

    def expected(self):
        """Each rank gives the row back once."""
        return self.data.x.float() * self.data.ranks_of(self.shape)


class Normal:
    """DeepEP's Buffer with its normal kernels. Chunk sizes are tried as its
    own benchmark tries them, and the fastest are kept."""
    impl, copies = "deepep-v1", "rank"

    def __init__(self, shape, group):
        sys.setdlopenflags(1)
        import deep_ep
        self.module, self.shape = deep_ep, shape
        self.buffer = deep_ep.Buffer(group, int(2e9), 0,
                                     explicitly_destroy=True)

    def cases(self, data):
        """24 SMs are what its benchmark uses; 64 what a caller may give."""
        worst = self.shape.ranks * data.x.size(0)
        for dtype in ("fp8", "bf16"):
            for sms in (24, 64):
                case = NormalCase(self, data, dtype, sms, worst)
                case.tune = {"send": (4, 8, 16, 24, 32),
                             "back": (2, 4, 8, 12, 16)}
                yield case
            yield NormalCase(self, data, dtype, 24, 0)

    def barrier(self):
        """None of its own that ends on a stream."""

    def close(self):
        """Collective."""
        self.buffer.destroy()


class ElasticCase(Case):
    """DeepEP V2: one copy of a token for each rank over the wire; the
    receiver lays them out by token or, expanded, by expert. Plain sum."""

    def __init__(self, peer, data, dtype, expand, sms):
        super().__init__(peer.shape, data, dtype,
                         {"layout": "expert-packed" if expand else "token",
                          "mode": "elastic", "sms": sms})
        self.buffer, self.expand, self.sms = peer.buffer, expand, sms
        self.rows, self.handle = self.rows_in(), None

    def dispatch(self):
        """Without waiting for counts on the CPU."""
        rows, _, _, self.handle, _ = self.buffer.dispatch(
            self.rows, topk_idx=self.data.ids, topk_weights=self.data.weights,
            num_experts=self.shape.experts, num_sms=self.sms,
            do_cpu_sync=False, do_expand=self.expand)
        return rows

    def combine(self):
        """Sum over choices (expanded) or over ranks."""
        return self.buffer.combine(self.y, self.handle, num_sms=self.sms)[0]

    def expected(self):
        """Choices or ranks that give the row back."""
        x = self.data.x.float()
        return (x * self.shape.topk if self.expand else
                x * self.data.ranks_of(self.shape))


class Elastic:
    """DeepEP's ElasticBuffer."""
    impl, copies = "deepep-v2", "rank"
    NVLINK_GBS = 430  # 18 links of an H200, 0.9 of them, if it cannot ask

    def __init__(self, shape, group):
        import deep_ep
        from deep_ep.utils.envs import get_nvlink_gbs
        self.shape = shape
        self.buffer = deep_ep.ElasticBuffer(
            group, num_max_tokens_per_rank=max(shape.tokens),
            hidden=shape.hidden, num_topk=shape.topk, explicitly_destroy=True)
        self.sms = self.buffer.get_theoretical_num_sms(
            shape.experts, shape.topk,
            nvlink_gbs=get_nvlink_gbs() or self.NVLINK_GBS)

    def cases(self, data):
        """Its own choice of SMs and, for many tokens, 64."""
        many = [self.sms] + ([64] if data.x.size(0) >= 1024 else [])
        for dtype in ("fp8", "bf16"):
            for expand in (False, True):
                for sms in many:
                    yield ElasticCase(self, data, dtype, expand, sms)

    def barrier(self):
        """On the current stream."""
        self.buffer.barrier(use_comm_stream=False)

    def close(self):
        """Collective."""
        self.buffer.destroy()


class PplxCase(Case):
    """pplx-kernels over NVLink: expert-major, padded, weighted sum. The object
    is made for just this number of tokens, as its benchmark makes it."""

    def __init__(self, peer, shape, data, dtype):
        super().__init__(shape, data, dtype, {"layout": "expert-padded",
                                              "mode": "intranode"})
        tokens, hidden = data.x.shape
        local = shape.experts // shape.ranks
        fp8 = dtype == "fp8"
        self.engine = peer.module.AllToAll.intranode(
            max_num_tokens=tokens, num_experts=shape.experts,
            experts_per_token=shape.topk, rank=dist.get_rank(),
            world_size=shape.ranks, dp_size=1, hidden_dim=hidden,
            hidden_dim_bytes=hidden * (1 if fp8 else 2),
            hidden_dim_scale_bytes=hidden // BLOCK * 4 if fp8 else 0,
            group_name=peer.group.group_name)
        rows = (local, tokens * shape.ranks)
        self.counts = torch.empty(local, dtype=torch.int32, device="cuda")
        self.out = torch.zeros(*rows, hidden, device="cuda", dtype=
                               torch.float8_e4m3fn if fp8 else torch.bfloat16)
        self.scales = (torch.zeros(*rows, hidden // BLOCK, device="cuda")
                       if fp8 else None)
        given = self.rows_in()
        self.x, self.x_scale = given if fp8 else (given, None)
        self.ids = data.ids.to(torch.uint32)
        self.sum = torch.empty_like(data.x)

    def dispatch(self):
        """Send and receive in one kernel."""
        self.engine.dispatch(self.counts, self.out, self.scales, self.x,
                             self.x_scale, self.ids, None)
        return (self.out, self.scales) if self.scales is not None else self.out

    def combine(self):
        """Send and receive in one kernel."""
        self.engine.combine(self.sum, self.ids, self.data.weights, self.y,
                            None)
        return self.sum

    def expected(self):
        """What a round trip gives."""
        return self.data.x.float() * self.data.weights.sum(1, keepdim=True)

    def close(self):
        """Frees the windows."""
        torch.cuda.synchronize()
        dist.barrier()
        self.engine.destroy()


class Pplx:
    """pplx-kernels, the path for GPUs of one host."""
    impl, copies = "pplx", "expert"

    def __init__(self, shape, group):
        import pplx_kernels
        self.module, self.shape, self.group = pplx_kernels, shape, group

    def cases(self, data):
        """All dtypes of one number of tokens."""
        for dtype in ("fp8", "bf16"):
            yield PplxCase(self, self.shape, data, dtype)

    def barrier(self):
        """None of its own that ends on a stream."""

    def close(self):
        """Nothing beyond the cases."""


LIBRARIES = {
    "deepep-v1-low-latency": ("deep_ep", LowLatency),
    "deepep-v1-normal": ("deep_ep", Normal),
    "deepep-v2": ("deep_ep", Elastic),
    "pplx": ("pplx_kernels", Pplx),
}
