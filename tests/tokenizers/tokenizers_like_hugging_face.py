#!/usr/bin/env python3
"""Compares `colonnade tokenizer` with Hugging Face tokenizers on random Unicode strings, every tenth of which repeats one
short text: for every tokenizer.json of tests/vectors/tokenizers, for variants with other normalizers, pre-tokenizers, models,
decoders and added tokens, and for folders with AutoTokenizer of Transformers.

    .venv/bin/python tests/tokenizers/tokenizers_like_hugging_face.py build/release/colonnade FOLDER [--strings 200000] [--seed 1] [--all]

FOLDER is emptied and used for files. --strings: total number of strings. A tokenizer that differs from an earlier one only
in steps before its ids is compared by its ids alone, special ones included; with --all by everything. Exits 1 on a difference.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import unicodedata

import tokenizers
import transformers
from tokenizers import Tokenizer

VECTORS = pathlib.Path(os.environ.get("COLONNADE_VECTORS") or pathlib.Path(__file__).resolve().parent.parent / "vectors") / "tokenizers"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
TEKKEN = O200K.replace("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace("{1,3}", "")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+".replace('\\"', '"')]
DEEPSEEK_LLM = ["[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆა-ჿᎠ-ᏵᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕ]+",
                r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"]
QWEN35 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


SPACED = ["don't", " do not", " n't", " 's", " 've", " 're", " 'm", " ' ", "'", " .", " ?", " !", " ,", " ", ".", "we", " they"]  # fragments for clean_up_tokenization_spaces


def split(regex, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: regex}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def added(content, first_id, **flags):
    base = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {"id": first_id, "content": content, **{**base, **flags}}


def metaspace(scheme, split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def files():
    """(name, tokenizer.json, whether to use only characters of Unicode 14) of all tokenizers. Their components are those of published
    ones: gpt2_bpe (GPT-2), llama3_bpe, qwen2_bpe (Qwen 2 and 3), qwen35, llama2_json (Llama 2, Mistral 7B), mistral_v3, tekken (Mistral Nemo), deepseek_llm,
    deepseek_whole (DeepSeek-V3), o200k (GPT-OSS), gemma_whole, bert_wordpiece, t5_unigram."""
    read = {path.stem: json.loads(path.read_text()) for path in VECTORS.glob("*.json") if path.stem != "manifest"}
    for name, file in read.items():
        yield name, file, False

    def of(base, **parts):
        return {**read[base], **parts}

    gpt2 = "gpt2_bpe"
    for name, regex in {"o200k": O200K, "tekken": TEKKEN, "cl100k": CL100K, "llama3": LLAMA3}.items():
        yield name, of(gpt2, pre_tokenizer=sequence(split(regex), BYTES)), False
    yield "inverted", of(gpt2, pre_tokenizer=sequence(split(LLAMA3, "Removed", True), BYTES)), False
    yield "deepseek", of(gpt2, pre_tokenizer=sequence(*map(split, DEEPSEEK), BYTES)), False
    yield "deepseek_whole", of(gpt2, normalizer={"type": "Sequence", "normalizers": []}, pre_tokenizer=sequence(*map(split, DEEPSEEK), BYTES),
                               post_processor={**BYTES, "trim_offsets": False}), False
    yield "deepseek_llm", of(gpt2, pre_tokenizer=sequence(*map(split, DEEPSEEK_LLM), {"type": "Digits", "individual_digits": True}, BYTES)), False
    yield "qwen35", of("qwen2_bpe", pre_tokenizer=sequence(split(QWEN35), BYTES), decoder={"type": "Sequence", "decoders": [BYTES]}), False
    yield "prefix", of(gpt2, pre_tokenizer={**BYTES, "add_prefix_space": True, "use_regex": True}), False
    yield "digits", of(gpt2, pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, {**BYTES, "use_regex": True})), False
    yield "digit_runs", of(gpt2, pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, {**BYTES, "use_regex": True})), False
    yield "bare_bytes", of(gpt2, pre_tokenizer=BYTES), False
    yield "regex", of(gpt2, pre_tokenizer=sequence(split(r"\w+|[^\w\s]{1,2}|\s"), BYTES)), True
    for number, regex in enumerate([r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+|[\p{Han}]+|[^\p{Han}[:space:]]", r"[a-z[0-9]&&[^c-e4-6]]+|[^a-c&&[b-z]]",
                                    r"[[:alpha:]]+|[[:digit:]]{2}|[[:^space:]&&[^[:alnum:]]]+", r"\b[[:upper:]]|[[:lower:]]+\B|[^[:cntrl:][:blank:]]",
                                    r"[[^a-z][x]]+|[[:word:]&&[:^lower:]]|[^[:xdigit:]]", r"[^\W\d]+|[\W_]|[[:punct:]]", r"[[:^graph:]]|(?i)'t|'ll|day",
                                    r"\p{Uppercase_Letter}?\p{lowercase letter}+|\p{Number}|[^\p{Letter}]"]):
        yield f"classes_{number}", of(gpt2, pre_tokenizer=sequence(split(regex), BYTES)), True
    for behavior in ("Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield f"split_{behavior}", of(gpt2, pre_tokenizer=sequence(split(r"\s|e", behavior), BYTES)), True
        yield f"split_not_{behavior}", of(gpt2, pre_tokenizer=sequence(split("a", behavior, True, "String"), BYTES)), False
        yield f"punctuation_{behavior}", of(gpt2, pre_tokenizer=sequence({"type": "Punctuation", "behavior": behavior}, BYTES)), False
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"):
        yield form, of(gpt2, normalizer={"type": form}), False
    yield "strip", of(gpt2, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"},
        {"type": "Replace", "pattern": {"String": "ab"}, "content": ""}, {"type": "Strip", "strip_left": False, "strip_right": True}]}), False
    yield "byte_chars", of(gpt2, normalizer={"type": "ByteLevel"}, pre_tokenizer=None), False
    for old in (False, True):
        yield f"bert_{old}", of("bert_wordpiece", normalizer={"type": "BertNormalizer", "clean_text": not old, "handle_chinese_chars": old,
                                                              "strip_accents": old, "lowercase": not old}), False
    for name, step in {"words": {"type": "Whitespace"}, "white": {"type": "WhitespaceSplit"}, "comma": {"type": "CharDelimiterSplit", "delimiter": "e"}}.items():
        yield name, of("bert_wordpiece", pre_tokenizer=step), False
    end = len(read["t5_unigram"]["model"]["vocab"]) + 20
    t5 = read["t5_unigram"]["added_tokens"]
    tricky = [added("day", end, single_word=True, normalized=True, special=False), added("<sep>", end + 1, lstrip=True, rstrip=True),
              added("É", end + 2, normalized=True, special=False), added("<se", end + 3)]
    for scheme in ("first", "never", "always"):
        yield f"t5_{scheme}", of("t5_unigram", pre_tokenizer=metaspace(scheme), added_tokens=t5 + tricky), False
        for regex, content in {r"^|(?=[A-Z])": "e", r"e*": "", r"(?i)d|": "\u2581"}.items():
            yield f"t5_{scheme}_empty_{len(regex)}", of("t5_unigram", pre_tokenizer=metaspace(scheme), added_tokens=t5 + tricky,
                                                        normalizer={"type": "Replace", "pattern": {"Regex": regex}, "content": content}), False
        yield f"t5_{scheme}_whole", of("t5_unigram", pre_tokenizer=metaspace(scheme, False), normalizer={"type": "NFKC"}, added_tokens=t5 + tricky), False
    pieces = read["t5_unigram"]["model"]["vocab"]
    yield "twice", of("t5_unigram", added_tokens=[], model={**read["t5_unigram"]["model"], "vocab": pieces + [[text, score + (i % 3 - 1) / 2] for i, (text, score) in enumerate(pieces[200:260])]}), False
    llama = read["llama2_json"]
    last = len(llama["model"]["vocab"])
    more = [{**token, "id": last + i} for i, token in enumerate([added("day", 0, single_word=True, rstrip=True), added("<s> ", 0, lstrip=True), added("É e", 0, normalized=True)])]
    yield "llama_added", of("llama2_json", added_tokens=llama["added_tokens"] + more), False
    yield "gemma", of("llama2_json", normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                      pre_tokenizer=split(" ", "MergedWithPrevious", False, "String")), False
    yield "gemma_whole", of("llama2_json", normalizer={"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
                            pre_tokenizer=split(" ", "MergedWithPrevious", False, "String"),
                            decoder={"type": "Sequence", "decoders": llama["decoder"]["decoders"][:3]}), False
    yield "mistral_v3", of("llama2_json", normalizer=None, pre_tokenizer=metaspace("first", False)), False
    yield "no_bytes", of("llama2_json", model={**llama["model"], "byte_fallback": False}), False
    yield "no_fuse", of("llama2_json", model={**llama["model"], "byte_fallback": False, "fuse_unk": False}), False
    words = {"<unk>": 0, **{chr(c): i + 1 for i, c in enumerate(range(97, 123))}}
    model = {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"}
    yield "word_level", of("gpt2_bpe", model=model, added_tokens=[], pre_tokenizer={"type": "Whitespace"}, post_processor=None, decoder=None), False
    ends = {"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1], "trim_offsets": True, "add_prefix_space": False}
    yield "roberta", of("gpt2_bpe", post_processor=ends), False
    yield "bert_ends", of("bert_wordpiece", post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
                          decoder={"type": "WordPiece", "prefix": "##", "cleanup": False}), False
    suffix = {"a": 0, "b": 1, "c</w>": 2, "ab": 3, "b</w>": 4, "abc</w>": 5, "a</w>": 6, "<unk>": 7, "c": 8}
    model = {**llama["model"], "vocab": suffix, "merges": [["a", "b"], ["ab", "c</w>"]], "end_of_word_suffix": "</w>", "unk_token": "<unk>", "byte_fallback": False}
    yield "suffix", of("gpt2_bpe", model=model, added_tokens=[], pre_tokenizer={"type": "Whitespace"}, decoder={"type": "BPEDecoder", "suffix": "</w>"}), False
    prefix = {"a": 0, "b": 1, "##a": 2, "##b": 3, "ab": 4, "##ab": 5, "abab": 6}
    model = {**model, "vocab": prefix, "merges": [["a", "##b"], ["##a", "##b"], ["ab", "##ab"]], "end_of_word_suffix": None, "continuing_subword_prefix": "##", "unk_token": None}
    yield "continuing", of("gpt2_bpe", model=model, added_tokens=[], pre_tokenizer={"type": "WhitespaceSplit"}, decoder=None), False


ASSIGNED = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
PIECES = ["'s", "'S", "'ll", "'RE", "'ſ", " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "\u180e", "\u200b", "ab", "abc", "day", "Day", "<sep>", "<s>", "</s>",
          "É e", "É", "e\u0301", "[SEP]", "<|endoftext|>", "<extra_id_0>", "ﬀ", "İ", "ς", "½", "²", "１２", "123456", "中文", "カタカナ", "ー・",
          "한국어", "\u1100\u1161", "हिन्दी", "🇩🇪🇫🇷", "👩‍👩‍👧", "\u0000", "\u007f", "\ufffd", "\ufeff", "...", "//", "/\n", "don't", "HTTPServer", "iPhone", "ǅ", "ʰ", "ab²", "day½"]


def random_run(rng, known_only):
    """A repeated character or short text: its segmentations tie except for rounding."""
    length = rng.choice([1, 1, 1, 2, 3, 4])
    letters = [c for c in (ASSIGNED if known_only else ALL) if c < 0x3000] if rng.randrange(8) == 0 else range(32, 127)
    text = rng.choice(PIECES) if rng.randrange(10) == 0 else "".join(chr(rng.choice(letters)) for _ in range(length))
    return rng.choice(["", " ", "ab", "\n"]) + text * rng.randrange(2, 300 // len(text)) + rng.choice(["", " ", "c", "\n"])


def random_text(rng, known_only):
    if rng.randrange(10) == 0:
        return random_run(rng, known_only)
    table = ASSIGNED if known_only else rng.choice([ALL, ASSIGNED, ASSIGNED])
    low = [c for c in range(32, 0x250)]
    parts = []
    for _ in range(rng.randrange(1, 14)):
        kind = rng.randrange(6)
        if kind == 0:
            parts.append(chr(rng.choice(table)))
        elif kind == 1:
            block = rng.choice(table) & ~0x7F
            near = [c for c in range(block, block + 128) if 0 <= c < 0x110000 and not 0xD800 <= c < 0xE000]
            near = [c for c in near if unicodedata.category(chr(c)) != "Cn"] if known_only else near
            parts.append("".join(chr(rng.choice(near)) for _ in range(rng.randrange(1, 6))) if near else "")
        elif kind == 2:
            parts.append("".join(chr(rng.choice(low)) for _ in range(rng.randrange(1, 8))))
        elif kind == 3:
            parts.append("".join(rng.choice("abcdefgh eta") for _ in range(rng.randrange(1, 12))))
        else:
            parts.append(rng.choice(PIECES))
    return "".join(parts)


def run(program, verb, path, lines, *flags):
    text = "\n".join(map(json.dumps, lines)) + "\n"
    done = subprocess.run([program, "tokenizer", verb, "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", path, *flags],
                          input=text, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, f"{path}: {done.stderr}"
    return [json.loads(line) for line in done.stdout.rstrip("\n").split("\n")]


def parts_after_ids(file):
    """What decides special ids and decoded text, besides the ids: parts that normalizers and pre-tokenizers do not touch."""
    return json.dumps([file.get(part) for part in ("model", "added_tokens", "post_processor", "decoder")], sort_keys=True)


def compare(program, folder, name, file, known_only, whole, count, seed):
    """`whole`: compares also ids without special ones, and decoded text."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(file))
    theirs = Tokenizer.from_file(str(path))
    rng = random.Random(f"{seed} {name}")
    texts = [random_text(rng, known_only) for _ in range(count)]
    wrong = []

    def check(what, ours, expected):
        assert len(ours) == len(expected), f"{name}: {len(ours)} lines for {len(expected)}"
        wrong.extend((name, what, texts[i], ours[i], expected[i]) for i in range(len(texts)) if ours[i] != expected[i])

    special = [e.ids for e in theirs.encode_batch(texts, add_special_tokens=True)]
    check("ids with special ones", run(program, "encode", path, texts, "--add-special-tokens"), special)
    if whole:
        check("ids", run(program, "encode", path, texts), [e.ids for e in theirs.encode_batch(texts, add_special_tokens=False)])
        check("text", run(program, "decode", path, special), theirs.decode_batch(special, skip_special_tokens=True))
        check("text with special tokens", run(program, "decode", path, special, "--keep-special-tokens"), theirs.decode_batch(special, skip_special_tokens=False))
    return wrong


