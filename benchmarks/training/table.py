#!/usr/bin/env python3
"""Formats results as Markdown. Input: one JSON object per line with `name`, `tokens_per_s`, `median_ms` and `peak_mb`,
or `name` and `failed`; several lines of one name are reduced to their median. The speedup is Colonnade's throughput over
the other program's.

usage: table.py TITLE < results.jsonl          one table
       table.py --summary results.jsonl...     geometric means and minima of the speedups over several files"""
import collections
import json
import math
import statistics
import sys

OURS = "colonnade"


def read(lines):
    """Maps name to its list of results, in order of first appearance."""
    results = collections.OrderedDict()
    for line in lines:
        if line.startswith("{"):
            row = json.loads(line)
            results.setdefault(row["name"], []).append(row)
    return results


def middle(rows, key):
    values = [row[key] for row in rows if key in row]
    return statistics.median(values) if values else None


def table(title, results):
    print(f"\n{title}\n\n| program | tokens/s | ms/step | peak MB | speedup of Colonnade |\n|---|---|---|---|---|")
    ours = middle(results.get(OURS, []), "tokens_per_s")
    for name, rows in results.items():
        speed = middle(rows, "tokens_per_s")
        if speed is None:
            print(f"| {name} | failed: {rows[0]['failed']} | | | |")
            continue
        ratio = f"{ours / speed:.3f}" if ours and name != OURS else ""
        peak = f"{middle(rows, 'peak_mb'):,.0f}" if middle(rows, "peak_mb") else ""
        print(f"| {name} | {speed:,.0f} | {middle(rows, 'median_ms'):.2f} | {peak} | {ratio} |")


def summary(files):
    ratios = collections.OrderedDict()
    for path in files:
        with open(path, encoding="utf-8") as file:
            results = read(file)
        ours = middle(results.get(OURS, []), "tokens_per_s")
        for name, rows in results.items():
            speed = middle(rows, "tokens_per_s")
            if ours and speed and name != OURS:
                ratios.setdefault(name, []).append(ours / speed)
    print("\n## All shapes\n\n| speedup over | geometric mean | minimum |\n|---|---|---|")
    for name, values in ratios.items():
        print(f"| {name} | {math.exp(statistics.fmean(map(math.log, values))):.3f} | {min(values):.3f} |")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--summary":
        summary(sys.argv[2:])
    else:
        table(sys.argv[1] if len(sys.argv) > 1 else "", read(sys.stdin))
