#!/usr/bin/env python3
"""Checks that sources, pages and help use the terms of the field: no line matches a pattern of tools/words.txt. Given
a program, its help pages are checked too: tools/check_words.py build/release/colonnade. Exit 1 when a line matches."""
import fnmatch
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "docs", "tests", "benchmarks", "examples", "recipes", "deploy", "hardware", "cmake", "tools")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".md", ".py", ".sh", ".txt", ".cmake", ".yaml", ".in"}


class Word:
    """One line of tools/words.txt: a pattern, what to write instead, and globs of files where it is allowed."""

    def __init__(self, line: str):
        parts = [part.strip() for part in line.split("\t") if part.strip()]
        if len(parts) not in (2, 3):
            sys.exit(f"tools/words.txt: a line must be pattern, replacement and optionally files, with tabs; got {line!r}")
        self.pattern, self.replacement = re.compile(parts[0]), parts[1]
        self.allowed = parts[2].split() if len(parts) == 3 else []

    def allows(self, name: str) -> bool:
        return any(fnmatch.fnmatch(name, glob) for glob in self.allowed)


def read_words() -> list[Word]:
    lines = (ROOT / "tools/words.txt").read_text().splitlines()
    return [Word(line) for line in lines if line.strip() and not line.startswith("#")]


def texts():
    """(name, text) of every file that is checked."""
    paths = [*ROOT.glob("*.md"), ROOT / "CMakeLists.txt", ROOT / "Makefile"]
    for folder in FOLDERS:
        paths += (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)
    for path in paths:
        name = str(path.relative_to(ROOT))
        if name != "tools/words.txt" and not name.startswith("tests/vectors/"):
            yield name, path.read_text()


def help_pages(program: str):
    """(name, text) of the overview, of every verb in it, and of all settings."""

    def help_of(*words: str) -> str:
        return subprocess.run([program, "help", *words], stdout=subprocess.PIPE, text=True, check=True).stdout

    overview = help_of()
    yield "`colonnade help`", overview
    for words in [*re.findall(r"^  ([a-z-]+)  ", overview, re.M), "--all", "--rules"]:
        yield f"`colonnade help {words}`", help_of(words)


def main() -> int:
    words, faults, count = read_words(), [], 0
    pages = list(texts()) + (list(help_pages(sys.argv[1])) if len(sys.argv) > 1 else [])
    for name, text in pages:
        count += 1
        active = [word for word in words if not word.allows(name)]
        for number, line in enumerate(text.splitlines(), 1):
            for word in active:
                if found := word.pattern.search(line):
                    faults.append(f"{name}:{number}: '{found[0]}' is not a term of the field; write {word.replacement}")
    print("\n".join(faults) if faults else f"words: {count} files, {len(words)} patterns, none found")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
