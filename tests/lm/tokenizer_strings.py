# SPDX-License-Identifier: Apache-2.0
"""Strings that go all ways through a tokenizer, by hand and at random."""
import random
import unicodedata

# One for each path through the patterns of Qwen2, GPT-2 and Llama-3.
CONTRACTIONS = ["it's", "IT'S", "don't", "DON'T", "we're", "We'Re", "I've",
                "I'VE", "I'm", "I'M", "you'll", "YOU'LL", "he'd", "HE'D",
                "'s't're've'm'll'd", "rock'n'roll", "'\u017f", "it'\u017fx",
                "x'S\u0301", "\u2019s it\u2019s", "''s", "'", "''", "'l", "'r",
                "'v've", "l'l'll"]
DIGITS = ["0", "7", "42", "123", "1234", "1234567890", "3.14159", "1e-5",
          "0x7f", "a1b2c3", " 12 34", "\u0661\u0662\u0663", "\u00bd\u00b2",
          "\u2167", "\u3007\u4e00", "\U0001d7d8\U0001d7d9", "\u096a\u096b",
          "12\u0301", "x\u00b2+y\u00b3"]
SPACES = [" ", "  ", "   ", " a", "  a", "a ", "a  ", "a   b", "\t", "\t\ta",
          " \t a", "a\tb", "\n", "\n\n", "\r\n", "\r", "a\nb", "a\n\nb",
          "a \n b", "a\n \n b", "  \n  \n\n x", "\n  x", " \r\n \r\n",
          "x\n\n\n   y", "\u00a0", "a\u00a0b", " \u00a0a", "\u3000\u3042",
          "\u2003x", "\u2028\u2029", "a\u2028\nb", "\u0085a", "a\u0085\u0085",
          "\u180ea", "a\u180e b", "\u200b\u200bx", "\ufeffx", "\x0b\x0cz",
          "\x1c\x1d\x1e\x1fz", "\u1680\u205f\u202f-", " \n\t\n ", "end ",
          "end\n", "end \n", "if (a) {\n\t\treturn b;\n\t}\n"]
SIGNS = ["!", "...", " ...", "a.b", "(a)", "->", " !=\n", "--\n\n", "!\r\n\r",
         "#include <x.h>\n", "{}\n};\n", "\"q\"", "`code`", "a_b", "__a__",
         "$x$", "\u00a3\u20ac", "\u2014", "\u2026x", "\u3002\u3001",
         "\u2264\u2200x\u2208A", "@\u0301", "!\n!", "\\n\\t", "%d%%\n",
         "<|x|>", "<|", "http://a.b/c?d=e&f#g", "\x00", "a\x00b", "\x00\x00",
         "\x7f\x01\x02", "\x1b[0m"]
SCRIPTS = ["\u3053\u3093\u306b\u3061\u306f", "\u30ab\u30bf\u30ab\u30ca 123",
           "\u4f60\u597d\uff0c\u4e16\u754c\u3002", "\u4e00\u4e8c\u4e09",
           "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!",
           "\u0645\u0631\u062d\u0628\u0627 \u0628\u0643",
           "\u0643\u064e\u062a\u064e\u0628\u064e", "\u05e9\u05c1\u05bc",
           "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35", "\u0928\u092e\u0938\u094d"
           "\u0924\u0947", "\u0958\u0929\u09cb", "\uc548\ub155",
           "\u1100\u1161\u11a8", "\u1112\u1161\u11ab\u1100\u1173\u11af",
           "\uac00\u11a8", "\u1161\u11a8", "\u03b1\u03b2\u03b3 \u1f82",
           "\u10d0\u10d1", "\u13a0\uab70", "\U00010400\U00010428",
           "\U00020000\U0002a6d6", "\uf900\ufa0e", "\uff21\uff22\uff11"]
MARKS = ["e\u0301", "\u00e9", "e\u0323\u0301", "e\u0301\u0323", "\u1eb9\u0301",
         "\u0301", " \u0301", "\n\u0301", "a\u0301\u0301", "A\u030a", "\u212b",
         "\u2126", "\u0344", "\u0340\u0341", "\u0374", "\u1ffd", "\u2000",
         "\u0041\u0300\u0315\u0300\u05ae\u0300b", "q\u0307\u0323",
         "\u0122\u0327", "\u1e9b\u0323", "o\u031b\u0323", "\ufb1d\ufb2a",
         "\u0f71\u0f72\u0f80", "\u2adc", "\U0001d15e\U0001d160",
         "\u0130", "i\u0307", "\u017f", "\u00df\u1e9e", "\u01c5", "\u0149",
         "\u00c5\u0041\u030a", "\u0915\u093c", "\u3099\u304b\u3099\u304b",
         "\u0b47\u0b56\u0b47\u0b3e", "\u1025\u102e", "e\u0301\nb\u0323 \u0301"]
