// A global batch split into sequences: every token occurs once, on as many ranks as its sequence needs, with
// the loss of the packed samples, and far less attention on the busiest rank than with one context size.
#include "colonnade/job/sequence_steps.h"

#include <gmock/gmock.h>

#include <set>

#include "colonnade/base/error.h"
#include "colonnade/data/samples/gpt/packed_sequences.h"
#include "colonnade/layout/context_groups.h"
#include "job/runs.h"
#include "support/long_tailed.h"

namespace colonnade::job {
namespace {

using tensor::Field;

constexpr const char* kSequenceModel =
    "--num-layers 2 --hidden-size 16 --num-attention-heads 4 --vocab-size 61 --seq-length 64 "
    "--max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 8 --hidden-dropout 0 "
    "--attention-dropout 0 --make-vocab-size-divisible-by 1 --position-embedding-type rope "
    "--reset-position-ids --reset-attention-mask --calculate-per-token-loss ";
constexpr const char* kHybrid = "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 16 ";

config::Run run_in(int world, const std::string& flags) {
  return test::settings(world, test::words(kSequenceModel + flags));
}

/// Token, label and position of everything with a loss.
using Seen = std::multiset<std::tuple<std::int64_t, std::int64_t, std::int64_t>>;

Seen seen_in(const tensor::Batch& batch) {
  Seen all;
  const at::Tensor tokens = batch.at(Field::kTokens).flatten(), labels = batch.at(Field::kLabels).flatten();
  const at::Tensor mask = batch.at(Field::kLossMask).flatten(), positions = batch.find(Field::kPositionIds);
  EXPECT_EQ(positions.defined(), batch.share().ranks != 1 || batch.documents().any());
  for (std::int64_t i = 0; i < tokens.numel(); ++i)
    if (mask[i].item<float>() > 0)
      all.emplace(tokens[i].item<std::int64_t>(), labels[i].item<std::int64_t>(),
                  positions.defined() ? positions.flatten()[i].item<std::int64_t>() : i);
  return all;
}

TEST(SequenceSteps, HoldEveryTokenOnceWithItsLabelAndPosition) {
  for (const char* flags :
       {"", "--context-parallel-size 2 ", "--tensor-model-parallel-size 2 --sequence-parallel"}) {
    SCOPED_TRACE(flags);
    const config::Run run = run_in(8, std::string(kHybrid) + flags);
    const int ranks = layout::hybrid_ranks(run.parallel), parts = layout::sequence_shards(run.parallel);
    const auto batches = test::long_tailed(run, 2.5);
    std::vector<std::int64_t> numbers(8);
    std::iota(numbers.begin(), numbers.end(), 24);
    const Seen expected = seen_in(to_batch(batches.get(numbers)));
    EXPECT_EQ(expected.size(), 8 * 64U);
    Seen got;
    std::set<int> sizes;
    int packed = 0;
    for (int rank = 0; rank < ranks; ++rank)
      for (const MicrobatchShard& one :
           sequence_step(batches, run, rank, 24, run.training.global_batch_size).microbatches) {
        const tensor::Batch batch = sequence_batch(one, parts);
        sizes.insert(one.ranks);
        EXPECT_EQ(batch.share().ranks, one.ranks);
        EXPECT_EQ(batch.to(at::kCPU).share().ranks, one.ranks);
        EXPECT_EQ(batch.at(Field::kTokens).size(1) % std::lcm(one.ranks > 1 ? 2 : 1, parts), 0);
        EXPECT_LE(batch.at(Field::kTokens).size(1), 16);
        EXPECT_EQ(batch.documents().any(), !one.full.cu_seqlens.empty());
        packed += batch.documents().any() ? 1 : 0;
        got.merge(seen_in(batch));
      }
    EXPECT_EQ(got, expected);
    EXPECT_GE(sizes.size(), 3U) << "groups of several sizes";
    EXPECT_GT(packed, 0) << "micro-batches of several sequences";
  }
}

/// Batches of another source, with a loss mask of ones in place of none.
class WithMask final : public data::Batches {
 public:
  explicit WithMask(const data::Batches& from)
      : Batches(std::make_shared<test::LongTailed>(2.5, 60), 0), from_(from) {}

