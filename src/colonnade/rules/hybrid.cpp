// Rules for --hybrid-context-parallel: context-parallel groups sized by sequence length.
#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/schema.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kFlag = "--hybrid-context-parallel";

bool is_hybrid(const Run& r) { return r.parallel.hybrid_context_parallel; }

Broken documents(const Run& r) {
  if (!is_hybrid(r)) return std::nullopt;
  const bool by_sequence = r.data.inter_document_masking;
  Finding found{kFlag,
                "requires --calculate-per-token-loss, and --dataloader-inter-document-masking or both "
                "--reset-position-ids and --reset-attention-mask",
                "",
                {},
                ""};
  for (const char* key : {"reset_position_ids", "reset_attention_mask", "calculate_per_token_loss"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) == "true" || (by_sequence && std::string_view(key).starts_with("reset")))
      continue;
    found.got += fmt::format("{}no {}", found.edits.empty() ? "" : ", ", s.flag);
    found.edits.push_back({key, "true"});
  }
  return found.edits.empty() ? Broken{} : found;
}

Broken micro_batch(const Run& r) {
  const char* rule = "must be 1 with --hybrid-context-parallel";
  const std::int64_t micro = r.training.micro_batch_size, eval = r.training.eval_micro_batch_size.value_or(1);
  if (!is_hybrid(r) || std::max(micro, eval) <= 1) return std::nullopt;
  if (micro <= 1)
    return Finding{"--eval-micro-batch-size", rule, text(eval), {{"eval_micro_batch_size", "1"}}, ""};
  return Finding{"--micro-batch-size", rule, text(micro), {{"micro_batch_size", "1"}}, ""};
}

Finding unsupported(const char* rule, std::string got) {
  return {kFlag,
          rule,
          std::move(got),
          {{"hybrid_context_parallel", "false"}, {"max_seqlen_per_dp_cp_rank", "0"}},
          "remove the flag"};
}

Broken ranks(const Run& r) {
  const int all = layout::hybrid_ranks(r.parallel);
  if (!is_hybrid(r) || all < 1 || std::has_single_bit(static_cast<unsigned>(all))) return std::nullopt;
  return unsupported(
      "requires data x context parallel size to be a power of two",
      fmt::format("{} x {}", r.parallel.data_parallel_size(), r.parallel.context_parallel_size));
}

/// Multiple that a rank's share of a split sequence must have: two chunks, each sharded over tensor ranks.
std::int64_t tokens_multiple(const Run& r) {
  const std::int64_t shards = std::max(layout::sequence_shards(r.parallel), 1);
  return layout::hybrid_ranks(r.parallel) > 1 ? std::lcm(std::int64_t{2}, shards) : shards;
}

Broken tokens(const Run& r) {
  const std::int64_t all = layout::hybrid_ranks(r.parallel), step = tokens_multiple(r),
                     seq = r.training.seq_length;
  const std::int64_t most = r.parallel.max_seqlen_per_dp_cp_rank;
  if (!is_hybrid(r) || all < 1 || seq < 1 || ranks(r)) return std::nullopt;
  if (most > 0 && most % step == 0 && most * all >= seq) return std::nullopt;
  return Finding{
      "--max-seqlen-per-dp-cp-rank",
      "must be a multiple of 2 (with --sequence-parallel also of the tensor size) and large enough for "
      "--seq-length on all data x context ranks",
      fmt::format("{} for {} tokens on {} ranks", most, seq, all),
      {{"max_seqlen_per_dp_cp_rank", text(round_up(std::max(most, (seq + all - 1) / all), step))}},
      ""};
}

Broken sequence(const Run& r) {
  const std::int64_t all = layout::hybrid_ranks(r.parallel), seq = r.training.seq_length;
  if (!is_hybrid(r) || all < 1 || seq < 1 || ranks(r)) return std::nullopt;
  const std::int64_t step = tokens_multiple(r) * all;
  if (seq % step == 0) return std::nullopt;
  return Finding{
      "--seq-length",
      "must be a multiple of 2 x data x context size (with --sequence-parallel also x tensor size) with "
      "--hybrid-context-parallel",
      fmt::format("{}, no multiple of {}", seq, step),
      {{"seq_length", text(round_up(seq, step))},
       {"max_position_embeddings", text(std::max(round_up(seq, step), r.model.max_position_embeddings))}},
      ""};
}

Broken hierarchical(const Run& r) {
  const auto& kinds = r.parallel.cp_comm_type;
  if (!is_hybrid(r) || std::ranges::find(kinds, "a2a+p2p") == kinds.end()) return std::nullopt;
  return Finding{"--cp-comm-type",
                 "must be p2p, all_gather or a2a with --hybrid-context-parallel",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"cp_comm_type", "p2p"}, {"hierarchical_context_parallel_sizes", ""}},
                 "set --cp-comm-type p2p or all_gather"};
}

Broken deterministic(const Run& r) {
  if (!is_hybrid(r) || !r.parallel.deterministic_mode) return std::nullopt;
  return Finding{"--deterministic-mode",
                 "is not supported with --hybrid-context-parallel",
                 "true",
                 {{"deterministic_mode", "false"}},
                 ""};
}

constexpr Rule kHybrid[] = {
    {"hybrid-documents", true, documents, "reset_attention_mask=false",
     "Samples are split into documents that are computed separately; their losses must be weighted by "
     "tokens.",
     "reset_position_ids calculate_per_token_loss"},
    {"hybrid-micro-batch", true, micro_batch, "micro_batch_size=2",
     "A micro-batch is one row: a sequence, or several short ones with their bounds."},
    {"hybrid-ranks", true, ranks, "world_size=12; global_batch_size=24",
     "Group sizes are powers of two, so that every group lies within a larger one.",
     "context_parallel_size tensor_model_parallel_size pipeline_model_parallel_size"},
    {"hybrid-tokens", true, tokens, "max_seqlen_per_dp_cp_rank=8",
     "Sequences are padded to two equal chunks per rank, and the longest sequence is a full sample.",
     "seq_length context_parallel_size tensor_model_parallel_size"},
    {"hybrid-sequence", true, sequence, "seq_length=30",
     "A sample without a document boundary may be split over all ranks.",
     "context_parallel_size tensor_model_parallel_size"},
    {"hybrid-levels", true, hierarchical, "cp_comm_type=a2a+p2p; hierarchical_context_parallel_sizes=1 2",
     "Hierarchical sizes would differ for every group size."},
    {"hybrid-order", true, deterministic, "deterministic_mode=true",
     "Deterministic results must not depend on the data-parallel size, which here decides how sequences are "
     "split and gradients are summed."},
};

}  // namespace

std::span<const Rule> hybrid_rules() {
  static const std::vector<Rule> kAll = [] {
    std::vector<Rule> rules(std::begin(kHybrid), std::end(kHybrid));
    rules.insert(rules.end(), hybrid_routing_rules().begin(), hybrid_routing_rules().end());
    return rules;
  }();
  return kAll;
}

}  // namespace colonnade::rules
