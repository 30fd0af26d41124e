// Walks the schedule, on top of what lies between steps (resident.cpp).
#include "colonnade/cost/memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/cost/flops.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/recompute.h"
#include "colonnade/schedule/kinds.h"
#include "colonnade/schedule/releases.h"

namespace colonnade::cost {
namespace {

/// Most micro-batches that are between their first and their last forward pass on a rank of `chunks`.
std::int64_t most_batches(const schedule::Program& program, int chunks) {
  std::int64_t now = 0;
  std::int64_t most = 0;
  for (const schedule::Action& a : program) {
    if (a.act != schedule::Do::kForward) continue;
    if (a.chunk == 0) most = std::max(most, ++now);
    if (a.chunk == chunks - 1) --now;
  }
  return most;
}

/// Most messages of forward passes alone that are on their way while another pass is computed.
std::int64_t most_messages(const schedule::Program& program, std::size_t room) {
  std::size_t sent = 0, most = 0;
  for (const schedule::Action& a : program) {
    if (a.act == schedule::Do::kForward) most = sent;
    if (a.act == schedule::Do::kSendActivation) ++sent;
  }
  return static_cast<std::int64_t>(std::min(most, room));
}

/// A batch is there to the last forward pass of a rank, or to the last backward pass that reads it.
std::vector<bool> last_readers(const config::Run& run, const schedule::Program& program, int last_chunk) {
  std::vector<bool> reads_last(program.size(), false);
  std::vector<std::size_t> found;  // by micro-batch
  const bool keeps = layout::keeps_batches(run);
  for (std::size_t i = 0; i < program.size(); ++i) {
    const schedule::Action& a = program[i];
    const bool reads = keeps ? schedule::gives_input_gradient(a.act)
                             : a.act == schedule::Do::kForward && a.chunk == last_chunk;
    if (!reads) continue;
    found.resize(std::max(found.size(), static_cast<std::size_t>(a.microbatch) + 1));
    found[static_cast<std::size_t>(a.microbatch)] = i;
  }
  for (const std::size_t index : found) reads_last[index] = true;
  return reads_last;
}

/// What a micro-batch leaves on one virtual stage, and what passes add to all that is kept.
struct PassBytes {
  PassBytes(const config::Run& run, const layout::StageBlocks& stage, const std::vector<UnitBytes>& units)
      : kept(stage_activations(run, stage)),
        waiting(stage_waiting(run, stage)),
        whole(stage_working(run, stage, /*waits=*/false, units)) {
    if (schedule::splits_backward(run.parallel)) {
      input = stage_working(run, stage, /*waits=*/true, units);
      weights = stage_weights_working(run, stage, units);
    }
    for (const UnitBytes& unit : units) summed += unit.summed;
  }
  std::int64_t kept, waiting;
  std::int64_t whole, input = 0, weights = 0;  ///< of backward passes of each kind
  std::int64_t summed = 0;

  [[nodiscard]] std::int64_t working(schedule::Do act) const {
    if (act == schedule::Do::kBackwardWeight) return weights;
    if (act == schedule::Do::kBackwardInput) return input;
    return act == schedule::Do::kBackward ? whole : 0;
  }
  /// Of what stays behind an action.
  [[nodiscard]] std::int64_t change(schedule::Do act) const {
    if (act == schedule::Do::kBackwardWeight) return -waiting;
    return (act == schedule::Do::kBackwardInput ? waiting : 0) -
           (schedule::gives_input_gradient(act) ? kept : 0);
  }
};

/// How many more sums of micro-batches wait for their like behind this one than before it (waiting_sums).
int more_sums(const config::Run& run, int microbatch) {
  return run.parallel.deterministic_mode
             ? layout::waiting_sums(microbatch + 1) - layout::waiting_sums(microbatch)
             : 0;
}

/// The passes of a stage, by how many sums they leave.
class StagePasses {
 public:
  StagePasses(const config::Run& run, const layout::StageBlocks& stage, const std::vector<UnitBytes>& units,
              int microbatches) {
    for (int i = 0; i < microbatches; ++i)
      if (const int more = more_sums(run, i); !passes_.contains(more))
        passes_.emplace(more, PassBytes(run, stage, leaving(units, more)));
    for (int i = 0; i < microbatches; ++i) by_batch_.push_back(&passes_.at(more_sums(run, i)));
  }
  [[nodiscard]] const PassBytes& of(int microbatch) const {
    return *by_batch_[static_cast<std::size_t>(microbatch)];
  }

