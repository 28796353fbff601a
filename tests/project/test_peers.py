# SPDX-License-Identifier: Apache-2.0
"""bench/peers.py: what it makes of a profile, and that it says what it lacks.

test_peers.py ROOT
"""
import subprocess
import sys

import tree

PROFILE = [
    ("void ns::dispatch_impl<2, 8>(void*, int)", 10.0, 5.0),
    ("dispatch_copy_epilogue_impl", 13.0, 4.0),  # begins before that ends
    ("Memset (Device)", 17.0, 1.0),
    ("void (anonymous namespace)::combineKernel<16u>(int*)", 20.0, 2.0),
    ("__nv_static_7_d_cu__ZN3_GL14dispatchKernelILj16ELb1EEvPi", 30.0, 6.0),
]


def spans_of_a_profile(root):
    """From the first kernel of an operation to the end of its last."""
    sys.path.insert(0, str(root / "bench"))
    import peers
    times, kernels = peers.spans(PROFILE)
    if times != {"dispatch": [7.0, 6.0], "combine": [2.0]}:
        yield f"times {times}"
    if kernels != {"dispatch": {"dispatch_impl": [5.0],
                                "dispatch_copy_epilogue_impl": [4.0],
                                "dispatchKernel": [6.0]},
                   "combine": {"combineKernel": [2.0]}}:
        yield f"kernels {kernels}"
    if [peers.percentile(range(1, 101), part)
            for part in (0.5, 0.99)] != [51, 100]:
        yield "percentiles"


def missing_is_a_skip(root):
    """No PyTorch, or no GPUs for so many ranks."""
    done = subprocess.run(
        [sys.executable, root / "bench/peers.py", "--peer", "pplx",
         "--ranks", "1000"],
        capture_output=True, text=True, timeout=100, check=False)
    if done.returncode != 77 or "skipped: " not in done.stdout:
        yield f"status {done.returncode}: {done.stdout}{done.stderr}"


tree.main(spans_of_a_profile, missing_is_a_skip)
