// Memory over the actions of the schedule, on top of the memory between steps (resident.cpp).
#include "colonnade/cost/memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/cost/activations.h"
#include "colonnade/cost/pair_memory.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/schedule/kinds.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::cost {
namespace {

/// Peak number of micro-batches between their first and last forward pass on a rank with `chunks` model
/// chunks.
std::int64_t max_live_batches(const schedule::Program& program, int chunks) {
  std::int64_t now = 0, most = 0;
  for (const schedule::Action& a : program) {
    if (a.kind != schedule::ActionKind::kForward) continue;
    if (a.chunk == 0) most = std::max(most, ++now);
    if (a.chunk == chunks - 1) --now;
  }
  return most;
}

/// Peak number of messages in flight during another pass, in a forward-only program.
std::int64_t max_evaluation_messages(const schedule::Program& program, std::size_t limit) {
  std::size_t sent = 0, most = 0;
  for (const schedule::Action& a : program) {
    if (a.kind == schedule::ActionKind::kForward) most = sent;
    if (a.kind == schedule::ActionKind::kSendActivation) ++sent;
  }
  return static_cast<std::int64_t>(std::min(most, limit));
}

/// By action: whether it is the last one to read its micro-batch: a rank's last forward pass, or the last
/// backward pass if recomputation reads the batch.
std::vector<bool> last_batch_uses(const config::Run& run, const schedule::Program& program, int last_chunk) {
  std::vector<bool> reads_last(program.size(), false);
  std::vector<std::size_t> found;  // by micro-batch
  const bool keeps = layout::graph_keeps_batch(run);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const schedule::Action& a = program[i];
    const bool reads = keeps ? schedule::computes_input_grad(a.kind)
                             : a.kind == schedule::ActionKind::kForward && a.chunk == last_chunk;
    if (!reads) continue;
    found.resize(std::max(found.size(), static_cast<std::size_t>(a.microbatch) + 1));
    found[static_cast<std::size_t>(a.microbatch)] = i;
  }
  for (const std::size_t index : found) reads_last[index] = true;
  return reads_last;
}

/// Bytes of one micro-batch on one virtual stage: saved activations, and workspace by kind of pass.
struct StageBytes {
  StageBytes(const ModelCost& model, const layout::StageBlocks& stage, const std::vector<UnitBytes>& units)
      : saved(stage_activations(model, stage)),
        wgrad_saved(stage_wgrad_saved(model, stage)),
        backward(stage_workspace(model, stage, /*delay_wgrad=*/false, units)) {
    if (schedule::splits_backward(model.run().parallel)) {
      backward_input = stage_workspace(model, stage, /*delay_wgrad=*/true, units);
      backward_weight = stage_wgrad_workspace(model, stage, units);
    }
    if (model.run().parallel.pairs_passes()) {
      forward_pass = forward_parts(model, stage);
      backward_pass = backward_parts(model, stage, /*delay_wgrad=*/false, units);
      backward_input_pass = backward_parts(model, stage, /*delay_wgrad=*/true, units);
    }
    for (const UnitBytes& unit : units) pending_sum += unit.pending_sum;
  }
  std::int64_t saved, wgrad_saved;
  std::int64_t backward, backward_input = 0, backward_weight = 0;  ///< workspace by kind of backward pass
  std::int64_t pending_sum = 0;
  std::vector<PassPart> forward_pass, backward_pass, backward_input_pass;  ///< of pairs

  /// Peak of a pair of this forward pass and a backward pass on `other`.
  [[nodiscard]] std::int64_t pair(const StageBytes& other, schedule::ActionKind backward_kind) const {
    return pair_peak(forward_pass, backward_kind == schedule::ActionKind::kBackwardInput
                                       ? other.backward_input_pass
                                       : other.backward_pass);
  }
  [[nodiscard]] std::int64_t workspace(schedule::ActionKind act) const {
    if (act == schedule::ActionKind::kBackwardWeight) return backward_weight;
    if (act == schedule::ActionKind::kBackwardInput) return backward_input;
    return act == schedule::ActionKind::kBackward ? backward : 0;
  }
  /// Change of the saved bytes by an action.
  [[nodiscard]] std::int64_t change(schedule::ActionKind act) const {
    if (act == schedule::ActionKind::kBackwardWeight) return -wgrad_saved;
    return (act == schedule::ActionKind::kBackwardInput ? wgrad_saved : 0) -
           (schedule::computes_input_grad(act) ? saved : 0);
  }
};

