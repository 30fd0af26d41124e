// The table of verbs.
#include "verbs.h"

namespace colonnade::app {
namespace {

constexpr Entry kVerbs[] = {
    {"pretrain", "train a model: pretrain gpt --num-layers 12 ... ; one process is one rank", pretrain,
     pretrain_offers, true},
    {"launch",
     "start, monitor and restart the ranks of this machine: launch --nproc-per-node N -- pretrain ...",
     launch, launch_offers, true},
    {"plan", "plan a run before it starts: memory, communication, step time, pipeline schedule", plan,
     plan_offers},
    {"preprocess", "convert JSON lines or Parquet to token ids: preprocess --input F --output-prefix P",
     preprocess, preprocess_offers},
    {"tokenizer", "train a tokenizer, encode and decode text: tokenizer train | encode | decode | chat",
     tokenizer, tokenizer_offers},
    {"data", "inspect, audit and merge datasets: data inspect | audit | merge | images", data, data_offers},
    {"checkpoint", "inspect, verify and compare checkpoints: checkpoint inspect | verify | diff", checkpoint,
     checkpoint_offers},
    {"convert", "convert checkpoints: convert --from hf:DIR --to megatron:DIR; also native:DIR", convert,
     convert_offers},
    {"evaluate", "compute loss and perplexity of a checkpoint on data, or logits of given tokens", evaluate,
     evaluate_offers},
    {"generate", "continue a prompt: generate --load DIR --prompt TEXT", generate, generate_offers},
    {"verify-layout", "check whether two layouts compute the same run: verify-layout A.yaml B.yaml",
     verify_layout, verify_layout_offers},
    {"help", "show help on a verb, a setting, or all: help VERB | FLAG | --all | --markdown | --rules", help,
     help_offers},
    {"completion", "print a completion script for bash, zsh or fish", completion, completion_offers},
};

}  // namespace

std::span<const Entry> verbs() { return kVerbs; }

}  // namespace colonnade::app
