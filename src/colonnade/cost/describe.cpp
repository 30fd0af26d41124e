// Tables and texts of a plan.
#include "colonnade/cost/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/stacks.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/memory_picture.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/mesh.h"
#include "colonnade/layout/params/gpt.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// value / step^k with the k-th unit, for a number of three digits.
std::string scaled(double value, double step, const std::vector<std::string>& units) {
  std::size_t k = 0;
  while (k + 1 < units.size() && std::abs(value) >= 999.5) {
    value /= step;
    ++k;
  }
  const int digits = k == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, digits, units[k]);
}

/// "0-7" or "0, 1, 8, 9, ..." for ascending numbers.
std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.size() > 1 && ranks.back() - ranks.front() == static_cast<int>(ranks.size()) - 1) {
    return fmt::format("{}-{}", ranks.front(), ranks.back());
  }
  std::string out;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == 8) return out + ", ...";
    out += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  }
  return out;
}

bool starts_with_digit(const std::string& text) { return !text.empty() && text[0] >= '0' && text[0] <= '9'; }

std::string number(std::size_t value) { return fmt::format("{}", value); }

/// "1 rank", "2 ranks".
std::string counted(std::int64_t count, const char* one, const char* ending = "s") {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : ending);
}

}  // namespace

std::string bytes_text(double bytes) {
  return scaled(bytes, 1024, {" B", " KiB", " MiB", " GiB", " TiB", " PiB"});
}
std::string count_text(double count) { return scaled(count, 1000, {"", " k", " M", " B", " T"}); }

std::string length_text(const config::Run& run) {
  return fmt::format("{}", fmt::join(sample_length(run).sequences, " + "));
}

std::string blocks_text(const layout::StageBlocks& blocks, const config::Model& model) {
  std::string out;
  const auto add = [&out](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  const auto layers = [&](std::string_view prefix, std::int64_t first, std::int64_t end) {
    if (end == first + 1) add(fmt::format("{}layer {}", prefix, first));
    if (end > first + 1) add(fmt::format("{}layers {}-{}", prefix, first, end - 1));
  };
  if (blocks.has(BlockKind::kEmbedding)) add("embedding");
  const auto [first, end] = blocks.layers();
  if (!config::has_several_stacks(model)) {
    layers("", first, end);
  } else {
    for (const config::Stack& stack : config::stacks(model))
      layers(fmt::format("{} ", stack.name), std::max(first, stack.first) - stack.first,
             std::min(end, stack.last) - stack.first);
  }
  if (blocks.has(BlockKind::kFinalNorm) && model.mtp_num_layers > 0)
    add(counted(model.mtp_num_layers, "MTP layer"));
  if (blocks.has(BlockKind::kHead)) add("head");
  return out.empty() ? "nothing" : out;
}

std::string table_text(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], row[c].size());
  }
  std::string out;
  for (std::size_t r = 0; r < table.size(); ++r) {
    std::string line;
    for (std::size_t c = 0; c < table[r].size(); ++c) {
      const bool right = table.size() > 1 && c < table[1].size() && starts_with_digit(table[1][c]);
      line += fmt::format(fmt::runtime(right ? "{:>{}}  " : "{:<{}}  "), table[r][c], widths[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
    if (r > 0) continue;
    std::string rule;
    for (const std::size_t width : widths) rule += std::string(width, '-') + "  ";
    rule.erase(rule.find_last_not_of(' ') + 1);
    out += rule + '\n';
  }
  return out;
}

Table layout_table(const ModelCost& model) {
  const config::Run& run = model.run();
  const layout::Mesh mesh(run.parallel);
  const auto members = mesh.groups({layout::Axis::kTp, layout::Axis::kCp, layout::Axis::kDp});
  Table table{{"pipeline rank", "ranks", "model chunk", "blocks"}};
  const auto by_rank = model.stages_by_rank();
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    const std::vector<layout::StageBlocks>& stages = by_rank[rank];
    for (std::size_t chunk = 0; chunk < stages.size(); ++chunk)
      table.push_back(
          {number(rank), ranks_text(members[rank]), number(chunk), blocks_text(stages[chunk], run.model)});
  }
  return table;
}

std::vector<ExpertPlacement> expert_placements(const config::Run& run) {
  if (run.model.moe.num_experts == 0) return {};
  const auto kinds = layout::layer_kinds(run.model);
  const auto found = std::ranges::find(kinds, true, &layout::LayerKind::is_moe);
  if (found == kinds.end()) return {};
  const layout::Mesh mesh(run.parallel);
  const layout::LayerParams layer = layout::layer_params(run.model, run.parallel, found - kinds.begin());
  const layout::ParamSpec& spec = layout::mixer_of<layout::MoeParams>(layer).fc1;
  std::map<std::pair<int, int>, ExpertPlacement> by_rank;
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    ExpertPlacement& placement =
        by_rank[{mesh.coord(rank, layout::Axis::kEp), mesh.coord(rank, layout::Axis::kEtp)}];
    placement.ranks.push_back(rank);
    if (placement.count > 0) continue;
    const layout::ShardBox part = layout::shard(spec, mesh.position(rank)).boxes.front();
    placement.first = part.global[0];
    placement.count = part.length[0];
  }
  std::vector<ExpertPlacement> all;
  for (auto& [at, placement] : by_rank) {
    std::tie(placement.expert_rank, placement.shard) = at;
    all.push_back(std::move(placement));
  }
  return all;
}

