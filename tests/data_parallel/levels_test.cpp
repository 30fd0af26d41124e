// Distributed-optimizer instances: sums, shards and gathered values equal those of one level for every
// sharding within and between instances, and the outer group communicates once a step.
#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

#include "colonnade/comm/null_backend.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "support/dtypes.h"
#include "support/split.h"

namespace colonnade::data_parallel {
namespace {

using at::Tensor;
using layout::Sharding;
using tensor::Parameter;

/// y = x W + b by plain autograd.
class LevelAffine final : public tensor::Block {
 public:
  LevelAffine(const std::string& name, std::int64_t width)
      : w_({.name = name + ".w", .shape = {5, width}}, {}, at::dtype(at::kDouble)),
        b_({.name = name + ".b", .shape = {width}}, {}, at::dtype(at::kDouble)) {
    test::randomize({&w_, &b_});
  }
  Tensor forward(const Tensor& x, const tensor::Pass&) override {
    return at::cat({x.matmul(w_.value) + b_.value, x}, 1).narrow(1, 0, 5);
  }
  std::vector<Parameter*> parameters() override { return {&w_, &b_}; }

 private:
  Parameter w_, b_;
};

/// Blocks of uneven sizes: 24, 6 and 108 elements.
struct LevelToy {
  LevelToy() {
    stage.blocks.push_back(std::make_unique<LevelAffine>("first", 4));
    stage.blocks.push_back(std::make_unique<LevelAffine>("second", 1));
    stage.blocks.push_back(std::make_unique<LevelAffine>("third", 18));
  }
  tensor::Stage stage;
  [[nodiscard]] std::vector<std::vector<Parameter*>> chunks() const { return {stage.parameters()}; }

  void micro_batch(int number) {
    const tensor::Batch batch;
    const Tensor x = test::named_random(fmt::format("x {}", number), {3, 5}).requires_grad_();
    stage.forward(x, {.batch = batch}).square().sum().backward();
  }
};

struct Case {
  int ranks, instances;
  Sharding sharding;
  bool shard_outer, overlap;
  std::int64_t bucket;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto& [ranks, instances] : {std::pair(4, 1), {4, 2}, {4, 4}, {6, 2}, {6, 3}})
    for (const Sharding sharding : {Sharding::kOptimizer, Sharding::kGradients, Sharding::kParameters})
      for (const bool shard_outer : {false, true})
        for (const bool overlap : {false, true})
          all.push_back({ranks, instances, sharding, shard_outer, overlap, overlap ? 1 : 1 << 20});
  return all;
}

std::string text(const Case& c) {
  return fmt::format("{} ranks in {} instances, sharding {}, {}{}", c.ranks, c.instances,
                     static_cast<int>(c.sharding), c.shard_outer ? "sharded between them, " : "",
                     c.overlap ? "overlapped" : "");
}

Options options(const Case& c, LevelToy& toy) {
  return {.dtypes = test::kFloat64,
          .bucket_elements = c.bucket,
          .overlap_grad_reduce = c.overlap,
          .overlap_param_gather = c.overlap,
          .sharding = c.sharding,
          .shard_outer = c.shard_outer,
          .units = units_of({&toy.stage})};
}

ReplicaGroups levels(comm::Communicators& ranks, layout::Axis axis, int instances) {
  auto [inner, outer] = ranks.inner_outer_groups({axis}, ranks.mesh().size(axis) / instances);
  return {inner, outer};
}

/// Calls body(parameter, first element, shard, offset in shard, length) for every part of a parameter owned
/// here.
template <typename Body>
void each_owned(const GradBuffers& buffers, const Body& body) {
  for (const OwnedShard& owned : buffers.owned())
    for (const auto& [parameter, begin] : buffers.entries()) {
      const std::int64_t from = std::max(owned.begin, begin);
      const std::int64_t to = std::min(owned.end, begin + parameter->value.numel());
      if (from < to) body(*parameter, from - begin, owned, from - owned.begin, to - from);
    }
}

constexpr int kMicroBatches = 3;

TEST(OptimizerInstances, GradientsEqualTheSumOverAllReplicas) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    LevelToy alone;  // runs all micro-batches of all ranks
    for (int m = 0; m < c.ranks * kMicroBatches; ++m) alone.micro_batch(m);
    comm::run_ranks(c.ranks, [&](comm::Communicators& ranks) {
      LevelToy toy;
      GradBuffers buffers(toy.chunks(), {.data = levels(ranks, layout::Axis::kDp, c.instances)},
                          options(c, toy));
      buffers.attach(toy.stage);
      const auto parameters = toy.stage.parameters(), whole = alone.stage.parameters();
      for (int step = 0; step < 2; ++step) {  // the second step starts with used buffers
        buffers.start_step();
        for (int m = 0; m < kMicroBatches; ++m) {
          if (m == kMicroBatches - 1) buffers.mark_last_microbatch(0);
          toy.micro_batch(ranks.rank() * kMicroBatches + m);
        }
        buffers.finish();
        each_owned(buffers, [&](Parameter& p, std::int64_t first, const OwnedShard& owned, std::int64_t at,
                                std::int64_t length) {
          const auto number = std::ranges::find(parameters, &p) - parameters.begin();
          const Tensor want =
              whole[static_cast<std::size_t>(number)]->main_grad.flatten().narrow(0, first, length);
          EXPECT_LT(test::distance(owned.grads.narrow(0, at, length), want), 1e-12) << p.spec.name;
        });
      }
    });
  }
}

