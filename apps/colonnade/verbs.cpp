// The table of verbs.
#include "verbs.h"

namespace colonnade::app {
namespace {

constexpr Entry kVerbs[] = {
    {"pretrain", "train a model: pretrain gpt --num-layers 12 ... ; one process is one rank", pretrain},
    {"launch",
     "start, watch and restart the ranks of this machine: launch --nproc-per-node N -- pretrain ...", launch},
    {"help", "one verb, one setting, or all of them: help VERB | FLAG | --all | --markdown", help},
    {"completion", "the completion script of bash, zsh or fish", completion},
};

}  // namespace

std::span<const Entry> verbs() { return kVerbs; }

}  // namespace colonnade::app
