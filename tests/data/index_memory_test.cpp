// Indices larger than the memory are rejected before they are built.
#include "colonnade/data/index_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "colonnade/base/error.h"
#include "colonnade/base/machine_memory.h"
#include "colonnade/data/blend.h"
#include "colonnade/data/samples/gpt/gpt_index.h"
#include "colonnade/data/samples/sentence_index.h"
#include "data/sentences.h"

namespace colonnade::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::int64_t kTooMany = 10'000'000'000'000;

TEST(IndexMemory, RejectsIndicesLargerThanTheMachinesMemory) {
  const auto available = static_cast<double>(machine_memory());
  ASSERT_GT(available, 0);
  EXPECT_NO_THROW(require_index_memory("d", "9 samples", available));
  EXPECT_THAT(test::message_of<ConfigError>([&] { require_index_memory("d", "9 samples", available + 1e9); }),
              AllOf(HasSubstr("d: the indices of its samples must fit the memory of this machine, "),
                    HasSubstr("; got 9 samples, which need "),
                    HasSubstr("--train-iters, --train-samples, --eval-iters; --samples of `data inspect`")));
}

TEST(IndexMemory, IsCheckedByEveryIndex) {
  const Sentences source({{5, 6, 7, 8}, {9, 3, 4}});
  const auto message = [](const auto& build) { return test::message_of<ConfigError>(build); };
  EXPECT_THAT(
      message([&] {
        (void)build_gpt_index(source, {.sequences = {0, 7}, .sequence_length = 4, .num_samples = kTooMany});
      }),
      AllOf(HasSubstr("sentences: the indices"), HasSubstr(" epochs, which need ")));
  EXPECT_THAT(
      message([&] {
        (void)build_sentence_index(source, {.documents = {0, 2}, .max_length = 20, .num_samples = kTooMany});
      }),
      AllOf(HasSubstr("sentences: the indices of its samples must fit the memory of this machine, "),
            HasSubstr("; got 10000000000000 samples, which need 120000.0 GB")));
  const std::array<double, 2> weights{0.5, 0.5};
  const std::array<std::int64_t, 2> sizes{kTooMany, kTooMany};
  EXPECT_THAT(
      message([&] { (void)blend_by_weight(weights, kTooMany); }),
      AllOf(HasSubstr(
                "a blend of 2 data sets: the indices of its samples must fit the memory of this machine, "),
            HasSubstr("; got 10000000000000 samples, which need 100000.0 GB")));
  EXPECT_THAT(message([&] { (void)blend_exhaustively(sizes); }), HasSubstr("need 200000.0 GB"));
}

}  // namespace
}  // namespace colonnade::data
