// Rules of --hybrid-context-parallel: ranks for each sequence by its length.
#include <algorithm>
#include <bit>
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

bool hybrid(const Run& r) { return r.parallel.hybrid_context_parallel; }

Broken documents(const Run& r) {
  if (!hybrid(r)) return std::nullopt;
  Finding found{
      kFlag, "needs documents that do not see each other and tokens that weigh the same", "", {}, ""};
  for (const char* key : {"reset_position_ids", "reset_attention_mask", "calculate_per_token_loss"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) == "true") continue;
    found.got += fmt::format("{}no {}", found.edits.empty() ? "" : ", ", s.flag);
    found.edits.push_back({key, "true"});
  }
  return found.edits.empty() ? Broken{} : found;
}

Broken micro_batch(const Run& r) {
  if (!hybrid(r) || r.training.micro_batch_size <= 1) return std::nullopt;
  return Finding{"--micro-batch-size",
                 "must be 1 with --hybrid-context-parallel",
                 text(r.training.micro_batch_size),
                 {{"micro_batch_size", "1"}},
                 ""};
}

Finding refused(const char* rule, std::string got) {
  return {kFlag,
          rule,
          std::move(got),
          {{"hybrid_context_parallel", "false"}, {"max_seqlen_per_dp_cp_rank", "0"}},
          "leave it out"};
}

Broken ranks(const Run& r) {
  const int all = layout::hybrid_ranks(r.parallel);
  if (!hybrid(r) || all < 1 || std::has_single_bit(static_cast<unsigned>(all))) return std::nullopt;
  return refused("data size x context size must be a power of two",
                 fmt::format("{} x {}", r.parallel.data_parallel_size(), r.parallel.context_parallel_size));
}

/// What a rank's part of a shared sequence is a multiple of: two chunks, equal parts of the tensor ranks.
std::int64_t step_of(const Run& r) {
  const std::int64_t parts = std::max(layout::sequence_parts(r.parallel), 1);
  return layout::hybrid_ranks(r.parallel) > 1 ? std::lcm(std::int64_t{2}, parts) : parts;
}

Broken tokens(const Run& r) {
  const std::int64_t all = layout::hybrid_ranks(r.parallel), step = step_of(r), seq = r.training.seq_length;
  const std::int64_t most = r.parallel.max_seqlen_per_dp_cp_rank;
  if (!hybrid(r) || all < 1 || seq < 1 || ranks(r)) return std::nullopt;
  if (most > 0 && most % step == 0 && most * all >= seq) return std::nullopt;
  return Finding{"--max-seqlen-per-dp-cp-rank",
                 "must be a multiple of 2, with --sequence-parallel of the tensor size too, and hold "
                 "--seq-length on all data and context ranks together",
                 fmt::format("{} for {} on {}", most, seq, all),
                 {{"max_seqlen_per_dp_cp_rank", text(round_up(std::max(most, (seq + all - 1) / all), step))}},
                 ""};
}

Broken sequence(const Run& r) {
  const std::int64_t all = layout::hybrid_ranks(r.parallel), seq = r.training.seq_length;
  if (!hybrid(r) || all < 1 || seq < 1 || ranks(r)) return std::nullopt;
  const std::int64_t step = step_of(r) * all;
  if (seq % step == 0) return std::nullopt;
  return Finding{
      "--seq-length",
      "must be a multiple of twice the data and context ranks, and of these x tensor size with "
      "--sequence-parallel, with --hybrid-context-parallel",
      fmt::format("{} and {}", seq, step),
      {{"seq_length", text(round_up(seq, step))},
       {"max_position_embeddings", text(std::max(round_up(seq, step), r.model.max_position_embeddings))}},
      ""};
}

Broken levels(const Run& r) {
  const auto& kinds = r.parallel.cp_comm_type;
  if (!hybrid(r) || std::ranges::find(kinds, "a2a+p2p") == kinds.end()) return std::nullopt;
  return Finding{"--cp-comm-type",
                 "must be p2p, all_gather or a2a with --hybrid-context-parallel",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"cp_comm_type", "p2p"}, {"hierarchical_context_parallel_sizes", ""}},
                 "set --cp-comm-type p2p or all_gather"};
}

Broken order_of_sums(const Run& r) {
  if (!hybrid(r) || !r.parallel.deterministic_mode) return std::nullopt;
  return Finding{"--deterministic-mode",
                 "must be false with --hybrid-context-parallel",
                 "true",
                 {{"deterministic_mode", "false"}},
                 ""};
}

