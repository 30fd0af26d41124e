#!/usr/bin/env python3
"""Writes tests/vectors/tiktoken: the ranks of tests/vectors/tokenizers/llama3_bpe.json in tiktoken's and in Megatron's file
format, and the ids of tiktoken for 180 texts of inputs.jsonl and 6 others with each split pattern.

    python tools/make_tiktoken_vectors.py       needs `pip install tiktoken` (0.14.0 was used)
"""
import base64
import json
import pathlib

import tiktoken

VECTORS = pathlib.Path(__file__).resolve().parent.parent / "tests/vectors"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+@|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*@|")
PATTERNS = {
    "gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s",
    "cl100k_base": r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    "o200k_base": WORDS.replace("@", CONTRACTIONS + "?") + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "llama3": CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "v1": r"[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    "v2": WORDS.replace("@", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
NUM_SPECIAL = 20
NAMED = ["<unk>", "<s>", "</s>", "<mask>", "<pad>", "<cls>", "<sep>"]


def byte_of() -> dict[str, int]:
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    return {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}


def main() -> None:
    out = VECTORS / "tiktoken"
    out.mkdir(exist_ok=True)
    to_byte = byte_of()
    vocab = json.loads((VECTORS / "tokenizers/llama3_bpe.json").read_text())["model"]["vocab"]
    merged = [t for t in sorted(vocab, key=vocab.get) if len(t) > 1]
    tokens = [bytes([b]) for b in range(256)] + [bytes(to_byte[c] for c in t) for t in merged]
    texts = [json.loads(line)["text"] for line in (VECTORS / "tokenizers/inputs.jsonl").open()][::3][:180]
    texts += ["a </s> b<|endoftext|>", "x <|endofprompt|>", "<SPECIAL_9>", "tail  \n  ", "tail \n", "end   "]
    (out / "ranks.tiktoken").write_text("".join(f"{base64.b64encode(t).decode()} {i}\n" for i, t in enumerate(tokens)))
    entries = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": t.decode(errors="replace")} for i, t in enumerate(tokens)]
    (out / "megatron.json").write_text(json.dumps(entries))
    with (out / "expected.jsonl").open("w") as file:
        for name, pattern in PATTERNS.items():
            first = NUM_SPECIAL if name in ("v1", "v2") else 0
            n = len(tokens)
            special = {
                "gpt2": {"<|endoftext|>": n}, "llama3": {"<|begin_of_text|>": n, "<|end_of_text|>": n + 1, "<|start_header_id|>": n + 6, "<|end_header_id|>": n + 7, "<|eot_id|>": n + 9},
                "cl100k_base": {"<|endoftext|>": n + 1, "<|endofprompt|>": n + 20},
                "o200k_base": {"<|endoftext|>": n + 1, "<|endofprompt|>": n + 20},
            }.get(name, {t: i for i, t in enumerate(NAMED + [f"<SPECIAL_{i}>" for i in range(len(NAMED), NUM_SPECIAL)])})
            encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks={t: first + i for i, t in enumerate(tokens)}, special_tokens=special)
            for text in texts:
                file.write(json.dumps({"pattern": name, "text": text, "ids": encoding.encode(text, allowed_special="all")}) + "\n")
    manifest = {"made_by": "tools/make_tiktoken_vectors.py", "tiktoken": tiktoken.__version__, "tokens": len(tokens), "num_special": NUM_SPECIAL}
    (out / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
