"""Records how Hugging Face tokenizers reads scores, and how it cuts runs of one text: tests/vectors/unigram/record.py

With tools/requirements-test.txt. Writes beside itself numbers.jsonl: numbers as texts, and as the library, which writes
the shortest text of a float64, gives them back as scores of a Unigram model; runs.jsonl: texts that t5_unigram.json cuts,
half of them ones that scores rounded to the nearest float64 would cut otherwise; manifest.json.
"""

import json
import pathlib
import random

import tokenizers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).resolve().parent
NUMBERS, RUNS, SEED = 2000, 200, 1


def random_number(rng):
    digits = "".join(rng.choice("0123456789") for _ in range(rng.choice([1, 3, 15, 16, 16, 17, 17, 18, 19, 20, 21, 25])))
    kind = rng.randrange(6)
    whole = str(int(digits))
    if kind == 0:
        return "-" + whole
    if kind == 1:
        return f"{rng.randrange(30)}.{digits}"
    if kind == 2:
        return f"{whole}.{digits}e{rng.randrange(-340, 260)}"
    if kind == 3:
        return f"{digits[0]}.{digits}E{rng.choice(['+', ''])}{rng.randrange(300)}"
    if kind == 4:
        return repr(-rng.random() * 20)
    return f"-{rng.randrange(20)}.{digits}"


def best_cut(scores, text):
    """The ids by the scores of {token: (id, score)}, added from the left; text without unknown characters."""
    ends = [(0.0, 0, -1)] + [None] * len(text)
    longest = max(map(len, scores))
    for begin in range(len(text)):
        for end in range(begin + 1, min(len(text), begin + longest) + 1):
            if found := scores.get(text[begin:end]):
                total = found[1] + ends[begin][0]
                if ends[end] is None or total > ends[end][0]:
                    ends[end] = (total, begin, found[0])
    ids, at = [], len(text)
    while at > 0:
        ids.append(ends[at][2])
        at = ends[at][1]
    return ids[::-1]


def main():
    rng = random.Random(SEED)
    texts = [random_number(rng) for _ in range(NUMBERS)]
    vocab = ", ".join(f'["{i}", {text}]' for i, text in enumerate(texts))
    model = Tokenizer.from_str(f'{{"version": "1.0", "model": {{"type": "Unigram", "unk_id": 0, "vocab": [{vocab}]}}}}')
    read = [score for _, score in json.loads(model.to_str())["model"]["vocab"]]
    (HERE / "numbers.jsonl").write_text("".join(json.dumps({"text": text, "read": repr(score)}) + "\n" for text, score in zip(texts, read)))

    path = HERE.parent / "tokenizers/t5_unigram.json"
    tokenizer = Tokenizer.from_file(str(path))
    nearest = {token: (i, score) for i, (token, score) in enumerate(json.loads(path.read_text())["model"]["vocab"])}
    letters = [c for c in map(chr, range(33, 127)) if c in nearest]
    runs, kept = [], {True: 0, False: 0}
    while len(runs) < RUNS:
        text = "".join(rng.choice(letters) for _ in range(rng.choice([1, 1, 1, 2, 3, 4])))
        times = rng.randrange(2, 400 // len(text))
        ids = tokenizer.encode(text * times, add_special_tokens=False).ids
        other = ids != best_cut(nearest, "\u2581" + text * times)
        if kept[other] < RUNS / 2:
            kept[other] += 1
            runs.append(json.dumps({"text": text, "times": times, "ids": ids}) + "\n")
    (HERE / "runs.jsonl").write_text("".join(runs))
    manifest = {"made_by": "record.py", "tokenizers": tokenizers.__version__, "seed": SEED, "tolerance": "exact", "numbers": NUMBERS,
                "not_the_nearest_float64": sum(float(text) != score for text, score in zip(texts, read)), "runs": RUNS, "runs_cut_otherwise_by_nearest": kept[True]}
    (HERE / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
