#!/usr/bin/env python3
"""Turns a build folder's compile_commands.json into one that clang can read and lists what to check.

Usage: tidy_database.py BUILD OUT [CHANGED_FILE...]
Writes OUT/compile_commands.json (no compiler cache, gcc's precompiled header replaced by its text) and
prints what to check: first what holds a CHANGED_FILE, then all sources of areas without LibTorch. Sources that are
compiled as one are checked as one, in a file of OUT that includes those that are wanted."""
import json
import pathlib
import re
import shlex
import sys

from check_layers import ROOT, Layers


def sources_of(path: pathlib.Path) -> list[str]:
    """The sources that are compiled as one in a file that CMake wrote for them; any other is its own."""
    if not path.name.startswith("unity_"):
        return [str(path)]
    return re.findall(r'^#include "(.*)"$', path.read_text(), re.M)


def as_text(header: pathlib.Path, out: pathlib.Path) -> str:
    """A copy of what a precompiled header includes, away from gcc's binary, which clang would take for its own."""
    copy = out / f"{header.parent.name}.h"
    copy.write_text(header.read_text())
    return str(copy.resolve())


def clang_arguments(entry: dict, out: pathlib.Path) -> list[str]:
    words, kept, skip = shlex.split(entry["command"]), ["clang++"], False
    start = next(i for i, word in enumerate(words) if word.endswith(("/c++", "/g++", "/g++-12")))
    for before, word in zip(words[start:], words[start + 1:]):
        if word in ("-Winvalid-pch", "-Wno-maybe-uninitialized") or word == "-include" or word.startswith("-fuse-ld"):
            continue
        if before == "-include":
            kept += ["-include", as_text(pathlib.Path(word), out) if "cmake_pch" in word else word]
            continue
        kept.append(word)
    return kept


def as_one(sources: list[str], entry: dict, out: pathlib.Path) -> str:
    path = (out / re.sub(r"\W+", "_", entry["file"])).with_suffix(".cpp").resolve()
    path.write_text("".join(f'#include "{source}"  // NOLINT(bugprone-suspicious-include)\n' for source in sources))
    return str(path)


def wanted(path: pathlib.Path, changed: set[str], layers: Layers) -> bool:
    try:
        name = path.relative_to(ROOT)
    except ValueError:
        return False
    if name.parts[0] == "build" or path.suffix != ".cpp":
        return False
    in_plain_area = name.parts[:2] == ("src", "colonnade") and layers.rows.get(name.parts[2], layers.torch_row) < layers.torch_row
    return in_plain_area or str(name) in changed


def main() -> int:
    build, out, changed = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), set(sys.argv[3:])
    layers = Layers()
    out.mkdir(parents=True, exist_ok=True)
    entries, first = [], set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        sources = [s for s in sources_of(pathlib.Path(entry["file"])) if wanted(pathlib.Path(s), changed, layers)]
        if sources:
            file = sources[0] if len(sources) == 1 else as_one(sources, entry, out)
            arguments = [file if word == entry["file"] else word for word in clang_arguments(entry, out)]
            entries.append({"directory": entry["directory"], "file": file, "arguments": arguments})
            if any(str(pathlib.Path(s).relative_to(ROOT)) in changed for s in sources):
                first.add(file)
    (out / "compile_commands.json").write_text(json.dumps(entries, indent=1))
    print("\n".join(sorted({entry["file"] for entry in entries}, key=lambda file: (file not in first, file))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
