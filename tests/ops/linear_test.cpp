// Matmuls of a linear layer against float64, in the shapes and strides that layers use.
#include "colonnade/ops/linear.h"

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "colonnade/base/stop_signal.h"
#include "ops/support.h"

namespace colonnade::ops {
namespace {

using at::Tensor;

using test::distance;
using test::tolerance;

struct Sizes {
  std::int64_t rows, in, out;
};

TEST(Matmul, EqualsFloat64ForEveryTypeAndShape) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const Sizes& z : {Sizes{1, 7, 5}, {3, 64, 1}, {33, 517, 129}, {256, 384, 1152}}) {
      const Tensor x = test::random({z.rows, z.in}, type), w = test::random({z.out, z.in}, type);
      const Tensor bias = test::random({z.out}, type), dy = test::random({z.rows, z.out}, type);
      const Tensor x64 = x.to(at::kDouble), w64 = w.to(at::kDouble);
      EXPECT_LT(distance(linear_forward(x, w), x64.mm(w64.t())), tolerance(type));
      EXPECT_LT(distance(linear_forward(x, w, bias), x64.mm(w64.t()) + bias.to(at::kDouble)),
                tolerance(type));
      EXPECT_LT(distance(linear_input_grad(dy, w), dy.to(at::kDouble).mm(w64)), tolerance(type));
    }
}

TEST(Matmul, SupportsRowsOfALargerWeight) {
  const Tensor table = at::randn({40, 24}), x = at::randn({6, 24});
  const Tensor rows = table.narrow(0, 8, 16);
  EXPECT_LT(distance(linear_forward(x, rows), x.to(at::kDouble).mm(rows.to(at::kDouble).t())),
            tolerance(at::kFloat));
}

/// Runs matmuls while signals arrive; exits with 0 if all results are equal.
[[noreturn]] void run_matmuls_under_signals() {
  StopSignals stop;
  stop.defer();
  const Tensor x = at::randn({32, 256}), w = at::randn({64, 256}), y = linear_forward(x, w);
  bool equal = true;
  {
    const std::jthread sender([](const std::stop_token& ended) {
      while (!ended.stop_requested()) {
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      }
    });
    for (int i = 0; i < 5'000; ++i) equal = equal && at::equal(linear_forward(x, w), y);
  }
  std::_Exit(equal && stop.requested() == SIGTERM ? 0 : 1);
}

// Some oneDNN kernels move the stack pointer into a heap block, so an interrupting signal handler overwrites
// the memory below it. Runs in a separate process with fresh threads, like a training run.
TEST(Matmul, SignalsDoNotCorruptMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run_matmuls_under_signals(), testing::ExitedWithCode(0), "");
}

TEST(Matmul, IsReproducible) {
  const Tensor x = at::randn({256, 384}), w = at::randn({1024, 384}), dy = at::randn({256, 1024});
  EXPECT_TRUE(at::equal(linear_forward(x, w), linear_forward(x, w)));
  EXPECT_TRUE(at::equal(linear_input_grad(dy, w), linear_input_grad(dy, w)));
}

TEST(Matmul, SupportsZeroTokens) {
  const Tensor none = at::empty({0, 8}), w = at::randn({4, 8});
  EXPECT_EQ(linear_forward(none, w).sizes(), (at::IntArrayRef{0, 4}));
  EXPECT_EQ(linear_input_grad(at::empty({0, 4}), w).sizes(), (at::IntArrayRef{0, 8}));
}

}  // namespace
}  // namespace colonnade::ops
