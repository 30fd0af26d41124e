// Gradient reductions in bf16: only the copies sent are rounded, sums are within rounding of float64, and
// sums over micro-batches stay in fp32.
#include "colonnade/data_parallel/grad_reduce.h"

#include <gmock/gmock.h>

#include "colonnade/comm/null_backend.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "support/recording_backend.h"
#include "support/split.h"

namespace colonnade::data_parallel {
namespace {

using at::Tensor;
using layout::Sharding;
using tensor::Parameter;

constexpr double kBf16Epsilon =
    0.0078125;  // 2^-7; bf16 rounding changes a number by at most half of it, relative

Tensor numbers(int rank, std::int64_t length) {
  return test::named_random(fmt::format("numbers {}", rank), {length}).to(at::kFloat);
}

TEST(GradReduce, InBf16IsWithinRoundingOfTheExactSum) {
  const std::int64_t length = 4096;
  for (const int size : {2, 4})
    for (const bool scattered : {false, true})
      comm::run_ranks(size, [&](comm::Communicators& ranks) {
        const Tensor all = numbers(ranks.rank(), length);
        const std::int64_t part = scattered ? length / size : length;
        const std::int64_t first = scattered ? part * ranks.rank() : 0;
        const Tensor needed = all.narrow(0, first, part);
        reduce_over(ranks.world(), all, needed, {.dtype = at::kBFloat16}, "sum").wait();
        Tensor exact = at::zeros({part}, at::kDouble), sizes = at::zeros({part}, at::kDouble);
        for (int r = 0; r < size; ++r) {
          const Tensor one = numbers(r, length).narrow(0, first, part).to(at::kDouble);
          exact += one;
          sizes += one.abs();
        }
        // Each addend and the sum are rounded once.
        const Tensor error = (needed.to(at::kDouble) - exact).abs();
        EXPECT_TRUE(
            (error <= kBf16Epsilon / 2 * (sizes * (1 + kBf16Epsilon) + exact.abs())).all().item<bool>());
        EXPECT_GT(error.max().item<double>(), kBf16Epsilon / 8) << "it was rounded";
        EXPECT_TRUE(at::equal(needed, needed.to(at::kBFloat16).to(at::kFloat)));
      });
}

TEST(GradReduce, InTheDtypeOfTheSumsRoundsNothing) {
  comm::run_ranks(2, [&](comm::Communicators& ranks) {
    const Tensor all = numbers(ranks.rank(), 64);
    reduce_over(ranks.world(), all, all, {}, "sum").wait();
    EXPECT_TRUE(at::equal(all, numbers(0, 64) + numbers(1, 64)));
  });
}

TEST(GradReduce, OverAGroupOfOneDoesNothing) {
  const Tensor all = numbers(0, 64);
  reduce_over({}, all, all, {.dtype = at::kBFloat16}, "sum").wait();
  EXPECT_TRUE(at::equal(all, numbers(0, 64)));
}

TEST(GradReduce, ByAllToAllRoundsOnlyAddends) {
  const std::int64_t length = 4096;
  for (const int size : {2, 4})
    comm::run_ranks(size, [&](comm::Communicators& ranks) {
      const Tensor all = numbers(ranks.rank(), length);
      const std::int64_t part = length / size, first = part * ranks.rank();
      const Tensor needed = all.narrow(0, first, part);
      reduce_over(ranks.world(), all, needed, {.dtype = at::kBFloat16, .all_to_all = true}, "sum").wait();
      Tensor sum = at::zeros({part}, at::kDouble);
      for (int r = 0; r < size; ++r)
        sum += numbers(r, length).narrow(0, first, part).to(at::kBFloat16).to(at::kDouble);
      EXPECT_LT((needed.to(at::kDouble) - sum).abs().max().item<double>(), 1e-6);
      EXPECT_FALSE(at::equal(needed, needed.to(at::kBFloat16).to(at::kFloat)));
    });
}

/// A block with one parameter whose gradient is the block's input.
class FedBlock final : public tensor::Block {
 public:
  FedBlock() : p_({.name = "p", .shape = {128}}, {}, at::dtype(at::kFloat)) { test::randomize({&p_}); }
  Tensor forward(const Tensor& x, const tensor::Pass&) override { return p_.value * x; }
  std::vector<Parameter*> parameters() override { return {&p_}; }

 private:
  Parameter p_;
};

struct ReduceToy {
  ReduceToy() { stage.blocks.push_back(std::make_unique<FedBlock>()); }
  tensor::Stage stage;

