#!/usr/bin/env python3
"""Prints the fraction of time per phase of a Colonnade run, from its report.html, as one line.

usage: phases.py report.html"""
import re
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    shares = re.findall(r'title="([a-z-]+) ([0-9.]+)%"', file.read())
if not shares:
    raise SystemExit(f"report must contain a time breakdown; got none in {sys.argv[1]}")
print("\nTime of the Colonnade run, start to end: " + ", ".join(f"{name} {share}%" for name, share in shares if float(share) > 0))
