// Fully sharded blocks: gradients equal those of unsharded buffers, and storage is freed between uses.
#include <gmock/gmock.h>

#include <map>
#include <mutex>

#include "colonnade/comm/null_backend.h"
#include "colonnade/data_parallel/grad_buffers.h"
#include "colonnade/tensor/deferred_weight_grads.h"
#include "support/device.h"
#include "support/dtypes.h"
#include "support/split.h"

namespace colonnade::data_parallel {
namespace {

using at::Tensor;
using tensor::Parameter;

/// y = x W + b by plain autograd.
class Affine final : public tensor::Block {
 public:
  explicit Affine(const std::string& name, layout::HeldBy held_by = layout::HeldBy::kOneStage)
      : w_({.name = name + ".w", .shape = {6, 6}, .held_by = held_by}, {}, test::options(at::kDouble)),
        b_({.name = name + ".b", .shape = {6}}, {}, test::options(at::kDouble)) {
    test::randomize({&w_, &b_});
  }
  Tensor forward(const Tensor& x, const tensor::Pass&) override {
    unsharded.push_back(w_.value.storage().nbytes() > 0);
    return x.matmul(w_.value) + b_.value;
  }
  std::vector<Parameter*> parameters() override { return {&w_, &b_}; }
  std::vector<bool> unsharded;  ///< whether the values had storage in each pass

 private:
  Parameter w_, b_;
};

/// y = x W + b with another block's W, whose gradient it accumulates itself.
class Reader final : public tensor::Block {
 public:
  explicit Reader(Parameter& other)
      : table_(&other), b_({.name = "b", .shape = {6}}, {}, test::options(at::kDouble)) {
    test::randomize({&b_});
  }
  Tensor forward(const Tensor& x, const tensor::Pass&) override {
    unsharded.push_back(table_->value.storage().nbytes() > 0);
    return Product::apply(x, table_->value, table_) + b_.value;
  }
  std::vector<Parameter*> parameters() override { return {&b_}; }
  std::vector<Parameter*> shared_parameters() override { return {table_}; }
  std::vector<bool> unsharded;

 private:
  struct Product : torch::autograd::Function<Product> {
    static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, const Tensor& w,
                          Parameter* p) {
      ctx->save_for_backward({x});
      ctx->saved_data["p"] = reinterpret_cast<std::int64_t>(p);
      return x.matmul(w);
    }
    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                   const torch::autograd::variable_list& grads) {
      auto* p = reinterpret_cast<Parameter*>(ctx->saved_data["p"].toInt());
      p->accumulate_weight_grad(ctx->get_saved_variables()[0], grads[0]);
      return {grads[0].matmul(p->value.detach().t()), Tensor(), Tensor()};
    }
  };
  Parameter* table_;
  Parameter b_;
};

struct UnitToy {
  explicit UnitToy(bool tied = false) {
    stage.blocks.push_back(std::make_unique<Affine>(
        "first", tied ? layout::HeldBy::kTiedEmbeddings : layout::HeldBy::kOneStage));
    for (const char* name : {"second", "third"}) stage.blocks.push_back(std::make_unique<Affine>(name));
    if (!tied) return;
    table = stage.blocks.front()->parameters().front();
    stage.blocks.push_back(std::make_unique<Reader>(*table));
    stage.first = stage.last = true;
  }
  tensor::Stage stage;
  Parameter* table = nullptr;
  [[nodiscard]] std::vector<std::vector<Parameter*>> chunks() const { return {stage.parameters()}; }
  [[nodiscard]] Options options(layout::Sharding sharding, bool overlap) {
    return {.dtypes = test::kFloat64,
            .bucket_elements = 1 << 20,
            .overlap_grad_reduce = overlap,
            .overlap_param_gather = overlap,
            .sharding = sharding,
            .units = units_of({&stage})};
  }
};

void micro_batch(UnitToy& toy, int number) {
  const tensor::Batch batch;
  const Tensor x = test::named_random(fmt::format("x {}", number), {4, 6}).requires_grad_();
  toy.stage.forward(x, {.batch = batch}).square().sum().backward();
}

/// Gradients in this rank's shards, without padding.
std::vector<Tensor> owned_parts(const GradBuffers& buffers) {
  std::vector<Tensor> own;
  for (const OwnedShard& owned : buffers.owned())
    for (const auto& [parameter, begin] : buffers.entries()) {
      const std::int64_t from = std::max(owned.begin, begin);
      const std::int64_t to = std::min(owned.end, begin + parameter->value.numel());
      if (from < to) own.push_back(owned.grads.narrow(0, from - owned.begin, to - from).clone());
    }
  return own;
}

/// OwnedShard gradients of a step of two micro-batches.
std::vector<Tensor> step(UnitToy& toy, GradBuffers& buffers, int rank) {
  buffers.start_step();
  for (int m = 0; m < 2; ++m) {
    if (m == 1) buffers.mark_last_microbatch(0);
    micro_batch(toy, 2 * rank + m);
  }
  buffers.finish();
  return owned_parts(buffers);
}