/// Change in the number of pending gradient sums by this micro-batch (pending_partial_sums).
int added_pending_sums(const config::Run& run, int microbatch) {
  return run.parallel.deterministic_mode
             ? layout::pending_partial_sums(microbatch + 1) - layout::pending_partial_sums(microbatch)
             : 0;
}

/// StageBytes of each micro-batch, which differ by the pending sums that it adds.
class StageBytesByBatch {
 public:
  StageBytesByBatch(const ModelCost& model, const layout::StageBlocks& stage,
                    const std::vector<UnitBytes>& units, int microbatches) {
    for (int i = 0; i < microbatches; ++i)
      if (const int more = added_pending_sums(model.run(), i); !by_pending_sums_.contains(more))
        by_pending_sums_.emplace(more, StageBytes(model, stage, with_pending_sums(units, more)));
    for (int i = 0; i < microbatches; ++i)
      by_batch_.push_back(&by_pending_sums_.at(added_pending_sums(model.run(), i)));
  }
  [[nodiscard]] const StageBytes& of(int microbatch) const {
    return *by_batch_[static_cast<std::size_t>(microbatch)];
  }

 private:
  static std::vector<UnitBytes> with_pending_sums(std::vector<UnitBytes> units, int more) {
    for (UnitBytes& unit : units) unit.pending_sum *= more;
    return units;
  }
  std::map<int, StageBytes> by_pending_sums_;
  std::vector<const StageBytes*> by_batch_;
};

/// Pipeline messages by model chunk.
std::vector<schedule::ChunkMessageSizes> messages_of(const ModelCost& model,
                                                     const std::vector<layout::StageBlocks>& stages) {
  const std::int64_t state = message_bytes(model, 1);
  std::vector<schedule::ChunkMessageSizes> messages;
  for (const layout::StageBlocks& stage : stages)
    messages.push_back({stage.states_in * state, stage.states_out * state, stage.empty()});
  return messages;
}

/// By position in the program: bytes received during the action there, including `batch` bytes for a
/// micro-batch that is new on the rank.
std::vector<std::int64_t> receiving_bytes(const schedule::Program& program,
                                          const std::vector<schedule::ChunkMessageSizes>& chunks,
                                          std::int64_t batch,
                                          const std::vector<std::vector<std::size_t>>& overlapped) {
  std::vector<std::int64_t> bytes;
  for (const auto& receives : overlapped) {
    std::int64_t& sum = bytes.emplace_back();
    for (const std::size_t i : receives) {
      const auto& [input, output, empty] = chunks[static_cast<std::size_t>(program[i].chunk)];
      const bool activation = program[i].kind == schedule::ActionKind::kRecvActivation;
      sum += (activation ? input : output) + (activation && program[i].chunk == 0 ? batch : 0);
    }
  }
  return bytes;
}

