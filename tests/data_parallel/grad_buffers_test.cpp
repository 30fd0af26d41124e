// Flat buffers: layout, equality of all reduction modes with the sum over replicas, and coverage by shards.
#include "colonnade/data_parallel/grad_buffers.h"

#include <gmock/gmock.h>

#include <mutex>
#include <numeric>

#include "colonnade/comm/null_backend.h"
#include "colonnade/layout/params/gpt.h"
#include "support/device.h"
#include "support/dtypes.h"
#include "support/recording_backend.h"
#include "support/split.h"

namespace colonnade::data_parallel {
namespace {

using at::Tensor;
using tensor::Parameter;

layout::ParamSpec plain(const std::string& name, std::vector<std::int64_t> shape) {
  return {.name = name, .shape = std::move(shape)};
}

/// Parameters of two model chunks; the last one is never used.
struct Toy {
  std::vector<std::unique_ptr<Parameter>> all;
  std::vector<std::vector<Parameter*>> chunks{{}, {}};

  Toy() {
    add(0, plain("a", {5, 7}));
    add(0, plain("b", {11}));
    add(0, plain("c", {3, 50}));
    add(1, plain("d", {200}));
    add(1, plain("unused", {9}));
  }
  void add(std::size_t chunk, const layout::ParamSpec& spec) {
    all.push_back(std::make_unique<Parameter>(spec, layout::Position(), test::options(at::kDouble)));
    chunks[chunk].push_back(all.back().get());
    test::randomize({all.back().get()});
  }
};

Tensor gradient(const Parameter& p, int rank, int microbatch) {
  return test::named_random(fmt::format("{} {} {}", p.spec.name, rank, microbatch), p.value.sizes());
}

/// A backward pass over one model chunk with the gradients of gradient().
void backward(const std::vector<Parameter*>& chunk, int rank, int microbatch) {
  Tensor loss = at::zeros({}, test::options(at::kDouble));
  for (Parameter* p : chunk)
    if (p->spec.name != "unused") loss = loss + (p->value * gradient(*p, rank, microbatch)).sum();
  loss.backward();
}

void run_step(GradBuffers& buffers, const Toy& toy, int rank) {
  buffers.start_step();
  for (int m = 0; m < 2; ++m)
    for (int c = 1; c >= 0; --c) {
      if (m == 1) buffers.mark_last_microbatch(c);
      backward(toy.chunks[static_cast<std::size_t>(c)], rank, m);
    }
  buffers.finish();
}

TEST(GradBuffers, AreAlignedAndInBackwardOrder) {
  for (const int replicas : {1, 3}) {
    comm::run_ranks(replicas, [&](comm::Communicators& ranks) {
      Toy toy;
      GradBuffers buffers(
          toy.chunks, {.data = ranks.world()},
          {.dtypes = test::kFloat64, .bucket_elements = 100, .sharding = layout::Sharding::kOptimizer});
      std::vector<std::string> order;
      std::int64_t end = 0;
      for (const auto& entry : buffers.entries()) {
        order.push_back(entry.parameter->spec.name);
        EXPECT_EQ(entry.begin % 64, 0) << entry.parameter->spec.name;
        EXPECT_GE(entry.begin, end);
        end = entry.begin + entry.parameter->value.numel();
      }
      EXPECT_EQ(order, (std::vector<std::string>{"c", "b", "a", "unused", "d"}));
      // c closes a bucket at 150 elements, b and a share one, unused and d another.
      ASSERT_EQ(buffers.owned().size(), 3U);
      const std::int64_t step = std::lcm<std::int64_t>(replicas, 128);
      for (const OwnedShard& owned : buffers.owned())
        EXPECT_EQ((owned.end - owned.begin) * replicas % step, 0);
      EXPECT_EQ(buffers.params().numel() % step, 0);
    });
  }
}

TEST(GradBuffers, HoldValuesAndGradientsAsViews) {
  Toy toy;
  const GradBuffers buffers(toy.chunks, {}, {.dtypes = test::kFloat64});
  for (const auto& [p, begin] : buffers.entries()) {
    const Tensor flat = buffers.params().narrow(0, begin, p->value.numel());
    EXPECT_TRUE(at::equal(flat, test::full_value(p->spec).view(-1))) << p->spec.name;
    EXPECT_EQ(flat.const_data_ptr(), p->value.const_data_ptr());
    EXPECT_EQ(buffers.grads().narrow(0, begin, 1).const_data_ptr(), p->main_grad.const_data_ptr());
  }
}

struct Mode {
  bool overlap, distributed;
  std::int64_t bucket;
};

/// Expects the flat gradient `expected` of `p` in the elements that this rank owns.
void expect_owned(GradBuffers& buffers, const Parameter& p, std::int64_t begin, const Tensor& expected) {
  for (const OwnedShard& owned : buffers.owned()) {
    const auto from = std::max(begin, owned.begin);
    const auto to = std::min(begin + p.value.numel(), owned.end);
    if (from >= to) continue;
    EXPECT_TRUE(at::allclose(buffers.grads().narrow(0, from, to - from),
                             expected.narrow(0, from - begin, to - from), 1e-12, 1e-14))
        << p.spec.name;
  }
}

/// Sum of the gradients of all micro-batches on all replicas.
Tensor summed_gradient(const Parameter& p, int replicas, int microbatches) {
  Tensor sum = at::zeros_like(p.value);
  for (int r = 0; r < replicas && p.spec.name != "unused"; ++r)
    for (int m = 0; m < microbatches; ++m) sum += gradient(p, r, m);
  return sum.view(-1);
}

TEST(GradBuffers, EveryModeGivesTheSumOverReplicas) {
  const int replicas = test::thread_ranks(3);
  for (const Mode& mode : {Mode{false, false, 100}, Mode{true, false, 100}, Mode{false, true, 100},
                           Mode{true, true, 100}, Mode{true, true, 1}, Mode{true, false, 1'000'000}}) {
    SCOPED_TRACE(
        fmt::format("overlap {} distributed {} bucket {}", mode.overlap, mode.distributed, mode.bucket));
    comm::run_ranks(replicas, [&](comm::Communicators& ranks) {
      Toy toy;
      GradBuffers buffers(
          toy.chunks, {.data = ranks.world()},
          {.dtypes = test::kFloat64,
           .bucket_elements = mode.bucket,
           .overlap_grad_reduce = mode.overlap,
           .sharding = mode.distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone});
      for (int step = 0; step < 2; ++step) {  // the second step starts from a used buffer
        if (step == 1) buffers.grads().fill_(1e30);
        run_step(buffers, toy, ranks.rank());
        SCOPED_TRACE(fmt::format("step {}", step));
        for (const auto& [p, begin] : buffers.entries())
          expect_owned(buffers, *p, begin, summed_gradient(*p, replicas, 2));
      }
    });
  }
}

TEST(GradBuffers, ReduceDuringTheLastBackwardPass) {
  comm::run_ranks(2, [&](comm::Communicators& ranks) {
    Toy toy;
    GradBuffers buffers(toy.chunks, {.data = ranks.world()},
                        {.dtypes = test::kFloat64, .bucket_elements = 100, .overlap_grad_reduce = true});
    buffers.start_step();
    backward(toy.chunks[0], ranks.rank(), 0);
    const Parameter& c = *toy.chunks[0][2];
    EXPECT_TRUE(
        at::allclose(c.main_grad, gradient(c, ranks.rank(), 0)));  // local gradient only: not reduced yet
    buffers.mark_last_microbatch(0);
    backward(toy.chunks[0], ranks.rank(), 1);
    Tensor sum = at::zeros_like(c.value);
    for (int i = 0; i < 4; ++i) sum += gradient(c, i / 2, i % 2);
    const Tensor own = gradient(c, ranks.rank(), 0) + gradient(c, ranks.rank(), 1);
    EXPECT_FALSE(at::allclose(c.main_grad, own)) << "thread ranks reduce at once: before finish()";
    buffers.mark_last_microbatch(1);
    backward(toy.chunks[1], ranks.rank(), 0);
    buffers.finish();
    EXPECT_TRUE(at::allclose(c.main_grad, sum));
  });
}

TEST(GradBuffers, ShardsCoverEveryElementOnce) {
  for (const int replicas : {1, 2, 3, 4}) {
    std::mutex mutex;
    std::vector<int> owners;
    comm::run_ranks(replicas, [&](comm::Communicators& ranks) {
      Toy toy;
      const GradBuffers buffers(
          toy.chunks, {.data = ranks.world()},
          {.dtypes = test::kFloat64, .bucket_elements = 100, .sharding = layout::Sharding::kOptimizer});
      const std::lock_guard lock(mutex);
      owners.resize(static_cast<std::size_t>(buffers.params().numel()), 0);
      for (const OwnedShard& owned : buffers.owned())
        for (auto i = owned.begin; i < owned.end; ++i) ++owners[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(std::count(owners.begin(), owners.end(), 1), static_cast<std::ptrdiff_t>(owners.size()))
        << replicas;
  }
}

TEST(GradBuffers, EveryReplicaGetsTheParametersOfTheOwners) {
  for (const bool overlap : {false, true})
    comm::run_ranks(test::thread_ranks(3), [&](comm::Communicators& ranks) {
      Toy toy;
      GradBuffers buffers(toy.chunks, {.data = ranks.world()},
                          {.dtypes = test::kFloat64,
                           .bucket_elements = 100,
                           .overlap_param_gather = overlap,
                           .sharding = layout::Sharding::kOptimizer});
      const Tensor numbers = at::arange(buffers.params().numel(), test::options(at::kDouble));
      for (const OwnedShard& owned : buffers.owned())
        buffers.params()
            .narrow(0, owned.begin, owned.end - owned.begin)
            .copy_(numbers.narrow(0, owned.begin, owned.end - owned.begin));
      buffers.gather_params();
      for (const auto& chunk : toy.chunks) buffers.wait_for(chunk);
      EXPECT_TRUE(at::equal(buffers.params(), numbers));
      const auto& [p, begin] = buffers.entries().front();
      EXPECT_TRUE(at::equal(p->value.detach().view(-1), numbers.narrow(0, begin, p->value.numel())));
    });
}

/// Three buckets, half-owned by rank 0 of two, with recorded communication.
struct Gathers {
  explicit Gathers(bool overlap)
      : buffers(toy.chunks, {.data = comm::Group(backend, "dp")},
                {.dtypes = test::kFloat64,
                 .bucket_elements = 100,
                 .overlap_param_gather = overlap,
                 .sharding = layout::Sharding::kOptimizer}) {}
  std::vector<std::string> events() const { return std::exchange(backend->events, {}); }

  const std::shared_ptr<test::RecordingBackend> backend = std::make_shared<test::RecordingBackend>(2);
  Toy toy;
  GradBuffers buffers;
};

TEST(GradBuffers, WaitForGatheredParametersChunkByChunk) {
  Gathers g(true);
  g.buffers.gather_params();
  EXPECT_THAT(g.events(), testing::ElementsAre("start all_gather gradient bucket 2 (unused ... d)",
                                               "start all_gather gradient bucket 1 (b ... a)",
                                               "start all_gather gradient bucket 0 (c ... c)"));
  g.buffers.wait_for(g.toy.chunks[1]);
  EXPECT_THAT(g.events(), testing::ElementsAre("wait all_gather gradient bucket 2 (unused ... d)"));
  g.buffers.wait_for(g.toy.chunks[0]);
  EXPECT_THAT(g.events(), testing::ElementsAre("wait all_gather gradient bucket 1 (b ... a)",
                                               "wait all_gather gradient bucket 0 (c ... c)"));
}

TEST(GradBuffers, WaitForEachGatherWithoutOverlap) {
  Gathers g(false);
  g.buffers.gather_params();
  EXPECT_THAT(g.events(), testing::ElementsAre("start all_gather gradient bucket 2 (unused ... d)",
                                               "wait all_gather gradient bucket 2 (unused ... d)",
                                               "start all_gather gradient bucket 1 (b ... a)",
                                               "wait all_gather gradient bucket 1 (b ... a)",
                                               "start all_gather gradient bucket 0 (c ... c)",
                                               "wait all_gather gradient bucket 0 (c ... c)"));
}

TEST(GradBuffers, ReduceExpertsOverTheirOwnReplicas) {
  config::Parallel parallel;
  parallel.world_size = 4;
  parallel.expert_model_parallel_size = 2;
  layout::ParamSpec spec = plain("experts", {4, 3});
  spec.param_group = layout::ParamGroup::kExpert;
  spec.sharded_dims = {{.dim = 0, .axis = layout::Axis::kEp, .segments = {{.size = 4}}}};
  for (const bool distributed : {false, true})
    comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
      Parameter dense(plain("dense", {30}), {}, at::dtype(at::kDouble));
      Parameter experts(spec, ranks.mesh().position(ranks.rank()), at::dtype(at::kDouble));
      GradBuffers buffers(
          {{&dense, &experts}},
          {.data = ranks.group({layout::Axis::kDp}), .expert_data = ranks.group({layout::Axis::kEdp})},
          {.dtypes = test::kFloat64,
           .sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone});
      const double own = std::pow(10, ranks.rank());
      for (Parameter* p : {&dense, &experts}) p->accumulate(at::full_like(p->value, own));
      buffers.finish();
      // Ranks 0 and 2 hold the first two experts, ranks 1 and 3 the others.
      const double of_experts = ranks.rank() % 2 == 0 ? 101 : 1010;
      double seen = 0;
      for (const auto& [p, begin] : buffers.entries())
        for (const OwnedShard& owned : buffers.owned()) {
          const auto from = std::max(begin, owned.begin);
          const auto to = std::min(begin + p->value.numel(), owned.end);
          if (from >= to) continue;
          seen += static_cast<double>(to - from);
          EXPECT_TRUE((buffers.grads().narrow(0, from, to - from) == (p == &dense ? 1111 : of_experts))
                          .all()
                          .item<bool>());
        }
      EXPECT_TRUE(distributed || seen == 36) << seen;
    });
}

TEST(GradBuffers, ExtraReductionsFollowThatOverTheReplicas) {
  const auto backend = std::make_shared<test::RecordingBackend>(2);
  layout::ParamSpec spec = plain("norm", {6});
  spec.partial = {layout::Axis::kTp};
  Parameter norm(spec, {}, at::dtype(at::kDouble));
  GradBuffers buffers({{&norm}}, {.data = comm::Group(backend, "dp"), .tensor = comm::Group(backend, "tp")},
                      {.dtypes = test::kFloat64});
  buffers.finish();
  const std::string bucket = "all_reduce gradient bucket 0 (norm ... norm)";
  EXPECT_THAT(backend->events,
              testing::ElementsAre("start " + bucket, "wait " + bucket, "start " + bucket + " / partial",
                                   "wait " + bucket + " / partial"));
}

TEST(GradBuffers, ReduceTiedEmbeddingsOverBothStages) {
  config::Parallel parallel;
  parallel.world_size = 4;
  parallel.pipeline_model_parallel_size = 2;
  for (const bool distributed : {false, true})
    for (const bool overlap : {false, true})
      comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
        // Stages have different other parameters; the table's shards must still match.
        const int stage = ranks.coord(layout::Axis::kPp);
        layout::ParamSpec spec = plain("table", {30, 10});
        spec.held_by = layout::HeldBy::kTiedEmbeddings;
        Parameter table(spec, {}, at::dtype(at::kDouble));
        Parameter other(plain("other", {stage == 0 ? 17 : 333}), {}, at::dtype(at::kDouble));
        table.is_tied_copy = stage == 1;
        GradBuffers buffers(
            {{&table, &other}},
            {.data = ranks.group({layout::Axis::kDp, layout::Axis::kCp}),
             .stages = {{layout::HeldBy::kTiedEmbeddings, ranks.pipeline_group({0, 1}, "embedding")}}},
            {.dtypes = test::kFloat64,
             .overlap_grad_reduce = overlap,
             .sharding = distributed ? layout::Sharding::kOptimizer : layout::Sharding::kNone});
        buffers.mark_last_microbatch(0);
        backward({&table, &other}, ranks.rank(), 0);
        buffers.finish();
        for (const auto& [p, begin] : buffers.entries())
          if (p == &table) expect_owned(buffers, table, begin, summed_gradient(table, 4, 1));
      });
}

/// Two layers of 8 heads and `groups` key-value heads, with biases and LayerNorm.
config::Model layers_of(std::int64_t groups) {
  config::Model model;
  model.num_layers = 2;
  model.hidden_size = model.ffn_hidden_size = 16;
  model.num_attention_heads = 8;
  model.num_query_groups = groups;
  model.kv_channels = 2;
  model.vocab_size = 8;
  return model;
}

/// This rank's parameters of all layers.
struct Layers {
  std::vector<std::unique_ptr<Parameter>> all;
  std::vector<Parameter*> list;

