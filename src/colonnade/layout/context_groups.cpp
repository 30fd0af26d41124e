// See context_groups.h.
#include "colonnade/layout/context_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "colonnade/base/error.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/layout/stages.h"

namespace colonnade::layout {
namespace {

/// Micro-batches of a rank per pipeline stage that sharing leaves on average, so that the pipeline fills.
constexpr std::int64_t kMicrobatchesPerStage = 4;

/// Smallest power of two of ranks that hold `length` tokens.
int min_ranks(std::int64_t length, std::int64_t tokens_per_rank) {
  int ranks = 1;
  while (ranks * tokens_per_rank < length) ranks *= 2;
  return ranks;
}

void check(const std::vector<std::int64_t>& lengths, int ranks, std::int64_t tokens_per_rank) {
  COL_CHECK(
      ranks > 0 && std::has_single_bit(static_cast<unsigned>(ranks)) && tokens_per_rank > 0,
      "context groups must have a power of two of ranks and tokens per rank; got {} with {} tokens each",
      ranks, tokens_per_rank);
  for (const std::int64_t length : lengths)
    COL_CHECK(length > 0 && length <= ranks * tokens_per_rank,
              "context groups must hold each sequence on all ranks together; got {} tokens for {} x {}",
              length, ranks, tokens_per_rank);
}

/// Assigns a sequence to its ranks; all of them start when the last one is free.
void assign(ContextGroups& groups, const SequenceAssignment& share, double pairs) {
  const auto first = groups.work.begin() + share.first, last = first + share.ranks;
  const double done = *std::max_element(first, last) + pairs / share.ranks;
  std::fill(first, last, done);
  groups.shares.push_back(share);
}

}  // namespace

double ContextGroups::longest() const { return work.empty() ? 0 : *std::ranges::max_element(work); }

double ContextGroups::mean() const {
  return work.empty() ? 0 : std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(work.size());
}

std::vector<SequenceAssignment> ContextGroups::of(int rank) const {
  std::vector<SequenceAssignment> own;
  for (const SequenceAssignment& share : shares)
    if (rank >= share.first && rank < share.first + share.ranks) own.push_back(share);
  return own;
}

std::vector<std::vector<SequenceAssignment>> ContextGroups::microbatches(
    int rank, const std::vector<std::int64_t>& lengths, std::int64_t tokens) const {
  std::vector<std::vector<SequenceAssignment>> all;
  std::vector<std::int64_t> room;  // of each micro-batch
  for (const SequenceAssignment& share : of(rank)) {
    const std::int64_t length = lengths[share.sequence];
    const auto fits = share.ranks > 1
                          ? room.end()
                          : std::ranges::find_if(room, [&](std::int64_t free) { return free >= length; });
    if (fits != room.end()) {
      all[static_cast<std::size_t>(fits - room.begin())].push_back(share);
      *fits -= length;
      continue;
    }
    all.push_back({share});
    room.push_back(share.ranks > 1 ? 0 : std::max<std::int64_t>(tokens - length, 0));
  }
  return all;
}

int ContextGroups::most(const std::vector<std::int64_t>& lengths, std::int64_t tokens) const {
  std::size_t most = 0;
  for (int rank = 0; rank < static_cast<int>(work.size()); ++rank)
    most = std::max(most, microbatches(rank, lengths, tokens).size());
  return static_cast<int>(most);
}

double attention_pairs(std::int64_t length) {
  return static_cast<double>(length) * static_cast<double>(length + 1) / 2;
}

ContextGroups context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                             std::int64_t tokens_per_rank) {
  check(lengths, ranks, tokens_per_rank);
  double all = 0;
  for (const std::int64_t length : lengths) all += attention_pairs(length);
  const auto size = [&](std::size_t i) {
    int group = min_ranks(lengths[i], tokens_per_rank);
    while (group < ranks && attention_pairs(lengths[i]) / group > all / ranks) group *= 2;
    return group;
  };
  std::vector<SequenceAssignment> order;
  for (std::size_t i = 0; i < lengths.size(); ++i) order.push_back({.sequence = i, .ranks = size(i)});
  std::ranges::stable_sort(order, [&](const SequenceAssignment& a, const SequenceAssignment& b) {
    return a.ranks != b.ranks ? a.ranks > b.ranks : lengths[a.sequence] > lengths[b.sequence];
  });
  ContextGroups groups{.shares = {}, .work = std::vector<double>(static_cast<std::size_t>(ranks), 0)};
  for (SequenceAssignment& share : order) {
    const auto free = [&](int first) {
      const auto begin = groups.work.begin() + first;
      return *std::max_element(begin, begin + share.ranks);
    };
    for (int first = 0; first < ranks; first += share.ranks)
      if (free(first) < free(share.first)) share.first = first;
    assign(groups, share, attention_pairs(lengths[share.sequence]));
  }
  return groups;
}

