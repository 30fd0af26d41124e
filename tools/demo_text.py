#!/usr/bin/env python3
"""The text of the demo: the King James Bible that Debian's package bible-kjv installs, one JSON line a chapter.

  demo_text.py documents FILE.jsonl    writes the documents and says how many
  demo_text.py entropy PREFIX          entropy of single tokens in PREFIX.bin, in nats per token
"""
import array
import collections
import json
import math
import random
import subprocess
import sys


def documents(path: str) -> None:
    """Verses ("Ge1:1 In the beginning ...") join to chapters. Their order is shuffled, so that the last ones, which
    the run keeps for validation, come from all books."""
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True).stdout
    chapters = collections.defaultdict(list)
    for line in text.splitlines():
        place, verse = line.split(" ", 1)
        chapters[place.split(":")[0]].append(verse.strip())
    texts = [" ".join(verses) for verses in chapters.values()]
    random.Random(1611).shuffle(texts)
    with open(path, "w") as file:
        file.writelines(json.dumps({"text": chapter}) + "\n" for chapter in texts)
    print(f"{len(texts)} chapters, {sum(map(len, texts)) / 1e6:.1f} MB of English")


def entropy(prefix: str) -> None:
    """The loss of the best model that knows nothing but how often each token occurs."""
    with open(prefix + ".idx", "rb") as file:
        code = file.read(18)[17]
    tokens = array.array({8: "H", 4: "i"}[code])
    with open(prefix + ".bin", "rb") as file:
        tokens.frombytes(file.read())
    counts = collections.Counter(tokens).values()
    print(f"{-sum(n / len(tokens) * math.log(n / len(tokens)) for n in counts):.3f}")


if __name__ == "__main__":
    {"documents": documents, "entropy": entropy}[sys.argv[1]](sys.argv[2])
