// Rules of --hybrid-context-parallel: ranks for each sequence by its length.
#include <algorithm>
#include <bit>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/schema.h"
#include "colonnade/plan/buckets.h"
#include "colonnade/plan/context_groups.h"
#include "colonnade/plan/rules/table.h"
#include "colonnade/plan/stages.h"

namespace colonnade::plan {

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
  const int all = hybrid_ranks(r.parallel);
  if (!hybrid(r) || all < 1 || std::has_single_bit(static_cast<unsigned>(all))) return std::nullopt;
  return refused("data size x context size must be a power of two",
                 fmt::format("{} x {}", r.parallel.data_parallel_size(), r.parallel.context_parallel_size));
}

/// What a rank's part of a shared sequence is a multiple of: two chunks, equal parts of the tensor ranks.
std::int64_t step_of(const Run& r) {
  const std::int64_t parts = std::max(sequence_parts(r.parallel), 1);
  return hybrid_ranks(r.parallel) > 1 ? std::lcm(std::int64_t{2}, parts) : parts;
}

Broken tokens(const Run& r) {
  const std::int64_t all = hybrid_ranks(r.parallel), step = step_of(r), seq = r.training.seq_length;
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
  const std::int64_t all = hybrid_ranks(r.parallel), seq = r.training.seq_length;
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

Broken dropout(const Run& r) {
  if (!hybrid(r)) return std::nullopt;
  Finding found{"", "must be 0 with --hybrid-context-parallel", "", {}, ""};
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    const config::Setting& s = config::setting(key);
    if (const std::string given = config::text_of(r, s); given != "0") found.add(s, given, "0");
  }
  return found.edits.empty() ? Broken{} : found;
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

/// Whether a pipeline rank has several virtual stages.
bool has_virtual_stages(const Run& r) {
  const auto ranks = static_cast<std::size_t>(std::max(r.parallel.pipeline_model_parallel_size, 1));
  return stages_if_sound(r).size() > ranks;
}

/// Of what needs as many micro-batches on all ranks.
Broken equal_counts(const Run& r) {
  if (!hybrid(r)) return std::nullopt;
  const config::Parallel& p = r.parallel;
  std::vector<std::string> beside;
  if (r.model.moe.num_experts > 0) beside.emplace_back("--num-experts");
  if (r.model.mtp_num_layers > 0) beside.emplace_back("--mtp-num-layers");
  if (p.deterministic_mode) beside.emplace_back("--deterministic-mode");
  if (!p.deterministic_mode && sharding_of(p) >= Sharding::kGradients)
    beside.push_back("--data-parallel-sharding-strategy " + p.data_parallel_sharding_strategy);
  if (has_virtual_stages(r)) beside.emplace_back("virtual pipeline stages");
  if (beside.empty()) return std::nullopt;
  return refused("is not there together with what needs as many micro-batches on every rank",
                 fmt::format("{}", fmt::join(beside, ", ")));
}

Broken overlap(const Run& r) {
  const config::Parallel& p = r.parallel;
  if (!hybrid(r) || (!p.overlap_grad_reduce && !p.overlap_param_gather)) return std::nullopt;
  Finding found{"", "must be false with --hybrid-context-parallel", "", {}, ""};
  for (const char* key : {"overlap_grad_reduce", "overlap_param_gather"}) {
    const config::Setting& s = config::setting(key);
    if (config::text_of(r, s) == "true") found.add(s, "true", "false");
  }
  return found;
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
    {"hybrid-dropout", true, dropout, "hidden_dropout=0.1",
     "What is dropped is drawn by the place in the sample, which a sequence does not know."},
    {"hybrid-overlap", true, overlap, "overlap_grad_reduce=true",
     "The last sequence of one rank is not that of another with which it is shared: sums of gradients behind it "
     "would come before or after the exchange of its keys."},
    {"hybrid-levels", true, levels, "cp_comm_type=a2a+p2p; hierarchical_context_parallel_sizes=1 2",
     "Two levels would be other ones for each size of a group."},
    {"hybrid-alone", true, equal_counts, "pipeline_schedule=zb-v",
     "Ranks compute different numbers of sequences; collectives of experts and of sharded blocks, orders of sums and "
     "schedules of several stages a rank count on equal numbers.",
     "num_experts mtp_num_layers deterministic_mode use_megatron_fsdp data_parallel_sharding_strategy "
     "pipeline_schedule num_virtual_stages_per_pipeline_rank pipeline_model_parallel_layout"},
};

}  // namespace

std::span<const Rule> hybrid_rules() { return kHybrid; }

}  // namespace colonnade::plan
