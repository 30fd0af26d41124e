#!/usr/bin/env python3
"""Compares the loss curve of a run with a recorded one, step by step.

usage: compare_curve.py METRICS.jsonl RECORDED.csv fp32|bf16

fp32 takes the tolerances of tests/vectors/trajectory/manifest.json: steps 1 to 10 loss 1e-6 and gradient norm 1e-5,
all 40 loss 1e-5 and norm 1e-3, relative. bf16 weights round away far more than that: 1 in 100 of the loss."""
import csv
import json
import sys


def bounds(kind, step):
    if kind == "bf16":
        return 1e-2, float("inf")
    return (1e-6, 1e-5) if step <= 10 else (1e-5, 1e-3)


def main():
    metrics, recorded, kind = sys.argv[1:]
    with open(metrics, encoding="utf-8") as file:
        ours = [json.loads(line) for line in file]
    with open(recorded, encoding="utf-8") as file:
        theirs = list(csv.DictReader(file))
    if len(ours) != len(theirs):
        raise SystemExit(f"curve: {len(theirs)} steps are needed; got {len(ours)} in {metrics}")
    faults, worst = 0, [0.0, 0.0]
    for step, (a, b) in enumerate(zip(ours, theirs), start=1):
        for i, (key, bound) in enumerate(zip(("lm_loss", "grad_norm"), bounds(kind, step))):
            off = abs(a[key] - float(b[key])) / float(b[key])
            worst[i] = max(worst[i], off)
            if not off <= bound:
                faults += 1
                print(f"step {step}: {key} must be within {bound:g} of {b[key]}; got {a[key]:.9g}")
    print(f"{kind}: {len(ours)} steps, largest relative difference: loss {worst[0]:.1e}, gradient norm {worst[1]:.1e}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
