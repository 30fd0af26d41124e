// Column- and row-parallel linear layers against unsharded ones in float64, with all gradients, and the
// overlap of their communication.
#include "colonnade/layers/linear.h"

#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <gmock/gmock.h>

#include "layers/support.h"
#include "support/recording_backend.h"

namespace colonnade::layers {
namespace {

using at::Tensor;

struct Specs {
  layout::ParamSpec up, bias, down;
};

/// [out, in] sharded by rows within each of `pieces`, and [in, out / pieces] sharded by columns.
Specs specs(std::int64_t in, std::int64_t out, int pieces) {
  Specs s;
  std::vector<layout::DimSegment> cut;
  for (int i = 0; i < pieces; ++i) cut.push_back({.role = std::to_string(i), .size = out / pieces});
  s.up = {.name = "up", .shape = {out, in}, .sharded_dims = {{.dim = 0, .segments = cut}}};
  s.bias = {.name = "bias", .shape = {out}, .sharded_dims = {{.dim = 0, .segments = cut}}};
  s.down = {.name = "down",
            .shape = {in, out / pieces},
            .sharded_dims = {{.dim = 1, .segments = {{.size = out / pieces}}}}};
  return s;
}

/// Gated activation: multiplies the halves of a fused matrix element by element, so a wrong sharding shows.
Tensor activation(const Tensor& y, int pieces) {
  if (pieces == 1) return y.tanh();
  const auto halves = y.chunk(2, -1);
  return halves[0].tanh() * halves[1];
}

void check_pair(std::int64_t in, std::int64_t out, int pieces, const std::vector<test::TpLayout>& layouts) {
  const Specs s = specs(in, out, pieces);
  const Tensor x = test::named_random("x", {8, 3, in});
  const auto expected =
      test::reference({s.up, s.bias, s.down}, x, [&](const Tensor& in_x, const test::Weights& w) {
        const Tensor y = at::linear(in_x, w.at("up"), w.at("bias"));
        return at::linear(activation(y, pieces), w.at("down"));
      });
  const test::MakeBlock make = [&](const config::Parallel&, const Context& context) {
    const auto up = std::make_shared<ColumnLinear>(s.up, s.bias, context);
    const auto down = std::make_shared<RowLinear>(s.down, std::nullopt, context);
    return std::make_unique<test::FunctionBlock>(
        std::vector<tensor::Parameter*>{up->weight.get(), up->bias.get(), down->weight.get()},
        [=](const Tensor& in_x, const tensor::Pass&) {
          return down->forward(activation(up->forward(in_x), pieces));
        });
  };
  const tensor::Batch batch;
  test::expect_in_every_layout(make, x, {.batch = batch}, expected, layouts);
}

TEST(Linear, PairEqualsUnshardedLayers) { check_pair(12, 20, 1, test::kTpLayouts); }

TEST(Linear, FusedPiecesAreShardedSeparately) { check_pair(12, 24, 2, test::kTpLayouts); }

TEST(Linear, PairEqualsUnshardedLayersAtHidden512) { check_pair(512, 1024, 2, {{2, true}, {4, false}}); }

TEST(Linear, GradientsAccumulateOverPasses) {
  const Specs s = specs(6, 8, 1);
  const Context context{.tp = {}, .options = test::options(at::kDouble)};
  const ColumnLinear layer(s.up, s.bias, context);
  const Tensor x = test::named_random("x", {4, 2, 6});
  const Tensor probe = test::named_random("p", {4, 2, 8});
  for (int pass = 0; pass < 2; ++pass) layer.forward(x).backward(probe);
  const Tensor once = at::mm(probe.reshape({8, 8}).t(), x.reshape({8, 6}));
  EXPECT_LT(test::distance(layer.weight->main_grad, 2 * once), 1e-12);
  EXPECT_LT(test::distance(layer.bias->main_grad, 2 * probe.view({-1, 8}).sum(0)), 1e-12);
}

TEST(Linear, SkipsABiasLeftToTheCaller) {
  const Specs s = specs(6, 8, 1);
  const Context context{.tp = {}, .options = test::options(at::kDouble)};
  ColumnLinear layer(s.up, s.bias, context);
  test::randomize({layer.weight.get(), layer.bias.get()});
  layer.add_bias = false;
  const Tensor x = test::named_random("x", {4, 2, 6});
  const Tensor y = layer.forward(x);
  y.sum().backward();
  EXPECT_LT(test::distance(y, at::linear(x, layer.weight->value)), 1e-12);
  EXPECT_FALSE(layer.bias->has_grad());
}

TEST(Linear, BiasGradientOfBfloat16IsFp32) {
  const Specs s = specs(6, 8, 1);
  const Context context{.tp = {}, .options = test::options(at::kBFloat16)};
  ColumnLinear layer(s.up, s.bias, context);
  test::randomize({layer.weight.get(), layer.bias.get()});
  const Tensor y = layer.forward(test::named_random("x", {40, 2, 6}).to(at::kBFloat16));
  const Tensor probe = test::named_random("probe", y.sizes()).to(at::kBFloat16);
  y.backward(probe);
  EXPECT_LT(test::distance(layer.bias->main_grad, probe.to(at::kDouble).reshape({-1, probe.size(-1)}).sum(0)),
            1e-6);
}

/// Records this thread's GEMMs as events of a backend during its lifetime.
class GemmWatch {
 public:
  explicit GemmWatch(std::shared_ptr<test::RecordingBackend> to)
      : guard_(c10::DebugInfoKind::TEST_INFO, std::make_shared<Target>(std::move(to))),
        handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&note))) {}
  ~GemmWatch() { at::removeCallback(handle_); }
  GemmWatch(const GemmWatch&) = delete;
  GemmWatch& operator=(const GemmWatch&) = delete;

 private:
  struct Target : c10::DebugInfoBase {
    explicit Target(std::shared_ptr<test::RecordingBackend> to) : backend(std::move(to)) {}
    std::shared_ptr<test::RecordingBackend> backend;
  };
  static std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
    const std::string name = function.name();
    auto* target = static_cast<Target*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::TEST_INFO));
    if (name == "aten::mm" || name == "aten::addmm_") target->backend->events.push_back(name);
    return nullptr;
  }

  c10::DebugInfoGuard guard_;
  at::CallbackHandle handle_;
};

