#!/usr/bin/env python3
"""Writes tests/vectors/chat: conversations, the text that Transformers renders for them by every template of templates/ (written
for these tests from the constructs of published templates), the ids and answer masks of its tokenizers, and Jinja expressions
with their output. The program decides which of these it rejects.

    .venv/bin/python tools/make_chat_vectors.py build/release/colonnade       with tools/requirements-test.txt
"""
import json
import multiprocessing
import pathlib
import random
import subprocess
import sys
import tempfile
import warnings

import jinja2
import tokenizers
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/vectors/chat"
sys.path.insert(0, str(ROOT / "tests/chat_template"))
from chat_expressions import REJECTED, TALK, TEMPLATES, source  # noqa: E402
from chat_templates_like_transformers import SPECIAL, WORDS, conversation, theirs  # noqa: E402

MASKED = {"qwen2_bpe": "chatml_marked", "llama3_bpe": "llama3_marked"}

ENDS_TEXTS = ["phi3"]  # templates that end every text with a token that belongs to no message

# Concatenated contents, the second one an answer: its edges need not be token boundaries.
PARTS = ["   ", " ", "  ", "</", "<", "--_", "_", "-", "ing", "ef", "e", "th", "the ", " a", "\n", "\n\n", "\t", "12", "345", "'s", "'", "\u00e9", "e\u0301x", "\u4e16\u754c", "\U0001f642", ".", "=", "==="]
FIXED = [["   ", "</", "ing"], ["--_", "   ", "ef"]]
OVERLAPS = {"gpt2_bpe": "<|endoftext|>", "llama3_bpe": "<|eot_id|>", "qwen2_bpe": "<|im_end|>", "llama2_json": "</s>"}


def overlaps():
    for name, end in OVERLAPS.items():
        tokenizer = tokenizers.Tokenizer.from_file(str(ROOT / f"tests/vectors/tokenizers/{name}.json"))
        tokenizer.post_processor = tokenizers.processors.Sequence([])  # post-processors of byte-level models trim offsets
        draw = random.Random(f"overlap {name}")
        for contents in FIXED + [["".join(draw.choice(PARTS + [end]) for _ in range(draw.randint(1, 4))) for _ in range(3)] for _ in range(100)]:
            made = tokenizer.encode("".join(contents), add_special_tokens=False)
            first, last = len(contents[0]), len(contents[0]) + len(contents[1])
            yield {"tokenizer": name, "contents": contents, "ids": made.ids, "mask": [int(begin < last and end > first) for begin, end in made.offsets]}


def written(sources):
    warnings.simplefilter("ignore", SyntaxWarning)  # of the Python code that Jinja generates
    results = [theirs(template, json.loads(json.dumps(TALK)), True) for template in sources]
    return [None if isinstance(result, Exception) else result[0] for result in results]


def is_rejected(program, template):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "tokenizer_config.json").write_text(json.dumps({**SPECIAL, "chat_template": template}))
        done = subprocess.run([program, "tokenizer", "chat", "--add-generation-prompt", "--tokenizer-model", folder], input=json.dumps(TALK) + "\n", capture_output=True, encoding="utf-8")
    return done.returncode != 0 or "error" in json.loads(done.stdout.split("\n")[0])


def expressions(program):
    """Templates and their output. The output is null if Jinja rejects the template, or if it contains object addresses, which differ
    between two processes. "refused": Jinja renders the template and the program rejects it, which must not happen for TEMPLATES."""
    draw = random.Random("expressions")
    sources = TEMPLATES + REJECTED + [source(draw) for _ in range(1200)]
    first, second = (multiprocessing.get_context("spawn").Pool(1).apply(written, [sources]) for _ in range(2))
    for template, one, other in zip(sources, first, second):
        if one is not None or draw.randrange(8) == 0 or template in TEMPLATES:
            line = {"source": template, "text": one if one == other else None}
            if line["text"] is not None and is_rejected(program, template):
                assert template not in TEMPLATES, f"rejected: {template}"
                line["refused"] = True
            assert "refused" in line or template not in REJECTED, f"not rejected: {template}"
            yield line


def answers_between(template, chat):
    """The text that each assistant message adds to its generation prompt, and the text that follows it; None if these texts are not
    prefixes of the whole text."""
    whole = theirs(template, chat, False)
    answers = []
    for i, made in enumerate(chat["messages"]):
        if made["role"] != "assistant":
            continue
        asked = theirs(template, {**chat, "messages": chat["messages"][:i]}, True)
        ended = theirs(template, {**chat, "messages": chat["messages"][:i + 1]}, False)
        if any(isinstance(each, Exception) or not whole[0].startswith(each[0]) for each in (asked, ended)):
            return None
        answers.append({"text": ended[0][len(asked[0]):], "behind": whole[0][len(ended[0]):][:20]})
    return {"text": whole[0], "answers": answers}


def talk(draw):
    """A conversation that all templates accept: alternating roles, no empty message."""
    def words():
        return "".join(draw.choice(WORDS) for _ in range(draw.randrange(1, 5))) + draw.choice("abc")
    roles = ["system"] * draw.randrange(2) + ["user", "assistant"] * draw.randrange(1, 4)
    return {"messages": [{"role": role, "content": draw.choice("xyz") + words()} for role in roles]}


def main() -> None:
    templates = {path.stem: path.read_text() for path in sorted((OUT / "templates").glob("*.jinja"))}
    chats = [conversation(random.Random(f"vector {i}")) for i in range(16)]
    (OUT / "conversations.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    with (OUT / "expected.jsonl").open("w") as file:
        for name, template in templates.items():
            for i, chat in enumerate(chats):
                for prompt in (False, True):
                    result = theirs(template, chat, prompt)
                    refused = isinstance(result, Exception)
                    file.write(json.dumps({"template": name, "chat": i, "prompt": prompt, "text": None if refused else result[0], "answers": None if refused else result[1]}) + "\n")
    with (OUT / "masks.jsonl").open("w") as file:
        for name, template in MASKED.items():
            tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(ROOT / f"tests/vectors/tokenizers/{name}.json"))
            for i in range(40):
                chat = conversation(random.Random(f"mask {i}"))
                try:
                    made = tokenizer.apply_chat_template(chat["messages"], chat_template=templates[template], bos_token="<|begin_of_text|>", return_dict=True, return_assistant_tokens_mask=True, tokenize=True)
                except (jinja2.exceptions.TemplateError, TypeError):
                    continue
                if any(made["assistant_masks"]):
                    file.write(json.dumps({"tokenizer": name, "template": template, "messages": chat["messages"], "ids": made["input_ids"], "mask": made["assistant_masks"]}) + "\n")
    with (OUT / "turns.jsonl").open("w") as file:
        for name, template in templates.items():
            for i in range(0 if "generation %}" in template or name in ENDS_TEXTS else 8):
                chat = talk(random.Random(f"turns {i}"))
                found = answers_between(template, chat) if not isinstance(theirs(template, chat, False), Exception) else None
                if found:
                    file.write(json.dumps({"template": name, **chat, **found}) + "\n")
    (OUT / "overlaps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in overlaps()))
    (OUT / "expressions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [{"chat": TALK}, *expressions(sys.argv[1])]))
    manifest = {"made_by": "tools/make_chat_vectors.py", "transformers": transformers.__version__, "jinja2": jinja2.__version__, "special": SPECIAL}
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
