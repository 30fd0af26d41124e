#!/usr/bin/env python3
"""Images per CPU second, measured in one run: Colonnade on one thread (reading, decoding, tokenizing, batching) and Pillow with
Transformers' CLIPImageProcessor (only decoding and processing), on the same shards; then 64 workers that feed a consumer whose
step takes as long as the machine can sustain. Prints Markdown.

    .venv/bin/python benchmarks/images/speed.py build/release [--images 1000] [--seconds 20]

The shards hold JPEGs of quality 85, 4:2:0, of 336 x 336 to 640 x 480 pixels: gradients, edges, noise, so that they are about as
large as photographs. Every image becomes 3 x 224 x 224 in fp32. Waiting share: time in next() over the total time after the
first batch.
"""
import argparse
import io
import json
import os
import pathlib
import resource
import subprocess
import tarfile
import tempfile
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
import numpy as np
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

SIZES = ((336, 336), (400, 300), (500, 375), (640, 426), (480, 640), (640, 480))
FLAGS = ("--seq-length", "32", "--tokenizer-type", "NullTokenizer", "--vocab-size", "100", "--show", "0")


def picture(rng, width, height):
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    f = rng.uniform(0.005, 0.15, (3, 3))
    planes = [120 + 60 * np.sin(x * f[c, 0] + y * f[c, 1]) + 40 * np.sign(np.sin(x * f[c, 2] / 3) + np.cos(y * f[c, 0] / 3)) for c in range(3)]
    image = np.stack(planes, -1) + rng.normal(0, 9, (height, width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(image, 0, 255).astype(np.uint8))


def make_shards(folder, images, shards=8):
    rng, total = np.random.default_rng(1), 0
    for shard in range(shards):
        with tarfile.open(folder / f"shard-{shard:03}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(shard, images, shards):
                out = io.BytesIO()
                picture(rng, *SIZES[i % len(SIZES)]).save(out, format="JPEG", quality=85)
                total += out.tell()
                for part, data in (("jpg", out.getvalue()), ("txt", f"{i % 90} 1 2".encode())):
                    about = tarfile.TarInfo(f"{i:06}.{part}")
                    about.size = len(data)
                    tar.addfile(about, io.BytesIO(data))
    return total


def ours(build, folder, report, **flags):
    """The program's measurements, and the CPU seconds that it took in total."""
    words = [w for key, value in flags.items() for w in (f"--{key.replace('_', '-')}", str(value))]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([build / "colonnade", "data", "images", folder, *FLAGS, *words, "--json", report], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return json.loads(report.read_text())["speed"], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def theirs(folder):
    """Images per CPU second, without reading the shards."""
    processor = CLIPImageProcessorPil()
    files = []
    for path in sorted(folder.glob("*.tar")):
        with tarfile.open(path) as tar:
            files += [tar.extractfile(member).read() for member in tar if member.name.endswith(".jpg")]
    begin = time.process_time()
    for data in files:
        processor(images=Image.open(io.BytesIO(data)).convert("RGB"), return_tensors="np")
    return len(files) / (time.process_time() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=20)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, report = pathlib.Path(name) / "shards", pathlib.Path(name) / "report.json"
        folder.mkdir()
        total = make_shards(folder, args.images)
        print(f"- {args.images} images, {total / args.images / 1000:.0f} kB each; load {os.getloadavg()[0]:.1f}; {os.cpu_count()} cores", flush=True)
        ours(args.build, folder, report, batches=2, micro_batch_size=8, workers=2)  # builds the index, warms the page cache
        batches = args.images // 8
        one, peer = [], []
        for _ in range(2):
            one.append(batches * 8 / ours(args.build, folder, report, batches=batches, micro_batch_size=8, workers=0)[1])
            peer.append(theirs(folder))
        print(f"- images a second of processor time, best of 2 by turns: ours {max(one):.0f}, Pillow and Transformers {max(peer):.0f}, "
              f"ratio {max(one) / max(peer):.2f}", flush=True)
        def free():
            return ours(args.build, folder, report, batches=batches, micro_batch_size=8, workers=64)[0]["images_per_s"]

        before = free()
        print(f"- 64 workers without a step: {before:.0f} images/s", flush=True)
        for use in (0.5, 0.8):
            step = 8000 / (use * before)
            run = ours(args.build, folder, report, batches=int(args.seconds * 1000 / step), micro_batch_size=8, workers=64, step_ms=f"{step:.3f}")[0]
            after = free()
            print(f"- 64 workers, a step of {step:.0f} ms for 8 images ({use:.0%} of that, {8000 / (step * after):.0%} of {after:.0f} "
                  f"images/s, measured after it): {run['images_per_s']:.0f} images/s, {run['share_waiting']:.2%} of the time waiting; "
                  f"first batch after {run['first_batch_s'] * 1000:.0f} ms", flush=True)
            before = after


if __name__ == "__main__":
    main()