 private:
  static std::vector<UnitBytes> leaving(std::vector<UnitBytes> units, int more) {
    for (UnitBytes& unit : units) unit.summed *= more;
    return units;
  }
  std::map<int, PassBytes> passes_;
  std::vector<const PassBytes*> by_batch_;
};

/// By chunk.
std::vector<schedule::ChunkMessages> messages_of(const config::Run& run,
                                                 const std::vector<layout::StageBlocks>& stages) {
  const std::int64_t state = message_bytes(run, 1);
  std::vector<schedule::ChunkMessages> messages;
  for (const layout::StageBlocks& stage : stages)
    messages.push_back({stage.states_in * state, stage.states_out * state, stage.empty()});
  return messages;
}

/// By place in the program: bytes that arrive beside what is computed there, with the batch, of so many
/// bytes, of a micro-batch that is new on the rank.
std::vector<std::int64_t> arriving_bytes(const schedule::Program& program,
                                         const std::vector<schedule::ChunkMessages>& chunks,
                                         std::int64_t batch,
                                         const std::vector<std::vector<std::size_t>>& beside) {
  std::vector<std::int64_t> bytes;
  for (const auto& receives : beside) {
    std::int64_t& sum = bytes.emplace_back();
    for (const std::size_t i : receives) {
      const auto& [input, output, empty] = chunks[static_cast<std::size_t>(program[i].chunk)];
      const bool activation = program[i].act == schedule::Do::kRecvActivation;
      sum += (activation ? input : output) + (activation && program[i].chunk == 0 ? batch : 0);
    }
  }
  return bytes;
}

PassPeak peak_of_rank(const config::Run& run, const StageMemory& memory, const schedule::SoundSchedule& sound,
                      const BytesBeside& beside, std::size_t rank) {
  const schedule::Schedule& schedule = sound.schedule;
  const schedule::Program& program = schedule.programs[rank];
  const std::vector<layout::StageBlocks>& stages = memory.stages;
  std::vector<StagePasses> passes;
  passes.reserve(stages.size());
  std::vector<std::int64_t> later;  // by chunk: what held_messages counts behind a backward pass alone
  for (std::size_t i = 0; i < stages.size(); ++i) {
    passes.emplace_back(run, stages[i], memory.units.empty() ? std::vector<UnitBytes>() : memory.units[i],
                        schedule.microbatches);
    const int stage = schedule.placement.stage(static_cast<int>(rank), static_cast<int>(i));
    const bool shares = i > 0 && stages[i - 1].empty() && !schedule.placement.crosses(stage - 1);
    const int times = (stage > 0 ? 1 : 0) + (shares ? 1 : 0);  // its gradient; itself, which another keeps
    later.push_back(times * message_bytes(run, stages[i].states_in));
  }
  const std::int64_t batch = batch_bytes(run);
  const std::vector<std::int64_t>&arriving = beside.arriving[rank], &held = beside.held[rank];
  const std::vector<bool> last = last_readers(run, program, static_cast<int>(stages.size()) - 1);
  std::int64_t now = 0, sums = 0;
  PassPeak most;
  for (std::size_t i = 0; i < program.size(); ++i) {
    const schedule::Action& a = program[i];
    const auto chunk = static_cast<std::size_t>(a.chunk);
    const PassBytes& pass = passes[chunk].of(a.microbatch);
    if (a.act == schedule::Do::kForward) now += pass.kept + (a.chunk == 0 ? batch : 0);
    most.kept = std::max(most.kept, now);
    // What a pass reads and makes is in its own bytes, but for outputs.
    const std::int64_t made = schedule::gives_input_gradient(a.act) ? later[chunk] : 0;
    const std::int64_t others = schedule::is_transfer(a.act) ? held[i] : held[i + 1] - made;
    most.all = std::max(most.all, now + sums + pass.working(a.act) + arriving[i] + others);
    now += pass.change(a.act) - (last[i] ? batch : 0);
    if (schedule::ends_backward(a.act)) sums += pass.summed;
    most.kept = std::max(most.kept, now);
    most.all = std::max(most.all, now + sums + arriving[i] + held[i + 1]);
  }
  return most;
}

/// Micro-batches per step and data-parallel rank.
int microbatches_of(const config::Run& run) {
  const std::int64_t together = run.training.micro_batch_size * run.parallel.data_parallel_size();
  const std::int64_t global = run.training.global_batch_size;
  if (global == 0) return 1;
  if (together < 1 || global % together != 0) {
    throw ConfigError(
        fmt::format("--global-batch-size must be a multiple of micro-batch size * data-parallel size; got "
                    "{} for {} * {}; use {}",
                    global, run.training.micro_batch_size, run.parallel.data_parallel_size(),
                    together < 1 ? 1 : (global / together + 1) * together));
  }
  return static_cast<int>(global / together);
}

}  // namespace

schedule::Schedule schedule_of(const config::Run& run) {
  return schedule_of(run, microbatches_of(layout::with_equal_groups(run)));
}

schedule::Schedule schedule_of(const config::Run& run, int microbatches) {
  const auto stages = layout::split_stages(run.model, run.parallel);
  const int chunks = static_cast<int>(stages.size()) / run.parallel.pipeline_model_parallel_size;
  return schedule::make_schedule(run.parallel, chunks, microbatches);
}

BytesBeside bytes_beside(const config::Run& run, const schedule::SoundSchedule& sound,
                         const std::vector<StageMemory>& plan) {
  const std::int64_t batch = batch_bytes(run);
  BytesBeside bytes;
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    const std::vector<schedule::ChunkMessages> messages = messages_of(run, plan[rank].stages);
    bytes.arriving.push_back(
        arriving_bytes(sound.schedule.programs[rank], messages, batch, sound.messages[rank].beside));
    bytes.held.push_back(schedule::held_messages(sound, static_cast<int>(rank), messages));
  }
  return bytes;
}

