// Sensitivity of the layout comparison: each reduction of every small layout is omitted in turn, and the
// comparison with one rank must detect it. The reductions are those recorded in the layout's run.
#include <gtest/gtest.h>

#include <algorithm>

#include "layouts/reduced.h"

namespace colonnade::test {
namespace {

/// Reductions that have no effect on these runs, and why.
struct NoEffect {
  Reduction reduction;
  const char* why;
};
const std::vector<NoEffect> kNoEffect = {
    {{"world", "all_reduce", "largest gradient"},
     "the power of two above it scales exact sums of squares, and here it is one on all ranks; ranks that differ: "
     "optim/exact_squares_test.cpp"}};

bool has_no_effect(const Reduction& reduction) {
  return std::ranges::any_of(kNoEffect, [&](const NoEffect& one) { return one.reduction == reduction; });
}

/// The detected difference, or the error that stopped the run; "" when nothing is detected.
std::string detected(const Small& layout, Reductions& reductions) {
  try {
    const train::TrainedLayout trained = one_step(layout, reductions);
    const auto& reference = single_rank(of_two_layers(layout.model), 1, train::Precision::kFloat64);
    const auto first = train::compare(reference, trained).first;
    return first ? first->what : "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Mutations, EveryOmittedReductionIsDetected) {
  std::set<std::pair<layout::Sharding, Reduction>> done;
  std::set<Reduction> known;
  for (const Small& layout : small_layouts()) {
    SCOPED_TRACE(fmt::format("{} ranks: {}{}", layout.world, layout.model, layout.cut));
    Reductions all;
    EXPECT_EQ(detected(layout, all), "") << "no reduction is omitted";
    for (const Reduction& reduction : all.seen) {
      known.insert(reduction);
      if (!done.insert({sharding_of(layout), reduction}).second) continue;  // covered by a smaller layout
      Reductions one_less;
      one_less.dropped = reduction;
      EXPECT_EQ(detected(layout, one_less).empty(), has_no_effect(reduction))
          << reduction.operation << " over " << reduction.axes << ": " << reduction.what;
    }
  }
  EXPECT_GE(done.size(), 60U);
  for (const char* what :
       {"embedding.word_embeddings.weight / stages",
        "encoder_relative_pos_emb.relative_attention_bias.weight / stages",
        "decoder_relative_pos_emb.relative_attention_bias.weight / stages",
        "router.weight / balance of the step", "router.weight / balance", "router.weight / z-loss"}) {
    const auto is_it = [&](const Reduction& one) { return one.what.ends_with(what); };
    EXPECT_TRUE(std::ranges::any_of(known, is_it)) << what << ": no layout has it";
  }
  for (const NoEffect& one : kNoEffect)
    EXPECT_TRUE(known.contains(one.reduction)) << one.reduction.what << " is gone";
}

}  // namespace
}  // namespace colonnade::test