TEST(OptimizerInstances, ElementsAreCountedAndSavedOnceAndUpdatedPerInstance) {
  for (const Case& c : cases()) {
    if (c.overlap) continue;
    SCOPED_TRACE(text(c));
    std::mutex mutex;
    std::map<std::string, Tensor> owners, counted, saved;
    comm::run_ranks(c.ranks, [&](comm::Communicators& ranks) {
      LevelToy toy;
      GradBuffers buffers(toy.chunks(), {.data = levels(ranks, layout::Axis::kDp, c.instances)},
                          options(c, toy));
      const std::lock_guard lock(mutex);
      const auto mark = [](auto& sums, const Parameter& p, std::int64_t first, std::int64_t length) {
        Tensor& sum = sums[p.spec.name];
        if (!sum.defined()) sum = at::zeros({p.value.numel()});
        sum.narrow(0, first, length).add_(1);
      };
      each_owned(buffers,
                 [&](Parameter& p, std::int64_t first, const OwnedShard&, std::int64_t, std::int64_t length) {
                   mark(owners, p, first, length);
                   if (buffers.is_primary_replica(p.spec.param_group)) mark(counted, p, first, length);
                 });
      for (const Parameter* p : toy.stage.parameters())
        if (const LocalSlice here = buffers.local_slice(*p); here.is_saver)
          mark(saved, *p, here.begin, here.values.numel());
    });
    EXPECT_EQ(owners.size(), 6U);
    for (const auto& [name, sum] : owners) {
      EXPECT_TRUE((sum == (c.shard_outer ? 1 : c.instances)).all().item<bool>()) << name;
      EXPECT_TRUE((counted[name] == 1).all().item<bool>()) << name;
      EXPECT_TRUE((saved[name] == 1).all().item<bool>()) << name;
    }
  }
}

/// Checks that every block sees `value` times 0, 1, 2, ... in each of its parameters.
void expect_numbers(tensor::Stage& stage, double value) {
  for (const auto& block : stage.blocks) {
    if (stage.before_forward) stage.before_forward(*block);
    for (const Parameter* p : block->parameters())
      EXPECT_TRUE(at::equal(p->value.flatten(), at::arange(p->value.numel(), at::kDouble) * value))
          << p->spec.name;
    if (stage.after_forward) stage.after_forward(*block, {}, at::zeros({}));
  }
}

TEST(OptimizerInstances, EveryRankGetsTheParametersOfTheOwners) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(text(c));
    comm::run_ranks(c.ranks, [&](comm::Communicators& ranks) {
      LevelToy toy;
      GradBuffers buffers(toy.chunks(), {.data = levels(ranks, layout::Axis::kDp, c.instances)},
                          options(c, toy));
      buffers.attach(toy.stage);
      const at::NoGradGuard no_grad;
      for (const double value : {1.0, 2.0}) {
        each_owned(buffers, [&](Parameter&, std::int64_t first, const OwnedShard& owned, std::int64_t at,
                                std::int64_t length) {
          owned.params.narrow(0, at, length).copy_(at::arange(first, first + length, at::kDouble) * value);
        });
        buffers.gather_params();
        buffers.wait_for(toy.stage.parameters());
        expect_numbers(toy.stage, value);
      }
      // Values written as by a checkpoint are those that the optimizer updates.
      for (const Parameter* p : toy.stage.parameters()) buffers.local_slice(*p).values.fill_(7);
      each_owned(buffers, [&](Parameter& p, std::int64_t, const OwnedShard& owned, std::int64_t at,
                              std::int64_t length) {
        EXPECT_TRUE((owned.params.narrow(0, at, length) == 7).all().item<bool>()) << p.spec.name;
      });
    });
  }
}