def folders():
    """(name, tokenizer.json, tokenizer_config.json) of folders whose tokenizer Transformers changes by the config."""
    general = {"tokenizer_class": "PreTrainedTokenizerFast"}
    yield "named", "llama3_bpe", {**general, "eos_token": "th", "pad_token": "<new>", "mask_token": "day"}
    yield "more", "llama3_bpe", {**general, "additional_special_tokens": ["ab", "<sep>"], "extra_special_tokens": {"image_token": "É"}}
    yield "listed", "qwen2_bpe", {**general, "add_bos_token": True, "bos_token": "<|endoftext|>", "extra_special_tokens": ["day", "..."]}
    typed = {"__type": "AddedToken", "content": "É", "lstrip": True, "rstrip": False, "normalized": False, "special": True}
    yield "flat", "llama3_bpe", {**general, "image_token": "ab", "pad_token": "<new>", "video_token": typed, "seen_token": {"content": "day"}, "use_token": "..."}
    yield "flat_table", "llama3_bpe", {**general, "image_token": "ab", "extra_special_tokens": {"more": "É"}, "model_specific_special_tokens": {"own": "day"}}
    clean = {"clean_up_tokenization_spaces": True}
    yield "clean_bert", "bert_wordpiece", {"tokenizer_class": "BertTokenizer", **clean}
    yield "clean_t5", "t5_unigram", {**general, **clean}
    yield "clean_gpt2", "gpt2_bpe", {**general, **clean}
    yield "clean_anyway", "gpt2_bpe", {**general, **clean, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": True}
    for lower in (True, False):
        yield f"bert_{lower}", "bert_wordpiece", {"tokenizer_class": "BertTokenizer", "do_lower_case": lower}
        yield f"bert_accents_{lower}", "bert_wordpiece", {"tokenizer_class": "BertTokenizer", "do_lower_case": not lower, "strip_accents": lower, "tokenize_chinese_chars": lower}
        yield f"gpt2_{lower}", "gpt2_bpe", {"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": lower}
        yield f"general_{lower}", "llama2_json", {**general, "add_prefix_space": lower, "add_bos_token": lower, "add_eos_token": not lower, "bos_token": "<s>", "eos_token": "</s>"}


def compare_folder(program, folder, name, base, config, count, seed):
    """Compares a folder with AutoTokenizer, which reads both files."""
    path = folder / name
    path.mkdir()
    shutil.copy(VECTORS / f"{base}.json", path / "tokenizer.json")
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.AutoTokenizer.from_pretrained(path)
    rng = random.Random(f"{seed} {name}")
    texts = [random_text(rng, False) for _ in range(count)] + ["".join(rng.choice(SPACED) for _ in range(rng.randrange(9))) for _ in range(40)]
    wrong = []
    for special, flags in ((False, []), (True, ["--add-special-tokens"])):
        ours = run(program, "encode", path, texts, *flags)
        expected = [theirs.encode(text, add_special_tokens=special) for text in texts]
        wrong += [(name, "ids", texts[i], ours[i], expected[i]) for i in range(len(texts)) if ours[i] != expected[i]]
    for skip, flags in ((True, []), (False, ["--keep-special-tokens"])):
        ours = run(program, "decode", path, expected, *flags)
        decoded = [theirs.decode(ids, skip_special_tokens=skip) for ids in expected]
        wrong += [(name, "text", texts[i], ours[i], decoded[i]) for i in range(len(texts)) if ours[i] != decoded[i]]
    return wrong


def compare_training(program, folder):
    """Differences between a tokenizer.json trained here and one of Hugging Face's trainer."""
    corpus = VECTORS.parent / "indexed/corpus_gpt2.jsonl"
    texts = [json.loads(line)["text"] for line in corpus.open()] + [json.loads(line)["text"] for line in (VECTORS / "inputs.jsonl").open()]
    (folder / "train.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    wrong = []
    for pattern, step in {"gpt2": {**BYTES, "use_regex": True}, "llama3": sequence(split(LLAMA3), BYTES)}.items():
        subprocess.run([program, "tokenizer", "train", "--model-type", "byte-bpe", "--split-rule", pattern, "--input", folder / "train.jsonl",
                        "--output-prefix", folder / "trained", "--vocab-size", "3000"], check=True, stderr=subprocess.DEVNULL)
        ours = json.loads((folder / "trained.json").read_text())
        empty = {"type": "BPE", "vocab": {}, "merges": []}
        theirs = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "pre_tokenizer": step, "decoder": {**BYTES, "add_prefix_space": True, "use_regex": True}, "model": empty}))
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
                                                 initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet())
        theirs.train_from_iterator(texts, trainer)
        expected = json.loads(theirs.to_str())
        wrong += [(f"training with {pattern}", part, "", ours.get(part), expected.get(part)) for part in {*ours, *expected} if ours.get(part) != expected.get(part)]
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--strings", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--all", action="store_true", help="compare everything of every tokenizer")
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    cases, seen = [], set()
    for name, file, known_only in files():
        cases.append((name, file, known_only, args.all or parts_after_ids(file) not in seen))
        seen.add(parts_after_ids(file))
    count = -(-args.strings // len(cases))
    wrong = compare_training(args.program, args.folder)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for found in pool.map(lambda case: compare(args.program, args.folder, *case, count, args.seed), cases):
            wrong += found
    for case in folders():
        wrong += compare_folder(args.program, args.folder, *case, count, args.seed)
    for name, what, text, ours, theirs in wrong[:20]:
        print(f"{name}: {what} of {text!r}: {str(ours)[:2000]} here, {str(theirs)[:2000]} in Hugging Face tokenizers")
    print(f"tokenizers {tokenizers.__version__}: {len(cases)} tokenizers, {sum(case[3] for case in cases)} of them whole, {len(list(folders()))} folders, {count} strings each, {len(wrong)} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
