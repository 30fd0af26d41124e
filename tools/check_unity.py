#!/usr/bin/env python3
"""Checks that sources which are compiled as one (cmake/Area.cmake) cannot change each other's meaning: in areas with
LibTorch a name in an anonymous namespace belongs to one source, or stands for the same thing in all of them
(`namespace fs = std::filesystem`). The compiler refuses two equal functions, but takes two with different
parameters for overloads without a word. Exit 1 when a name has two meanings."""
import collections
import pathlib
import re
import sys

from check_layers import ROOT, Layers

ANONYMOUS = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.S | re.M)
ALIAS = re.compile(r"^(?:(?:using|namespace) (\w+) = .*|using (?:\w+::)+(\w+));$")
TYPE = re.compile(r"^(?:template <.*> ?)?(?:struct|class|enum class|union) (\w+)")
OTHER = re.compile(r"^(?:\[\[.*?\]\] )?[\w:<>,&* ]+?[ &*](\w+)(?:\(|\{| =|\[|;)")


def names_in(text: str):
    """Yields (namespace, name, meaning) of what a source declares at the left margin of its anonymous namespaces;
    meaning is the whole line of an alias and empty elsewhere."""
    for block in ANONYMOUS.finditer(text):
        opened = re.findall(r"^namespace ([\w:]+) \{$", text[:block.start()], re.M)
        for line in block[1].splitlines():
            if not line or not (line[0].isalpha() or line[0] == "["):
                continue
            alias = ALIAS.match(line)
            found = alias or TYPE.match(line) or OTHER.match(line)
            if not found or line.startswith(("using namespace", "TEST")):
                continue
            names = [found[found.lastindex]]
            if line.startswith("const"):  # several in one declaration
                names = re.findall(r"(\w+)(?:\[\w*\])*(?: =|\{)", line) or names
            for name in names:
                yield (opened[-1] if opened else "", name, line if alias else "")


def main() -> int:
    layers = Layers()
    faults, count = [], 0
    for area in sorted(name for name, row in layers.rows.items() if row >= layers.torch_row):
        for folder in (ROOT / "src/colonnade" / area, ROOT / "tests" / area):
            users = collections.defaultdict(dict)
            for path in sorted(folder.rglob("*.cpp")):
                count += 1
                for namespace, name, meaning in names_in(path.read_text()):
                    users[namespace, name][path] = meaning
            for (_, name), meanings in users.items():
                if len(meanings) > 1 and (len(set(meanings.values())) > 1 or "" in meanings.values()):
                    files = ", ".join(str(path.relative_to(ROOT)) for path in meanings)
                    faults.append(f"{name} must have one meaning in sources that are compiled as one; got {files}; "
                                  "rename it, or share it in a header")
    print("\n".join(faults) if faults else f"unity: names of {count} sources are apart")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
