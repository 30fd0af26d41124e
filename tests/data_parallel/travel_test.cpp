// Gradients that travel in bf16: what is sent is, the sum is within its rounding of that in float64, and sums
// of micro-batches are not rounded.
#include "colonnade/data_parallel/travel.h"

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

constexpr double kUnit = 0.0078125;  // of bf16, 2^-7: rounding moves a number by half of it at most

Tensor numbers(int rank, std::int64_t length) {
  return test::named_random(fmt::format("numbers {}", rank), {length}).to(at::kFloat);
}

TEST(Travel, InBf16IsWithinItsRoundingOfTheExactSum) {
  const std::int64_t length = 4096;
  for (const int size : {2, 4})
    for (const bool scattered : {false, true})
      comm::run_ranks(size, [&](comm::Communicators& ranks) {
        const Tensor all = numbers(ranks.rank(), length);
        const std::int64_t part = scattered ? length / size : length;
        const std::int64_t first = scattered ? part * ranks.rank() : 0;
        const Tensor needed = all.narrow(0, first, part);
        sum_over(ranks.world(), all, needed, {.in = at::kBFloat16}, "sum").wait();
        Tensor exact = at::zeros({part}, at::kDouble), sizes = at::zeros({part}, at::kDouble);
        for (int r = 0; r < size; ++r) {
          const Tensor one = numbers(r, length).narrow(0, first, part).to(at::kDouble);
          exact += one;
          sizes += one.abs();
        }
        // Each number once, and the sum once.
        const Tensor error = (needed.to(at::kDouble) - exact).abs();
        EXPECT_TRUE((error <= kUnit / 2 * (sizes * (1 + kUnit) + exact.abs())).all().item<bool>());
        EXPECT_GT(error.max().item<double>(), kUnit / 8) << "it was rounded";
        EXPECT_TRUE(at::equal(needed, needed.to(at::kBFloat16).to(at::kFloat)));
      });
}

TEST(Travel, InTheTypeOfTheSumsRoundsNothing) {
  comm::run_ranks(2, [&](comm::Communicators& ranks) {
    const Tensor all = numbers(ranks.rank(), 64);
    sum_over(ranks.world(), all, all, {}, "sum").wait();
    EXPECT_TRUE(at::equal(all, numbers(0, 64) + numbers(1, 64)));
  });
}

TEST(Travel, OfAGroupOfOneIsNone) {
  const Tensor all = numbers(0, 64);
  sum_over({}, all, all, {.in = at::kBFloat16}, "sum").wait();
  EXPECT_TRUE(at::equal(all, numbers(0, 64)));
}

TEST(Travel, WhatIsExchangedIsRoundedBeforeItTravelsAndNotAfter) {
  const std::int64_t length = 4096;
  for (const int size : {2, 4})
    comm::run_ranks(size, [&](comm::Communicators& ranks) {
      const Tensor all = numbers(ranks.rank(), length);
      const std::int64_t part = length / size, first = part * ranks.rank();
      const Tensor needed = all.narrow(0, first, part);
      sum_over(ranks.world(), all, needed, {.in = at::kBFloat16, .exchanged = true}, "sum").wait();
      Tensor sum = at::zeros({part}, at::kDouble);
      for (int r = 0; r < size; ++r)
        sum += numbers(r, length).narrow(0, first, part).to(at::kBFloat16).to(at::kDouble);
      EXPECT_LT((needed.to(at::kDouble) - sum).abs().max().item<double>(), 1e-6);
      EXPECT_FALSE(at::equal(needed, needed.to(at::kBFloat16).to(at::kFloat)));
    });
}

/// A block with one parameter, whose gradient is what is fed to it.
class Fed final : public tensor::Block {
 public:
  Fed() : p_({.name = "p", .shape = {128}}, {}, at::dtype(at::kFloat)) { test::randomize({&p_}); }
  Tensor forward(const Tensor& x, const tensor::Pass&) override { return p_.value * x; }
  std::vector<Parameter*> parameters() override { return {&p_}; }

 private:
  Parameter p_;
};

struct TravelToy {
  TravelToy() { stage.blocks.push_back(std::make_unique<Fed>()); }
  tensor::Stage stage;

  /// Micro-batches with these gradients; what the rank owns of the sums.
  Tensor step(const Groups& groups, Options options, const std::vector<double>& gradients) {
    options.travel.in = at::kBFloat16;
    options.units = units_of({&stage});
    GradBuffers buffers({stage.parameters()}, groups, options);
    buffers.attach(stage);
    buffers.start_step();
    for (std::size_t m = 0; m < gradients.size(); ++m) {
      if (m + 1 == gradients.size()) buffers.arm(0);
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

TEST(Travel, SumsOfMicroBatchesAreInFp32) {
  for (const Sharding sharding : kAll)
    for (const bool overlap : {false, true})
      for (const int instances : {1, 2})
        comm::run_ranks(4, [&](comm::Communicators& ranks) {
          const auto [inner, outer] = ranks.levels({layout::Axis::kDp}, 4 / instances);
          for (const bool exchanged : {false, true}) {
            TravelToy toy;
            // In bf16 1 is lost beside 512.
            const Tensor own = toy.step(
                {.data = {inner, outer}},
                {.overlap_grad_reduce = overlap, .sharding = sharding, .travel = {.exchanged = exchanged}},
                {512, 1, -512});
            EXPECT_TRUE((own == 4).all().item<bool>()) << own.max().item<double>();
          }
        });
}

TEST(Travel, EverythingSentOfGradientsIsBf16) {
  for (const Sharding sharding : kAll)
    for (const auto& [cut_outer, exchanged] : {std::pair(false, false), {true, false}, {true, true}}) {
      config::Parallel parallel;
      parallel.world_size = 4;
      const auto log = std::make_shared<comm::CallLog>();
      comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
      const auto [inner, outer] = ranks.levels({layout::Axis::kDp}, 2);
      TravelToy toy;
      toy.step({.data = {inner, outer}},
               {.sharding = sharding, .cut_outer = cut_outer, .travel = {.exchanged = exchanged}}, {1, 2});
      std::map<std::string, int> sums;
      for (const comm::LoggedCall& call : log->calls()) {
        if (call.operation == "all_gather") continue;
        EXPECT_EQ(call.dtype, at::kBFloat16) << call.operation << " over " << call.axes << ": " << call.what;
        ++sums[call.axes];
        const bool scattered = sharding >= Sharding::kOptimizer || (cut_outer && call.axes == "dp.2.places");
        EXPECT_EQ(call.operation == "all_to_all", exchanged && scattered);
      }
      EXPECT_EQ(sums["dp.2.run"], sharding >= Sharding::kGradients ? 2 : 1);
      EXPECT_EQ(sums["dp.2.places"], 1);
    }
}

TEST(Travel, OneCopyIsOnItsWayAtATime) {
  const auto backend = std::make_shared<test::RecordingBackend>(2);
  Parameter a({.name = "a", .shape = {100}}, {}, at::dtype(at::kFloat));
  Parameter b({.name = "b", .shape = {100}}, {}, at::dtype(at::kFloat));
  GradBuffers buffers({{&a, &b}}, {.data = comm::Group(backend, "dp")},
                      {.bucket_elements = 1, .overlap_grad_reduce = true, .travel = {.in = at::kBFloat16}});
  buffers.arm(0);
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
