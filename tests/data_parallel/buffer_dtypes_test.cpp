// Gradient buffers whose roles differ in dtype: results of an unsplit run, and dtypes of storage and
// messages.
#include <gtest/gtest.h>

#include "colonnade/base/error.h"
#include "colonnade/comm/null_backend.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/tensor/dtypes.h"
#include "support/dtypes.h"
#include "support/split.h"

namespace colonnade::data_parallel {
namespace {

using at::Tensor;
using config::Dtype;
using layout::Sharding;
using tensor::Parameter;

constexpr std::int64_t kLength = 300;
constexpr int kBatchesPerRank = 2;

/// Multiplies its input by its parameter, elementwise.
class Scale final : public tensor::Block {
 public:
  Scale(const std::string& name, Dtype dtype)
      : p_({.name = name, .shape = {kLength}}, {}, tensor::options(dtype, at::kCPU)) {
    test::randomize({&p_});
  }
  Tensor forward(const Tensor& x, const tensor::Pass&) override { return p_.value * x; }
  std::vector<Parameter*> parameters() override { return {&p_}; }

 private:
  Parameter p_;
};

/// Two blocks and their buffers.
struct Model {
  Model(const config::Dtypes& dtypes, const Groups& groups, Options options) {
    for (const char* name : {"a", "b"})
      stage.blocks.push_back(std::make_unique<Scale>(name, dtypes.parameter));
    options.dtypes = dtypes;
    options.units = units_of({&stage});
    const std::vector<std::vector<Parameter*>> chunks{stage.parameters()};
    buffers = std::make_unique<GradBuffers>(chunks, groups, options);
    buffers->attach(stage);
  }

  /// One step over micro-batches [first, first + count) of the global batch.
  void step(int first, int count) {
    buffers->start_step();
    for (int m = 0; m < count; ++m) {
      if (m + 1 == count) buffers->mark_last_microbatch(0);
      const Tensor x = test::named_random(fmt::format("x {}", first + m), {kLength})
                           .to(tensor::scalar_type(buffers->dtypes().parameter))
                           .requires_grad_();
      const tensor::Batch batch;
      stage.forward(x, {.batch = batch}).sum().backward();
    }
    buffers->finish();
  }