std::vector<PassPeak> peaks_of_passes(const config::Run& given, const schedule::SoundSchedule& sound,
                                      const BytesBeside& beside, const std::vector<StageMemory>& plan) {
  config::Run run = given;  // copied often, without what was said where
  run.given.clear();
  run.notes.clear();
  std::vector<PassPeak> peaks;
  for (std::size_t rank = 0; rank < plan.size(); ++rank)
    peaks.push_back(peak_of_rank(run, plan[rank], sound, beside, rank));
  return peaks;
}

void add_passes(const std::vector<PassPeak>& peaks, const schedule::SoundSchedule& sound,
                std::vector<StageMemory>& plan) {
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    StageMemory& memory = plan[rank];
    const auto& [kept, all] = peaks[rank];
    memory.activations = kept;
    memory.working = std::max(all - kept + memory.gathered, memory.travelling - memory.activations);
    memory.peak_live = sound.report.peak_live[rank];
  }
}

/// Largest tensors of a forward pass that keeps nothing, with the batches and messages that lie beside it.
void add_evaluations(const config::Run& run, const schedule::SoundSchedule& sound,
                     std::vector<StageMemory>& plan) {
  const std::int64_t message = message_bytes(run, 1), batch = batch_bytes(run);
  for (std::size_t rank = 0; rank < plan.size(); ++rank) {
    StageMemory& memory = plan[rank];
    for (std::size_t i = 0; i < memory.stages.size(); ++i)
      memory.evaluation =
          std::max(memory.evaluation,
                   stage_evaluation(run, memory.stages[i],
                                    memory.units.empty() ? std::vector<UnitBytes>() : memory.units[i]));
    const schedule::Program& program = sound.schedule.programs[rank];
    const std::vector<schedule::ChunkMessages> evaluated(memory.stages.size(), {message, message, false});
    memory.evaluation +=
        std::ranges::max(arriving_bytes(program, evaluated, batch,
                                        schedule::receives_beside(program, /*forward_only=*/true))) +
        most_batches(program, sound.schedule.chunks) * batch +
        most_messages(program, sound.evaluation_messages) * message;
  }
}

std::int64_t fullest_bytes(const config::Run& run, const std::vector<StageMemory>& plan) {
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
  const schedule::SoundSchedule schedule = schedule::sound(schedule_of(given));
  std::vector<StageMemory> plan = plan_resident(given);
  const config::Run run = layout::with_equal_groups(given);
  add_passes(peaks_of_passes(run, schedule, bytes_beside(run, schedule, plan), plan), schedule, plan);
  add_evaluations(run, schedule, plan);
  return plan;
}

}  // namespace colonnade::cost