  /// Runs micro-batches with these gradients; returns this rank's shard of the sums.
  Tensor step(const Groups& groups, Options options, const std::vector<double>& gradients) {
    options.dtypes.gradient_wire = config::Dtype::kBfloat16;
    options.units = units_of({&stage});
    GradBuffers buffers({stage.parameters()}, groups, options);
    buffers.attach(stage);
    buffers.start_step();
    for (std::size_t m = 0; m < gradients.size(); ++m) {
      if (m + 1 == gradients.size()) buffers.mark_last_microbatch(0);
      const tensor::Batch batch;
      const Tensor x = at::full({128}, gradients[m]).requires_grad_();
      stage.forward(x, {.batch = batch}).sum().backward();
    }
    buffers.finish();
    return buffers.owned()[0].grads.clone();
  }
};

constexpr Sharding kAll[] = {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients,
                             Sharding::kParameters};

TEST(GradReduce, SumsOverMicroBatchesInFp32) {
  for (const Sharding sharding : kAll)
    for (const bool overlap : {false, true})
      for (const int instances : {1, 2})
        comm::run_ranks(4, [&](comm::Communicators& ranks) {
          const auto [inner, outer] = ranks.inner_outer_groups({layout::Axis::kDp}, 4 / instances);
          for (const bool all_to_all : {false, true}) {
            ReduceToy toy;
            // bf16 cannot represent 512 + 1.
            const Tensor own = toy.step(
                {.data = {inner, outer}},
                {.overlap_grad_reduce = overlap, .sharding = sharding, .reduce_by_all_to_all = all_to_all},
                {512, 1, -512});
            EXPECT_TRUE((own == 4).all().item<bool>()) << own.max().item<double>();
          }
        });
}

TEST(GradReduce, SendsAllGradientsInBf16) {
  for (const Sharding sharding : kAll)
    for (const auto& [shard_outer, all_to_all] : {std::pair(false, false), {true, false}, {true, true}}) {
      config::Parallel parallel;
      parallel.world_size = 4;
      const auto log = std::make_shared<comm::CallLog>();
      comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
      const auto [inner, outer] = ranks.inner_outer_groups({layout::Axis::kDp}, 2);
      ReduceToy toy;
      toy.step({.data = {inner, outer}},
               {.sharding = sharding, .shard_outer = shard_outer, .reduce_by_all_to_all = all_to_all},
               {1, 2});
      std::map<std::string, int> sums;
      for (const comm::LoggedCall& call : log->calls()) {
        if (call.operation == "all_gather") continue;
        EXPECT_EQ(call.dtype, at::kBFloat16) << call.operation << " over " << call.axes << ": " << call.what;
        ++sums[call.axes];
        const bool scattered = sharding >= Sharding::kOptimizer || (shard_outer && call.axes == "dp.2.outer");
        EXPECT_EQ(call.operation == "all_to_all", all_to_all && scattered);
      }
      EXPECT_EQ(sums["dp.2.inner"], sharding >= Sharding::kGradients ? 2 : 1);
      EXPECT_EQ(sums["dp.2.outer"], 1);
    }
}

TEST(GradReduce, SendsOneCopyAtATime) {
  const auto backend = std::make_shared<test::RecordingBackend>(2);
  Parameter a({.name = "a", .shape = {100}}, {}, at::dtype(at::kFloat));
  Parameter b({.name = "b", .shape = {100}}, {}, at::dtype(at::kFloat));
  GradBuffers buffers({{&a, &b}}, {.data = comm::Group(backend, "dp")},
                      {.dtypes = {.gradient_wire = config::Dtype::kBfloat16},
                       .bucket_elements = 1,
                       .overlap_grad_reduce = true});
  buffers.mark_last_microbatch(0);
  a.value.requires_grad_();
  b.value.requires_grad_();
  (a.value.sum() + b.value.sum()).backward();
  const std::string first = "all_reduce gradient bucket 0 (b ... b)",
                    second = "all_reduce gradient bucket 1 (a ... a)";
  ASSERT_EQ(backend->events.size(), 3U);
  EXPECT_EQ(backend->events[1].substr(0, 5), "wait ");
  buffers.finish();
  EXPECT_THAT(backend->events, testing::UnorderedElementsAre("start " + first, "wait " + first,
                                                             "start " + second, "wait " + second));
}

}  // namespace
}  // namespace colonnade::data_parallel
