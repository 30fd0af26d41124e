#!/usr/bin/env python3
"""Writes tests/vectors/chat: conversations, what Transformers writes for them by every template of templates/ there (which
were written for these tests, out of the constructs that templates of language models use), and the ids and masks of
answers that its tokenizers give.

    .venv/bin/python tools/make_chat_vectors.py       with tools/requirements-test.txt
"""
import json
import pathlib
import random
import sys

import jinja2
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/vectors/chat"
sys.path.insert(0, str(ROOT / "tests/data"))
from chat_templates_like_transformers import SPECIAL, conversation, theirs  # noqa: E402

MASKED = {"qwen2_bpe": "chatml_marked", "llama3_bpe": "llama3_marked"}


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
    manifest = {"made_by": "tools/make_chat_vectors.py", "transformers": transformers.__version__, "jinja2": jinja2.__version__, "special": SPECIAL}
    (OUT / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


if __name__ == "__main__":
    main()
