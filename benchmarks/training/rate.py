#!/usr/bin/env python3
"""Throughput of a Colonnade run, from its metrics.jsonl: tokens/s of the median step after the warm-up.

usage: rate.py METRICS.jsonl [--skip STEPS]     prints one JSON object"""
import argparse
import json
import statistics


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("metrics")
    parser.add_argument("--skip", type=int, default=3, help="number of warm-up steps to skip")
    args = parser.parse_args()
    with open(args.metrics, encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    tokens = steps[0]["consumed_tokens"]  # per step
    counted = [step["step_ms"] for step in steps[args.skip:]]
    if not counted:
        raise SystemExit(f"metrics must have more than {args.skip} steps; got {len(steps)} in {args.metrics}")
    median = statistics.median(counted)
    print(json.dumps({
        "name": "colonnade",
        "tokens_per_s": tokens / median * 1e3,
        "median_ms": median,
        "best_ms": min(counted),
        "first_loss": steps[0]["lm_loss"],
        "peak_mb": steps[-1]["peak_memory_bytes"] / 1e6,
    }))


if __name__ == "__main__":
    main()
