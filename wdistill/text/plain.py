"""The n-grams of one text in plain Python: this file alone, copied anywhere, makes the rows that an exported student reads.

A word is a run of letters, marks and digits of any script (Unicode categories L, M and N), in lower case, with apostrophes
between them. A symbol of another sort, such as an emoji (category So), is a word of its own. All else is between words.

The hash of bytes b₀ b₁ … of UTF-8 is Σ (bᵢ + 1) · BASEⁱ modulo 2⁶⁴; that of a pair of words is PAIR · first + second. It is
mixed, and its upper 18 bits are the bucket. Column = bucket for single words, 2¹⁸ + bucket for pairs.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from itertools import pairwise

BITS = 18
BUCKETS = 1 << BITS  # of single words, and as many of pairs
BASE, PAIR, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
LOW = (1 << 64) - 1
APART, LETTER, SYMBOL = 0, 1, 2
MOST = 1023  # a count in a row of whole numbers is at most this


def kind_of(char: str) -> int:
    """Whether a character is a LETTER of a word, a SYMBOL that is a word of its own, or APART from words."""
    category = unicodedata.category(char)
    chooses = "\ufe00" <= char <= "\ufe0f" or char >= "\U000e0000"  # marks that say how an emoji is to look
    if category[0] in "LMN" and not chooses:
        return LETTER
    return SYMBOL if category == "So" else APART


def words_of(text: str) -> list[str]:
    """The words of a text, in its order."""
    text = f" {text.lower().replace('’', chr(39))} "
    kinds = [kind_of(char) for char in text]
    words, word = [], ""
    for place in range(1, len(text)):
        if kinds[place] == LETTER or (text[place] == "'" and kinds[place - 1] == kinds[place + 1] == LETTER):
            word += text[place]
            continue
        words += [word] * bool(word) + [text[place]] * (kinds[place] == SYMBOL)
        word = ""
    return words


def hash_of(gram: str) -> int:
    """The hash of a word, or of a run of characters, before it is mixed."""
    value = 0
    for byte in reversed(gram.encode("utf-8", "surrogatepass")):
        value = (value * BASE + byte + 1) & LOW
    return value


def bucket_of(gram: str, following: str | None = None) -> int:
    """The bucket of a word, or of a word and the one after it: 0 … 2¹⁸ − 1."""
    value = hash_of(gram) if following is None else (PAIR * hash_of(gram) + hash_of(following)) & LOW
    value = ((value ^ value >> 32) * FIRST) & LOW
    return ((value ^ value >> 29) * SECOND & LOW) >> (64 - BITS)


def columns_of(text: str | None, characters: tuple[int, int] | None = None) -> Counter[int]:
    """How often each column occurs in a text: words and pairs of words, or runs of `characters`: shortest, longest."""
    if characters is not None:
        text = (text or "").lower().replace("’", "'")
        sizes = range(characters[0], characters[1] + 1)
        return Counter(bucket_of(text[at : at + size]) for size in sizes for at in range(len(text) - size + 1))
    words = words_of(text or "")
    return Counter([bucket_of(word) for word in words] + [BUCKETS + bucket_of(*pair) for pair in pairwise(words)])


def row_of(text: str | None, length: int, characters: tuple[int, int] | None = None) -> list[int]:
    """A text as a student reads it: count · 2²⁰ + column + 1 for the lowest columns, then zeros up to `length`.

    Of a text with more columns, the highest are left out: those of pairs first.
    """
    found = columns_of(text, characters)
    row = [(min(found[column], MOST) << (BITS + 2)) + column + 1 for column in sorted(found)[:length]]
    return row + [0] * (length - len(row))
