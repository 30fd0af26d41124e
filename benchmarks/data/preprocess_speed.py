#!/usr/bin/env python3
"""From JSON lines to .bin and .idx, end to end: `colonnade preprocess` and Megatron-LM's tools/preprocess_data.py on the
same texts with the same tokenizer, in one run. Prints Markdown; compares the bytes.

    git clone https://github.com/NVIDIA/Megatron-LM && .venv/bin/python benchmarks/data/preprocess_speed.py build/release Megatron-LM

The texts and the tokenizer (byte-level BPE, 32768 tokens, trained on other texts) are those of
benchmarks/tokenizers/speed.py. Megatron's tool reads its tokenizer's flags from megatron.training, which needs a GPU's
packages: a stand-in takes its place, everything else is theirs. Wall time and the processor time of all processes, each with
its start.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks/tokenizers"))
import speed  # noqa: E402

STAND_IN = '''
import importlib.abc, importlib.machinery, sys, types
from unittest import mock


class Missing(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "triton" else None

    def create_module(self, spec):
        module = mock.MagicMock(name=spec.name)
        module.__spec__, module.__path__, module.__name__, module.__version__ = spec, [], spec.name, "3.0.0"
        return module

    def exec_module(self, module):
        pass


def add_tokenizer_args(parser):
    for flag in ("tokenizer-type", "tokenizer-model", "vocab-file", "merge-file", "chat-template", "special-tokens"):
        parser.add_argument("--" + flag)
    for flag in ("tokenizer-hf-no-use-fast", "trust-remote-code", "tokenizer-hf-no-include-special-tokens", "use-gigatoken"):
        parser.add_argument("--" + flag, action="store_true")
    return parser


sys.meta_path.append(Missing())
training, arguments = types.ModuleType("megatron.training"), types.ModuleType("megatron.training.arguments")
training.__path__ = []
arguments._add_tokenizer_args = add_tokenizer_args
sys.modules.update({"megatron.training": training, "megatron.training.arguments": arguments})
'''


def timed(command, **more):
    """Wall and processor seconds of a command and its children."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr[-2000:]}")
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("megatron", type=pathlib.Path)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--peer-mb", type=float, default=20)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    texts = speed.collect(args.mb + 8)
    train, rest, size = [], [], 0
    for text in texts:
        (train if size < 8e6 else rest).append(text)
        size += len(text)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        speed.write_lines(folder / "train.jsonl", [{"text": t} for t in train])
        subprocess.run([args.build / "colonnade", "tokenizer", "train", "--model-type", "byte-bpe", "--input", folder / "train.jsonl",
                        "--output-prefix", folder / "tokenizer", "--vocab-size", "32768"], check=True, stderr=subprocess.DEVNULL)
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}))
        speed.write_lines(folder / "all.jsonl", [{"text": t} for t in rest])
        peer, size = [], 0
        for text in rest:
            peer.append({"text": text})
            size += len(text.encode())
            if size > args.peer_mb * 1e6:
                break
        speed.write_lines(folder / "peer.jsonl", peer)
        (folder / "stand_in").mkdir()
        (folder / "stand_in/sitecustomize.py").write_text(STAND_IN)
        flags = ["--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", folder, "--append-eod", "--workers", str(args.workers)]

        def ours(texts):
            return min(timed([args.build / "colonnade", "preprocess", "--input", folder / f"{texts}.jsonl", "--output-prefix",
                              folder / f"ours_{texts}", *flags]) for _ in range(3))

        all_texts, same_texts = ours("all"), ours("peer")
        theirs = timed([sys.executable, args.megatron / "tools/preprocess_data.py", "--input", folder / "peer.jsonl", "--output-prefix",
                        folder / "theirs", *flags], env={**os.environ, "PYTHONPATH": f"{folder / 'stand_in'}:{args.megatron}"})
        equal = all((folder / f"ours_peer_text_document.{end}").read_bytes() == (folder / f"theirs_text_document.{end}").read_bytes()
                    for end in ("bin", "idx"))
        mb_all, mb = sum(len(t.encode()) for t in rest) / 1e6, size / 1e6
        model = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        print(f"# JSON lines to .bin and .idx, {args.workers} workers\n\n- {model}; load {os.getloadavg()[0]:.1f}")
        print(f"- {mb_all:.0f} MB of text for ours, {mb:.0f} MB for both; equal bytes: {'yes' if equal else 'NO'}\n")
        print("| program | MB | wall, s | processor, s | MB/s | MB per processor second |\n|---|---|---|---|---|---|")
        for what, amount, (wall, cpu) in (("colonnade", mb_all, all_texts), ("colonnade", mb, same_texts), ("preprocess_data.py", mb, theirs)):
            print(f"| {what} | {amount:.0f} | {wall:.2f} | {cpu:.2f} | {amount / wall:.1f} | {amount / cpu:.1f} |")
        print(f"\nOurs is faster by {theirs[0] / same_texts[0]:.1f} times (wall) and {theirs[1] / same_texts[1]:.1f} times (processor) on the same "
              f"texts; by {mb_all / all_texts[0] / (mb / theirs[0]):.1f} and {mb_all / all_texts[1] / (mb / theirs[1]):.1f} times per MB on all.")


if __name__ == "__main__":
    main()
