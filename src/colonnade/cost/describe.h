// The plan in words: tables for the log, `colonnade plan` and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "colonnade/config/run.h"
#include "colonnade/cost/memory.h"

namespace colonnade::cost {

/// "1.50 GiB", "12.0 MiB", "512 B": three digits.
std::string bytes_text(double bytes);
/// "8.03 B", "124 M", "4.10 k" for counts of parameters.
std::string count_text(double count);
/// Tokens of a sample: "512", with an encoder "512 + 128".
std::string length_text(const config::Run& run);
/// "embedding, layers 0-3", with an encoder "layers of the encoder 4-5, of the decoder 0-1"; "nothing" for an
/// empty stage. Further tokens stand where the final norm is: "layer 7, 2 further tokens, head".
std::string blocks_text(const layout::StageBlocks& blocks, const config::Model& model = {});

/// A table; the first line holds the titles.
using Table = std::vector<std::vector<std::string>>;
/// Columns aligned, numbers to the right, titles underlined.
std::string table_text(const Table& table);

/// Who owns which blocks: pipeline rank, its ranks in the world, chunk, blocks.
Table layout_table(const config::Run& run);
/// The experts [first, first + count) of every layer with experts, or part `part` of each with expert tensor
/// ranks, and the ranks of the world that hold them of the layers of their stage.
struct HeldExperts {
  int expert_rank = 0, part = 0;
  std::vector<int> ranks;
  std::int64_t first = 0, count = 0;
};
/// By expert rank and part; empty without experts.
std::vector<HeldExperts> held_experts(const config::Run& run);
/// The same as a table; titles alone without experts.
Table experts_table(const config::Run& run);
/// Per pipeline rank: parameters, bytes of parameters, gradients, optimizer, rotary tables, activations,
/// working memory, between steps and in forward and backward.
Table memory_table(const std::vector<StageMemory>& plan);
/// Per pipeline rank: bytes sent per step over tensor, context, expert, pipeline and data ranks, and over the
/// stages that hold the same, where there are some.
Table traffic_table(const config::Run& run);

/// What --deterministic-mode costs against the same run without it, for one data rank of the fullest stage:
/// bytes sent per step, and the plan's peak.
std::string determinism_text(const config::Run& run);

/// All of it for a person: sizes of the axes, batch arithmetic, parameters, FLOPs, the tables,
/// Megatron's memory estimate, idle share and picture of the schedule.
std::string describe(const config::Run& run);

/// Times of the schedule's simulation where nothing was measured: backward twice as long as forward.
inline constexpr schedule::ActionCosts kRelativeCosts{.forward = 1, .backward = 2, .transfer = 0};

}  // namespace colonnade::cost