// With sequences of equal length nothing else depends on data.
std::string routing_assumption(const config::Run& run) {
  const config::Moe& moe = run.model.moe;
  if (moe.num_experts == 0) return "";
  if (moe.assumed_imbalance == 1) return "assumed: every expert receives the same number of tokens\n";
  return fmt::format(
      "assumed: in every layer the first expert rank receives {:g} times the mean number of rows, the others equal "
      "shares of the rest\n",
      moe.assumed_imbalance);
}

Table experts_table(const config::Run& run) {
  const int parts = run.parallel.expert_tensor_size();
  Table table{{"expert rank", "ranks", "experts"}};
  if (parts > 1) table[0].emplace_back("shard of each");
  for (const ExpertPlacement& placement : expert_placements(run)) {
    const std::int64_t last = placement.first + placement.count - 1;
    table.push_back(
        {fmt::format("{}", placement.expert_rank), ranks_text(placement.ranks),
         placement.count == 1 ? fmt::format("{}", last) : fmt::format("{}-{}", placement.first, last)});
    if (parts > 1) table.back().push_back(fmt::format("{} of {}", placement.shard + 1, parts));
  }
  return table;
}

Table memory_table(const std::vector<StageMemory>& plan) {
  Table table{{"pipeline rank", "parameters", "weights", "gradients", "optimizer", "rotary embeddings",
               "activations", "workspace", "start-up", "between steps", "evaluation", "peak"}};
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    const StageMemory& m = plan[rank];
    std::vector<std::string> row{number(rank), count_text(static_cast<double>(m.num_parameters))};
    for (const std::int64_t bytes :
         {m.parameters, m.gradients, m.optimizer, m.rotary_tables, m.activations, m.workspace, m.start_up(),
          m.resident(), m.evaluation_peak(), m.peak()}) {
      row.push_back(bytes_text(static_cast<double>(bytes)));
    }
    table.push_back(std::move(row));
  }
  return table;
}

Table traffic_table(const ModelCost& model) {
  const config::Run& run = model.run();
  const bool levels = run.parallel.num_distributed_optimizer_instances > 1;
  Table table{{"pipeline rank", "tensor", "context", "experts", "pipeline", "data"}};
  if (levels) table[0].insert(table[0].end(), "data, between instances");
  const auto plan = plan_traffic(model);
  const bool stages =
      std::ranges::any_of(plan, [](const StageTraffic& t) { return t.shared_embeddings > 0; });
  if (stages) table[0].emplace_back("shared embeddings");
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    table.push_back({number(rank), bytes_text(plan[rank].tensor), bytes_text(plan[rank].context),
                     bytes_text(plan[rank].dispatch), bytes_text(plan[rank].pipeline),
                     bytes_text(plan[rank].data)});
    if (levels) table.back().push_back(bytes_text(plan[rank].outer_data));
    if (stages) table.back().push_back(bytes_text(plan[rank].shared_embeddings));
  }
  return table;
}

std::string determinism_text(const config::Run& run) {
  const auto peaks = [](const config::Run& r) {
    std::pair<double, double> data_and_peak;
    for (const StageTraffic& t : plan_traffic(r)) data_and_peak.first = std::max(data_and_peak.first, t.data);
    for (const StageMemory& m : plan_memory(r))
      data_and_peak.second = std::max(data_and_peak.second, static_cast<double>(m.peak()));
    return data_and_peak;
  };
  config::Run without = run;
  without.parallel.deterministic_mode = false;
  const auto [data, peak] = peaks(run);
  const auto [data_before, peak_before] = peaks(without);
  return fmt::format(
      "gradients are reduced after every micro-batch: {} sent per rank and step over data ranks (otherwise {}), "
      "peak memory {} (otherwise {})",
      bytes_text(data), bytes_text(data_before), bytes_text(peak), bytes_text(peak_before));
}