Broken gathered_tokens(const Run& r) {
  const config::Moe& moe = r.model.moe;
  const int sharing = r.parallel.expert_model_parallel_size * r.parallel.expert_tensor();
  if (!hybrid(r) || moe.num_experts == 0 || sharing <= 1) return std::nullopt;
  if (moe.token_dispatcher_type != config::TokenDispatcher::kAllGather) return std::nullopt;
  return Finding{"--moe-token-dispatcher-type",
                 "must be alltoall with --hybrid-context-parallel where ranks share experts",
                 "allgather",
                 {{"moe_token_dispatcher_type", "alltoall"}},
                 ""};
}

Broken capacity(const Run& r) {
  const auto& factor = r.model.moe.expert_capacity_factor;
  if (!hybrid(r) || r.model.moe.num_experts == 0 || !factor) return std::nullopt;
  return Finding{"--moe-expert-capacity-factor",
                 "must be unset with --hybrid-context-parallel",
                 text(*factor),
                 {{"moe_expert_capacity_factor", "unset"}, {"moe_pad_expert_input_to_capacity", "false"}},
                 "leave it out"};
}

Broken loss_of_a_step(const Run& r) {
  const auto& kinds = r.model.moe.router_load_balancing_type;
  if (!hybrid(r) || r.model.moe.num_experts == 0 ||
      std::ranges::find(kinds, "global_aux_loss") == kinds.end())
    return std::nullopt;
  std::vector<std::string> others = kinds;
  std::ranges::replace(others, std::string("global_aux_loss"), std::string("aux_loss"));
  return Finding{"--moe-router-load-balancing-type",
                 "must not be global_aux_loss with --hybrid-context-parallel",
                 fmt::format("{}", fmt::join(kinds, " ")),
                 {{"moe_router_load_balancing_type", fmt::format("{}", fmt::join(others, " "))}},
                 ""};
}

constexpr Rule kHybrid[] = {
    {"hybrid-documents", true, documents, "reset_attention_mask=false",
     "Sequences are what lies between ends of documents: each is computed by itself, and weighs as its tokens.",
     "reset_position_ids calculate_per_token_loss"},
    {"hybrid-micro-batch", true, micro_batch, "micro_batch_size=2", "Every sequence is a micro-batch."},
    {"hybrid-ranks", true, ranks, "world_size=12; global_batch_size=24",
     "Groups of ranks are halved and doubled, so that each lies within a larger one.",
     "context_parallel_size tensor_model_parallel_size pipeline_model_parallel_size"},
    {"hybrid-tokens", true, tokens, "max_seqlen_per_dp_cp_rank=8",
     "A sequence is filled up to two equal chunks for each of its ranks, and the longest is a whole sample.",
     "seq_length context_parallel_size tensor_model_parallel_size"},
    {"hybrid-sequence", true, sequence, "seq_length=30",
     "A sample without an end of document may be shared by all of them.",
     "context_parallel_size tensor_model_parallel_size"},
    {"hybrid-levels", true, levels, "cp_comm_type=a2a+p2p; hierarchical_context_parallel_sizes=1 2",
     "Two levels would be other ones for each size of a group."},
    {"hybrid-order", true, order_of_sums, "deterministic_mode=true",
     "It promises equal bits for every number of data ranks; here that number decides how sequences are divided, and "
     "so how sums are."},
    {"hybrid-gathered", true, gathered_tokens,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; expert_model_parallel_size=2",
     "Ranks hold different numbers of tokens at once, of which it gathers equally many.",
     "num_experts expert_model_parallel_size expert_tensor_parallel_size tensor_model_parallel_size"},
    {"hybrid-capacity", true, capacity,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_token_dispatcher_type=alltoall; "
     "moe_expert_capacity_factor=1",
     "It is a share of what one rank has of a micro-batch: of a short sequence a token or none.",
     "num_experts"},
    {"hybrid-balance", true, loss_of_a_step,
     "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_token_dispatcher_type=alltoall; "
     "moe_router_load_balancing_type=global_aux_loss; moe_aux_loss_coeff=0.01",
     "It looks at what all data ranks do in the same micro-batch, and here that is another sequence on each.",
     "num_experts"},
};

}  // namespace

std::span<const Rule> hybrid_rules() { return kHybrid; }

}  // namespace colonnade::rules
