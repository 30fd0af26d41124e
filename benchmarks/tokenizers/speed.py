#!/usr/bin/env python3
"""Encoding speed of byte-level BPE per second of CPU time on one thread: Colonnade, Hugging Face tokenizers' encode_batch and tiktoken, on the
same texts with the same vocabulary of 32768 tokens, trained on other texts. Prints Markdown.

    .venv/bin/python benchmarks/tokenizers/speed.py build/release [--mb 200] [--peer-mb 20] [--rule llama3]

The texts are the distinct Python sources and text files of .venv, /usr/share/doc, /usr/include and /usr/lib/python3, shuffled. Peers are measured
on the first --peer-mb of these texts, where the ids of Hugging Face are compared with ours. tiktoken merges any pair of tokens whose concatenation
is a token, not only the pairs in the file, so a few of its ids differ.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
ROOT = pathlib.Path(__file__).resolve().parents[2]
MAX_CHARS = 200_000  # of one text


def collect(megabytes: float) -> list[str]:
    paths = [p for folder in (ROOT / ".venv/lib", pathlib.Path("/usr/share/doc"), pathlib.Path("/usr/include"), pathlib.Path("/usr/lib/python3"))
             for suffix in ("py", "txt", "md", "rst", "h", "hpp", "html", "copyright") for p in folder.glob(f"**/*.{suffix}" if suffix != "copyright" else "**/copyright")]
    random.Random(1).shuffle(paths)
    texts, size = {}, 0
    for path in paths:
        try:
            text = path.read_text()[:MAX_CHARS]
        except (UnicodeDecodeError, OSError):
            continue
        size += 0 if text in texts else len(text.encode())
        texts[text] = True
        if size >= megabytes * 1e6:
            return list(texts)
    print(f"- found only {size / 1e6:.0f} MB of text", flush=True)
    return list(texts)


def write_lines(path, texts):
    path.write_text("".join(json.dumps(text) + "\n" for text in texts))


def ids_sum(batches) -> int:
    return sum((k + 1) * i for ids in batches for k, i in enumerate(ids))


def ours(build, tokenizer, path, threads=1):
    best = None
    for _ in range(3):
        out = json.loads(subprocess.check_output([build / "benchmarks/tokenizers/tokenizer_speed", tokenizer, path, str(threads)]))
        best = out if best is None or out["cpu_seconds"] < best["cpu_seconds"] else best
    return best


def hugging_face(tokenizer, texts):
    import tokenizers
    model = tokenizers.Tokenizer.from_file(str(tokenizer))
    start = time.process_time()
    encodings = model.encode_batch(texts, add_special_tokens=False)
    seconds = time.process_time() - start
    return seconds, ids_sum(e.ids for e in encodings), tokenizers.__version__


def tiktoken_(file, texts):
    import tiktoken
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [b for b in range(256) if b not in visible]
    to_byte = {chr(b): b for b in visible} | {chr(256 + i): b for i, b in enumerate(hidden)}
    ranks = {bytes(to_byte[c] for c in token): i for token, i in file["model"]["vocab"].items() if not token.startswith("<|")}
    steps = file["pre_tokenizer"].get("pretokenizers")
    pattern = steps[0]["pattern"]["Regex"] if steps else r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
    encoding = tiktoken.Encoding("bench", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    start = time.process_time()
    ids = encoding.encode_ordinary_batch(texts, num_threads=1)
    seconds = time.process_time() - start
    return seconds, ids_sum(ids), tiktoken.__version__


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--peer-mb", type=float, default=20)
    parser.add_argument("--rule", default="llama3")
    args = parser.parse_args()
    texts = collect(args.mb + 8)
    train, test, size = [], [], 0
    for text in texts:
        (train if size < 8e6 else test).append(text)
        size += len(text)
    peer_test, size = [], 0
    for text in test:
        peer_test.append(text)
        size += len(text.encode())
        if size > args.peer_mb * 1e6:
            break
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "train.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in train))
        subprocess.run([args.build / "colonnade", "tokenizer", "train", "--model-type", "byte-bpe", "--split-rule", args.rule, "--input",
                        folder / "train.jsonl", "--output-prefix", folder / "tokenizer", "--vocab-size", "32768"], check=True, stderr=subprocess.DEVNULL)
        tokenizer = folder / "tokenizer.json"
        write_lines(folder / "all.jsonl", test)
        write_lines(folder / "peer.jsonl", peer_test)
        alone, same = ours(args.build, tokenizer, folder / "all.jsonl"), ours(args.build, tokenizer, folder / "peer.jsonl")
        both = ours(args.build, tokenizer, folder / "all.jsonl", os.cpu_count())
        model = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        print(f"# Byte-level BPE, 32768 tokens, {args.rule} split pattern\n\n- {model}; load {os.getloadavg()[0]:.1f}")
        print(f"- {alone['bytes'] / 1e6:.0f} MB of text for ours, {size / 1e6:.0f} MB for peers; {alone['bytes'] / alone['tokens']:.2f} bytes per token\n")
        print("| encoder | MB per CPU second | speedup of ours, same texts; all texts | same ids as ours |\n|---|---|---|---|")
        rate, rate_same = alone["bytes"] / 1e6 / alone["cpu_seconds"], same["bytes"] / 1e6 / same["cpu_seconds"]
        print(f"| colonnade, 1 thread, all texts | {rate:.1f} | | |")
        print(f"| colonnade, {os.cpu_count()} threads, all texts; MB per wall-clock second | {both['bytes'] / 1e6 / both['seconds']:.1f} | | |")
        print(f"| colonnade, 1 thread, the peers' texts | {rate_same:.1f} | | |")
        peers = [("tokenizers encode_batch", lambda: hugging_face(tokenizer, peer_test)), ("tiktoken", lambda: tiktoken_(json.loads(tokenizer.read_text()), peer_test))]
        for peer, run in peers:
            try:
                seconds, total, version = run()
            except ModuleNotFoundError as error:
                print(f"| {peer} | {error} | | |")
                continue
            peer_rate = size / 1e6 / seconds
            print(f"| {peer} {version}, 1 thread | {peer_rate:.2f} | {rate_same / peer_rate:.0f}; {rate / peer_rate:.0f} times | {'not compared' if peer == 'tiktoken' else 'yes' if total == same['sum'] else 'NO'} |", flush=True)


if __name__ == "__main__":
    main()
