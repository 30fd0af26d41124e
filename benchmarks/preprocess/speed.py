#!/usr/bin/env python3
"""JSON lines to .bin and .idx: `colonnade preprocess` against Megatron's tools/preprocess_data.py and its fast variant
(GigaToken), in one run on the same texts with one worker each. Prints Markdown.

    .venv/bin/python benchmarks/preprocess/speed.py build/release --megatron FOLDER [--mb 200] [--peer-mb 20] [--python PYTHON]

FOLDER is a checkout of Megatron-LM; PYTHON one that has its dependencies (torch, transformers, triton; gigatoken for the fast
variant). Texts and tokenizer are those of benchmarks/tokenizers/speed.py, each text once. Megatron's plain script is measured on the
first --peer-mb of them, ours on those and on all. Outputs are compared byte by byte. CPU seconds are those of all
processes of a command, including startup; MB are those of the JSON lines. Peak memory is that of the largest process.
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tokenizers"))
import speed as texts_of  # noqa: E402

# The scripts need typing.override of Python 3.12; typing_extensions has it for older ones.
RUN = ("import sys, typing, typing_extensions, runpy; typing.override = typing_extensions.override; "
       "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')")


def run(command, env=None) -> dict:
    """Wall and CPU seconds and peak MB of a command and all its children."""
    code = ("import json, resource, subprocess, sys, time\nt = time.perf_counter()\n"
            "out = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)\n"
            "u = resource.getrusage(resource.RUSAGE_CHILDREN)\n"
            "print(json.dumps({'code': out.returncode, 'error': out.stderr[-1500:], 'wall': time.perf_counter() - t,"
            " 'cpu': u.ru_utime + u.ru_stime, 'mb': u.ru_maxrss / 1024}))")
    out = subprocess.check_output([sys.executable, "-c", code, *map(str, command)], env={**os.environ, **(env or {})})
    return json.loads(out)


def digest(prefix: pathlib.Path) -> str:
    return hashlib.sha256(b"".join(hashlib.sha256(open(f"{prefix}_text_document.{e}", "rb").read()).digest() for e in ("bin", "idx"))).hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--megatron", type=pathlib.Path, required=True)
    parser.add_argument("--mb", type=float, default=200)
    parser.add_argument("--peer-mb", type=float, default=20)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--texts", type=pathlib.Path, help="a file of JSON lines instead of the texts found here")
    parser.add_argument("--tokenizer", type=pathlib.Path, help="its tokenizer.json")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = list(dict.fromkeys(args.texts.read_text().splitlines())) if args.texts else [json.dumps(t) for t in dict.fromkeys(texts_of.collect(args.mb + 8))]
        lines = ['{"text": ' + line + "}\n" if line[0] == '"' else line + "\n" for line in lines]
        count = {"train": 8e6, "peer": args.peer_mb * 1e6, "all": args.mb * 1e6}
        at = 0
        for part in ("train", "peer"):
            size, first = 0, at
            while at < len(lines) and size < count[part]:
                size += len(lines[at])
                at += 1
            (folder / f"{part}.jsonl").write_text("".join(lines[first:at]))
            if part == "train":
                last, size = at, 0
                while last < len(lines) and size < count["all"]:
                    size += len(lines[last])
                    last += 1
                (folder / "all.jsonl").write_text("".join(lines[at:last]))
        home = folder / "tokenizer"
        home.mkdir()
        if args.tokenizer:
            (home / "tokenizer.json").write_bytes(args.tokenizer.read_bytes())
        else:
            subprocess.run([args.build / "colonnade", "tokenizer", "train", "--model-type", "byte-bpe", "--split-rule", "llama3", "--input", folder / "train.jsonl",
                            "--output-prefix", home / "tokenizer", "--vocab-size", "32768"], check=True, stderr=subprocess.DEVNULL)
        end = json.loads((home / "tokenizer.json").read_text())["added_tokens"][0]["content"]
        (home / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}))
        cpu = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
        print(f"# JSON lines to .bin and .idx\n\n- {cpu}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
        print("| program | MB | wall s | processor s | MB a processor second | peak MB | output |\n|---|---|---|---|---|---|---|")
        flags = ["--tokenizer-type", "HuggingFaceTokenizer", "--append-eod", "--json-keys", "text"]
        rates, digests = {}, {}

        def measure(label, part, command, prefix, rounds, env=None):
            outs = [run(command, env) for _ in range(rounds)]
            best = min(outs, key=lambda o: o["cpu"])
            if best["code"] != 0:
                reason = best["error"].strip().splitlines()[-1:] or ["?"]
                print(f"| {label} | | | | | | failed: {reason[0][:120]} |", flush=True)
                return
            mb = os.path.getsize(folder / f"{part}.jsonl") / 1e6
            own = digest(folder / prefix)
            known = digests.setdefault(part, own)
            rates[label] = mb / best["cpu"]
            print(f"| {label} | {mb:.0f} | {best['wall']:.2f} | {best['cpu']:.2f} | {mb / best['cpu']:.2f} | {best['mb']:.0f} | {'' if known is own else 'equal' if known == own else 'DIFFERS'} |", flush=True)

        def ours(label, part, prefix):
            command = [args.build / "colonnade", "preprocess", "--input", folder / f"{part}.jsonl", "--output-prefix", folder / prefix, "--tokenizer-model", home, "--workers", "1", *flags]
            measure(label, part, command, prefix, 3)

        ours("colonnade, all texts", "all", "ours_all")
        ours("colonnade, texts of the peer", "peer", "ours_peer")
        env = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore",
               "PYTHONPATH": str(args.megatron.resolve())}  # before a megatron-core that is installed
        peer = ["--input", folder / "peer.jsonl", "--tokenizer-model", home, *flags]
        tools = args.megatron / "tools"
        measure("`preprocess_data.py`", "peer", [args.python, "-c", RUN, tools / "preprocess_data.py", *peer, "--output-prefix", folder / "theirs", "--workers", "1"], "theirs", 1, env)
        fast = ["--input", folder / "all.jsonl", "--tokenizer-model", home, *flags]
        measure("`preprocess_data_fast.py`", "all", [args.python, "-c", RUN, tools / "preprocess_data_fast.py", "--use-gigatoken", *fast, "--output-prefix", folder / "fast"], "fast", 1, env)
        for label, own in (("`preprocess_data.py`", "colonnade, texts of the peer"), ("`preprocess_data_fast.py`", "colonnade, all texts")):
            if label in rates:
                print(f"\nOurs against {label}: {rates[own] / rates[label]:.1f} times, per processor second, same texts.")


if __name__ == "__main__":
    main()