TEST(OptimizerInstances, ExpertsHaveTheirOwnInstances) {
  config::Parallel parallel;
  parallel.world_size = 8;
  parallel.expert_model_parallel_size = 2;
  layout::ParamSpec spec{.name = "experts", .shape = {4, 3}, .param_group = layout::ParamGroup::kExpert};
  spec.sharded_dims = {{.dim = 0, .axis = layout::Axis::kEp, .segments = {{.size = 4}}}};
  for (const int instances : {1, 2, 4})
    for (const bool shard_outer : {false, true})
      comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
        Parameter dense({.name = "dense", .shape = {30}}, {}, at::dtype(at::kDouble));
        Parameter experts(spec, ranks.mesh().position(ranks.rank()), at::dtype(at::kDouble));
        GradBuffers buffers(
            {{&dense, &experts}},
            {.data = levels(ranks, layout::Axis::kDp, instances),
             .expert_data = levels(ranks, layout::Axis::kEdp, instances)},
            {.dtypes = test::kFloat64, .sharding = Sharding::kOptimizer, .shard_outer = shard_outer});
        const double own = std::pow(10, ranks.rank());
        for (Parameter* p : {&dense, &experts}) p->accumulate(at::full_like(p->value, own));
        buffers.finish();
        // Even ranks hold the first two experts, odd ones the others.
        const double of_experts = ranks.rank() % 2 == 0 ? 1010101 : 10101010;
        each_owned(buffers, [&](Parameter& p, std::int64_t, const OwnedShard& owned, std::int64_t at,
                                std::int64_t length) {
          const double want = &p == &dense ? 11111111 : of_experts;
          EXPECT_TRUE((owned.grads.narrow(0, at, length) == want).all().item<bool>()) << p.spec.name;
        });
      });
}

TEST(OptimizerInstances, BucketsDivideEvenlyByAllSharers) {
  for (const bool shard_outer : {false, true})
    comm::run_ranks(6, [&](comm::Communicators& ranks) {
      LevelToy toy;
      const Case c{.ranks = 6,
                   .instances = 2,
                   .sharding = Sharding::kOptimizer,
                   .shard_outer = shard_outer,
                   .bucket = 1 << 20};
      const GradBuffers buffers(toy.chunks(), {.data = levels(ranks, layout::Axis::kDp, 2)}, options(c, toy));
      EXPECT_EQ(buffers.params().numel() % (shard_outer ? 6 * 64 : 3 * 128), 0);
      for (const OwnedShard& owned : buffers.owned())
        EXPECT_EQ(owned.params.numel() * (shard_outer ? 6 : 3), buffers.params().numel());
    });
}

/// Bytes that rank 0 passes to its groups in a step, by axes and operation.
comm::CallLog::Table calls_of(const Case& c) {
  config::Parallel parallel;
  parallel.world_size = c.ranks;
  const auto log = std::make_shared<comm::CallLog>();
  comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
  LevelToy toy;
  GradBuffers buffers(toy.chunks(), {.data = levels(ranks, layout::Axis::kDp, c.instances)}, options(c, toy));
  buffers.attach(toy.stage);
  for (int m = 0; m < kMicroBatches; ++m) toy.micro_batch(m);
  buffers.finish();
  buffers.gather_params();
  return log->table();
}

TEST(OptimizerInstances, OnlyShardsCrossInstancesOnceAStep) {
  const std::string inner = "dp.2.inner", outer = "dp.2.outer";
  const std::int64_t bytes = (128 + 128 + 256) * 8;  // a bucket for each block, in float64
  Case c{.ranks = 4, .instances = 2, .sharding = Sharding::kParameters, .bucket = 1 << 20};
  auto calls = calls_of(c);
  EXPECT_EQ((calls[{inner, "reduce_scatter"}].bytes), kMicroBatches * bytes);
  EXPECT_EQ((calls[{inner, "all_gather"}].bytes), 2 * kMicroBatches * bytes);
  EXPECT_EQ((calls[{outer, "all_reduce"}].bytes), bytes / 2);
  EXPECT_EQ((calls[{outer, "all_gather"}].calls), 0);
  c.shard_outer = true;
  calls = calls_of(c);
  EXPECT_EQ((calls[{outer, "reduce_scatter"}].bytes), bytes / 2);
  EXPECT_EQ((calls[{outer, "all_gather"}].bytes), bytes / 2);
  EXPECT_EQ((calls[{outer, "all_reduce"}].calls), 0);
  c.sharding = Sharding::kOptimizer;  // one bucket: 138 elements and padding between six parameters
  calls = calls_of(c);
  const std::int64_t flat = calls[{inner, "reduce_scatter"}].bytes;
  EXPECT_EQ((calls[{inner, "all_gather"}].bytes), flat);
  EXPECT_EQ((calls[{outer, "reduce_scatter"}].bytes), flat / 2);
  EXPECT_EQ((calls[{outer, "all_gather"}].bytes), flat / 2);
}

}  // namespace
}  // namespace colonnade::data_parallel
