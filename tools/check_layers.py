#!/usr/bin/env python3
"""Checks the arrows of tools/layers.txt: an area includes areas of lower rows only, and areas below the
torch row never see LibTorch. Prints file:line of each break; exit 1 when there is one."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


def read_rows() -> tuple[dict[str, int], int]:
    rows, torch_row = {}, 0
    for line in (ROOT / "tools/layers.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        first, second = line.split()
        if first == "torch":
            torch_row = int(second)
        else:
            rows[second] = int(first)
    return rows, torch_row


def faults_of(path: pathlib.Path, area: str, rows: dict[str, int], torch_row: int):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        name, where = match[1], f"{path.relative_to(ROOT)}:{number}"
        if TORCH.match(name) and rows[area] < torch_row:
            yield f"{where}: {area} (row {rows[area]}) must not see LibTorch; got <{name}>; rows from {torch_row} may"
        if name.startswith("colonnade/"):
            other = name.split("/")[1]
            if other not in rows:
                yield f"{where}: no area {other}; got <{name}>; add it to tools/layers.txt"
            elif other != area and rows[other] >= rows[area]:
                allowed = sorted(a for a, row in rows.items() if row < rows[area])
                yield f"{where}: {area} (row {rows[area]}) must not include {other} (row {rows[other]}); it may: {' '.join(allowed)}"


def main() -> int:
    rows, torch_row = read_rows()
    faults, count = [], 0
    for folder in sorted((ROOT / "src/colonnade").iterdir()):
        if folder.is_dir() and folder.name not in rows:
            faults.append(f"src/colonnade/{folder.name}: no such area in tools/layers.txt; give it a row")
            continue
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SOURCES):
            count += 1
            faults += faults_of(path, folder.name, rows, torch_row)
    print("\n".join(faults) if faults else f"layers: {count} files, every arrow points down")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