 private:
  [[nodiscard]] data::HostBatch make(std::span<const std::int64_t> chosen) const override {
    data::HostBatch batch = from_.get(chosen);
    EXPECT_TRUE(batch.loss_mask.empty());
    batch.loss_mask.assign(batch.tokens.size(), 1.0F);
    return batch;
  }
  const data::Batches& from_;
};

TEST(SequenceSteps, MissingLossMaskEqualsAMaskOfOnes) {
  const config::Run run = run_in(4, std::string(kHybrid) + "--mtp-num-layers 1");
  const auto without = test::long_tailed(run, 2.5);
  const WithMask with(without);
  for (int rank = 0; rank < layout::hybrid_ranks(run.parallel); ++rank) {
    const SequenceStep step = sequence_step(without, run, rank, 8, run.training.global_batch_size),
                       same = sequence_step(with, run, rank, 8, run.training.global_batch_size);
    ASSERT_EQ(step.microbatches.size(), same.microbatches.size());
    for (std::size_t i = 0; i < step.microbatches.size(); ++i) {
      const tensor::Batch got = sequence_batch(step.microbatches[i], 1);
      const tensor::Batch expected = sequence_batch(same.microbatches[i], 1);
      for (const tensor::BatchKey& key : std::vector<tensor::BatchKey>{Field::kTokens,
                                                                       Field::kLabels,
                                                                       Field::kLossMask,
                                                                       {Field::kLossMask, 1},
                                                                       {Field::kLossCount, 1}})
        EXPECT_TRUE(at::equal(got.at(key), expected.at(key))) << key.name() << rank << i;
      EXPECT_GT(got.at(Field::kLossMask).sum().item<float>(), 0);
    }
  }
}

// The design goal, measured in attention that the ranks execute: the busiest rank, padding included, against
// one context size for all and against the pairs of tokens within documents.
TEST(SequenceSteps, GiveTheBusiestRankFarLessAttentionThanOneContextSize) {
  constexpr int kRanks = 32, kSamples = 16, kTokens = 1024;
  const config::Run run = run_in(
      kRanks, fmt::format("--seq-length 4096 --max-position-embeddings 4096 --global-batch-size {} "
                          "--context-parallel-size 4 --hybrid-context-parallel --cp-comm-type all_gather",
                          kSamples));
  EXPECT_EQ(run.parallel.max_seqlen_per_dp_cp_rank, kTokens);
  const auto batches = test::long_tailed(run, 5);
  double changing = 0, equal = 0;
  for (std::int64_t first = 0; first < 8 * kSamples; first += kSamples) {
    std::vector<double> pairs(kRanks, 0);
    for (int rank = 0; rank < kRanks; ++rank) {
      const SequenceStep step = sequence_step(batches, run, rank, first, run.training.global_batch_size);
      for (const MicrobatchShard& one : step.microbatches) {
        const tensor::Batch batch = sequence_batch(one, 1);
        const std::vector<std::int64_t>& bounds = batch.documents().cu_seqlens;
        double& own = pairs[static_cast<std::size_t>(rank)];
        if (bounds.empty())
          own += layout::attention_pairs(batch.at(Field::kTokens).size(1) * one.ranks) / one.ranks;
        for (std::size_t i = 1; i < bounds.size(); ++i)
          own += layout::attention_pairs(bounds[i] - bounds[i - 1]);
      }
      EXPECT_GE(step.longest_over_mean, 1);
      EXPECT_LT(step.longest_over_mean, 1.3);
    }
    std::vector<std::int64_t> lengths;
    for (std::int64_t n = first; n < first + kSamples; ++n)
      for (const data::PackedSequence& s : data::packed_sequences(batches.get(std::array{n})))
        lengths.push_back(s.length);
    changing += *std::ranges::max_element(pairs);
    equal += layout::equal_context_groups(lengths, kRanks, kTokens).longest();
  }
  EXPECT_GT(equal / changing, 1.40);
  RecordProperty("equal_over_changing", std::to_string(equal / changing));
}

TEST(SequenceSteps, EvaluateAsPackedSamplesWithDocumentMasks) {
  const config::Run whole = run_in(1, "");
  const auto batches = test::long_tailed(whole, 2.5);
  double expected = 0;
  test::on_jobs(whole, [&](Job& job) {
    expected = job.evaluate(2, [&](int i) { return evaluation_steps(batches, job, 8 * i); }).at("lm_loss");
  });
  test::on_jobs(run_in(4, kHybrid), [&](Job& job) {
    const double got =
        job.evaluate(2, [&](int i) { return evaluation_steps(batches, job, 8 * i); }).at("lm_loss");
    EXPECT_NEAR(got, expected, 2e-5 * expected);
  });
}

TEST(SequenceSteps, AreEquallyManyWhereCollectivesRequireIt) {
  const auto counts = [](const std::string& flags) {
    const config::Run run = run_in(8, kHybrid + flags);
    const auto batches = test::long_tailed(run, 2.5);
    std::set<std::size_t> all;
    for (int rank = 0; rank < layout::hybrid_ranks(run.parallel); ++rank)
      all.insert(sequence_step(batches, run, rank, 0, run.training.global_batch_size).microbatches.size());
    return all;
  };
  EXPECT_GT(counts("").size(), 1U);
  EXPECT_GT(counts("--use-distributed-optimizer").size(), 1U);
  EXPECT_GT(counts("--num-experts 4").size(), 1U) << "nothing is exchanged";
  for (const char* flags :
       {"--num-experts 4 --expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall",
        "--use-megatron-fsdp --untie-embeddings-and-output-weights", "--overlap-grad-reduce"})
    EXPECT_EQ(counts(flags).size(), 1U) << flags;
  const auto groups = counts(
      "--num-layers 4 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
      "--microbatch-group-size-per-virtual-pipeline-stage 7");
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(*groups.begin() % 7, 0U) << "the schedule requires full groups";
}

TEST(SequenceSteps, EmptySequenceHasOneTokenPerChunk) {
  for (const int parts : {1, 2}) {
    const tensor::Batch batch =
        sequence_batch({.full = {.micro_batch = 1, .samples = {3}}, .sample = 64, .loss_counts = {0}}, parts);
    EXPECT_EQ(batch.at(Field::kTokens).sizes(), at::IntArrayRef({1, parts}));
    EXPECT_EQ(batch.at(Field::kLossMask).sum().item<float>(), 0);
    EXPECT_EQ(batch.at({Field::kLossMask, 1}).sum().item<float>(), 0);
    EXPECT_EQ(batch.share().ranks, 1);
    EXPECT_EQ(batch.share().tokens, 0);
  }
}

TEST(SequenceSteps, ShareAMicroBatchOnlyWhereNothingChanges) {
  const auto shared = [](const std::string& flags) {
    return layout::shared_microbatch_tokens(run_in(4, kHybrid + flags));
  };
  EXPECT_EQ(shared(""), 16);
  EXPECT_EQ(shared("--num-experts 4 --moe-z-loss-coeff 0.1"), 16);
  for (const char* flags :
       {"--hidden-dropout 0.1", "--attention-dropout 0.1", "--mtp-num-layers 1",
        "--num-experts 4 --moe-aux-loss-coeff 0.1", "--num-experts 4 --moe-input-jitter-eps 0.1"})
    EXPECT_EQ(shared(flags), 0) << flags;
}

TEST(SequenceSteps, HaveTheirOffsetInTheSample) {
  const config::Run run = run_in(4, kHybrid + std::string("--hidden-dropout 0.1"));
  const auto batches = test::long_tailed(run, 2.5);
  for (int rank = 0; rank < 4; ++rank)
    for (const MicrobatchShard& one :
         sequence_step(batches, run, rank, 0, run.training.global_batch_size).microbatches) {
      const auto whole = batches.get(std::array{one.full.samples.at(0)});
      ASSERT_EQ(one.sample, whole.seq);
      for (std::int64_t i = 0; i < one.full.seq; ++i)
        EXPECT_EQ(one.full.tokens[static_cast<std::size_t>(i)],
                  whole.tokens[static_cast<std::size_t>(one.begin + i)]);
    }
}

TEST(SequenceSteps, AreRequiredByLayersWithGroupsOfSeveralSizes) {
  test::on_jobs(run_in(2, kHybrid + std::string("--max-seqlen-per-dp-cp-rank 32")), [&](Job& job) {
    EXPECT_THROW((void)job.evaluate(1, [&](int) { return test::steps_after(job, 0); }), Error);
  });
}

}  // namespace
}  // namespace colonnade::job
