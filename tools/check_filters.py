#!/usr/bin/env python3
"""Checks that every part of every --gtest_filter names a test: those of ctest, of the `GPU` lists of areas, of the
Makefile and of tools/make_golden.sh. GoogleTest passes when a filter selects nothing, so a renamed suite would
silently stop running. usage: tools/check_filters.py BUILD. Exit 1 when a part matches no test."""
import fnmatch
import functools
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


@functools.cache
def tests_of(binary: str) -> list[str]:
    listed = subprocess.run([binary, "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, check=True).stdout
    tests, suite = [], ""
    for line in listed.splitlines():
        name = line.split("#")[0].strip()
        if line.startswith("  "):
            tests.append(suite + name)
        elif name.endswith("."):
            suite = name
    return tests


def filters(build: pathlib.Path):
    """(where, binary, filter)"""
    listed = subprocess.run(["ctest", "--test-dir", str(build), "--show-only=json-v1"], stdout=subprocess.PIPE, text=True, check=True)
    for test in json.loads(listed.stdout)["tests"]:
        command = test.get("command", [])
        for word in command:
            if word.startswith("--gtest_filter="):
                yield f"ctest {test['name']}", command[0], word.split("=", 1)[1]
    areas = build / "src/colonnade"
    for file in sorted((ROOT / "src/colonnade").glob("*/CMakeLists.txt")):
        area = file.parent.name
        for found in re.findall(r"^\s*GPU +(\S+?)\)?$", file.read_text(), re.M):
            yield f"{file.relative_to(ROOT)}: GPU", str(areas / area / f"{area}_test"), found
    jobs = re.search(r"^numeric_jobs := (\S+)", (ROOT / "Makefile").read_text(), re.M)
    yield "Makefile: numeric_jobs", str(areas / "job/job_test"), jobs[1]
    golden = re.search(r'"\$1/(\S+)" --gtest_filter=\'([^\']+)\'', (ROOT / "tools/make_golden.sh").read_text())
    yield "tools/make_golden.sh", str(build / golden[1]), golden[2]


def main() -> int:
    faults, count = [], 0
    for where, binary, text in filters(pathlib.Path(sys.argv[1])):
        excluded_everywhere = {"Gpu*", "*/Gpu*"}  # of col_area, for areas with and without such suites
        for part in text.replace("-", ":").split(":"):
            if not part or part in excluded_everywhere:
                continue
            count += 1
            if not any(fnmatch.fnmatchcase(test, part) for test in tests_of(binary)):
                faults.append(f"{where}: every part of a filter must match a test of {pathlib.Path(binary).name}; got {part}; rename it")
    print("\n".join(faults) if faults else f"filters: {count} parts, each matches a test")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
