// Text of a plan: tables for the log, `colonnade plan` and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/memory.h"

namespace colonnade::cost {

class ModelCost;

/// Bytes with three digits: "1.50 GiB", "12.0 MiB", "512 B".
std::string bytes_text(double bytes);
/// Parameter counts with three digits: "8.03 B", "124 M", "4.10 k".
std::string count_text(double count);
/// Tokens of a sample: "512", of several sequences "512 + 128".
std::string length_text(const config::Run& run);
/// Blocks of a stage: "embedding, layers 0-3"; "nothing" for an empty stage. Layers are numbered within their
/// stack (config::stacks) and have its name unless it is the only one. The final norm is not named.
std::string blocks_text(const layout::StageBlocks& blocks, const config::Model& model = {});

/// Rows of cells; the first row holds the titles.
using Table = std::vector<std::vector<std::string>>;
/// Text with aligned columns, numbers to the right, titles underlined.
std::string table_text(const Table& table);

/// Blocks of each pipeline rank: pipeline rank, global ranks, model chunk, blocks.
Table layout_table(const ModelCost& model);
/// Experts [first, first + count) of every MoE layer, or shard `shard` of each with expert tensor
/// parallelism, and the global ranks that hold them for the layers of their stage.
struct ExpertPlacement {
  int expert_rank = 0, shard = 0;
  std::vector<int> ranks;
  std::int64_t first = 0, count = 0;
};
/// By expert rank and shard; empty without experts.
std::vector<ExpertPlacement> expert_placements(const config::Run& run);
/// Routing that a dry run assumes, in one line; empty without experts.
std::string routing_assumption(const config::Run& run);
/// The placements as a table; only titles without experts.
Table experts_table(const config::Run& run);
/// By pipeline rank: parameters; bytes of weights, gradients, optimizer states, rotary embeddings,
/// activations and workspace; memory at start-up, between steps, in an evaluation, and at the peak of a step.
Table memory_table(const std::vector<StageMemory>& plan);
/// By pipeline rank: bytes sent per step over tensor, context, expert, pipeline and data ranks, and over
/// stages with shared embeddings if there are any.
Table traffic_table(const ModelCost& model);

/// Cost of --deterministic-mode against the same run without it: data-parallel bytes sent per step and rank,
/// and peak memory, each the maximum over stages.
std::string determinism_text(const config::Run& run);

/// The full text of a plan: sizes of the axes, batch arithmetic, parameters, FLOPs, the tables, Megatron's
/// memory estimate, bubble fraction and picture of the schedule.
std::string describe(const config::Run& run);
/// The same of a custom model too, which has no estimate of Megatron; a line says that its blocks were
/// measured.
std::string describe(const ModelCost& model);

/// Default times of the schedule simulation: a backward pass takes twice as long as a forward pass.
inline constexpr schedule::ActionCosts kRelativeCosts{.forward = 1, .backward = 2, .transfer = 0};

}  // namespace colonnade::cost
