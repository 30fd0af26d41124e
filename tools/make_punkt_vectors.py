#!/usr/bin/env python3
"""Writes tests/vectors/punkt: a small Punkt model that NLTK trains on the project's pages, and the sentences that NLTK's
PunktSentenceTokenizer finds in random texts with it, with and without Megatron's --keep-newlines.

    pip install nltk==3.10.4 && tools/make_punkt_vectors.py [--texts 2500] [--seed 1]
"""
import argparse
import json
import pathlib
import random

import nltk
from nltk.tabdata import TabEncoder
from nltk.tokenize import punkt

ROOT = pathlib.Path(__file__).resolve().parents[1]


class KeepingLanguageVars(punkt.PunktLanguageVars):
    """Megatron's sentence-end pattern for --keep-newlines."""

    _period_context_fmt = r"\S*%(SentEndChars)s\s*(?=(?P<after_tok>%(NonWord)s|(?P<next_tok>\S+)))"


def train():
    pages = [path.read_text() for path in sorted(ROOT.glob("docs/**/*.md"))]
    trainer = punkt.PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    trainer.train("\n".join(pages), finalize=False)
    trainer.finalize_training()
    model = trainer.get_params()
    # The pages have few abbreviations and names.
    model.abbrev_types |= {"dr", "mr", "st", "u.s", "e.g", "i.e", "vs", "co", "straße", "str"}
    model.collocations |= {("st", "john"), ("##number##", "march"), ("s", "bach"), ("é", "ça")}
    model.sent_starters |= {"he", "however", "élan"}
    flags = {"he": 2 + 32, "the": 2 + 16 + 32, "bach": 4 + 8, "march": 2 + 4, "ça": 16, "élan": 2 + 64, "smith": 8, "go": 32,
             "σας": 2 + 32, "it": 2 + 32, "i": 2 + 4}
    for word, flag in flags.items():
        model.ortho_context[word] |= flag
    return model


WORDS = ("Dr. Mr. St. John U.S. e.g. i.e. vs. Co. Straße. STR. he He However however the The Bach bach S. J. R. É. é. Ça ça Élan élan "
         "Smith smith go Go It it I i. a. A. March march 3 3. 3.5 1,000 1,000. -7. .5. ,5. 12.- 2) x.y foo.bar a.b.c. end. end! end? what?! no!! "
         "... .. .... . ? ! , ; : - -- --- — … 。 a-dr. x-st. -dr. dr.. ΣΑΣ ΣΑΣ. İ. ı. ǅ. ǅz ٣. ٣ ² ². 五. _ _. \" ' ( ) [ ] { } “ ” ‘ ’ « » end.\" "
         "end.) end.” (He) \"He \"He. end.'' end.\"-- end.)-- ).x @ # & * ` . . . .  . x,y x, x,) x,.. 'tis don't. e.g., U.S.) U.S.” the.) "
         "http://a.b/c?d=e! ﬁ. 𝒜. 😀. 😀 \u0301. e\u0301. ẞ. Ⅳ. ⅳ. ①. ½.").split(" ")
SPACES = [" "] * 12 + ["", "", "  ", "\n", "\n\n", "\n \n", "\t", "\r\n", "\u00a0", "\u2003", "\x0b", "\x1c", "\x85", "\u2028"]


def random_text(rng):
    size = rng.choice([0, 1, 2, 3, 5, 8, 13, 30])
    parts = [rng.choice(SPACES)] if rng.random() < 0.2 else []
    for _ in range(size):
        parts += [rng.choice(WORDS), rng.choice(SPACES)]
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=2500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "tests/vectors/punkt")
    args = parser.parse_args()
    model = train()
    args.out.mkdir(exist_ok=True)
    encoder = TabEncoder()
    (args.out / "collocations.tab").write_text(encoder.tups2tab(sorted(model.collocations)))
    (args.out / "sent_starters.txt").write_text(encoder.list2txt(sorted(model.sent_starters)))
    (args.out / "abbrev_types.txt").write_text(encoder.list2txt(sorted(model.abbrev_types)))
    (args.out / "ortho_context.tab").write_text(encoder.ivdict2tab(dict(sorted(model.ortho_context.items()))))
    plain = punkt.PunktSentenceTokenizer(model)
    keeping = punkt.PunktSentenceTokenizer(model, lang_vars=KeepingLanguageVars())
    rng = random.Random(args.seed)
    pages = [path.read_text() for path in sorted(ROOT.glob("docs/guide/*.md"))[:3]]
    texts = pages + ["", " ", "\n"] + [random_text(rng) for _ in range(args.texts)]
    with open(args.out / "sentences.jsonl", "w") as out:
        out.write(json.dumps({"made_by": "tools/make_punkt_vectors.py", "nltk": nltk.__version__, "seed": args.seed}) + "\n")
        for text in texts:
            # Empty sentences are dropped, because they have no tokens.
            split = [[s for s in t.tokenize(text) if s] for t in (plain, keeping)]
            out.write(json.dumps([text, *split], ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
