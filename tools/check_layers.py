#!/usr/bin/env python3
"""Checks the arrows of tools/layers.txt: an area includes areas of lower rows only, areas below the torch row never
include LibTorch, and those that compute never include those that plan. Prints file:line of each break; exit 1 when
there is one."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")


class Layers:
    """tools/layers.txt: the row of each area, the first row with LibTorch, and the first row above it that may include
    the areas that plan."""

    def __init__(self):
        self.rows: dict[str, int] = {}
        self.torch_row, self.plan_row, self.planners = 0, 0, []
        for line in (ROOT / "tools/layers.txt").read_text().splitlines():
            words = line.split()
            if not words or line.startswith("#"):
                continue
            if words[0] == "torch":
                self.torch_row = int(words[1])
            elif words[0] == "planners":
                self.plan_row, self.planners = int(words[1]), words[2:]
            else:
                self.rows[words[1]] = int(words[0])

    def may_include(self, area: str, other: str) -> bool:
        row = self.rows[area]
        if other in self.planners and self.torch_row <= row < self.plan_row:
            return False
        return self.rows[other] < row


def faults_of(path: pathlib.Path, area: str, layers: Layers):
    rows, torch_row = layers.rows, layers.torch_row
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
            elif other != area and not layers.may_include(area, other):
                allowed = sorted(a for a in rows if layers.may_include(area, a))
                yield f"{where}: {area} (row {rows[area]}) must not include {other} (row {rows[other]}); it may: {' '.join(allowed)}"


def main() -> int:
    layers = Layers()
    faults, count = [], 0
    for folder in sorted((ROOT / "src/colonnade").iterdir()):
        if folder.is_dir() and folder.name not in layers.rows:
            faults.append(f"src/colonnade/{folder.name}: no such area in tools/layers.txt; give it a row")
            continue
        for path in sorted(p for p in folder.rglob("*") if p.suffix in SOURCES):
            count += 1
            faults += faults_of(path, folder.name, layers)
    print("\n".join(faults) if faults else f"layers: {count} files, every arrow points down")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