  Layers(const config::Model& model, const config::Parallel& parallel, const comm::Group& tp) {
    for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
      layout::for_each(layout::layer_params(model, parallel, layer), [&](const layout::ParamSpec& spec) {
        all.push_back(std::make_unique<Parameter>(
            spec, layout::Position::on(layout::Axis::kTp, tp.rank(), tp.size()), at::dtype(at::kDouble)));
        list.push_back(all.back().get());
      });
  }
};

TEST(PartialSums, AreReducedOverAllHolders) {
  const auto parallel = test::tensor_parallel(4, true);
  comm::run_ranks(parallel, [&](comm::Communicators& ranks) {
    const comm::Group tp = ranks.group({layout::Axis::kTp});
    const Layers layers(layers_of(2), parallel, tp);
    GradBuffers buffers({layers.list}, {.tensor = tp},
                        {.dtypes = test::kFloat64, .overlap_grad_reduce = true});
    buffers.mark_last_microbatch(0);
    backward(layers.list, tp.rank(), 0);
    buffers.finish();
    // Ranks 0, 1 hold group 0 and ranks 2, 3 group 1: rows [q 2 heads | k | v] of 2 each.
    const int partner = tp.rank() ^ 1;
    for (Parameter* p : layers.list) {
      const Tensor mine = gradient(*p, tp.rank(), 0);
      Tensor expected = mine.clone();
      if (p->spec.name.find("linear_qkv") != std::string::npos)
        expected.narrow(0, 4, 4).add_(gradient(*p, partner, 0).narrow(0, 4, 4));
      if (p->spec.sharded_dims.empty())
        for (int r = 0; r < 4; ++r) expected = r == 0 ? gradient(*p, r, 0) : expected + gradient(*p, r, 0);
      EXPECT_TRUE(at::equal(p->main_grad, expected)) << p->spec.name;
    }
  });
}

TEST(PartialSums, TakeOneCallPerBucket) {
  const auto parallel = test::tensor_parallel(4, true);
  const auto calls = [&](std::int64_t groups, std::int64_t bucket) {
    const auto log = std::make_shared<comm::CallLog>();
    comm::Communicators ranks(layout::Mesh(parallel), 0, comm::null_factory(log));
    const comm::Group tp = ranks.group({layout::Axis::kTp});
    const Layers layers(layers_of(groups), parallel, tp);
    GradBuffers buffers({layers.list}, {.tensor = tp}, {.dtypes = test::kFloat64, .bucket_elements = bucket});
    buffers.finish();
    return log->table()[{"tp", "all_reduce"}];
  };
  EXPECT_EQ(calls(8, 1'000'000).calls, 1) << "6 norms and biases in each of 2 layers";
  EXPECT_EQ(calls(2, 1'000'000).calls, 2) << "and the shared rows of weights and biases of both layers";
  EXPECT_EQ(calls(8, 1).calls, 12) << "as many as there are buckets";
  // Only keys and values of the fused matrix are sent: 2 kv rows of 16 weights and a bias, in 2 layers.
  EXPECT_EQ(calls(2, 1'000'000).bytes - calls(8, 1'000'000).bytes, 2 * (2 * 4) * (16 + 1) * 8);
}

TEST(GradBuffers, RejectParametersOfTwoDtypes) {
  Parameter a(plain("a", {4}), {}, at::dtype(at::kDouble));
  Parameter b(plain("b", {4}), {}, at::dtype(at::kFloat));
  EXPECT_THROW(GradBuffers({{&a, &b}}, {}, {.dtypes = test::kFloat64}), Error);
}

}  // namespace
}  // namespace colonnade::data_parallel
