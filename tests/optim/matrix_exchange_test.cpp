// Each matrix reaches one rank as a whole, and its function returns to all holders of its elements.
#include "colonnade/optim/matrix_exchange.h"

#include <gmock/gmock.h>

#include <mutex>

#include "colonnade/optim/optimizer.h"
#include "optim/toys.h"

namespace colonnade::optim {
namespace {

using namespace toys;
using layout::Axis;

struct Seen {
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> shapes;
  double sum = 0;
};

/// Doubles all matrices of layer_specs() on tp x dp ranks and returns those that the ranks saw.
void check_doubling(int tp, int dp, layout::Sharding sharding, const MatrixSplit& split, Seen& seen) {
  config::Parallel parallel = test::tensor_parallel(tp, /*sequence_parallel=*/false);
  parallel.world_size = tp * dp;
  auto specs = layer_specs(parallel);
  std::erase_if(specs, [](const auto& spec) { return spec.shape.size() != 2; });
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const comm::Group data = ranks.group({Axis::kDp, Axis::kCp});
    Toy toy(specs, ranks.group({Axis::kTp}), data, {.bucket_elements = 300, .sharding = sharding});
    StageRanks stage{ranks.group({Axis::kTp, Axis::kCp, Axis::kDp}), {}};
    for (int rank = 0; rank < tp * dp; ++rank) stage.positions.push_back(ranks.mesh().position(rank));
    Optimizer optimizer(adam(), *toy.buffers, ranks.world(), false);
    UpdateScope scope{.parameters = toy.list, .segments = {}, .options = test::options(at::kDouble)};
    for (const Segment& s : optimizer.segments()) scope.segments.push_back(&s);
    const MatrixExchange exchange(scope, split, stage);
    std::size_t inputs = 0, uses = 0;
    exchange.run(scope.segments, {[&](const Segment& s) { return ++inputs, s.main; },
                                  [&](const Tensor& matrix) {
                                    const std::scoped_lock lock(seen.mutex);
                                    seen.shapes.push_back(matrix.sizes().vec());
                                    seen.sum += matrix.sum().item<double>();
                                    return matrix * 2;
                                  },
                                  [&](const Segment& s, const Tensor& result) {
                                    ++uses;
                                    EXPECT_TRUE(at::equal(result, s.main * 2)) << s.parameter->spec.name;
                                  }});
    EXPECT_EQ(inputs, scope.segments.size());
    EXPECT_EQ(uses, scope.segments.size());
  });
}

std::vector<std::vector<std::int64_t>> sorted(std::vector<std::vector<std::int64_t>> shapes) {
  std::ranges::sort(shapes);
  return shapes;
}

// q [32, 12], k and v [8, 12], proj [12, 32], fc1 [16, 12], fc2 [12, 16], words [37, 12], positions [6, 12].
const std::vector<std::vector<std::int64_t>> kWhole{{32, 12}, {8, 12},  {8, 12},  {12, 32},
                                                    {16, 12}, {12, 16}, {37, 12}, {6, 12}};

TEST(MatrixExchange, EachMatrixIsSeenOnceAsAWhole) {
  const struct {
    int tp, dp;
    layout::Sharding sharding;
  } kLayouts[] = {{1, 1, layout::Sharding::kNone},      {1, 3, layout::Sharding::kNone},
                  {1, 4, layout::Sharding::kOptimizer}, {2, 2, layout::Sharding::kOptimizer},
                  {4, 1, layout::Sharding::kNone},      {2, 3, layout::Sharding::kOptimizer}};
  double sum = 0;
  for (const auto& spec : layer_specs({}))
    if (spec.shape.size() == 2) sum += test::full_value(spec).sum().item<double>();
  for (const auto& l : kLayouts) {
    SCOPED_TRACE(fmt::format("tp {} dp {}", l.tp, l.dp));
    Seen seen;
    check_doubling(l.tp, l.dp, l.sharding, {}, seen);
    EXPECT_EQ(sorted(seen.shapes), sorted(kWhole));
    EXPECT_NEAR(seen.sum, sum, 1e-9);
  }
}

TEST(MatrixExchange, FusedRowsStayTogetherUnlessTheyAreSplit) {
  Seen seen;
  check_doubling(2, 1, layout::Sharding::kNone, {.qkv = false}, seen);
  EXPECT_THAT(seen.shapes, testing::Contains(std::vector<std::int64_t>{48, 12}));
  EXPECT_EQ(seen.shapes.size(), kWhole.size() - 2);
}

// Columns of proj and fc2, rows of the others; positions are replicated and stay whole.
TEST(MatrixExchange, ShardsOfTensorRanksAreMatricesOfTheirOwn) {
  for (const layout::Sharding sharding : {layout::Sharding::kNone, layout::Sharding::kOptimizer}) {
    Seen seen;
    check_doubling(2, 2, sharding, {.by_model_rank = true}, seen);
    std::vector<std::vector<std::int64_t>> shards{{6, 12}};
    for (int rank = 0; rank < 2; ++rank)
      shards.insert(shards.end(), {{16, 12}, {4, 12}, {4, 12}, {12, 16}, {8, 12}, {12, 8}, {19, 12}});
    EXPECT_EQ(sorted(seen.shapes), sorted(shards));
  }
}

}  // namespace
}  // namespace colonnade::optim