TEST(ShardedUnits, GradientsEqualTheSumOverReplicas) {
  for (const auto sharding : {layout::Sharding::kGradients, layout::Sharding::kParameters})
    for (const bool overlap : {false, true})
      comm::run_ranks(2, [&](comm::Communicators& ranks) {
        UnitToy plain, sharded;
        Options options = plain.options(layout::Sharding::kOptimizer, false);
        options.bucket_elements = 1;  // a bucket for each parameter
        GradBuffers expected(plain.chunks(), {.data = ranks.world()}, options);
        options = sharded.options(sharding, overlap);
        options.bucket_elements = 1;
        GradBuffers buffers(sharded.chunks(), {.data = ranks.world()}, options);
        buffers.attach(sharded.stage);
        for (int i = 0; i < 2; ++i) {  // the second step starts with used buffers
          const auto want = step(plain, expected, ranks.rank()), got = step(sharded, buffers, ranks.rank());
          ASSERT_EQ(got.size(), want.size());
          for (std::size_t b = 0; b < got.size(); ++b) EXPECT_LT(test::distance(got[b], want[b]), 1e-12);
        }
      });
}

// The last block reads the first one's table: it is unsharded for both and freed in between.
TEST(ShardedUnits, SharedTablesAreUnshardedForEachReader) {
  for (const bool deterministic : {false, true})
    for (const auto sharding : {layout::Sharding::kGradients, layout::Sharding::kParameters})
      for (const bool overlap : {false, true})
        comm::run_ranks(2, [&](comm::Communicators& ranks) {
          UnitToy plain(true), sharded(true);
          GradBuffers expected(plain.chunks(), {.data = ranks.world()},
                               plain.options(layout::Sharding::kOptimizer, false));
          Options options = sharded.options(sharding, overlap);
          options.deterministic = deterministic;
          GradBuffers buffers(sharded.chunks(), {.data = ranks.world()}, options);
          buffers.attach(sharded.stage);
          const auto want = step(plain, expected, ranks.rank()), got = step(sharded, buffers, ranks.rank());
          double all = 0, theirs = 0;
          for (const Tensor& one : want) all += one.square().sum().item<double>();
          for (const Tensor& one : got) theirs += one.square().sum().item<double>();
          const Tensor sums = at::tensor({all, theirs}, at::kDouble);
          ranks.world().all_reduce(sums, "squares").wait();
          EXPECT_NEAR(sums[0].item<double>(), sums[1].item<double>(), 1e-9 * all);
          EXPECT_THAT(static_cast<const Reader&>(*sharded.stage.blocks.back()).unsharded,
                      testing::Each(true));
          if (sharding == layout::Sharding::kParameters) {
            EXPECT_EQ(sharded.table->value.storage().nbytes(), 0U);
          }
          EXPECT_EQ(sharded.table->main_grad.storage().nbytes(), 0U);
        });
}

TEST(ShardedUnits, SupportDeferredWeightGradients) {
  for (const bool overlap : {false, true})
    comm::run_ranks(2, [&](comm::Communicators& ranks) {
      UnitToy plain(true), sharded(true);
      Options options = plain.options(layout::Sharding::kParameters, overlap);
      options.defers_weight_grads = true;
      GradBuffers expected(plain.chunks(), {.data = ranks.world()}, options);
      expected.attach(plain.stage);
      options.units = units_of({&sharded.stage});
      GradBuffers buffers(sharded.chunks(), {.data = ranks.world()}, options);
      buffers.attach(sharded.stage);
      const auto want = step(plain, expected, ranks.rank());

      buffers.start_step();
      std::array<tensor::DeferredWeightGrads, 2> left;
      const std::vector<Parameter*> all = sharded.stage.parameters();
      for (int m = 0; m < 2; ++m) {
        const tensor::DeferScope scope(all, left.at(static_cast<std::size_t>(m)));
        micro_batch(sharded, 2 * ranks.rank() + m);
      }
      for (tensor::DeferredWeightGrads& list : left) {
        EXPECT_FALSE(list.empty());
        buffers.begin_weight_grads();
        EXPECT_EQ(sharded.table->value.storage().nbytes(), 0U);
        list.run(&list == &left.back(), [&](const Parameter& p) { buffers.begin_weight_grad(p); });
      }
      buffers.finish();
      const auto got = owned_parts(buffers);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t b = 0; b < got.size(); ++b) EXPECT_LT(test::distance(got[b], want[b]), 1e-12);
    });
}

