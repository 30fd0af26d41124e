// Rules for context parallelism.
#include <algorithm>
#include <numeric>

#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/context_parallel.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

constexpr const char* kHierarchical = "a2a+p2p";

bool uses(const Run& r, const char* type) {
  return std::ranges::find(r.parallel.cp_comm_type, type) != r.parallel.cp_comm_type.end();
}

/// Largest number of ranks that share a sequence.
int max_context_ranks(const config::Parallel& p) {
  return p.hybrid_context_parallel ? layout::hybrid_ranks(p) : p.context_parallel_size;
}

std::string types_text(const Run& r) { return fmt::format("{}", fmt::join(r.parallel.cp_comm_type, " ")); }

Broken sequence(const Run& r) {
  const std::int64_t cp = r.parallel.context_parallel_size, seq = r.training.seq_length;
  const std::int64_t tp = r.parallel.sequence_parallel ? r.parallel.tensor_model_parallel_size : 1;
  if (cp <= 1 || seq < 1 || tp < 1 || r.parallel.hybrid_context_parallel) return std::nullopt;
  const std::int64_t step = std::lcm(2 * cp, cp * tp);
  if (seq % step == 0) return std::nullopt;
  return Finding{
      "--seq-length",
      "must be a multiple of 2 x context size (with --sequence-parallel also of context x tensor size)",
      fmt::format("{}, no multiple of {}", seq, step),
      {{"seq_length", text(std::max(seq / step, std::int64_t{1}) * step)}},
      ""};
}

Broken comm_types(const Run& r) {
  const std::size_t given = r.parallel.cp_comm_type.size();
  if (max_context_ranks(r.parallel) <= 1 || given == 1 ||
      static_cast<std::int64_t>(given) == r.model.num_layers)
    return std::nullopt;
  return Finding{"--cp-comm-type",
                 "must be one type, or one for each layer",
                 fmt::format("{} for {} layers", given, r.model.num_layers),
                 {{"cp_comm_type", "p2p"}},
                 ""};
}

/// Whether `ranks` can divide the query and key/value heads of a tensor-parallel rank.
bool can_exchange_heads(const Run& r, std::int64_t ranks) {
  const std::int64_t tp = std::max(r.parallel.tensor_model_parallel_size, 1);
  const std::int64_t heads = r.model.num_attention_heads / tp;
  const std::int64_t groups = std::max<std::int64_t>(1, r.model.num_query_groups / tp);
  return ranks >= 1 && heads % ranks == 0 && (groups % ranks == 0 || ranks % groups == 0);
}

std::string heads_text(const Run& r, std::int64_t ranks) {
  return fmt::format("{} ranks for {} heads and {} groups on {} tensor ranks", ranks,
                     r.model.num_attention_heads, r.model.num_query_groups,
                     r.parallel.tensor_model_parallel_size);
}

Broken hierarchical_sizes(const Run& r) {
  const auto& sizes = r.parallel.hierarchical_context_parallel_sizes;
  const int cp = r.parallel.context_parallel_size;
  if (cp <= 1 || !uses(r, kHierarchical) || r.parallel.hybrid_context_parallel) return std::nullopt;
  if (sizes.size() == 2 && std::int64_t{sizes[0]} * sizes[1] == cp) return std::nullopt;
  int heads = cp / 2;
  while (heads > 1 && (cp % heads != 0 || !can_exchange_heads(r, heads))) --heads;
  heads = std::max(heads, 1);
  return Finding{
      "--hierarchical-context-parallel-sizes",
      "must be two sizes whose product is the context size, with --cp-comm-type a2a+p2p",
      fmt::format("{} for {}", sizes.empty() ? "none" : fmt::format("{}", fmt::join(sizes, " x ")), cp),
      {{"hierarchical_context_parallel_sizes", fmt::format("{} {}", heads, cp / heads)}},
      ""};
}

Broken exchanged_heads(const Run& r) {
  const bool is_hybrid = r.parallel.hybrid_context_parallel;
  if (max_context_ranks(r.parallel) <= 1 || hierarchical_sizes(r)) return std::nullopt;
  std::int64_t ranks = 1;
  if (uses(r, kHierarchical) && !is_hybrid) ranks = r.parallel.hierarchical_context_parallel_sizes.front();
  if (uses(r, "a2a") && (ranks == 1 || can_exchange_heads(r, ranks))) ranks = max_context_ranks(r.parallel);
  if (can_exchange_heads(r, ranks)) return std::nullopt;
  return Finding{
      "--cp-comm-type",
      "with a2a requires that the context ranks divide the heads of a tensor rank, and divide its query "
      "groups or are a multiple of them",
      fmt::format("{} with {}", types_text(r), heads_text(r, ranks)),
      {{"cp_comm_type", "p2p"}, {"hierarchical_context_parallel_sizes", ""}},
      "set --cp-comm-type p2p or all_gather"};
}

constexpr Rule kContext[] = {
    {"context-sequence", true, sequence, "seq_length=30",
     "Every context rank holds an early and a late chunk of each sequence, which balances causal attention; "
     "sequence parallelism shards them over tensor ranks.",
     "context_parallel_size tensor_model_parallel_size sequence_parallel"},
    {"cp-comm-types", true, comm_types, "cp_comm_type=p2p a2a", "Each layer has one communication type.",
     "num_layers"},
    {"context-levels", true, hierarchical_sizes,
     "cp_comm_type=a2a+p2p; hierarchical_context_parallel_sizes=3 2",
     "The first size is the all-to-all group, the second the p2p ring over these groups.",
     "context_parallel_size cp_comm_type"},
    {"context-heads", true, exchanged_heads,
     "cp_comm_type=a2a; num_query_groups=6; num_attention_heads=12; hidden_size=96",
     "A rank computes whole query heads; several ranks may replicate a key/value head.",
     "num_attention_heads num_query_groups tensor_model_parallel_size context_parallel_size"},
};

}  // namespace

std::span<const Rule> context_rules() { return kContext; }

}  // namespace colonnade::rules