ActivationPeak peak_of_rank(const ModelCost& model, const StageMemory& memory,
                            const schedule::CheckedSchedule& sound, const InFlightBytes& in_flight,
                            std::size_t rank) {
  const schedule::Schedule& schedule = sound.schedule;
  const schedule::Program& program = schedule.programs[rank];
  const std::vector<layout::StageBlocks>& stages = memory.stages;
  std::vector<StageBytesByBatch> passes;
  passes.reserve(stages.size());
  // By chunk: message bytes that resident_message_bytes counts only after a backward pass.
  std::vector<std::int64_t> backward_messages;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    passes.emplace_back(model, stages[i], memory.units.empty() ? std::vector<UnitBytes>() : memory.units[i],
                        schedule.microbatches);
    const int stage = schedule.placement.stage(static_cast<int>(rank), static_cast<int>(i));
    const bool shares = i > 0 && stages[i - 1].empty() && !schedule.placement.crosses(stage - 1);
    // Its gradient, and the state itself, which the other chunk holds.
    const int times = (stage > 0 ? 1 : 0) + (shares ? 1 : 0);
    backward_messages.push_back(times * message_bytes(model, stages[i].states_in));
  }
  const std::int64_t batch = batch_bytes(model);
  const std::vector<std::int64_t>&receiving = in_flight.receiving[rank], &held = in_flight.held[rank];
  const std::vector<bool> last = last_batch_uses(model.run(), program, static_cast<int>(stages.size()) - 1);
  std::int64_t now = 0, sums = 0;
  ActivationPeak most;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const schedule::Action& a = program[i];
    const auto chunk = static_cast<std::size_t>(a.chunk);
    const StageBytes& pass = passes[chunk].of(a.microbatch);
    if (schedule::starts_pair(schedule, program, i)) {
      const schedule::Action& b = program[i + 1];
      const auto other = static_cast<std::size_t>(b.chunk);
      now += a.chunk == 0 ? batch : 0;
      most.total = std::max(most.total, now + sums + pass.pair(passes[other].of(b.microbatch), b.kind) +
                                            receiving[i] + receiving[i + 1] +
                                            std::max(held[i + 1], held[i + 2]) - backward_messages[other]);
      now += pass.saved - (last[i] ? batch : 0);
      continue;
    }
    const bool in_pair = i > 0 && schedule::starts_pair(schedule, program, i - 1);
    if (a.kind == schedule::ActionKind::kForward) now += pass.saved + (a.chunk == 0 ? batch : 0);
    if (!in_pair) most.saved = std::max(most.saved, now);
    // The bytes of a pass include its inputs and results, but not its outputs.
    const std::int64_t own_messages = schedule::computes_input_grad(a.kind) ? backward_messages[chunk] : 0;
    const std::int64_t others = schedule::is_transfer(a.kind) ? held[i] : held[i + 1] - own_messages;
    if (!in_pair)
      most.total = std::max(most.total, now + sums + pass.workspace(a.kind) + receiving[i] + others);
    now += pass.change(a.kind) - (last[i] ? batch : 0);
    if (schedule::completes_backward(a.kind)) sums += pass.pending_sum;
    most.saved = std::max(most.saved, now);
    most.total = std::max(most.total, now + sums + receiving[i] + held[i + 1]);
  }
  return most;
}

/// Micro-batches per step and data-parallel rank, where the batch size grows those of the final size; 1
/// without a global batch size.
int microbatches_of(const config::Run& run) {
  const std::int64_t per_round = run.training.micro_batch_size * run.parallel.data_parallel_size();
  const std::int64_t global = config::final_batch_size(run.training);
  if (global == 0) return 1;
  if (per_round < 1 || global % per_round != 0) {
    throw ConfigError(
        fmt::format("--global-batch-size must be a multiple of micro-batch size * data-parallel size; got "
                    "{} for {} * {}; use {}",
                    global, run.training.micro_batch_size, run.parallel.data_parallel_size(),
                    per_round < 1 ? 1 : (global / per_round + 1) * per_round));
  }
  return static_cast<int>(global / per_round);
}

}  // namespace

schedule::Schedule schedule_of(const config::Run& run) {
  return schedule_of(run, microbatches_of(layout::with_fixed_context_size(run)));
}

schedule::Schedule schedule_of(const config::Run& run, int microbatches) {
  const int chunks = layout::num_stages(run.model, run.parallel) / run.parallel.pipeline_model_parallel_size;
  return schedule::make_schedule(run.parallel, chunks, microbatches);
}

InFlightBytes in_flight_bytes(const ModelCost& model, const schedule::CheckedSchedule& sound,
                              const std::vector<StageMemory>& plan) {
  const std::int64_t batch = batch_bytes(model);
  InFlightBytes bytes;
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    const std::vector<schedule::ChunkMessageSizes> messages = messages_of(model, plan[rank].stages);
    bytes.receiving.push_back(
        receiving_bytes(sound.schedule.programs[rank], messages, batch, sound.messages[rank].overlapped));
    bytes.held.push_back(schedule::resident_message_bytes(sound, static_cast<int>(rank), messages));
  }
  return bytes;
}

