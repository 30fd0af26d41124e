// See dry_run.h.
#include "colonnade/job/dry_run.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "colonnade/comm/null_backend.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/stacks.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/rank_classes.h"
#include "colonnade/job/token_steps.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/layout/expert_capacity.h"
#include "colonnade/tensor/counting_allocator.h"

namespace colonnade::job {
namespace {

using tensor::Field;

constexpr int kSmallWorld = 16;
constexpr double kPeakBound = 0.03;
constexpr double kPairBound = 0.25;  // below the plan of pairs of passes, an upper bound (cost/pair_memory.h)

std::int64_t bytes_of(const at::Tensor& x) { return x.defined() ? static_cast<std::int64_t>(x.nbytes()) : 0; }

/// Ranks agree on the names of losses before they reduce them; a single rank knows only its own.
std::vector<comm::LoggedCall> calls_of(const comm::CallLog& log) {
  std::vector<comm::LoggedCall> calls = log.calls();
  for (comm::LoggedCall& call : calls) call.dynamic_size = call.dynamic_size || call.what == kLossSums;
  return calls;
}

/// The first and last member of every group in which the first rank of a stage called a collective.
std::set<int> end_ranks_of_groups(const std::map<int, DryRun>& seen) {
  std::set<int> stages, ends;
  for (const auto& [rank, one] : seen) {
    if (!stages.insert(one.pipeline_rank).second) continue;
    for (const comm::LoggedCall& call : one.calls) ends.insert({call.ranks->front(), call.ranks->back()});
  }
  return ends;
}

/// `run` on the meta device, with the final size in every step where its batch size grows.
config::Run on_meta(config::Run run) {
  run.training.device = "meta";
  const config::BatchSchedule batches = config::batch_schedule(run.training);
  if (!batches.is_constant())
    run.training = config::with_constant_batch_size(run.training, batches.final_size());
  return run;
}

}  // namespace

void count_meta_tensors() {
  [[maybe_unused]] static const bool kCounting = (tensor::count_meta_memory(), true);
}

std::int64_t optimizer_bytes(Job& job) {
  std::int64_t bytes = 0;
  for (const optim::Segment& s : job.optimizer().segments()) {
    if (s.has_main_copy()) bytes += bytes_of(s.main);
    for (const at::Tensor& state : s.states) bytes += bytes_of(state);
  }
  return bytes;
}

/// The longest documents: full rows.
layout::Documents one_per_row(std::int64_t rows, std::int64_t length) {
  layout::Documents documents;
  for (std::int64_t row = 0; row <= rows; ++row) documents.cu_seqlens.push_back(row * length);
  return documents;
}

tensor::Batch empty_batch(const config::Run& given) {
  const config::Run run = layout::with_fixed_context_size(given);
  const auto b = run.training.micro_batch_size;
  const bool encoder = config::has_several_stacks(run.model);
  const auto s = encoder ? run.training.decoder_seq_length : run.training.seq_length;
  const auto ids = at::dtype(at::kLong).device(run.training.device);
  tensor::Batch batch;
  batch.set(Field::kTokens, at::zeros({b, s}, ids));
  batch.set(Field::kLabels, at::zeros({b, s}, ids));
  batch.set(Field::kLossMask, at::ones({b, s}, ids.dtype(at::kFloat)));
  batch.set(Field::kSamples, at::zeros({b}, ids));
  if (encoder) {
    batch.set(Field::kEncoderTokens, at::zeros({b, run.training.seq_length}, ids));
    batch.set(Field::kEncoderPadding, at::zeros({b, run.training.seq_length}, ids.dtype(at::kBool)));
  }
  if (run.model.bidirectional) {
    batch.set(Field::kPadding, at::zeros({b, s}, ids.dtype(at::kBool)));
    if (run.model.num_tokentypes > 0) batch.set(Field::kTokenTypes, at::zeros({b, s}, ids));
    if (run.model.bert_binary_head) batch.set(Field::kSwapped, at::zeros({b}, ids));
  }
  if (run.data.attends_within_documents()) batch.set_documents(one_per_row(b, s), run.training.device);
  if (run.training.calculate_per_token_loss) put_mtp_per_token(batch, run.model.mtp_num_layers);
  batch = context_shard(std::move(batch), 0, run.parallel.context_parallel_size, run.model.mtp_num_layers);
  if (given.parallel.hybrid_context_parallel)
    batch.set_share({.ranks = run.parallel.context_parallel_size, .tokens = s, .sample = s});
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
  count_meta_tensors();
  const at::Device meta(at::kMeta);
  const auto before = static_cast<std::int64_t>(tensor::memory_use(meta).now);
  const auto log = std::make_shared<comm::CallLog>();
  Job job(on_meta(run), comm::Communicators(layout::Mesh(run.parallel), rank, comm::null_factory(log)));
  const StepReport report =
      job.train_step(empty_steps(job.run), {.learning_rate = 1e-3, .weight_decay = 0.1});

  DryRun seen{.rank = rank,
              .pipeline_rank = job.ranks.coord(layout::Axis::kPp),
              .expert_rank = job.ranks.coord(layout::Axis::kEp)};
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

std::vector<DryRun> dry_run_all(const config::Run& run) {
  const int world = run.parallel.world_size;
  std::map<int, DryRun> seen;
  const auto visit = [&](int rank) {
    if (!seen.contains(rank)) seen.emplace(rank, dry_run(run, rank));
  };
  if (world <= kSmallWorld) {
    for (int rank = 0; rank < world; ++rank) visit(rank);
  } else {
    const std::vector<int> classes = cost::rank_classes(run);
    const auto class_size = [&](int rank) {
      return static_cast<int>(std::ranges::count(classes, classes.at(static_cast<std::size_t>(rank))));
    };
    std::set<int> known;
    for (int rank = 0; rank < world; ++rank)
      if (known.insert(classes[static_cast<std::size_t>(rank)]).second) visit(rank);
    for (const int end : end_ranks_of_groups(seen)) visit(end);
    known.clear();
    for (auto& [rank, one] : seen)
      one.represented_ranks =
          known.insert(classes[static_cast<std::size_t>(rank)]).second ? class_size(rank) : 0;
  }
  std::vector<DryRun> all;
  for (auto& [rank, one] : seen) all.push_back(std::move(one));
  return all;
}

std::vector<cost::StageMemory> planned_memory_of(const config::Run& run, const std::vector<DryRun>& seen) {
  std::map<double, std::vector<cost::StageMemory>> by_share;
  std::vector<cost::StageMemory> plans;
  for (const DryRun& one : seen) {
    config::Run its = on_meta(run);
    its.model.moe.assumed_imbalance =
        layout::assumed_share(run.model.moe, one.expert_rank, run.parallel.expert_model_parallel_size);
    auto& stages = by_share[its.model.moe.assumed_imbalance];
    if (stages.empty()) stages = cost::plan_memory(its);
    plans.push_back(stages.at(static_cast<std::size_t>(one.pipeline_rank)));
  }
  return plans;
}

std::vector<std::string> plan_mismatches(const config::Run& run, const std::vector<DryRun>& seen) {
  const auto plans = planned_memory_of(run, seen);
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const DryRun& one = seen[i];
    const cost::StageMemory& plan = plans[i];
    const auto report = [&](const char* what, std::int64_t got, std::int64_t planned) {
      faults.push_back(fmt::format(
          "rank {}, {} must be as planned, {}; got {}; the plan is wrong for these settings, please report "
          "them",
          one.rank, what, planned, got));
    };
    if (one.num_parameters != plan.num_parameters)
      report("parameters", one.num_parameters, plan.num_parameters);
    if (one.parameters != plan.parameters) report("bytes of parameters", one.parameters, plan.parameters);
    if (one.gradients != plan.gradients) report("bytes of gradients", one.gradients, plan.gradients);
    if (one.optimizer > plan.optimizer) report("bytes of optimizer states", one.optimizer, plan.optimizer);
    // The plan has the optimizer states of the stage's largest rank.
    const std::int64_t planned = plan.peak() - plan.optimizer + one.optimizer;
    const double above = static_cast<double>(one.peak - planned) / static_cast<double>(planned);
    const bool pairs = run.parallel.pairs_passes();
    if (above > kPeakBound || above < -(pairs ? kPairBound : kPeakBound))
      report(pairs ? "peak of forward and backward at most 3 % above and 25 % below"
                   : "peak of forward and backward within 3 %",
             one.peak, planned);
  }
  return faults;
}

std::vector<std::string> collective_mismatches(const std::vector<DryRun>& seen) {
  comm::CallLogs ranks;
  std::map<int, const DryRun*> first_of_stage;
  std::vector<std::string> faults;
  for (const DryRun& one : seen) {
    ranks[one.rank] = one.calls;
    const DryRun& first = *first_of_stage.try_emplace(one.pipeline_rank, &one).first->second;
    if (&first == &one) continue;
    for (std::string& fault : comm::differences(first.rank, first.calls, one.rank, one.calls))
      faults.push_back(std::move(fault));
  }
  for (std::string& fault : comm::call_mismatches(ranks)) faults.push_back(std::move(fault));
  return faults;
}

}  // namespace colonnade::job
