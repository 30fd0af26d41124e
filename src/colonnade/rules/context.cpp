// Rules of context parallelism.
#include <algorithm>
#include <numeric>

#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kTwoLevels = "a2a+p2p";

bool uses(const Run& r, const char* kind) {
  return std::ranges::find(r.parallel.cp_comm_type, kind) != r.parallel.cp_comm_type.end();
}

/// Most ranks that share a sequence.
int most_ranks(const config::Parallel& p) {
  return p.hybrid_context_parallel ? layout::hybrid_ranks(p) : p.context_parallel_size;
}

std::string kinds_of(const Run& r) { return fmt::format("{}", fmt::join(r.parallel.cp_comm_type, " ")); }

Broken sequence(const Run& r) {
  const std::int64_t cp = r.parallel.context_parallel_size, seq = r.training.seq_length;
  const std::int64_t tp = r.parallel.sequence_parallel ? r.parallel.tensor_model_parallel_size : 1;
  if (cp <= 1 || seq < 1 || tp < 1 || r.parallel.hybrid_context_parallel) return std::nullopt;
  const std::int64_t step = std::lcm(2 * cp, cp * tp);
  if (seq % step == 0) return std::nullopt;
  return Finding{"--seq-length",
                 "must be a multiple of twice the context size, and of context x tensor size with "
                 "--sequence-parallel",
                 fmt::format("{} and {}", seq, step),
                 {{"seq_length", text(std::max(seq / step, std::int64_t{1}) * step)}},
                 ""};
}

Broken kinds(const Run& r) {
  const std::size_t given = r.parallel.cp_comm_type.size();
  if (most_ranks(r.parallel) <= 1 || given == 1 || static_cast<std::int64_t>(given) == r.model.num_layers)
    return std::nullopt;
  return Finding{"--cp-comm-type",
                 "must be one kind, or one for each layer",
                 fmt::format("{} for {} layers", given, r.model.num_layers),
                 {{"cp_comm_type", "p2p"}},
                 ""};
}

/// Heads of queries and of keys and values on a tensor rank.
bool share_heads(const Run& r, std::int64_t ranks) {
  const std::int64_t tp = std::max(r.parallel.tensor_model_parallel_size, 1);
  const std::int64_t heads = r.model.num_attention_heads / tp;
  const std::int64_t groups = std::max<std::int64_t>(1, r.model.num_query_groups / tp);
  return ranks >= 1 && heads % ranks == 0 && (groups % ranks == 0 || ranks % groups == 0);
}

std::string heads_text(const Run& r, std::int64_t ranks) {
  return fmt::format("{} ranks for {} heads and {} groups over {} tensor ranks", ranks,
                     r.model.num_attention_heads, r.model.num_query_groups,
                     r.parallel.tensor_model_parallel_size);
}

Broken levels(const Run& r) {
  const auto& sizes = r.parallel.hierarchical_context_parallel_sizes;
  const int cp = r.parallel.context_parallel_size;
  if (cp <= 1 || !uses(r, kTwoLevels) || r.parallel.hybrid_context_parallel) return std::nullopt;
  if (sizes.size() == 2 && std::int64_t{sizes[0]} * sizes[1] == cp) return std::nullopt;
  int heads = cp / 2;
  while (heads > 1 && (cp % heads != 0 || !share_heads(r, heads))) --heads;
  heads = std::max(heads, 1);
  return Finding{
      "--hierarchical-context-parallel-sizes",
      "must be two sizes whose product is the context size, with --cp-comm-type a2a+p2p",
      fmt::format("{} for {}", sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, " x ")), cp),
      {{"hierarchical_context_parallel_sizes", fmt::format("{} {}", heads, cp / heads)}},
      ""};
}

Broken heads(const Run& r) {
  const bool by_length = r.parallel.hybrid_context_parallel;
  if (most_ranks(r.parallel) <= 1 || levels(r)) return std::nullopt;
  std::int64_t ranks = 1;
  if (uses(r, kTwoLevels) && !by_length) ranks = r.parallel.hierarchical_context_parallel_sizes.front();
  if (uses(r, "a2a") && (ranks == 1 || share_heads(r, ranks))) ranks = most_ranks(r.parallel);
  if (share_heads(r, ranks)) return std::nullopt;
  return Finding{"--cp-comm-type",
                 "ranks that exchange heads must divide the heads of a tensor rank, and its groups or be a "
                 "multiple of them",
                 fmt::format("{} with {}", kinds_of(r), heads_text(r, ranks)),
                 {{"cp_comm_type", "p2p"}, {"hierarchical_context_parallel_sizes", ""}},
                 "set --cp-comm-type p2p or all_gather"};
}

constexpr Rule kContext[] = {
    {"context-sequence", true, sequence, "seq_length=30",
     "Every context rank takes two chunks of each sequence, an early and a late one, so that all have as much "
     "attention to compute, and tensor ranks share what it takes.",
     "context_parallel_size tensor_model_parallel_size sequence_parallel"},
    {"context-kinds", true, kinds, "cp_comm_type=p2p a2a", "Each layer exchanges in one way.", "num_layers"},
    {"context-levels", true, levels, "cp_comm_type=a2a+p2p; hierarchical_context_parallel_sizes=3 2",
     "The first size is of neighbours that exchange heads, the second of the rings that they form.",
     "context_parallel_size cp_comm_type"},
    {"context-heads", true, heads,
     "cp_comm_type=a2a; num_query_groups=6; num_attention_heads=12; hidden_size=96",
     "A rank computes whole heads; neighbours may share one of keys and values.",
     "num_attention_heads num_query_groups tensor_model_parallel_size context_parallel_size"},
};

}  // namespace

std::span<const Rule> context_rules() { return kContext; }

}  // namespace colonnade::rules