std::vector<ActivationPeak> activation_peaks(const ModelCost& model, const schedule::CheckedSchedule& sound,
                                             const InFlightBytes& in_flight,
                                             const std::vector<StageMemory>& plan) {
  std::vector<ActivationPeak> peaks;
  for (std::size_t rank = 0; rank < plan.size(); ++rank)
    peaks.push_back(peak_of_rank(model, plan[rank], sound, in_flight, rank));
  return peaks;
}

void add_activations(const std::vector<ActivationPeak>& peaks, const schedule::CheckedSchedule& sound,
                     std::vector<StageMemory>& plan) {
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    StageMemory& memory = plan[rank];
    const auto& [saved, total] = peaks[rank];
    memory.activations = saved;
    memory.workspace = std::max(total - saved + memory.gathered, memory.reduce_copies - memory.activations);
    memory.peak_in_flight = sound.report.peak_in_flight[rank];
  }
}

config::Run evaluation_run(config::Run run) {
  if (!config::has_eval_batch_size(run.training)) return run;
  const std::int64_t micro = config::eval_micro_batch_size(run.training);
  run.training = config::with_constant_batch_size(run.training, config::eval_batch_size(run.training));
  run.training.micro_batch_size = micro;
  return run;
}

void add_evaluations(const ModelCost& model, const schedule::CheckedSchedule& sound,
                     std::vector<StageMemory>& plan) {
  const std::int64_t message = message_bytes(model, 1), batch = batch_bytes(model);
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    StageMemory& memory = plan[rank];
    for (std::size_t i = 0; i < memory.stages.size(); ++i)
      memory.evaluation =
          std::max(memory.evaluation,
                   stage_evaluation(model, memory.stages[i],
                                    memory.units.empty() ? std::vector<UnitBytes>() : memory.units[i]));
    const schedule::Program& program = sound.schedule.programs[rank];
    const std::vector<schedule::ChunkMessageSizes> evaluated(memory.stages.size(), {message, message, false});
    memory.evaluation +=
        std::ranges::max(receiving_bytes(program, evaluated, batch,
                                         schedule::overlapped_receives(program, /*forward_only=*/true))) +
        max_live_batches(program, sound.schedule.chunks) * batch +
        max_evaluation_messages(program, sound.evaluation_send_window) * message;
  }
}

namespace {

/// Adds the memory of the passes to the memory between steps.
std::vector<StageMemory> with_passes(const ModelCost& model, std::vector<StageMemory> plan) {
  const schedule::CheckedSchedule schedule = schedule::checked(schedule_of(model.run()));
  add_activations(activation_peaks(model, schedule, in_flight_bytes(model, schedule, plan), plan), schedule,
                  plan);
  if (!config::has_eval_batch_size(model.run().training) || model.is_custom()) {
    add_evaluations(model, schedule, plan);
  } else {
    const config::Run evaluation = evaluation_run(model.run());
    add_evaluations(ModelCost(evaluation), schedule::checked(schedule_of(evaluation)), plan);
  }
  return plan;
}

}  // namespace

std::int64_t max_peak_bytes(const config::Run& run, const std::vector<StageMemory>& plan) {
  const config::Training& t = run.training;
  const bool evaluates = t.skip_train || (t.eval_interval && t.reads_validation());
  std::int64_t most = 0;
  for (const StageMemory& m : plan) {
    most = std::max(most, m.start_up());
    if (!t.skip_train) most = std::max(most, m.peak());
    if (evaluates) most = std::max(most, m.evaluation_peak());
  }
  return most;
}

std::vector<StageMemory> plan_memory(const config::Run& given) {
  const config::Run run = layout::with_fixed_context_size(given);
  return with_passes(ModelCost(run), plan_resident(ModelBlocks(given)));
}

std::vector<StageMemory> plan_memory(const ModelCost& model) {
  return with_passes(model, plan_resident(model));
}

}  // namespace colonnade::cost
