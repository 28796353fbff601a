#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the tokenizer of the small model and turns the text into token ids.

    models/train/tokens.py CACHE TEXTS MODEL [--vocab N] [--keep]

CACHE is the folder that corpus.py filled. MODEL/tokenizer.json is written, in the
form that Qwen3 has: byte-level BPE, NFC, the same pattern; --keep takes the one that
is there. CACHE/tokens/NAME.bin gets the ids of a domain as little-endian uint16, each
document ended by <|endoftext|>, and NAME.held.bin those of TEXTS/NAME.txt.
"""
import argparse
import pathlib

import numpy
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

import corpus

END = "<|endoftext|>"
PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
           r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# Of each domain, so that none of them takes the vocabulary.
TRAINED_BYTES = 1_500_000


def documents(cache, domain):
    """The documents of a domain."""
    return (cache / "text" / f"{domain}.train.txt").read_text().split("\0")


def sample(cache):
    """Documents for the tokenizer, of each domain the first, about as many bytes."""
    for domain in corpus.SOURCES:
        left = TRAINED_BYTES
        for document in documents(cache, domain):
            if left > 0:
                left -= len(document.encode())
                yield document


def train(cache, vocab):
    """A tokenizer."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(tokenizers.Regex(PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False,
                                 use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel(add_prefix_space=False,
                                           trim_offsets=False, use_regex=False)
    tokenizer.post_processor = tokenizers.processors.ByteLevel(
        add_prefix_space=False, trim_offsets=False, use_regex=False)
    # The special token comes last, as in Qwen3.
    tokenizer.train_from_iterator(sample(cache), trainers.BpeTrainer(
        vocab_size=vocab - 1, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens([tokenizers.AddedToken(
        END, special=True, normalized=False)])
    return tokenizer


def main():
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=pathlib.Path)
    parser.add_argument("texts", type=pathlib.Path)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--vocab", type=int, default=6144)
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    name = options.model / "tokenizer.json"
    if options.keep:
        tokenizer = tokenizers.Tokenizer.from_file(str(name))
    else:
        tokenizer = train(options.cache, options.vocab)
        options.model.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(name))
    end = tokenizer.token_to_id(END)
    folder = options.cache / "tokens"
    folder.mkdir(exist_ok=True)
    for domain in corpus.SOURCES:
        text = documents(options.cache, domain)
        ids = []
        for encoded in tokenizer.encode_batch(text):
            ids += encoded.ids + [end]
        numpy.array(ids, "<u2").tofile(folder / f"{domain}.bin")
        held = (options.texts / f"{domain}.txt").read_text()
        numpy.array(tokenizer.encode(held).ids, "<u2").tofile(
            folder / f"{domain}.held.bin")
        n_bytes = sum(len(x.encode()) for x in text)
        print(f"{domain}: {len(ids)} tokens, {n_bytes / len(ids):.2f} bytes "
              "in each", flush=True)


if __name__ == "__main__":
    main()
