#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes what test_lm_tokenizer_golden and test_lm_tokenizer_model compare with,
by the reference, PyPI's tokenizers:

    tokenizer_golden.py                  golden_tokenizer.json
    tokenizer_golden.py MODEL TEXT...    golden_tokens.json, of files

The first holds small tokenizers of several forms, which are trained here on
text that is made here, strings, and of each tokenizer a hash of each string's
ids. Strings write U+F8FF for U+0000, which cJSON cannot hold.
"""
import json
import pathlib
import random
import struct
import sys

import tokenizers
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers
from tokenizers import trainers

import tokenizer_strings

HERE = pathlib.Path(__file__).parent
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?"
         r"[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|"
          r"\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA3 = QWEN2.replace(r"\p{N}|", r"\p{N}{1,3}|")
SPLITS = [r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
          r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
          r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"]
CASES = [r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*"
         r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{Han}+|\d{2,}|\P{Greek}{1,2}(?=[^\d\s])|\s++|[^\p{^L}x]|\D"]


def added(content, special=False, normalized=False):
    """An added token as Qwen has them, or normalized."""
    return AddedToken(content, special=special, normalized=normalized)


QWEN_ADDED = [added("<|endoftext|>", True), added("<|im_start|>", True),
              added("<think>"), added("</think>"), added("<|im|>"),
              added("<|im|><|im|>")]

# name, normalizer, patterns (None: GPT-2's), added tokens, tokens in all,
# changes to the model
FORMS = [
    ("qwen2", normalizers.NFC(), [QWEN2], QWEN_ADDED, 700, {}),
    ("gpt2", None, None, [added("<|endoftext|>", True, True)], 420, {}),
    ("llama3", None, [LLAMA3], [added("<|eot|>", True)], 640,
     {"ignore_merges": True}),
    ("splits", normalizers.Sequence([]), SPLITS,
     [added("<a"), added("<a>"), added("<a>b"), added(" c ")], 480, {}),
    ("marks", normalizers.Sequence([normalizers.NFC()]), [QWEN35],
     [added("e\u0301", False, True), added("\u00e9"),
      added("\u304b\u3099x", False, True)], 400, {}),
    ("cases", None, CASES, [], 400, {}),
    ("whole", normalizers.NFC(), [], [added("\n\n\n")], 500, {}),
]


def training_text(seed):
    """Words by Zipf's law, in lines."""
    rng = random.Random(seed)
    words = [tokenizer_strings.word(rng) for _ in range(300)]
    words += ["the", "of", "and", "to", "in", "return", "int", "'s", "don't",
              "\u0438", "\u043d\u0435", "\u7684", "\u4e86", "\u306e"]
    rng.shuffle(words)
    weights = [1 / (i + 1) for i in range(len(words))]
    return ["".join(w + rng.choice(tokenizer_strings.GLUE)
                    for w in rng.choices(words, weights, k=20))
            for _ in range(400)]


def train(seed, form):
    """The JSON of a tokenizer."""
    _, normalizer, patterns, tokens, n, changes = form
    tokenizer = tokenizers.Tokenizer(models.BPE())
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns or []] +
        [pre_tokenizers.ByteLevel(add_prefix_space=False,
                                  use_regex=patterns is None)])
    tokenizer.train_from_iterator(training_text(seed), trainers.BpeTrainer(
        vocab_size=n, show_progress=False, special_tokens=[],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    for token in tokens:
        # One by one: special ones, too, in this order.
        (tokenizer.add_special_tokens if token.special
         else tokenizer.add_tokens)([token])
    document = json.loads(tokenizer.to_str())
    document["model"].update(changes)
    if seed % 2:
        document["model"]["merges"] = [
            " ".join(pair) for pair in document["model"]["merges"]]
    return document


def fnv(ids):
    """FNV-1a of ids as int32_t in little endian."""
    value = 0xcbf29ce484222325
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        value = (value ^ byte) * 0x100000001b3 % (1 << 64)
    return value


def hash_text(ids):
    """Eight digits."""
    value = fnv(ids)
    return f"{(value ^ value >> 32) % (1 << 32):08x}"


def small_golden():
    """golden_tokenizer.json."""
    tokens = [t.content for form in FORMS for t in form[3]]
    strings = tokenizer_strings.by_hand(tokens[:8])
    strings += tokenizer_strings.texts(7, 1400, tokens)
    assert not any("\uf8ff" in s for s in strings)
    document = {"strings": [s.replace("\0", "\uf8ff") for s in strings],
                "tokenizers": []}
    for seed, form in enumerate(FORMS):
        file = train(seed, form)
        reference = tokenizers.Tokenizer.from_str(json.dumps(file))
        ids = [reference.encode(s, add_special_tokens=False).ids
               for s in strings]
        document["tokenizers"].append(
            {"name": form[0], "n_ids": sum(map(len, ids)),
             "hashes": "".join(map(hash_text, ids)), "file": file})
        print(form[0], len(strings), sum(map(len, ids)))
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (HERE / "golden_tokenizer.json").write_text(text + "\n", encoding="utf-8")
    print(len(text.encode()), "bytes")


def model_golden(model, paths):
    """golden_tokens.json."""
    reference = tokenizers.Tokenizer.from_file(model + "/tokenizer.json")
    texts = []
    for path in map(pathlib.Path, paths):
        ids = reference.encode(path.read_bytes().decode(),
                               add_special_tokens=False).ids
        texts.append({"name": path.name, "bytes": path.stat().st_size,
                      "n_ids": len(ids), "first": ids[:8],
                      "hash": f"{fnv(ids):016x}"})
    document = {"vocab": reference.get_vocab_size(), "texts": texts}
    (HERE / "golden_tokens.json").write_text(
        json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) > 2:
        model_golden(sys.argv[1], sys.argv[2:])
    else:
        small_golden()
