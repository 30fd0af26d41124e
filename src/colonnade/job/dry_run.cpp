// See dry_run.h.
#include "colonnade/job/dry_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "colonnade/comm/null_backend.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/plan/context_groups.h"
#include "colonnade/plan/memory.h"
#include "colonnade/tensor/counting_allocator.h"

namespace colonnade::job {
namespace {

constexpr int kSmallWorld = 16;
constexpr double kPeakBound = 0.03;

/// Once: the counter stays.
void count_meta() { [[maybe_unused]] static const bool kCounting = (tensor::count_meta_memory(), true); }

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// Ranks agree on the names of losses before they sum them; a rank alone knows its own only.
std::vector<comm::LoggedCall> calls_of(const comm::CallLog& log) {
  std::vector<comm::LoggedCall> calls = log.calls();
  for (comm::LoggedCall& call : calls) call.agreed = call.agreed || call.what == kLossSums;
  return calls;
}

/// As the dry run sees it.
config::Run on_meta(config::Run run) {
  run.training.device = "meta";
  return run;
}

}  // namespace

std::int64_t optimizer_bytes(Job& job) {
  std::int64_t bytes = 0;
  for (const optim::Segment& s : job.optimizer().segments())
    bytes += bytes_of(s.exp_avg) + bytes_of(s.exp_avg_sq) + (s.main.is_same(s.model) ? 0 : bytes_of(s.main));
  return bytes;
}

tensor::Batch empty_batch(const config::Run& given) {
  const config::Run run = plan::with_equal_groups(given);
  const auto b = run.training.micro_batch_size;
  const bool encoder = run.model.has_encoder();
  const auto s = encoder ? run.training.decoder_seq_length : run.training.seq_length;
  const auto ids = at::dtype(at::kLong).device(run.training.device);
  tensor::Batch batch;
  batch.set("tokens", at::zeros({b, s}, ids));
  batch.set("labels", at::zeros({b, s}, ids));
  batch.set("loss_mask", at::ones({b, s}, ids.dtype(at::kFloat)));
  batch.set("samples", at::zeros({b}, ids));
  if (encoder) {
    batch.set("encoder_tokens", at::zeros({b, run.training.seq_length}, ids));
    batch.set("encoder_padding", at::zeros({b, run.training.seq_length}, ids.dtype(at::kBool)));
  }
  if (run.data.reset_attention_mask)
    batch.set("attention_mask", at::zeros({b, 1, s, s}, ids.dtype(at::kBool)));
  batch = context_part(std::move(batch), 0, run.parallel.context_parallel_size, run.model.mtp_num_layers);
  if (given.parallel.hybrid_context_parallel) batch.set_context_ranks(run.parallel.context_parallel_size);
  return batch;
}

pipeline::Steps empty_steps(const config::Run& run) {
  const bool per_token = run.training.calculate_per_token_loss;
  pipeline::Steps steps;
  steps.batch = [&run](int) { return empty_batch(run); };
  steps.loss = [per_token](const at::Tensor& y, const tensor::Batch& b) {
    return token_loss(y, b, per_token);
  };
  return steps;
}

DryRun dry_run(const config::Run& run, int rank) {
  count_meta();
  const at::Device meta(at::kMeta);
  const auto before = static_cast<std::int64_t>(tensor::memory_use(meta).now);
  const auto log = std::make_shared<comm::CallLog>();
  Job job(on_meta(run), comm::Communicators(plan::Mesh(run.parallel), rank, comm::null_factory(log)));
  const StepReport report =
      job.train_step(empty_steps(job.run), {.learning_rate = 1e-3, .weight_decay = 0.1});

  DryRun seen{.rank = rank, .pipeline_rank = job.ranks.coord(plan::Axis::kPp)};
  for (const tensor::Parameter* p : job.parameters())
    seen.num_parameters += p->spec.trained ? p->value.numel() : 0;
  seen.parameters = bytes_of(job.buffers().params());
  seen.gradients = bytes_of(job.buffers().grads());
  seen.optimizer = optimizer_bytes(job);
  seen.peak = static_cast<std::int64_t>(report.peaks.forward_backward) - before;
  seen.optimizer_peak = static_cast<std::int64_t>(report.peaks.optimizer) - before;
  seen.calls = calls_of(*log);
  return seen;
}

std::vector<int> ranks_of_all_classes(const config::Run& run) {
  const plan::Mesh mesh(run.parallel);
  std::vector<int> ranks(static_cast<std::size_t>(run.parallel.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  if (run.parallel.world_size <= kSmallWorld) return ranks;
  std::map<int, std::pair<int, int>> ends;  // by stage: first and last
  for (const int rank : ranks) {
    const auto [found, is_new] = ends.try_emplace(mesh.coord(rank, plan::Axis::kPp), rank, rank);
    found->second.second = rank;
  }
  std::vector<int> some;
  for (const auto& [stage, both] : ends) some.insert(some.end(), {both.first, both.second});
  return some;
}

std::vector<plan::StageMemory> plan_of_dry_runs(const config::Run& run) {
  return plan::plan_memory(on_meta(run));
}

std::vector<std::string> broken_promises(const config::Run& run, const std::vector<DryRun>& seen) {
  const auto plans = plan_of_dry_runs(run);
  std::vector<std::string> faults;
  for (const DryRun& one : seen) {
    const plan::StageMemory& plan = plans.at(static_cast<std::size_t>(one.pipeline_rank));
    const auto say = [&](const char* what, std::int64_t got, std::int64_t planned) {
      faults.push_back(fmt::format(
          "rank {}, {}: must be as planned, {}; got {}; the plan is wrong for these settings, please "
          "report them",
          one.rank, what, planned, got));
    };
    if (one.num_parameters != plan.num_parameters) say("parameters", one.num_parameters, plan.num_parameters);
    if (one.parameters != plan.parameters) say("bytes of parameters", one.parameters, plan.parameters);
    if (one.gradients != plan.gradients) say("bytes of gradients", one.gradients, plan.gradients);
    if (one.optimizer > plan.optimizer) say("bytes of optimizer states", one.optimizer, plan.optimizer);
    // The plan's optimizer is that of the fullest rank of the stage.
    const std::int64_t planned = plan.peak() - plan.optimizer + one.optimizer;
    if (std::abs(static_cast<double>(one.peak - planned)) > kPeakBound * static_cast<double>(planned))
      say("peak of forward and backward within 3 %", one.peak, planned);
  }
  return faults;
}

std::vector<std::string> broken_talk(const std::vector<DryRun>& seen) {
  comm::CallsOfRanks ranks;
  std::map<int, const DryRun*> first_of_stage;
  std::vector<std::string> faults;
  for (const DryRun& one : seen) {
    ranks[one.rank] = one.calls;
    const DryRun& first = *first_of_stage.try_emplace(one.pipeline_rank, &one).first->second;
    if (&first == &one) continue;
    for (std::string& fault : comm::differences(first.rank, first.calls, one.rank, one.calls))
      faults.push_back(std::move(fault));
  }
  for (std::string& fault : comm::misfits(ranks)) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace colonnade::job
