// The table of verbs.
#include "verbs.h"

namespace colonnade::app {
namespace {

constexpr Entry kVerbs[] = {
    {"pretrain", "train a model: pretrain gpt --num-layers 12 ... ; one process is one rank", pretrain},
    {"launch",
     "start, watch and restart the ranks of this machine: launch --nproc-per-node N -- pretrain ...", launch},
    {"plan", "what a run needs, before it starts: memory, communication, pipeline picture", plan},
    {"preprocess", "JSON lines to a data set of token ids: preprocess --input F --output-prefix P",
     preprocess},
    {"tokenizer", "train a tokenizer, encode and decode text: tokenizer train | encode | decode", tokenizer},
    {"data", "what a data set or blend holds: data inspect", data},
    {"checkpoint", "what is in a checkpoint, and whether it is whole: checkpoint inspect | verify | diff",
     checkpoint},
    {"evaluate", "loss and perplexity of a checkpoint on data, logits of given tokens", evaluate},
    {"generate", "continue a prompt: generate --load DIR --prompt TEXT", generate},
    {"help", "one verb, one setting, or all of them: help VERB | FLAG | --all | --markdown", help},
    {"completion", "the completion script of bash, zsh or fish", completion},
};

}  // namespace

std::span<const Entry> verbs() { return kVerbs; }

}  // namespace colonnade::app