namespace {

/// Megatron's estimate; it covers decoder-only models.
std::string estimate_text(const config::Run& run) {
  const TheoreticalMemory estimate = theoretical_memory(run, run.parallel.sequence_parallel);
  return fmt::format("Megatron's estimate (max over ranks{}): weights and optimizer {}, activations {}\n",
                     run.parallel.sequence_parallel ? ", selective recomputation" : "",
                     bytes_text(estimate.weights_and_optimizer), bytes_text(estimate.activations));
}

/// Expert-parallel sizes and the experts of each rank; empty without experts.
std::string experts_text(const config::Run& run) {
  const Table table = experts_table(run);
  if (table.size() == 1) return "";
  const layout::Mesh mesh(run.parallel);
  const double imbalance = run.model.moe.assumed_imbalance;
  const std::string assumed =
      imbalance == 1
          ? ""
          : fmt::format(
                "assumed: the most loaded expert rank of a layer receives {:g} times the mean number of rows; "
                "memory, traffic and time are for this rank\n",
                imbalance);
  return fmt::format("{} per MoE layer: tensor {} x expert {} x data {}\n{}{}\n",
                     counted(run.model.moe.num_experts, "expert"), mesh.size(layout::Axis::kEtp),
                     mesh.size(layout::Axis::kEp), mesh.size(layout::Axis::kEdp), assumed, table_text(table));
}

/// Elements of all parameters, each counted once.
double num_parameters(const ModelCost& model) {
  double sum = 0;
  const auto add = [&sum](const layout::ParamSpec& spec) { sum += static_cast<double>(spec.numel()); };
  if (model.is_custom())
    for (const layout::BlockId& id : model.blocks()) model.for_each_param(id, add);
  else
    std::ranges::for_each(layout::model_params(model.run().model, model.run().parallel), add);
  return sum;
}

}  // namespace

std::string describe(const config::Run& run) { return describe(ModelCost(run)); }

std::string describe(const ModelCost& model) {
  const config::Run& run = model.run();
  const layout::Mesh mesh(run.parallel);
  const schedule::Schedule schedule = schedule_of(run);
  const schedule::Timeline timeline = schedule::simulate(schedule, kRelativeCosts);
  const std::int64_t batch =
      run.training.micro_batch_size * schedule.microbatches * run.parallel.data_parallel_size();
  const double flops = training_flops_by_part(model, batch).total();
  std::string out =
      fmt::format("{}: tensor {} x context {} x data {} x pipeline {}\n", counted(mesh.world_size(), "rank"),
                  mesh.size(layout::Axis::kTp), mesh.size(layout::Axis::kCp), mesh.size(layout::Axis::kDp),
                  mesh.size(layout::Axis::kPp));
  if (const int instances = run.parallel.num_distributed_optimizer_instances; instances > 1)
    out += fmt::format("data ranks: {} distributed-optimizer instances of {}{}\n", instances,
                       layout::replica_levels(run.parallel, mesh).inner.of(layout::ParamGroup::kDense),
                       run.parallel.outer_dp_sharding_strategy == "optim"
                           ? ", optimizer states sharded across instances"
                           : "");
  out += fmt::format("batch: {} of {} = micro-batch {} x {} x {}\n", counted(batch, "sequence"),
                     config::has_several_stacks(run.model) ? length_text(run) + " tokens"
                                                           : counted(run.training.seq_length, "token"),
                     run.training.micro_batch_size, counted(run.parallel.data_parallel_size(), "data rank"),
                     counted(schedule.microbatches, "micro-batch", "es"));
  if (const auto sizes = config::batch_schedule(run.training); !sizes.is_constant())
    out += fmt::format("batch sizes: {}; this plan is for the last\n", sizes.text());
  const double recomputed = recomputed_flops(model, batch).total();
  out += fmt::format("model: {} parameters, {:.4g} TFLOP per step{}\n\n", count_text(num_parameters(model)),
                     flops / 1e12,
                     recomputed > 0 ? fmt::format(", {:.4g} more recomputed", recomputed / 1e12) : "");
  if (model.is_custom())
    out +=
        "custom model: its blocks count as layers; their memory, FLOPs and communication are measured on the CPU "
        "path\n\n";
  out += "layers\n" + table_text(layout_table(model)) + '\n';
  if (!model.is_custom()) out += experts_text(run);
  const std::vector<StageMemory> memory = plan_memory(model);
  out += "memory per rank\n" + table_text(memory_table(memory)) + memory_bars(memory);
  if (!config::has_several_stacks(run.model) && !model.is_custom()) out += estimate_text(run);
  out += '\n';
  out += "bytes sent per rank and step\n" + table_text(traffic_table(model)) + '\n';
  if (run.parallel.deterministic_mode && !model.is_custom())
    out += fmt::format("deterministic mode: {}\n\n", determinism_text(run));
  out += fmt::format("schedule {}: bubble {:.1f}%, with a backward pass twice as long as a forward pass\n",
                     schedule.kind, 100 * timeline.bubble_fraction);
  return out + schedule::render_text(timeline, schedule);
}

}  // namespace colonnade::cost
