#!/usr/bin/env python3
"""The share of time per phase of a run of ours, out of its report.html, as one line.

usage: phases.py report.html"""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    shares = re.findall(r'title="([a-z-]+) ([0-9.]+)%"', file.read())
if not shares:
    raise SystemExit(f"phases: a report with a split of time is needed; got none in {sys.argv[1]}")
print("\nTime of our run, start to end: " + ", ".join(f"{name} {share}%" for name, share in shares if float(share) > 0))