ContextGroups equal_context_groups(const std::vector<std::int64_t>& lengths, int ranks,
                                   std::int64_t tokens_per_rank) {
  check(lengths, ranks, tokens_per_rank);
  ContextGroups groups{.shares = {}, .work = std::vector<double>(static_cast<std::size_t>(ranks), 0)};
  if (lengths.empty()) return groups;
  const int size = min_ranks(*std::ranges::max_element(lengths), tokens_per_rank);
  int first = 0;
  std::int64_t packed = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (packed + lengths[i] > size * tokens_per_rank) {
      first = (first + size) % ranks;
      packed = 0;
    }
    packed += lengths[i];
    assign(groups, {.sequence = i, .first = first, .ranks = size}, attention_pairs(lengths[i]));
  }
  return groups;
}

std::int64_t padded_length(std::int64_t length, int ranks, int parts) {
  const std::int64_t step =
      ranks == 1 ? parts : std::lcm(2 * std::int64_t{ranks}, std::int64_t{ranks} * parts);
  return (length + step - 1) / step * step;
}

std::int64_t shared_microbatch_tokens(const config::Run& run) {
  if (!run.model.sums_over_sequences()) return 0;
  const std::int64_t seq = run.training.seq_length;
  const std::int64_t most = std::min(run.parallel.max_seqlen_per_dp_cp_rank, seq);
  const int stages = run.parallel.pipeline_model_parallel_size;
  if (stages == 1) return most;
  const std::int64_t per_rank = run.training.global_batch_size * seq / hybrid_ranks(run.parallel);
  return std::min(most, per_rank / (kMicrobatchesPerStage * stages));
}

int hybrid_ranks(const config::Parallel& parallel) {
  return parallel.data_parallel_size() * parallel.context_parallel_size;
}

int sequence_shards(const config::Parallel& parallel) {
  return parallel.sequence_parallel ? parallel.tensor_model_parallel_size : 1;
}

namespace {

/// Whether a pipeline rank has several virtual stages.
bool has_virtual_stages(const config::Run& run) {
  const int ranks = run.parallel.pipeline_model_parallel_size;
  return ranks > 1 && num_stages(run.model, run.parallel) > ranks;
}

/// Micro-batch group size of the interleaved schedule; 1 for other schedules.
int microbatch_group_size(const config::Run& run) {
  const config::Parallel& p = run.parallel;
  if (!has_virtual_stages(run)) return 1;
  return std::max(p.microbatch_group_size_per_virtual_pipeline_stage, p.pipeline_model_parallel_size);
}

}  // namespace

bool needs_equal_passes(const config::Run& run) {
  const config::Parallel& p = run.parallel;
  return dispatches_tokens(run.model, p) || sharding_of(p) >= Sharding::kGradients || p.overlap_grad_reduce ||
         has_virtual_stages(run);
}

int equal_passes(const config::Run& run, int most) {
  const int group = microbatch_group_size(run);
  return (std::max(most, 1) + group - 1) / group * group;
}

config::Run with_fixed_context_size(config::Run run) {
  config::Parallel& p = run.parallel;
  if (!p.hybrid_context_parallel) return run;
  const std::int64_t tokens =
      std::max<std::int64_t>(std::min(p.max_seqlen_per_dp_cp_rank, run.training.seq_length), 1);
  p.context_parallel_size = min_ranks(run.training.seq_length, tokens);
  p.hybrid_context_parallel = false;
  run.training.seq_length = p.context_parallel_size * tokens;
  const std::int64_t groups = std::max(p.data_parallel_size(), 1) * microbatch_group_size(run);
  const std::int64_t batch = config::batch_schedule(run.training).final_size();
  run.training = config::with_constant_batch_size(run.training, (batch + groups - 1) / groups * groups);
  run.training.eval_global_batch_size.reset();
  run.training.eval_micro_batch_size.reset();
  run.data.reset_position_ids = run.data.reset_attention_mask = run.data.inter_document_masking =
      false;  // samples of one sequence
  return run;
}

std::string hybrid_context_text(const config::Run& run) {
  constexpr int kLengths = 7;
  const config::Run equal = with_fixed_context_size(run);
  const int ranks = hybrid_ranks(run.parallel);
  const std::int64_t sample = run.training.seq_length, most = run.parallel.max_seqlen_per_dp_cp_rank;
  std::vector<std::int64_t> lengths;
  const std::int64_t batch = config::batch_schedule(run.training).final_size();
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t length = std::max<std::int64_t>(sample >> (i % kLengths), 1);
    lengths.insert(lengths.end(), static_cast<std::size_t>(sample / length), length);
  }
  const ContextGroups groups = context_groups(lengths, ranks, most);
  return fmt::format(
      "the plan assumes one sequence per sample, on {} of {} data and context ranks with at most {} tokens "
      "each; for samples packed from sequences of {} to {} tokens, the busiest rank has {:.2f} times the "
      "mean attention work, with a fixed context size {:.2f} times",
      equal.parallel.context_parallel_size, ranks, std::min(most, sample), sample,
      std::max<std::int64_t>(sample >> (kLengths - 1), 1), groups.longest() / groups.mean(),
      equal_context_groups(lengths, ranks, most).longest() / groups.mean());
}

}  // namespace colonnade::layout
