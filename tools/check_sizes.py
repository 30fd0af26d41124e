#!/usr/bin/env python3
"""Checks sizes: files up to 500 lines, functions up to 60, and a test for every src/**/X.cpp or a line with
the reason in tools/untested.txt, where `folder/` covers a folder. Functions are measured here by braces at the left margin of namespaces; clang-tidy
measures them exactly. Exit 1 when something is too big."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("src", "apps", "tests", "examples", "benchmarks")
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}
FILE_LINES, FUNCTION_LINES = 500, 60
SKIP_HEADS = re.compile(r"^\s*(namespace|class|struct|enum|union|extern|#|//|\}|constexpr [^(]*=|const [^(]*=|static const)")


def strip(line: str) -> str:
    """The line without string and character literals and line comments, so that braces can be counted."""
    return re.sub(r'"(\\.|[^"\\])*"|\'(\\.|[^\'\\])\'|//.*', "", line)


def long_functions(lines: list[str]):
    """Yields (line, length, head) of each body opened by a line that ends in "{" after ")" or a qualifier."""
    stack, raw_end = [], None
    for number, original in enumerate(lines, 1):
        if raw_end:
            if raw_end in original:
                raw_end = None
            continue
        raw = re.search(r'R"(\w*)\(', original)
        if raw and f'){raw[1]}"' not in original[raw.end():]:
            raw_end = f'){raw[1]}"'
        text = strip(original)
        for character in text:
            if character == "{":
                is_function = bool(re.search(r"\)[^;{}]*\{?\s*$", text)) and not SKIP_HEADS.match(text)
                is_function = is_function and not re.match(r"^\s*(if|for|while|switch|else|do|catch)\b", text)
                stack.append((number, original.strip(), is_function))
            elif character == "}" and stack:
                start, head, is_function = stack.pop()
                if is_function and number - start + 1 > FUNCTION_LINES:
                    yield start, number - start + 1, head


def read_untested() -> dict[str, str]:
    path, reasons = ROOT / "tools/untested.txt", {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(" ")
            reasons[name] = reason.strip()
    return reasons


def test_faults():
    untested = read_untested()
    for path in sorted((ROOT / "src/colonnade").rglob("*.cpp")):
        name = str(path.relative_to(ROOT / "src/colonnade"))
        area = name.split("/")[0]
        has_test = any(ROOT.glob(f"tests/{area}/**/{path.stem}*_test.cpp"))
        if has_test and name in untested:
            yield f"tools/untested.txt: {name} has a test now; remove its line"
        of_folder = untested.get(str(pathlib.PurePath(name).parent) + "/")
        if not has_test and not untested.get(name) and not of_folder:
            yield f"src/colonnade/{name}: needs tests/{area}/{path.stem}_test.cpp, or a line with the reason in tools/untested.txt"
    for path in sorted((ROOT / "tests").glob("*/*_test.cpp")):
        area = path.parent.name
        lists = [ROOT / f"src/colonnade/{area}/CMakeLists.txt", ROOT / f"tests/{area}/CMakeLists.txt", ROOT / "tests/CMakeLists.txt"]
        words = " ".join(file.read_text() for file in lists if file.exists())
        if not re.search(rf"(?<!\w){path.name.removesuffix('_test.cpp')}(_test\.cpp)?(?!\w)", words):
            yield f"{path.relative_to(ROOT)}: no CMakeLists.txt names it, so that it is never run; add it to TESTS"
    for name in untested:
        if not (ROOT / "src/colonnade" / name).exists():
            yield f"tools/untested.txt: no file {name}; remove its line"


def main() -> int:
    faults, count = [], 0
    for folder in FOLDERS:
        for path in sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in SUFFIXES):
            count += 1
            lines = path.read_text().splitlines()
            where = path.relative_to(ROOT)
            if len(lines) > FILE_LINES:
                faults.append(f"{where}: a file must have at most {FILE_LINES} lines; got {len(lines)}; split it by idea")
            for start, length, head in long_functions(lines):
                faults.append(f"{where}:{start}: a function must have at most {FUNCTION_LINES} lines; got {length}: {head}")
    faults += test_faults()
    print("\n".join(faults) if faults else f"sizes: {count} files are within bounds and tested")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
