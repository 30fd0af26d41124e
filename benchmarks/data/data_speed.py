#!/usr/bin/env python3
"""Index building and sample reading times of Colonnade and Megatron, measured in one run on the same data. Prints Markdown.

    .venv/bin/python benchmarks/data/data_speed.py build/release --megatron FOLDER [--samples 100e6] [--folder /tmp/x]

FOLDER is a checkout of Megatron-LM; its helpers are compiled there if necessary (pybind11, in the Python that runs
this). Indices: 16 data sets of synthetic documents of 8 to 4,096 tokens blended with unequal weights, `--samples` samples of 2,048
tokens, about 5 epochs of each data set; the .bin files are sparse, since indices read no token. All caches
are compared byte by byte. Samples: one data set of 40 million tokens, sequences of 4,096, in shuffled order. Every
measurement runs in its own process; wall and CPU seconds are the minimum of --rounds.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

SETS, SEQ, FETCH_SEQ, VOCAB = 16, 2048, 4096, 32768


def write_idx(prefix: pathlib.Path, lengths) -> None:
    """Writes an index of uint16 sequences, each a document of its own."""
    import numpy
    pointers = numpy.zeros(len(lengths), dtype=numpy.int64)
    numpy.cumsum(2 * lengths[:-1].astype(numpy.int64), out=pointers[1:])
    with open(f"{prefix}.idx", "wb") as file:
        file.write(b"MMIDIDX\x00\x00" + (1).to_bytes(8, "little") + (8).to_bytes(1, "little"))
        file.write(len(lengths).to_bytes(8, "little") + (len(lengths) + 1).to_bytes(8, "little"))
        lengths.astype(numpy.int32).tofile(file)
        pointers.tofile(file)
        numpy.arange(len(lengths) + 1, dtype=numpy.int64).tofile(file)


def make_blend(folder: pathlib.Path, samples: int) -> list[str]:
    import numpy
    words = []
    for number in range(SETS):
        draw = numpy.random.RandomState(number)
        weight = 1 + number % 4
        tokens = samples / (SETS * 2.5) * weight * SEQ / 4.6
        lengths = draw.randint(8, 4097, int(tokens / 2052))
        prefix = folder / f"set{number}"
        write_idx(prefix, lengths)
        with open(f"{prefix}.bin", "wb") as file:
            file.truncate(2 * int(lengths.sum()))
        words += [str(weight), str(prefix)]
    return words


def make_tokens(folder: pathlib.Path) -> str:
    import numpy
    draw = numpy.random.RandomState(1)
    lengths = numpy.minimum(draw.lognormal(6, 1, 60_000).astype(numpy.int64) + 8, 100_000)
    write_idx(folder / "tokens", lengths)
    draw.randint(1, VOCAB, int(lengths.sum())).astype(numpy.uint16).tofile(folder / "tokens.bin")
    return str(folder / "tokens")


def megatron(args) -> None:
    """Child process: builds the indices, or reads samples, with Megatron."""
    sys.path.insert(0, args.megatron)
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Words:
        vocab_size, eod, eos, pad, unique_identifiers = VOCAB, 0, 0, -1, {"class": "bench"}

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{args.cache}.group", rank=0, world_size=1)
    words = args.words
    blend = (words, None) if len(words) == 1 else (words[1::2], [float(w) for w in words[::2]])
    seq = FETCH_SEQ if args.child == "fetch" else SEQ
    config = GPTDatasetConfig(random_seed=1234, sequence_length=seq, blend=blend, split="1,0,0", path_to_cache=args.cache,
                              tokenizer=Words(), reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                              create_attention_mask=False)
    wall, cpu = time.perf_counter(), time.process_time()
    data = BlendedMegatronDatasetBuilder(GPTDataset, (int(args.samples), 0, 0), lambda: True, config).build()[0]
    total = 0
    if args.child == "fetch":
        wall, cpu = time.perf_counter(), time.process_time()
        for i in range(int(args.samples)):
            sample = data[i]
            total += int(sample["tokens"][-1]) + int(sample["labels"][-1])
    print("JSON " + json.dumps({"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "samples": len(data), "sum": total}))


def least(rounds: int, run) -> dict:
    outs = [run() for _ in range(rounds)]
    return {**outs[0], "wall_s": min(o["wall_s"] for o in outs), "cpu_s": min(o["cpu_s"] for o in outs)}


def run_ours(args, kind, cache, seq, samples, words):
    shutil.rmtree(cache, ignore_errors=True) if kind == "index" else None
    out = subprocess.check_output([args.build / "benchmarks/data/data_speed", kind, cache, str(seq), str(int(samples)), *words], stderr=subprocess.DEVNULL)
    return json.loads(out)


def run_megatron(args, kind, cache, samples, words):
    shutil.rmtree(cache, ignore_errors=True) if kind == "index" else None
    pathlib.Path(f"{cache}.group").unlink(missing_ok=True)
    command = [sys.executable, __file__, str(args.build), "--megatron", args.megatron, "--child", kind, "--cache", str(cache), "--samples", str(samples), "--words", *words]
    out = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    found = [line[5:] for line in out.stdout.splitlines() if line.startswith("JSON ")]
    if not found:
        sys.exit(f"Megatron failed:\n{out.stderr[-3000:]}")
    return json.loads(found[0])


def arrays(cache: pathlib.Path) -> dict:
    """Number of arrays by kind and digest, whatever the file names."""
    import hashlib
    found = {}
    for path in cache.rglob("*.npy"):
        digest = hashlib.sha256()
        with open(path, "rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
        kind = path.stem.rsplit("-", 1)[-1]
        found[(kind, digest.hexdigest())] = found.get((kind, digest.hexdigest()), 0) + 1
    return found


def row(name, out):
    print(f"| {name} | {out['wall_s']:.2f} | {out['cpu_s']:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--megatron", required=True)
    parser.add_argument("--samples", type=float, default=100e6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--child")
    parser.add_argument("--cache")
    parser.add_argument("--words", nargs="*")
    args = parser.parse_args()
    if args.child:
        return megatron(args)
    helpers = pathlib.Path(args.megatron) / "megatron/core/datasets"
    if not list(helpers.glob("helpers_cpp*.so")):
        subprocess.run(["make", "-C", helpers, f"python3={sys.executable}"], check=True, env={**os.environ, "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"}, stdout=subprocess.DEVNULL)
    cpu = next(line.split(": ")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    print(f"# Indices and samples\n\n- {cpu}, {os.cpu_count()} cores; load {os.getloadavg()[0]:.1f}\n")
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = pathlib.Path(name)
        words = make_blend(folder, int(args.samples))
        ours = least(args.rounds, lambda: run_ours(args, "index", folder / "ours", SEQ, args.samples, words))
        kept = arrays(folder / "ours")
        shutil.rmtree(folder / "ours")
        theirs = least(args.rounds, lambda: run_megatron(args, "index", folder / "theirs", args.samples, words))
        same = kept == arrays(folder / "theirs")
        shutil.rmtree(folder / "theirs")
        print(f"| {args.samples / 1e6:.0f} million samples of {SETS} data sets: indices | wall s | processor s |\n|---|---|---|")
        row("colonnade", ours)
        row(f"Megatron; {sum(kept.values())} arrays {'equal' if same else 'DIFFER'}", theirs)
        print(f"| ratio | {theirs['wall_s'] / ours['wall_s']:.1f} | {theirs['cpu_s'] / ours['cpu_s']:.1f} |\n")
        tokens = [make_tokens(folder)]
        ours = least(args.rounds + 1, lambda: run_ours(args, "fetch", folder / "ours", FETCH_SEQ, 9000, tokens))
        theirs = least(args.rounds + 1, lambda: run_megatron(args, "fetch", folder / "theirs", 9000, tokens))
        print(f"| {FETCH_SEQ} tokens a sample | microseconds a sample, wall | processor |\n|---|---|---|")
        for label, out in (("colonnade, batches of one", ours), ("Megatron `GPTDataset[i]`", theirs)):
            print(f"| {label} | {1e6 * out['wall_s'] / 9000:.1f} | {1e6 * out['cpu_s'] / 9000:.1f} |")
        print(f"| ratio{'' if ours['sum'] == theirs['sum'] else '; tokens DIFFER'} | {theirs['wall_s'] / ours['wall_s']:.1f} | {theirs['cpu_s'] / ours['cpu_s']:.1f} |")


if __name__ == "__main__":
    main()
