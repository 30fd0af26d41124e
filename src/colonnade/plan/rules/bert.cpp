// Rules of BERT.
#include <algorithm>

#include "colonnade/config/schema.h"
#include "colonnade/plan/rules/table.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool bert(const Run& r) { return r.family == "bert"; }

/// Adds the setting `key` where it is given.
void refuse(Finding& found, const Run& r, bool given, const char* key, const char* mended) {
  if (!given) return;
  const config::Setting& s = config::setting(key);
  found.add(s, config::text_of(r, s), mended);
}

Broken heads(const Run& r) {
  if (bert(r)) return std::nullopt;
  Finding found{"", "belongs to bert", "", {}, "leave out what is named, or write `pretrain bert`"};
  refuse(found, r, r.model.bert_binary_head, "bert_binary_head", "false");
  refuse(found, r, r.model.num_tokentypes > 0, "num_tokentypes", "0");
  return found.edits.empty() ? Broken{} : found;
}

/// What no layer that sees both ways has here, or no sample of a BERT.
Broken parts(const Run& r) {
  if (!bert(r)) return std::nullopt;
  const config::Model& m = r.model;
  Finding found{"", "must be left out with bert", "", {}, "leave out what is named, or train `gpt`"};
  refuse(found, r, m.moe.num_experts > 0, "num_experts", "0");
  refuse(found, r, m.latent.enabled, "multi_latent_attention", "false");
  refuse(found, r, m.mtp_num_layers > 0, "mtp_num_layers", "0");
  refuse(found, r, m.window_size > 0, "window_size", "0,0");
  refuse(found, r, m.softmax_type != config::SoftmaxType::kVanilla, "softmax_type", "vanilla");
  refuse(found, r, m.scale_decoder_outputs, "scale_decoder_outputs", "false");
  refuse(found, r, m.final_logit_softcapping > 0, "final_logit_softcapping", "0");
  refuse(found, r, r.parallel.context_parallel_size > 1, "context_parallel_size", "1");
  refuse(found, r, r.parallel.hybrid_context_parallel, "hybrid_context_parallel", "false");
  refuse(found, r, r.data.reset_position_ids, "reset_position_ids", "false");
  refuse(found, r, r.data.reset_attention_mask, "reset_attention_mask", "false");
  refuse(found, r, r.data.eod_mask_loss, "eod_mask_loss", "false");
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
     "A GPT's and a T5's samples have no two parts that could be swapped.", "model"},
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

}  // namespace colonnade::plan