  tensor::Stage stage;
  std::unique_ptr<GradBuffers> buffers;
};

/// Dtypes by role, and a bound on differences between split and unsplit runs relative to the largest
/// gradient.
struct Roles {
  const char* name;
  config::Dtypes dtypes;
  double bound;
};

std::vector<Roles> all_roles() {
  const config::Dtypes bf16 = test::dtypes(at::kBFloat16);
  config::Dtypes bf16_wire = bf16, bf16_gradients = bf16;
  bf16_wire.gradient_wire = Dtype::kBfloat16;
  bf16_gradients.main_gradient = bf16_gradients.gradient_wire = Dtype::kBfloat16;
  return {{"fp32", {}, 1e-6},
          {"bf16 parameters", bf16, 1e-6},
          {"fp16 parameters", test::dtypes(at::kHalf), 1e-6},
          {"bf16 parameters and wire", bf16_wire, 0x1p-6},
          {"bf16 parameters, main gradients and wire", bf16_gradients, 0x1p-4},
          {"float64", test::kFloat64, 1e-14},
          {"float64 with bf16 wire", bf16_wire.in_float64(), 0x1p-6}};
}

constexpr Sharding kShardings[] = {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients,
                                   Sharding::kParameters};

/// Largest difference between this rank's shards of the gradients and the unsplit ones, relative to the
/// largest gradient.
double difference(const Model& split, const Model& whole) {
  double most = 0, largest = 0;
  for (const auto& entry : split.buffers->entries())
    for (const auto& other : whole.buffers->entries()) {
      if (entry.parameter->spec.name != other.parameter->spec.name) continue;
      const Tensor expected = other.parameter->main_grad.view(-1).to(at::kDouble);
      largest = std::max(largest, expected.abs().max().item<double>());
      for (const OwnedShard& owned : split.buffers->owned()) {
        const std::int64_t from = std::max(entry.begin, owned.begin);
        const std::int64_t to = std::min(entry.begin + kLength, owned.end);
        if (from >= to) continue;
        const Tensor got = owned.grads.narrow(0, from - owned.begin, to - from).to(at::kDouble);
        most = std::max(most,
                        (got - expected.narrow(0, from - entry.begin, to - from)).abs().max().item<double>());
      }
    }
  return most / largest;
}

TEST(BufferDtypes, GradientsEqualThoseOfAnUnsplitRun) {
  const int ranks_in_all = 4;
  for (const Roles& roles : all_roles())
    for (const Sharding sharding : kShardings)
      for (const bool overlap : {false, true})
        comm::run_ranks(ranks_in_all, [&](comm::Communicators& ranks) {
          Model split(
              roles.dtypes, {.data = ranks.world()},
              {.overlap_grad_reduce = overlap, .overlap_param_gather = overlap, .sharding = sharding});
          Model whole(roles.dtypes, {}, {});
          split.step(kBatchesPerRank * ranks.rank(), kBatchesPerRank);
          whole.step(0, kBatchesPerRank * ranks_in_all);
          const double got = difference(split, whole);
          EXPECT_LT(got, roles.bound) << roles.name << ", sharding " << static_cast<int>(sharding);
          EXPECT_TRUE(!roles.dtypes.rounds_gradients() || got > 0x1p-14) << roles.name << ": not rounded";
        });
}

TEST(BufferDtypes, EveryRoleHasItsDtype) {
  for (const Roles& roles : all_roles())
    for (const Sharding sharding : kShardings) {
      config::Parallel parallel;
      parallel.world_size = 2;
      const auto log = std::make_shared<comm::CallLog>();
      comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
      Model model(roles.dtypes, {.data = ranks.world()}, {.sharding = sharding});
      model.step(0, kBatchesPerRank);
      model.buffers->gather_params();
      EXPECT_EQ(model.buffers->params().scalar_type(), tensor::scalar_type(roles.dtypes.parameter));
      EXPECT_EQ(model.buffers->grads().scalar_type(), tensor::scalar_type(roles.dtypes.main_gradient));
      for (const Parameter* p : model.stage.parameters()) {
        EXPECT_EQ(p->value.scalar_type(), tensor::scalar_type(roles.dtypes.parameter));
        EXPECT_EQ(p->main_grad.scalar_type(), tensor::scalar_type(roles.dtypes.main_gradient));
      }
      bool reduced = false;
      for (const comm::LoggedCall& call : log->calls()) {
        const bool gathers = call.operation == "all_gather";
        reduced = reduced || !gathers;
        EXPECT_EQ(call.dtype,
                  tensor::scalar_type(gathers ? roles.dtypes.parameter_wire : roles.dtypes.gradient_wire))
            << roles.name << ": " << call.operation << " " << call.what;
      }
      EXPECT_TRUE(reduced);
    }
}

TEST(BufferDtypes, ARankWithoutParametersHasThemToo) {
  const config::Dtypes dtypes = test::dtypes(at::kBFloat16);
  const GradBuffers buffers({}, {}, {.dtypes = dtypes, .device = at::kMeta});
  EXPECT_EQ(buffers.params().scalar_type(), at::kBFloat16);
  EXPECT_EQ(buffers.grads().scalar_type(), at::kFloat);
  EXPECT_TRUE(buffers.grads().is_meta());
}

TEST(BufferDtypes, ParametersAreGatheredInTheirOwnDtypeOnly) {
  comm::run_ranks(2, [&](comm::Communicators& ranks) {
    Model model({.parameter_wire = Dtype::kBfloat16}, {.data = ranks.world()},
                {.sharding = Sharding::kOptimizer});
    EXPECT_THROW(model.buffers->gather_params(), Error);
  });
}

}  // namespace
}  // namespace colonnade::data_parallel
