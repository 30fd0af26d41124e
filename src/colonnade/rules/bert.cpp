// Rules for BERT.
#include <algorithm>

#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/stacks.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool is_bert(const Run& r) { return r.model_type == "bert"; }

Broken binary_head_model(const Run& r) {
  if (is_bert(r)) return std::nullopt;
  Finding found{"", "must be used with a BERT model", "", {}, ""};
  found.add_if(r, r.model.bert_binary_head || config::is_from_command_line(r, "bert_binary_head"),
               "bert_binary_head", "");
  found.add_if(r, r.model.num_tokentypes > 0, "num_tokentypes", "");
  if (found.edits.empty()) return std::nullopt;
  found.fix = fmt::format("{}, or write `pretrain bert`", removal(found));
  found.edits = {{"model", "bert"}};
  return found;
}

Broken unsupported_features(const Run& r) {
  if (!is_bert(r)) return std::nullopt;
  Finding found = causal_only_features(r);
  found.add_if(r, r.model.scale_decoder_outputs, "scale_decoder_outputs", "false");
  found.add_if(r, r.model.final_logit_softcapping > 0, "final_logit_softcapping", "0");
  found.fix = removal(found);
  return found.edits.empty() ? Broken{} : found;
}

Broken token_types(const Run& r) {
  if (!is_bert(r) || !r.model.bert_binary_head || r.model.num_tokentypes != 1) return std::nullopt;
  return Finding{"--num-tokentypes",
                 "must be at least 2 with the binary head",
                 text(r.model.num_tokentypes),
                 {{"num_tokentypes", "2"}},
                 ""};
}

Broken per_token_loss(const Run& r) {
  if (!is_bert(r) || !r.model.bert_binary_head || !r.training.calculate_per_token_loss) return std::nullopt;
  return Finding{"--calculate-per-token-loss",
                 "is not supported with the binary head",
                 "both",
                 {{"calculate_per_token_loss", "false"}},
                 "remove the flag, or add --bert-no-binary-head"};
}

Broken post_norm_residual(const Run& r) {
  if (!r.model.apply_residual_connection_post_layernorm) return std::nullopt;
  const bool recomputes_norms = r.recompute.recomputes("layernorm");
  if (!config::has_several_stacks(r.model) && !recomputes_norms) return std::nullopt;
  Finding found{
      "--apply-residual-connection-post-layernorm",
      recomputes_norms ? "is not supported with --recompute-modules layernorm" : "is not supported with t5",
      "both",
      {{"apply_residual_connection_post_layernorm", "false"}},
      "remove one of them"};
  return found;
}

constexpr Rule kBert[] = {
    {"bert-heads", false, binary_head_model, "model=gpt; bert_binary_head=true",
     "Only BERT samples have two segments, whose order the binary head predicts.",
     "bert_binary_head num_tokentypes"},
    {"bert-parts", false, unsupported_features, "window_size=4,0",
     "BERT's bidirectional attention over unpacked samples does not support these features.", "model"},
    {"bert-token-types", false, token_types, "num_tokentypes=1",
     "The two segments of a sample have different token types.", "model bert_binary_head"},
    {"bert-per-token", true, per_token_loss, "calculate_per_token_loss=true",
     "The sentence order loss is a mean over samples and cannot be weighted by tokens.",
     "model bert_binary_head"},
    {"normed-stream", false, post_norm_residual,
     "apply_residual_connection_post_layernorm=true; recompute_granularity=selective; "
     "recompute_modules=layernorm",
     "The residual addition reads the norm's output too, so it cannot be freed and recomputed.",
     "model recompute_granularity recompute_modules"},
};

}  // namespace

std::span<const Rule> bert_rules() { return kBert; }

}  // namespace colonnade::rules