/// Events of ColumnLinear's backward pass in a group of two, in order. The input gradient is the mm, the
/// weight gradient the addmm_.
std::vector<std::string> backward_events(bool sequence_parallel) {
  const auto backend = std::make_shared<test::RecordingBackend>(2);
  const Context context{.tp = comm::Group(backend, "tp"),
                        .sequence_parallel = sequence_parallel,
                        .options = at::dtype(at::kDouble)};
  const ColumnLinear layer(specs(6, 8, 1).up, std::nullopt, context);
  const Tensor x = at::ones({4, 2, 6}, at::kDouble).set_requires_grad(true);
  const Tensor y = layer.forward(x);
  backend->events.clear();
  const GemmWatch watch(backend);
  y.backward(at::ones_like(y));
  return backend->events;
}

TEST(Linear, InputGradientAllReduceOverlapsTheWeightGradient) {
  EXPECT_THAT(backward_events(false),
              testing::ElementsAre("aten::mm", "start all_reduce up", "aten::addmm_", "wait all_reduce up"));
}

TEST(Linear, SequenceAllGatherOverlapsTheInputGradient) {
  EXPECT_THAT(backward_events(true),
              testing::ElementsAre("start all_gather up", "aten::mm", "start reduce_scatter up",
                                   "wait all_gather up", "aten::addmm_", "wait reduce_scatter up"));
}

TEST(Linear, RejectsInputOfAnotherWidthByName) {
  const Specs s = specs(6, 8, 1);
  const Context context{.tp = {}, .options = test::options(at::kDouble)};
  const ColumnLinear up(s.up, s.bias, context);
  try {
    up.forward(at::ones({4, 2, 5}, test::options(at::kDouble)));
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("ColumnLinear up"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace colonnade::layers
