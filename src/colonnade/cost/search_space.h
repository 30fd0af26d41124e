// Search space of layouts. Private to search.cpp.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/layout/buckets.h"

namespace colonnade::cost {

/// Layout choices shared by consecutive candidates.
struct LayoutChoice {
  int tensor = 1, pipeline = 1, context = 1, ep = 1, etp = 1;
  std::string schedule = "auto";
  int chunks = 1;
  bool count_embedding = false, count_loss = false;
  std::string layout;  ///< layout string, in place of the two and `chunks`, if no even split exists
  std::string cp_comm_type = "p2p";  ///< --cp-comm-type
  config::TokenDispatcher dispatcher = config::TokenDispatcher::kAllGather;

  /// Key of the split of layers over ranks.
  [[nodiscard]] auto split() const {
    return std::tuple(pipeline, schedule, chunks, count_embedding, count_loss, layout);
  }
};

/// Data-parallel sharding of parameters, gradients and optimizer states.
struct DataSharding {
  layout::Sharding sharding = layout::Sharding::kNone;
  bool overlap_gather = false;  ///< parameter all-gathers overlap the passes
  bool keep_gathered = false;   ///< sharded parameters stay gathered from forward to backward
  int instances = 1;            ///< distributed-optimizer instances
  bool shard_outer = false;     ///< optimizer states are sharded across instances too

  [[nodiscard]] auto key() const {
    return std::tuple(sharding, overlap_gather, keep_gathered, instances, shard_outer);
  }
};

/// One candidate of a LayoutChoice.
struct Candidate {
  std::int64_t micro_batch = 1;
  bool sequence_parallel = false;
  DataSharding data_sharding;
};

/// All layout choices for the model, ranks and batch of `run`, in a fixed order: tensor, pipeline, context,
/// ep and etp sizes that divide the ranks; 1F1B, interleaved and zero-bubble schedules; virtual
/// stages; embedding and loss counted as layers or not, or a layout string if no such split is even
/// (even_layout); p2p and a2a; both dispatchers.
std::vector<LayoutChoice> all_layout_choices(const config::Run& run);
/// Micro-batch sizes that divide the batch, sequence parallelism on and off, all_data_shardings; the sharding
/// varies fastest.
std::vector<Candidate> candidates_of(const config::Run& run, const LayoutChoice& c, int devices_per_node);
/// Shardings of nothing, optimizer states, gradients, or parameters; parameter all-gathers overlapped or not,
/// gathered parameters kept until backward or not. If replicas span several nodes with several per node, also
/// one instance per node, with optimizer states sharded across nodes or not. Settings typed on the command
/// line stay.
std::vector<DataSharding> all_data_shardings(const config::Run& run, const LayoutChoice& c,
                                             int devices_per_node);

/// Recomputation options for layouts that do not fit, cheapest first: modules with little compute per saved
/// byte (config::kCheapRecomputeModules); these and the dense MLPs; full layers. Norms whose
/// output the residual sum reads are excluded.
std::vector<config::Recompute> recompute_options(const config::Model& model);

/// `run` without settings of a particular layout.
config::Run without_layout(config::Run run);
/// The settings of a candidate.
config::Run run_of(const config::Run& base, const LayoutChoice& c, const Candidate& choice);

}  // namespace colonnade::cost
