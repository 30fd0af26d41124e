// The layouts that a search tries. Private to search.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/buckets.h"

namespace colonnade::cost {

/// What candidates have in common that lie beside one another.
struct Choices {
  int tensor = 1, pipeline = 1, context = 1, expert = 1, expert_tensor = 1;
  std::string schedule = "auto";
  int chunks = 1;
  bool embedding_counts = false, loss_counts = false;
  std::string layout;  ///< in place of the two and the number of chunks, where layers cannot be split evenly
  std::string exchange = "p2p";  ///< of context ranks
  config::TokenDispatcher dispatcher = config::TokenDispatcher::kAllGather;

  /// What decides which rank holds which layers.
  [[nodiscard]] auto split() const {
    return std::tuple(pipeline, schedule, chunks, embedding_counts, loss_counts, layout);
  }
};

/// What ranks that hold the same parameters share of them.
struct Shares {
  layout::Sharding sharding = layout::Sharding::kNone;
  bool ahead = false;  ///< parameters are gathered beside the passes
  bool stays = false;  ///< where they are cut: gathered ones stay from a forward pass to its backward pass
  int instances = 1;   ///< groups of ranks, each of which shares among its own
  bool outer = false;  ///< and the update is shared between them

  [[nodiscard]] auto key() const { return std::tuple(sharding, ahead, stays, instances, outer); }
};

/// One of them.
struct Choice {
  std::int64_t micro_batch = 1;
  bool by_sequence = false;
  Shares shares;
};

/// Every one for the model, the ranks and the batch of `run`, in a fixed order: tensor, pipeline, context,
/// expert and expert tensor sizes that divide the ranks, 1F1B, interleaved and the schedules that split
/// backward passes, virtual stages, embedding and loss as layers or not, where no such split is even a
/// layout string (even_layout), both exchanges, both dispatchers.
std::vector<Choices> all_choices(const config::Run& run);
/// Micro-batches that divide the batch, sequence parallelism on and off, all_shares; shares change fastest.
std::vector<Choice> choices_of(const config::Run& run, const Choices& c, int devices_per_node);
/// What ranks may share: nothing, optimizer states, gradients, parameters; parameters gathered beside the
/// passes or not, kept from pass to pass or not. Where the replicas of a parameter lie in several nodes, and
/// more than one of them in a node, also those of a node alone, updates shared between nodes or not. What is
/// typed on the command line stays.
std::vector<Shares> all_shares(const config::Run& run, const Choices& c, int devices_per_node);

/// What may be made again where a layout does not fit, by what it costs: parts of layers that take little
/// time for what they keep (norms, the activation of experts, heads of multi-latent attention); these with
/// the MLPs of layers without experts; whole layers. Norms that sums read too are not among them.
std::vector<config::Recompute> ways_to_make_again(const config::Model& model);

/// A base without what belongs to another layout.
config::Run without_layout(config::Run run);
/// The settings of a candidate.
config::Run run_of(const config::Run& base, const Choices& c, const Choice& choice);

}  // namespace colonnade::cost
