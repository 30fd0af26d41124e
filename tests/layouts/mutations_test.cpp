// What the comparison of layouts sees: of every small layout, each reduction in turn is left out, and the
// comparison with one rank must tell. Reductions are those that the layout's run makes, not a list.
#include <gtest/gtest.h>

#include <algorithm>

#include "layouts/reduced.h"

namespace colonnade::test {
namespace {

/// Reductions without which these runs compute the same, and why.
struct Idle {
  Reduction reduction;
  const char* why;
};
const std::vector<Idle> kIdle = {
    {{"world", "all_reduce", "largest gradient"},
     "the power of two above it scales exact sums of squares, and here it is one on all ranks; ranks that differ: "
     "optim/exact_squares_test.cpp"}};

bool is_idle(const Reduction& reduction) {
  return std::ranges::any_of(kIdle, [&](const Idle& one) { return one.reduction == reduction; });
}

/// What the comparison says, or an error that stopped the run; "" when it sees nothing.
std::string verdict(const Small& layout, Reductions& reductions) {
  try {
    const train::Trained cut = one_step(layout, reductions);
    const auto& whole = unsplit(of_two_layers(layout.model), 1, train::Precision::kFloat64);
    const auto first = train::compare(whole, cut).first;
    return first ? first->what : "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Mutations, EveryReductionLeftOutIsSeen) {
  std::set<std::pair<layout::Sharding, Reduction>> done;
  std::set<Reduction> known;
  for (const Small& layout : small_layouts()) {
    SCOPED_TRACE(fmt::format("{} ranks: {}{}", layout.world, layout.model, layout.cut));
    Reductions whole;
    EXPECT_EQ(verdict(layout, whole), "") << "nothing is left out";
    for (const Reduction& reduction : whole.seen) {
      known.insert(reduction);
      if (!done.insert({sharding_of(layout), reduction}).second) continue;  // a smaller layout has it
      Reductions one_less;
      one_less.dropped = reduction;
      EXPECT_EQ(verdict(layout, one_less).empty(), is_idle(reduction))
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
    EXPECT_TRUE(std::ranges::any_of(known, is_it)) << what << ": no layout holds it";
  }
  for (const Idle& one : kIdle)
    EXPECT_TRUE(known.contains(one.reduction)) << one.reduction.what << " is gone";
}

}  // namespace
}  // namespace colonnade::test