EMOJI = ["\U0001f600", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
         "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea",
         "1\ufe0f\u20e3", "a\U0001f600b", "\U0001f3f4\U000e0067\U000e007f"]
ODD = ["\ufffd", "\ufffe", "\uffff", "\U0001fffe", "\U0010ffff", "\ue000x",
       "\U000f0000", "\ud7ff\ue000", "\u0378", "\ufdd0", "\u2fff", "\U000e0001",
       "\u00ad", "\u034f", "\u115f\u3164", "\u200e\u200f", "\ufff9\ufffb"]
LONG = ["a" * 1000, "ab" * 700, " " * 900, " " * 500 + "x", "\n" * 300,
        " \n" * 200, "\t" * 333 + "y", "1" * 300, "-" * 500, "\u3042" * 300,
        "\u0301" * 100, "e" + "\u0301\u0323" * 60, "\U0001f600" * 60, "'s" * 99,
        "x\x00" * 90, "The quick brown fox. " * 20]

BY_HAND = ["", *CONTRACTIONS, *DIGITS, *SPACES, *SIGNS, *SCRIPTS, *MARKS,
           *EMOJI, *ODD, *LONG]

# First and last of what random strings are drawn from; a range's length does
# not matter.
RANGES = [(0x20, 0x7e), (0x61, 0x7a), (0x61, 0x7a), (0x30, 0x39), (0x21, 0x2f),
          (0x00, 0x1f), (0x80, 0xbf), (0xc0, 0x17f), (0x180, 0x24f),
          (0x250, 0x2ff), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x4ff),
          (0x531, 0x587), (0x591, 0x5f4), (0x600, 0x6ff), (0x900, 0x97f),
          (0x980, 0x9fe), (0xb01, 0xb77), (0xc00, 0xc7f), (0xd00, 0xd7f),
          (0xe01, 0xe5b), (0xf00, 0xfd8), (0x1000, 0x109f), (0x10a0, 0x10ff),
          (0x1100, 0x11ff), (0x1200, 0x137f), (0x13a0, 0x13fd),
          (0x1780, 0x17f9), (0x1800, 0x18aa), (0x1ab0, 0x1abe),
          (0x1dc0, 0x1dff), (0x1e00, 0x1eff), (0x1f00, 0x1ffe),
          (0x2000, 0x206f), (0x2070, 0x20bf), (0x20d0, 0x20f0),
          (0x2100, 0x214f), (0x2150, 0x218b), (0x2190, 0x22ff),
          (0x2460, 0x24ff), (0x2500, 0x26ff), (0x3000, 0x303f),
          (0x3041, 0x309f), (0x30a0, 0x30ff), (0x3131, 0x318e),
          (0x4e00, 0x9fef), (0x4e00, 0x4fff), (0xa000, 0xa48c),
          (0xac00, 0xd7a3), (0xe000, 0xe0ff), (0xf900, 0xfad9),
          (0xfb00, 0xfb4f), (0xfe00, 0xfe0f), (0xfe20, 0xfe2f),
          (0xff01, 0xffee), (0x10400, 0x1044f), (0x1d100, 0x1d1e8),
          (0x1d400, 0x1d7ff), (0x1f300, 0x1f6ff), (0x20000, 0x2a6d6)]
GLUE = [" ", " ", " ", "  ", "\n", "\n\n", "\t", "", "", "", "'s", "'LL", ".",
        ", ", "\r\n", "\u00a0", " \n", "\u0301", "1", "-"]


def is_assigned(character):
    """Tables of properties differ in what was given out lately."""
    return unicodedata.category(character) != "Cn"


def draw(rng, first, last):
    """A character of a range that all tables know."""
    while True:
        character = chr(rng.randint(first, last))
        if is_assigned(character):
            return character


def word(rng):
    """Characters of one script."""
    first, last = rng.choice(RANGES)
    n = min(int(rng.expovariate(0.25)) + 1, 40)
    if rng.random() < 0.1:
        return draw(rng, first, last) * n
    return "".join(draw(rng, first, last) for _ in range(n))


def text(rng, tokens=()):
    """Some words of some scripts, with added tokens among them."""
    parts = []
    for _ in range(rng.randint(1, 8)):
        parts.append(word(rng))
        parts.append(rng.choice(GLUE))
        if tokens and rng.random() < 0.1:
            parts.append(rng.choice(tokens))
    return "".join(parts)


def texts(seed, n, tokens=()):
    """n random texts."""
    rng = random.Random(seed)
    return [text(rng, tokens) for _ in range(n)]


def by_hand(tokens=()):
    """The strings above, and added tokens in the midst of others."""
    found = list(BY_HAND)
    for token in tokens[:12]:
        found += [token, token * 2, "a" + token + "b", " " + token + " ",
                  token[:-1], token[1:], "\n" + token + "\n", "e" + token +
                  "\u0301"]
    return found
