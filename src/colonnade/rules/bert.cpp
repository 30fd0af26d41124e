// Rules of BERT.
#include <algorithm>

#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool bert(const Run& r) { return r.family == "bert"; }

Broken heads(const Run& r) {
  if (bert(r)) return std::nullopt;
  Finding found{"", "belongs to bert", "", {}, "leave out what is named, or write `pretrain bert`"};
  found.refuse(r, r.model.bert_binary_head || config::typed(r, "bert_binary_head"), "bert_binary_head", "");
  found.refuse(r, r.model.num_tokentypes > 0, "num_tokentypes", "");
  if (found.edits.empty()) return std::nullopt;
  found.edits = {{"model", "bert"}};
  return found;
}

Broken parts(const Run& r) {
  if (!bert(r)) return std::nullopt;
  Finding found = parts_of_one_way(r);
  found.refuse(r, r.model.scale_decoder_outputs, "scale_decoder_outputs", "false");
  found.refuse(r, r.model.final_logit_softcapping > 0, "final_logit_softcapping", "0");
  return found.edits.empty() ? Broken{} : found;
}

Broken token_kinds(const Run& r) {
  if (!bert(r) || !r.model.bert_binary_head || r.model.num_tokentypes != 1) return std::nullopt;
  return Finding{"--num-tokentypes",
                 "must be at least 2 with a binary head",
                 text(r.model.num_tokentypes),
                 {{"num_tokentypes", "2"}},
                 ""};
}

Broken per_token(const Run& r) {
  if (!bert(r) || !r.model.bert_binary_head || !r.training.calculate_per_token_loss) return std::nullopt;
  return Finding{"--calculate-per-token-loss",
                 "must be left out with a binary head",
                 "both",
                 {{"calculate_per_token_loss", "false"}},
                 "leave it out, or write --bert-no-binary-head"};
}

Broken normed_stream(const Run& r) {
  if (!r.model.apply_residual_connection_post_layernorm) return std::nullopt;
  const bool again = r.recompute.selects("layernorm");
  if (!r.model.has_encoder() && !again) return std::nullopt;
  Finding found{"--apply-residual-connection-post-layernorm",
                again ? "must not meet --recompute-modules layernorm" : "must be left out with t5",
                "both",
                {{"apply_residual_connection_post_layernorm", "false"}},
                "leave one of them out"};
  return found;
}

constexpr Rule kBert[] = {
    {"bert-heads", false, heads, "model=gpt; bert_binary_head=true",
     "A GPT's and a T5's samples have no two parts that could be swapped.",
     "bert_binary_head num_tokentypes"},
    {"bert-parts", false, parts, "window_size=4,0",
     "Layers of a BERT see both ways, whole samples at a time.", "model"},
    {"bert-token-kinds", false, token_kinds, "num_tokentypes=1",
     "The tokens of both parts of a sample have a kind each.", "model bert_binary_head"},
    {"bert-per-token", true, per_token, "calculate_per_token_loss=true",
     "The loss of the order of sentences is a mean over samples, which no number of tokens weighs.",
     "model bert_binary_head"},
    {"normed-stream", false, normed_stream,
     "apply_residual_connection_post_layernorm=true; recompute_granularity=selective; "
     "recompute_modules=layernorm",
     "What a norm gives is then read by the sum too, and not only by what is made again.",
     "model recompute_granularity recompute_modules"},
};

}  // namespace

std::span<const Rule> bert_rules() { return kBert; }

}  // namespace colonnade::rules
