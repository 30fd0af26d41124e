#!/usr/bin/env python3
"""Writes src/colonnade/tokenizers/unicode_table.cpp: the class of every character in Hugging Face `tokenizers`, queried from
the package character by character. Its components use libraries of several Unicode versions (16.0 for regular expressions,
8.0 for BERT), and ids must not depend on the ICU version of a machine.

    .venv/bin/python tools/make_unicode_table.py > src/colonnade/tokenizers/unicode_table.cpp
"""
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
TEXT = "".join(map(chr, ALL))
# Values of Category in unicode.h.
CATEGORIES = [r"\p{Lu}", r"\p{Ll}", r"\p{Lt}", r"\p{Lm}", r"\p{Lo}", r"\p{M}", r"\p{Nd}", r"[\p{Nl}\p{No}]", r"\p{P}", r"\p{S}", r"\s"]
FLAG_STEP = 16  # flags are the bits above the category


def of_regex(pattern: str) -> set[int]:
    """The characters that `pattern` matches."""
    parts = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed").pre_tokenize_str("\x01" + TEXT.replace("\x01", "") + "\x01")
    outside = set("".join(part for part, _ in parts))
    return {ord(c) for c in TEXT if c not in outside} - {1}


def split_off(pre_tokenizer) -> set[int]:
    return {c for c in ALL if len(pre_tokenizer.pre_tokenize_str("a" + chr(c))) == 2}


def removed(normalizer) -> set[int]:
    return {c for c in ALL if normalizer.normalize_str("a" + chr(c) + "b") == "ab"}


def bert(**on):
    off = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**off, **on})


def flags() -> list[set[int]]:
    """Members of each CharFlag of unicode.h, in its order."""
    word = pre_tokenizers.Whitespace()
    return [
        removed(bert(clean_text=True)),
        split_off(pre_tokenizers.Punctuation()),
        removed(bert(strip_accents=True)),
        removed(normalizers.StripAccents()),
        split_off(pre_tokenizers.Digits()),
        {c for c in ALL if word.pre_tokenize_str("a" + chr(c))[0][0] == "a" + chr(c)},
    ]


def values() -> list[int]:
    found = [0] * 0x110000
    for number, pattern in enumerate(CATEGORIES, 1):
        for c in of_regex(pattern):
            assert found[c] == 0, (pattern, hex(c))
            found[c] = number
    for bit, members in enumerate(flags()):
        for c in members:
            found[c] += FLAG_STEP << bit
    return found


def runs(items):
    start = 0
    for i in range(1, len(items) + 1):
        if i == len(items) or items[i] != items[start]:
            yield i - start, items[start]
            start = i


def base36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def lower_runs() -> list[tuple[int, int, int, int]]:
    """(first, last, step, difference) of runs of characters whose lower case is one other character."""
    lower = normalizers.Lowercase()
    found: list[list[int]] = []
    for c in ALL:
        small = lower.normalize_str(chr(c))
        if small == chr(c) or len(small) != 1:
            continue
        difference = ord(small) - c
        if found and found[-1][3] == difference:
            first, last, step, _ = found[-1]
            if c - last in (1, 2) and (first == last or c - last == step):
                found[-1] = [first, c, c - last, difference]
                continue
        found.append([c, c, 1, difference])
    return [tuple(run) for run in found]


def literal(text: str, width: int = 100) -> str:
    return "\n".join(f'    "{text[i:i + width]}"' for i in range(0, len(text), width))


def main() -> None:
    table = list(runs(values()))
    legend = sorted({value for _, value in table})
    letters = [chr(c) for c in [*range(ord("A"), ord("Z") + 1), *b"!#$%&()*+,-./:;<=>@[]^_{|}~"]]
    assert len(legend) <= len(letters), len(legend)
    letter = dict(zip(legend, letters))
    text = "".join((base36(length) if length > 1 else "") + letter[value] for length, value in table)
    print("// Made by tools/make_unicode_table.py from Hugging Face tokenizers "
          f"{tokenizers.__version__}; do not edit. See unicode.h.")
    print('#include "colonnade/tokenizers/unicode.h"\n')
    print("namespace colonnade::tokenizers::table {\n")
    print("// clang-format off")
    print("// Runs from U+0000 on: length in base 36 (none: 1), then the letter of its value.")
    print(f"const std::string_view kRuns =\n{literal(text)};\n")
    print(f'const std::string_view kLetters = "{"".join(letter[v] for v in legend)}";')
    print("const std::array<std::uint16_t, kNumValues> kValues = {" + ", ".join(map(str, legend)) + "};\n")
    lower = lower_runs()
    print("const std::array<LowerRun, kNumLowerRuns> kLower = {{")
    row = "   "
    for run in lower:
        item = " {%d, %d, %d, %d}," % run
        if len(row) + len(item) > 108:
            print(row)
            row = "   "
        row += item
    print(row + "\n}};")
    print("// clang-format on\n")
    print("}  // namespace colonnade::tokenizers::table")
    import sys
    print(f"values {len(legend)}, lower runs {len(lower)}, characters of text {len(text)}", file=sys.stderr)


if __name__ == "__main__":
    main()