TEST(ShardedUnits, FreeStorageBetweenUses) {
  comm::run_ranks(2, [&](comm::Communicators& ranks) {
    UnitToy toy;
    const Tensor before = toy.stage.parameters()[0]->value.detach().clone();
    GradBuffers buffers(toy.chunks(), {.data = ranks.world()},
                        toy.options(layout::Sharding::kParameters, true));
    buffers.attach(toy.stage);
    const auto all_freed = [&] {
      for (const Parameter* p : toy.stage.parameters())
        if (p->value.storage().nbytes() + p->main_grad.storage().nbytes() != 0) return false;
      return true;
    };
    EXPECT_TRUE(all_freed());
    EXPECT_EQ(buffers.params().numel(), 3 * 64);  // half of buckets of 128
    EXPECT_EQ(buffers.grads().numel(), 3 * 64);
    step(toy, buffers, ranks.rank());
    EXPECT_TRUE(all_freed());
    for (const auto& block : toy.stage.blocks)
      EXPECT_THAT(static_cast<const Affine&>(*block).unsharded, testing::Each(true));
    Parameter& first = *toy.stage.parameters()[0];
    const LocalSlice here = buffers.local_slice(first);
    EXPECT_TRUE(here.is_saver);
    EXPECT_TRUE(at::equal(here.values, before.view(-1).narrow(0, here.begin, here.values.numel())));
    here.values.fill_(3);  // as a checkpoint does
    buffers.gather_params();
    EXPECT_TRUE(all_freed());
    tensor::Block& block = *toy.stage.blocks[0];
    toy.stage.before_forward(block);
    EXPECT_TRUE(at::equal(first.value, at::full_like(before, 3)));
    const at::NoGradGuard no_grad;
    toy.stage.after_forward(block, {}, {});
  });
}

TEST(ShardedUnits, StayUnshardedUntilBackwardWithoutResharding) {
  for (const bool reshards : {true, false})
    comm::run_ranks(2, [&](comm::Communicators& ranks) {
      UnitToy toy;
      Options options = toy.options(layout::Sharding::kParameters, false);
      options.reshard_after_forward = reshards;
      GradBuffers buffers(toy.chunks(), {.data = ranks.world()}, options);
      buffers.attach(toy.stage);
      const auto unsharded = [&] {
        return std::ranges::count_if(toy.stage.parameters(),
                                     [](const Parameter* p) { return p->value.storage().nbytes() > 0; });
      };
      const auto parameters = static_cast<std::ptrdiff_t>(toy.stage.parameters().size());
      buffers.start_step();
      buffers.mark_last_microbatch(0);
      const tensor::Batch batch;
      const Tensor x = test::named_random("x", {4, 6}).requires_grad_();
      const Tensor y = toy.stage.forward(x, {.batch = batch});
      EXPECT_EQ(unsharded(), reshards ? 0 : parameters);
      y.sum().backward();
      EXPECT_EQ(unsharded(), 0);
      buffers.finish();
      const at::NoGradGuard no_grad;
      toy.stage.forward(x, {.batch = batch});
      EXPECT_EQ(unsharded(), 0) << "no backward pass follows";
    });
}

/// Local slices of all ranks cover every parameter, and exactly one rank saves each element.
TEST(ShardedUnits, LocalSlicesCoverEveryParameter) {
  for (const auto sharding : {layout::Sharding::kOptimizer, layout::Sharding::kParameters}) {
    std::mutex mutex;
    std::map<std::string, Tensor> saved, expected;
    UnitToy alone;
    for (const Parameter* p : alone.stage.parameters()) {
      expected[p->spec.name] = p->value.detach().clone().view(-1);
      saved[p->spec.name] = at::full({p->value.numel()}, std::nan(""), p->value.options());
    }
    comm::run_ranks(3, [&](comm::Communicators& ranks) {
      UnitToy toy;
      GradBuffers buffers(toy.chunks(), {.data = ranks.world()}, toy.options(sharding, false));
      const std::lock_guard lock(mutex);
      for (const Parameter* p : toy.stage.parameters()) {
        const LocalSlice here = buffers.local_slice(*p);
        if (!here.is_saver) continue;
        const Tensor place = saved.at(p->spec.name).narrow(0, here.begin, here.values.numel());
        EXPECT_TRUE(place.isnan().all().item<bool>()) << "two ranks save it";
        place.copy_(here.values);
      }
    });
    for (const auto& [name, value] : expected) EXPECT_TRUE(at::equal(saved.at(name), value)) << name;
  }
}

TEST(ShardedUnits, OneReplicaShardsNothing) {
  UnitToy toy;
  GradBuffers buffers(toy.chunks(), {}, toy.options(layout::Sharding::kParameters, false));
  buffers.attach(toy.stage);
  step(toy, buffers, 0);
  EXPECT_EQ(buffers.params().numel(), 3 * 128);
  EXPECT_GT(toy.stage.parameters()[0]->value.storage().nbytes(), 0U);
}

}  // namespace
}  // namespace colonnade::data_parallel
