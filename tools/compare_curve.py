#!/usr/bin/env python3
"""Compares the loss curve of a run with a recorded one, step by step.

usage: compare_curve.py METRICS.jsonl RECORDED fp32|bf16

RECORDED is a csv of all steps with columns step, lm_loss and grad_norm, or what Megatron-LM printed: lines
`iteration N/...` with `lm loss`, the mean since the line before, and `grad norm`, that of step N.

fp32 takes the tolerances of tests/vectors/trajectory/manifest.json: steps 1 to 10 loss 1e-6 and gradient norm 1e-5,
all others loss 1e-5 and norm 1e-3, relative. bf16 weights round away far more than that: 1 in 100 of the loss.
Half of the last digit that Megatron prints is added to both."""
import csv
import json
import re
import sys

LINE = re.compile(r"iteration\s+(\d+)/\s*\d+ \|.*?lm loss: ([-+.\dE]+) \|(?:.*?grad norm: ([.\d]+) \|)?")


def bounds(kind, step):
    if kind == "bf16":
        return 1e-2, float("inf")
    return (1e-6, 1e-5) if step <= 10 else (1e-5, 1e-3)


def half_digit(printed):
    """Half of the last digit of a number as it was printed."""
    mantissa, _, exponent = printed.partition("E")
    return 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def from_csv(path):
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [(int(row["step"]), 1, {key: (float(row[key]), 0.0) for key in ("lm_loss", "grad_norm")}) for row in rows]


def from_log(path):
    """(step, steps that the loss is the mean of, values with what printing may hide) for each line."""
    with open(path, encoding="utf-8", errors="replace") as file:
        found = [match.groups() for match in map(LINE.search, file) if match]
    steps = [int(step) for step, _, _ in found]
    interval = steps[1] - steps[0] if len(steps) > 1 else 1
    befores = [steps[0] - interval, *steps[:-1]] if steps else []
    points = []
    for before, step, (_, loss, norm) in zip(befores, steps, found):
        printed = {"lm_loss": loss, "grad_norm": norm}
        values = {key: (float(text), half_digit(text)) for key, text in printed.items() if text}
        points.append((step, step - before, values))
    return points


def main():
    metrics, recorded, kind = sys.argv[1:]
    with open(metrics, encoding="utf-8") as file:
        ours = {line["iteration"]: line for line in map(json.loads, file)}
    points = from_csv(recorded) if recorded.endswith(".csv") else from_log(recorded)
    if not points:
        raise SystemExit(f"curve: {recorded} must hold steps with lm_loss, or Megatron's lines; got none")
    first, last = points[0][0] - points[0][1] + 1, points[-1][0]
    if missing := set(range(first, last + 1)) - set(ours):
        raise SystemExit(f"curve: {metrics} must hold steps {first} to {last}; {len(missing)} of them are missing")
    faults, worst = 0, {"lm_loss": 0.0, "grad_norm": 0.0}
    for step, span, values in points:
        for (key, (value, hidden)), bound in zip(values.items(), bounds(kind, step)):
            mean_of = span if key == "lm_loss" else 1
            got = sum(ours[i][key] for i in range(step - mean_of + 1, step + 1)) / mean_of
            off = abs(got - value) / value
            worst[key] = max(worst[key], off)
            if not off <= bound + hidden / value:
                faults += 1
                print(f"step {step}: {key} must be within {bound:g} of {value}; got {got:.9g}")
    print(f"{kind}: {len(points)} steps, largest relative difference: loss {worst['lm_loss']:.1e}, "
          f"gradient norm {worst['grad_norm']:.1e}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
