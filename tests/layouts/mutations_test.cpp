// What the comparison of layouts sees: of every small layout, each reduction in turn is left out, and the
// comparison with one rank must tell. Reductions are those that the layout's run makes, not a list.
#include <gtest/gtest.h>

#include "layouts/reduced.h"

namespace colonnade::test {
namespace {

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
  std::set<Reduction> done;
  for (const Small& layout : small_layouts()) {
    SCOPED_TRACE(fmt::format("{} ranks: {}{}", layout.world, layout.model, layout.cut));
    Reductions whole;
    EXPECT_EQ(verdict(layout, whole), "") << "nothing is left out";
    for (const Reduction& reduction : whole.seen) {
      if (!done.insert(reduction).second) continue;  // a smaller layout has it
      Reductions one_less;
      one_less.dropped = reduction;
      EXPECT_NE(verdict(layout, one_less), "")
          << reduction.operation << " over " << reduction.axes << ": " << reduction.what;
    }
  }
  EXPECT_GE(done.size(), 60U);
}

}  // namespace
}  // namespace colonnade::test
