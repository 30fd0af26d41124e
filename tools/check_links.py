#!/usr/bin/env python3
"""Checks that every relative link in the project's Markdown leads to a file, and its #anchor to a heading; and that
every source file named in it (`job/job.cpp`, `tests/job/trajectory_test.cpp`) exists. Exit 1 when one does not."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SOURCE = re.compile(r"`([a-z_0-9]+(?:/[a-zA-Z_0-9-]+)+\.(?:h|cpp|cu|cuh|py|sh|txt|yaml))`")


def pages() -> list[pathlib.Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md"),
                   *(ROOT / "recipes").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")])


def lost_sources(page: pathlib.Path):
    """Files named in the text, from the root of the project, of its sources or of its tests."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    for name in SOURCE.findall(text):
        if "/X." in name or name.startswith("torch/"):  # a pattern; a header of LibTorch
            continue
        if not any((ROOT / folder / name).exists() for folder in ("", "src/colonnade", "tests")):
            yield f"{page.relative_to(ROOT)}: a file named in the text must exist; got {name}"


def prose(page: pathlib.Path) -> str:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page: pathlib.Path) -> set[str]:
    heads = re.findall(r"^#+\s+(.+)$", page.read_text(), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads}


def main() -> int:
    faults, count = [], 0
    for page in pages():
        faults += lost_sources(page)
        for target in LINK.findall(prose(page)):
            if re.match(r"^[a-z]+:", target):
                continue
            count += 1
            name, _, anchor = target.partition("#")
            goal = (page.parent / name).resolve() if name else page
            where = page.relative_to(ROOT)
            if not goal.exists():
                faults.append(f"{where}: link leads nowhere; got {target}")
            elif anchor and goal.suffix == ".md" and anchor not in anchors(goal):
                faults.append(f"{where}: no heading for #{anchor}; got {target}")
    print("\n".join(faults) if faults else f"links: {count} links lead somewhere")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
