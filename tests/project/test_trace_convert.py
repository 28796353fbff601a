# SPDX-License-Identifier: Apache-2.0
"""scripts/trace-convert makes traces that ferry replay reads, of arrays and of
what SGLang's recorder dumps, and refuses other files.

test_trace_convert.py ROOT FERRY
"""
import array
import io
import json
import pathlib
import pickle
import struct
import subprocess
import sys
import tempfile
import types
import zipfile

import tree

FERRY = sys.argv[2]
CODES = {"B": "|u1", "h": "<i2", "i": "<i4", "q": "<i8"}


def npy(shape, code, values):
    """Bytes of an .npy file."""
    head = repr({"descr": CODES[code], "fortran_order": False,
                 "shape": tuple(shape)}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return (b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head
            + array.array(code, values).tobytes())


class Tensor:
    """Stands in for a tensor of torch when it is pickled."""

    def __init__(self, shape, values, code="i", stride=None, offset=0):
        self.shape, self.offset = tuple(shape), offset
        self.values = array.array(code, values)
        dense = [1]
        for size in reversed(shape[1:]):
            dense.insert(0, dense[0] * size)
        self.stride = tuple(stride or dense)


class Storage:
    """Its numbers, which lie in a file of their own."""

    def __init__(self, values):
        self.values = values


class TorchWriter(pickle.Pickler):
    """What torch.save() writes, as far as the converter reads it."""

    def __init__(self, file, archive):
        super().__init__(file, 2)
        self.archive, self.n = archive, 0

    def persistent_id(self, obj):
        if not isinstance(obj, Storage):
            return None
        self.n += 1
        self.archive.writestr(f"dump/data/{self.n}", obj.values.tobytes())
        kind = {"i": "IntStorage", "q": "LongStorage"}[obj.values.typecode]
        return ("storage", getattr(sys.modules["torch"], kind), str(self.n),
                "cuda:0", len(obj.values))

    def reducer_override(self, obj):
        if not isinstance(obj, Tensor):
            return NotImplemented
        return (sys.modules["torch._utils"]._rebuild_tensor_v2,
                (Storage(obj.values), obj.offset, obj.shape, obj.stride, False,
                 {}))


def pretend_torch():
    """Names that the pickle refers to."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")

    def _rebuild_tensor_v2():
        pass

    _rebuild_tensor_v2.__module__ = "torch._utils"
    _rebuild_tensor_v2.__qualname__ = "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2
    for name in ("IntStorage", "LongStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch"}))
    sys.modules.update({"torch": torch, "torch._utils": utils})


def torch_save(path, obj):
    """torch.save()"""
    with zipfile.ZipFile(path, "w") as archive:
        file = io.BytesIO()
        TorchWriter(file, archive).dump(obj)
        archive.writestr("dump/data.pkl", file.getvalue())


def convert(root, folder, *arguments):
    """Runs the converter; the tensors of the trace."""
    out = folder / "out.safetensors"
    out.unlink(missing_ok=True)
    done = subprocess.run(
        [sys.executable, root / "scripts/trace-convert", *arguments, "-o", out],
        capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr
    raw = out.read_bytes()
    n = struct.unpack("<Q", raw[:8])[0]
    head, data = json.loads(raw[8:8 + n]), raw[8 + n:]
    codes = {"U8": "B", "I16": "h", "I32": "i", "I64": "q"}
    found = {}
    for name, tensor in head.items():
        if name == "__metadata__":
            found[name] = tensor
            continue
        a, b = tensor["data_offsets"]
        values = array.array(codes[tensor["dtype"]])
        values.frombytes(data[a:b])
        found[name] = (tensor["shape"], values.tolist())
    return found


def replay(folder, *arguments):
    """ferry replay of the trace; the document."""
    done = subprocess.run(
        [FERRY, "replay", "--trace", folder / "out.safetensors", "--ranks", "2",
         "--policy", "fixed", "--json", *arguments],
        capture_output=True, text=True, timeout=60, check=False)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr


def expect(what, found, wanted):
    """A finding where they differ."""
    if found != wanted:
        yield f"{what}: {found!r}, wanted {wanted!r}"


def arrays(root):
    """.npy files one behind the other, and .npz with all arrays."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        a, b = folder / "a.npy", folder / "b.npy"
        a.write_bytes(npy([3, 1, 2], "h", [0, 1, 2, 3, 0, -1]))
        b.write_bytes(npy([1, 1, 2], "h", [1, 2]))
        found = convert(root, folder, a, b, "--experts", "4")
        yield from expect("npy", found, {
            "__metadata__": {"n_experts": "4"},
            "topk_ids": ([4, 1, 2], [0, 1, 2, 3, 0, -1, 1, 2]),
            "step_starts": ([2], [0, 3])})
        yield from expect("its replay", replay(folder)["meta"]["steps"], 2)
        found = convert(root, folder, a, "--step-tokens", "2")
        yield from expect("step tokens", found["step_starts"], ([2], [0, 2]))
        c = folder / "c.npz"
        with zipfile.ZipFile(c, "w") as archive:
            archive.writestr("routed_experts.npy",
                             npy([2, 1, 2], "B", [0, 1, 2, 3]))
            archive.writestr("predicted_ids.npy",
                             npy([2, 1, 2], "B", [1, 1, 2, 2]))
            archive.writestr("step_starts.npy", npy([2], "q", [0, 1]))
        yield from expect("npz", convert(root, folder, c), {
            "topk_ids": ([2, 1, 2], [0, 1, 2, 3]),
            "predicted_ids": ([2, 1, 2], [1, 1, 2, 2]),
            "step_starts": ([2], [0, 1])})
        yield from expect("its replay", replay(folder, "--predict", "file")
                          ["meta"]["experts"], 4)
        d = folder / "d.npy"
        d.write_bytes(npy([2, 1, 4], "i", range(8)))
        yield from expect("loads", convert(root, folder, d, "--loads"),
                          {"loads": ([2, 1, 4], list(range(8)))})
        yield from expect("its replay", replay(folder)["ratio_worst"],
                          round(5 / 3, 6))


def sglang(root):
    """The recorder's modes."""
    pretend_torch()
    slots = Tensor([2, 4], [0, 1, 2, 0, 2, 1, 0, 0], "q")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        stat = folder / "stat.pt"
        torch_save(stat, {"rank": 0, "logical_count":
                          Tensor([2, 1, 4], range(8)),
                          "average_utilization_rate_over_window": None})
        yield from expect("stat", convert(root, folder, stat),
                          {"loads": ([2, 1, 4], list(range(8)))})
        ranks = [folder / "0.pt", folder / "1.pt"]
        for rank, path in enumerate(ranks):
            torch_save(path, {
                "records": [{"forward_pass_id": i, "rank": rank,
                             "gatherer_key": "primary",
                             "global_physical_count":
                             Tensor([2, 4], [i + rank, 1, 0, 2] * 2)}
                            for i in range(2)],
                "last_physical_to_logical_map": slots})
        yield from expect("per_pass", convert(root, folder, *ranks), {
            "loads": ([2, 2, 3], [5, 2, 0, 4, 2, 1, 7, 2, 0, 4, 2, 3])})
        yield from expect("its replay", replay(folder)["meta"]["layers"], 2)
        for rank, path in enumerate(ranks):
            torch_save(path, {
                "records": [{"forward_pass_id": 7, "rank": rank,
                             "topk_ids_of_layer":
                             # Layers of four tokens, two of which count.
                             Tensor([2, 2, 2], [0, 1, 2, 3, 9, 9, 9, 9,
                                                3, -1, 0, rank],
                                    stride=[8, 2, 1])}],
                "last_physical_to_logical_map": slots})
        yield from expect("per_token", convert(root, folder, *ranks), {
            "topk_ids": ([4, 2, 2], [0, 1, 0, -1, 2, 0, 2, 2,
                                     0, 1, 0, -1, 2, 0, 2, 1]),
            "step_starts": ([1], [0])})


def refusals(root):
    """Other files, with their names."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, raw, words in (
                ("a.npy", b"nothing", "no .npy file"),
                ("b.npy", b"\x93NUMPY\x01\x00\x04\x00{'a'", "the header"),
                ("c.npy", npy([2, 2], "h", [0] * 4), "three dimensions"),
                ("d.npy", npy([2, 2, 2], "h", [0] * 4), "4 numbers"),
                ("e.pt", b"nothing", "no file of torch.save()"),
                ("f.txt", b"", "allowed are .npy"),
                ("g.npy", b"\x93NUMPY", "g.npy: not understood"),
                ("h.npy", npy([2, 1, 2], "h", [0] * 4)[:-1], "h.npy: not"),
                ("i.npy", npy([-2, -1, 2], "h", [0] * 4), "from 0 on"),
                ("j.npy", npy([0, 1, 2], "h", []), "topk_ids is empty"),
                ("k.npz", b"nothing", "k.npz: not understood")):
            path = folder / file
            path.write_bytes(raw)
            found = convert(root, folder, path)
            if (not isinstance(found, str) or words not in found
                    or "Traceback" in found):
                yield f"{file}: {found!r}, wanted {words!r}"
        for option in "--experts", "--step-tokens":
            found = convert(root, folder, folder / "c.npy", option, "0")
            if "'0', allowed are numbers 1.." not in found:
                yield f"{option} 0: {found!r}"
        for raw in b"", b"I5\n.", b"(dVrecords\nI5\ns.":
            bad = folder / "bad.pt"
            with zipfile.ZipFile(bad, "w") as archive:
                archive.writestr("x/data.pkl", raw)
            found = convert(root, folder, bad)
            if "bad.pt: " not in found or "Traceback" in found:
                yield f"bad.pt of {raw!r}: {found!r}"
        evil = folder / "evil.pt"
        with zipfile.ZipFile(evil, "w") as archive:
            archive.writestr("x/data.pkl", b"cos\nsystem\n(S'true'\ntR.")
        found = convert(root, folder, evil)
        if "holds a os.system, allowed are tensors" not in found:
            yield f"evil.pt: {found!r}"


def slips(root):
    """What a user does by mistake."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        path = folder / "a.npy"
        for values, words, *options in (
                ([0, 1, 7, 7], "token 1, layer 0 has an expert twice: 7 7: "
                 "looks like counts: --loads?"),
                ([0, -2, 1, 2], "token 0, layer 0 has the id -2, allowed are "
                 "-1 (no expert) and up"),
                ([0, 1, 4, 2], "token 1, layer 0 has the id 4, allowed are "
                 "-1 (no expert)..3", "--experts", "4")):
            path.write_bytes(npy([2, 1, 2], "h", values))
            found = convert(root, folder, path, *options)
            if words not in found or "Traceback" in found:
                yield f"{values}: {found!r}, wanted {words!r}"
        for arguments, words in (
                ((folder / "no.npy", "-o", folder / "o.safetensors"),
                 "no.npy: there is no such file"),
                ((path, "-o", folder / "o.npy"), "ends in .safetensors"),
                ((folder / "o.safetensors", "-o", folder / "o.safetensors"),
                 "is input and output")):
            done = subprocess.run(
                [sys.executable, root / "scripts/trace-convert", *arguments],
                capture_output=True, text=True, check=False)
            if done.returncode != 1 or words not in done.stderr:
                yield f"{words}: {done.stderr!r}"


def full(root):
    """A trace that is written, and a line about it that cannot be."""
    with tempfile.TemporaryDirectory() as name:
        path = pathlib.Path(name) / "a.npy"
        path.write_bytes(npy([2, 1, 2], "h", [0, 1, 2, 3]))
        with open("/dev/full", "w", encoding="ascii") as out:
            done = subprocess.run(
                [sys.executable, root / "scripts/trace-convert", path, "-o",
                 path.with_suffix(".safetensors")], stdout=out,
                stderr=subprocess.PIPE, text=True, check=False)
        yield from expect("/dev/full", (done.returncode, done.stderr), (
            1, "trace-convert: standard output: No space left on device\n"))


tree.main(arrays, sglang, refusals, slips, full)
