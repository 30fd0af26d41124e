#!/usr/bin/env python3
"""Compares `colonnade tokenizer chat` with Transformers on random conversations for every template of
tests/vectors/chat/templates, or of another folder. Texts must be equal. Answers must be equal if the template marks them, else
start where their generation prompt ends. Conversations that Transformers rejects must be rejected.

    .venv/bin/python tests/chat_template/chat_templates_like_transformers.py build/release/colonnade FOLDER [--chats 20000] [--seed 1]

FOLDER is emptied and used for files. --templates DIR: folder of other templates. --chats: total number of conversations. Exits 1 on a difference.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import threading

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

ONE_AT_A_TIME = threading.Lock()  # the answer spans are state of the compiled template, which threads share
VECTORS = pathlib.Path(os.environ.get("COLONNADE_VECTORS") or pathlib.Path(__file__).resolve().parent.parent / "vectors") / "chat"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
WORDS = ["Hello", " a", "\n", "\n\n", "  ", "\t", "What is 2 + 2?", "it's", '"quoted"', "\\n", "{{ x }}", "{% if %}", "é", "ß", "İ", "Σας", "中文", "🙂",
         "\u00a0", "\u3000", "\u2028", "\x1c", "\x7f", "\u200b", "<think>", "</think>", "<think>\nwhy\n</think>\n\n", "<tool_response>", "</tool_response>", "/think", "<|im_end|>", "</s>", "'", "a" * 40, "&<>"]


def text(rng):
    return "".join(rng.choice(WORDS) for _ in range(rng.randrange(0, 7)))


def value(rng, depth=0):
    kind = rng.randrange(9 if depth < 3 else 6)
    if kind == 0:
        return rng.choice([None, True, False])
    if kind == 1:
        return rng.choice([0, 1, -7, 2**53, 12345678901234])
    if kind == 2:
        return rng.choice([0.5, 1.0, -2.25, 1e20, 1e-7, 3.14159, 100000.0, 1e16])
    if kind < 6:
        return text(rng)
    if kind == 6:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    return {rng.choice(["a", "b", "name", "type", "é", "q r", "city"]): value(rng, depth + 1) for _ in range(rng.randrange(4))}


def arguments(rng):
    return {key: value(rng, 1) for key in rng.sample(["city", "days", "unit", "é"], rng.randrange(4))}


def message(rng, role):
    made = {"role": role, "content": text(rng)}
    if role == "assistant" and rng.randrange(5) == 0:
        calls = [{"function": {"name": rng.choice(["get", "find_it"]), "arguments": arguments(rng)}} for _ in range(rng.choice([1, 1, 2]))]
        for call in calls:
            if rng.randrange(4):
                call.update(type="function", id=rng.choice(["abcdefghi", "abcdefghi", "x"]))
        made["tool_calls"] = calls if rng.randrange(6) else []
        if rng.randrange(4) == 0:
            made["content"] = rng.choice(["", None])
    if role == "assistant" and rng.randrange(5) == 0:
        made[rng.choice(["reasoning_content", "thinking", "reasoning"])] = rng.choice([text(rng), text(rng), None])
    if role == "tool":
        made["tool_call_id"] = rng.choice(["abcdefghi", "x"])
        if rng.randrange(5) == 0:
            made["content"] = value(rng)
    if rng.randrange(20) == 0:
        made["content"] = [{"type": "text", "text": text(rng)} for _ in range(rng.randrange(3))] + rng.choice([[], [{"type": "image"}], [{"type": "skip"}], [{"type": "stop"}]])
    if rng.randrange(40) == 0:
        del made["content"]
    return made


def conversation(rng):
    roles = ["system"] if rng.randrange(2) else []
    for _ in range(rng.randrange(1, 4)):
        roles += ["user", "assistant"]
        if rng.randrange(5) == 0:
            roles += ["tool"] * rng.choice([1, 1, 2]) + ["assistant"]
    if rng.randrange(10) == 0:
        roles[rng.randrange(len(roles))] = rng.choice(["tool", "user", "assistant", "system", "other"])
    if rng.randrange(8) == 0:
        roles.append("user")
    chat = {"messages": [message(rng, role) for role in roles]}
    if rng.randrange(4) == 0:
        chat["tools"] = [{"type": "function", "function": {"name": rng.choice(["get", "find_it"]), "description": text(rng), "parameters": {"type": "object", "properties": arguments(rng), "required": []}}}
                         for _ in range(rng.randrange(1, 3))]
    if rng.randrange(8) == 0:
        chat["chat_template_kwargs"] = {"enable_thinking": rng.choice([True, False])}
    return chat


def theirs(template, chat, prompt):
    """(text, texts of marked answers), or the exception."""
    with ONE_AT_A_TIME:
        return rendered_by_transformers(template, chat, prompt)


def rendered_by_transformers(template, chat, prompt):
    try:
        messages = [{key: value for key, value in message.items() if value is not None} for message in chat["messages"]]  # as apply_chat_template does
        rendered, spans = render_jinja_template([messages], tools=chat.get("tools"), chat_template=template, return_assistant_tokens_mask=not prompt and "generation %}" in template,
                                                add_generation_prompt=prompt, **{**SPECIAL, **chat.get("chat_template_kwargs", {})})
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, KeyError, AttributeError, IndexError, NameError, OverflowError, RecursionError) as error:
        return error
    return rendered[0], [rendered[0][begin:end] for begin, end in spans[0] if begin < end] if spans else None


def begins_elsewhere(template, chat, text, answers):
    """Whether an answer does not start at the end of its generation prompt, if the prompt is a prefix of the whole text."""
    at = [i for i, made in enumerate(chat["messages"]) if made["role"] == "assistant"]
    if "generation %}" in template or "add_generation_prompt" not in template or len(at) != len(answers):
        return False
    for i, answer in zip(at, answers):
        asked = theirs(template, {**chat, "messages": chat["messages"][:i]}, True) if i else ValueError()
        if not isinstance(asked, Exception) and text.startswith(asked[0]) and not text[len(asked[0]):].startswith(answer):
            return True
    return False


def compare(program, folder, path, chats, prompt):
    template = path.read_text()
    model = folder / path.stem
    model.mkdir(exist_ok=True)
    (model / "tokenizer_config.json").write_text(json.dumps({**SPECIAL, "chat_template": template}))
    lines = "".join(json.dumps(chat) + "\n" for chat in chats)
    done = subprocess.run([program, "tokenizer", "chat", "--tokenizer-model", model, *(["--add-generation-prompt"] if prompt else [])], input=lines, capture_output=True, encoding="utf-8")
    ours = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(ours) == len(chats), f"{path.stem}: {len(ours)} lines for {len(chats)}: {done.stderr}"
    _compile_jinja_template(template).environment.globals.pop("strftime_now", None)
    wrong, refused = [], 0
    for chat, our in zip(chats, ours):
        their = theirs(template, chat, prompt)
        if isinstance(their, Exception):
            refused += 1
            if "error" not in our:
                wrong.append((path.stem, chat, our, repr(their)))
        elif "error" in our and any(known in our["error"] for known in ("role 'assistant'", "must write an answer")):
            continue  # our rule: there must be an answer
        elif our.get("text") != their[0] or (their[1] is not None and our["answers"] != their[1]) or \
                (not prompt and begins_elsewhere(template, chat, their[0], our["answers"])):
            wrong.append((path.stem, chat, our, their))
    return wrong, refused


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--templates", type=pathlib.Path, default=VECTORS / "templates")
    parser.add_argument("--chats", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    paths = sorted(args.templates.glob("*.jinja"))
    count = -(-args.chats // (2 * len(paths)))
    wrong, refused = [], 0
    jobs = [(path, [conversation(random.Random(f"{args.seed} {path.stem} {prompt} {i}")) for i in range(count)], prompt) for path in paths for prompt in (False, True)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for differences, theirs_refused in pool.map(lambda job: compare(args.program, args.folder, *job), jobs):
            wrong += differences
            refused += theirs_refused
    for name, chat, our, their in wrong[:10]:
        print(f"{name}: {json.dumps(chat)[:1000]}\n  here: {str(our)[:1000]}\n  Transformers: {str(their)[:1000]}")
    print(f"transformers {transformers.__version__}: {len(paths)} templates, {2 * count} conversations each, {refused} rejected by both, {len(wrong)} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
