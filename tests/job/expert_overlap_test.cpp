// --overlap-moe-expert-parallel-comm: the all-to-all of one micro-batch is in flight while the other pass of
// its pair computes, on every rank in the same order, and the numbers are bitwise those of a run without it.
#include <gmock/gmock.h>

#include <mutex>

#include "job/gradients.h"
#include "job/planned_layouts.h"
#include "support/backends.h"

namespace colonnade::job {
namespace {

using test::operator+;
using testing::ElementsAre;

constexpr const char* kOverlap = "--overlap-moe-expert-parallel-comm ";

/// Exchanges of rows and other events of one rank, in order.
using Events = std::vector<std::string>;

/// Short name of an exchange of rows: D and C are dispatch and combine, d and c their gradients, with the
/// number of the layer; empty for other calls.
std::string exchange_of(const std::string& what) {
  constexpr std::pair<const char*, const char*> kExchanges[] = {
      {" / rows to their experts", "D"},
      {" / rows back to their tokens", "C"},
      {" / gradients of rows back", "d"},
      {" / gradients of rows to their experts", "c"},
  };
  for (const auto& [suffix, name] : kExchanges)
    if (what.ends_with(suffix)) {
      const auto layer = what.find("layers.") + 7;
      return name + what.substr(layer, what.find('.', layer) - layer);
    }
  return "";
}

/// Records "+X" where exchange X starts and "-X" where a pass waits for it.
class ExchangeRecorder final : public test::ForwardingBackend {
 public:
  ExchangeRecorder(std::shared_ptr<comm::Backend> to, Events& events)
      : ForwardingBackend(std::move(to)), events_(events) {}
  comm::Work all_to_all(at::Tensor out, at::Tensor in, const comm::Rows& rows,
                        const comm::Call& call) override {
    const std::string name = exchange_of(call.what);
    if (!name.empty()) events_.push_back("+" + name);
    auto work = std::make_shared<comm::Work>(ForwardingBackend::all_to_all(out, in, rows, call));
    return comm::Work([this, name, work] {
      if (!name.empty()) events_.push_back("-" + name);
      work->wait();
    });
  }

 private:
  Events& events_;
};

class RecorderFactory final : public comm::GroupFactory {
 public:
  RecorderFactory(std::shared_ptr<comm::GroupFactory> to, Events& events)
      : to_(std::move(to)), events_(events) {}
  std::shared_ptr<comm::Backend> make(const std::vector<int>& ranks, int my_index,
                                      const std::string& name) override {
    return std::make_shared<ExchangeRecorder>(to_->make(ranks, my_index, name), events_);
  }

 private:
  std::shared_ptr<comm::GroupFactory> to_;
  Events& events_;
};

/// Two layers of experts, two micro-batches per rank.
constexpr const char* kTwoLayers =
    "--num-layers 2 --hidden-size 16 --ffn-hidden-size 16 --num-attention-heads 2 --vocab-size 31 --seq-length 8 "
    "--max-position-embeddings 8 --micro-batch-size 1 --global-batch-size 4 --num-experts 4 "
    "--expert-model-parallel-size 2 --disable-bias-linear --moe-token-dispatcher-type alltoall ";

/// Events of one step on both ranks: exchanges, "B n" before the forward pass of block n, and "g n" when the
/// weight gradients of layer n's experts are complete.
std::vector<Events> events_of_a_step(const std::string& more) {
  const config::Run run = test::settings(2, test::words(kTwoLayers + more));
  std::vector<Events> all(2);
  comm::run_ranks(run.parallel, [&](comm::Communicators& threads) {
    Events& events = all[static_cast<std::size_t>(threads.rank())];
    comm::Communicators ranks(threads.mesh(), threads.rank(),
                              std::make_shared<RecorderFactory>(threads.factory(), events));
    Job job(run, ranks);
    tensor::Stage& stage = *job.model.stages[0];
    stage.before_forward = [&](tensor::Block& block) {
      const auto found = std::ranges::find(stage.blocks, &block, &std::unique_ptr<tensor::Block>::get);
      events.push_back(fmt::format("B {}", found - stage.blocks.begin()));
    };
    for (tensor::Parameter* p : job.parameters())
      for (const char* layer : {"0", "1"})
        if (p->spec.name.find(fmt::format("layers.{}.mlp.experts", layer)) != std::string::npos &&
            p->spec.name.find("fc1") != std::string::npos)
          p->on_grad_ready = [&events, layer, ready = p->on_grad_ready] {
            events.push_back(fmt::format("g {}", layer));
            ready();
          };
    job.train_step(test::steps_after(job, 0), {.learning_rate = 1e-3});
  });
  return all;
}

Events exchanges(const Events& all) {
  Events some;
  std::ranges::copy_if(all, std::back_inserter(some),
                       [](const std::string& event) { return event[0] == '+' || event[0] == '-'; });
  return some;
}

TEST(ExpertOverlap, ExchangesAreInFlightDuringTheOtherPass) {
  const std::vector<Events> ranks = events_of_a_step(kOverlap);
  EXPECT_EQ(ranks[0], ranks[1]) << "the same order on both ranks";
  const Events all = exchanges(ranks[0]);
  ASSERT_EQ(all.size(), 32U);
  // The forward pass of micro-batch 0, alone.
  EXPECT_THAT(Events(all.begin(), all.begin() + 8),
              ElementsAre("+D0", "-D0", "+C0", "-C0", "+D1", "-D1", "+C1", "-C1"));
  // Its backward pass with the forward pass of micro-batch 1.
  EXPECT_THAT(Events(all.begin() + 8, all.begin() + 24),
              ElementsAre("+c1", "+D0", "-c1", "+d1", "-D0", "+C0", "-d1", "+c0", "-C0", "+D1", "-c0", "+d0",
                          "-D1", "+C1", "-d0", "-C1"));
  // The backward pass of micro-batch 1, alone.
  EXPECT_THAT(Events(all.begin() + 24, all.end()),
              ElementsAre("+c1", "-c1", "+d1", "-d1", "+c0", "-c0", "+d0", "-d0"));
}

// Compute between a start and its wait: experts' backward pass during the dispatch, the next layer's
// attention and router during the exchange of gradients.
TEST(ExpertOverlap, TheOtherPassComputesDuringAnExchange) {
  const Events events = events_of_a_step(kOverlap)[0];
  // The pair begins where the gradients of the last layer's output are sent for the first time.
  const auto pair = std::ranges::find(events, "+c1");
  const auto at = [&](const char* event) { return std::find(pair, events.end(), event) - pair; };
  EXPECT_LT(at("+c1"), at("B 0"));
  EXPECT_LT(at("B 1"), at("-c1")) << "forward of layer 0 up to its dispatch";
  EXPECT_LT(at("+D0"), at("g 1"));
  EXPECT_LT(at("g 1"), at("-D0")) << "experts of layer 1, backward";
  EXPECT_LT(at("+c0"), at("B 2"));
  EXPECT_LT(at("B 2"), at("-c0")) << "forward of layer 1 up to its dispatch";
  EXPECT_LT(at("+D1"), at("g 0"));
  EXPECT_LT(at("g 0"), at("-D1")) << "experts of layer 0, backward";
}

TEST(ExpertOverlap, WithoutTheFlagEveryExchangeIsAwaitedAtOnce) {
  const std::vector<Events> ranks = events_of_a_step("");
  const Events all = exchanges(ranks[0]);
  ASSERT_EQ(all.size(), 32U);
  for (std::size_t i = 0; i < all.size(); i += 2) EXPECT_EQ(all[i].substr(1), all[i + 1].substr(1)) << i;
}

constexpr const char* kOverlapModel =
    "--num-layers 4 --hidden-size 48 --ffn-hidden-size 64 --num-attention-heads 8 --kv-channels 6 "
    "--vocab-size 61 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 "
    "--global-batch-size 8 --hidden-dropout 0.2 --attention-dropout 0.1 --moe-token-dispatcher-type alltoall ";

/// Losses, gradient norms and, through them, the parameters of three steps are equal in every bit.
void expect_same_with_overlap(const test::Layout& layout, const std::string& more = "") {
  SCOPED_TRACE(fmt::format("{} {}", layout.name, more));
  const auto flags = test::words(std::string(kOverlapModel) + test::kExperts + more + layout.flags);
  const test::Curve without = test::train(test::settings(layout.world, flags), 3);
  const test::Curve with = test::train(test::settings(layout.world, flags + test::words(kOverlap)), 3);
  EXPECT_EQ(with, without);
  EXPECT_NE(without.loss[0], without.loss[2]);
}

const std::vector<test::Layout> kOverlapLayouts = {
    {"Ep2", 2, "--expert-model-parallel-size 2"},
    {"Ep2Pp2", 4, "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2"},
    {"Ep2Pp2Virtual2", 4,
     "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"},
    {"Ep2Pp2DualPipeV", 4,
     "--expert-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule dualpipe-v"},
};

TEST(ExpertOverlap, NumbersAreBitwiseThoseWithoutOverlap) {
  for (const test::Layout& layout : kOverlapLayouts) {
    expect_same_with_overlap(layout);
    expect_same_with_overlap(layout,
                             "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather "
                             "--ddp-bucket-size 5000 ");
  }
  expect_same_with_overlap(
      {"Tp2SpEp2Etp1", 2,
       "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
       "--expert-tensor-parallel-size 1"});
  expect_same_with_overlap({"Cp2Ep2", 2, "--context-parallel-size 2 --expert-model-parallel-size 2"},
                           "--attention-dropout 0 ");
}

// Untied embeddings: the gradients of a shared table would be added in another order.
TEST(ExpertOverlap, DelayedWeightGradients) {
  for (std::size_t i = 0; i < 3; ++i) {
    const auto flags =
        test::words(std::string(kOverlapModel) + test::kExperts + test::kUntied + kOverlapLayouts[i].flags);
    const auto curve = [&](const char* more) {
      return test::train(test::settings(kOverlapLayouts[i].world, flags + test::words(more)), 3);
    };
    EXPECT_EQ(curve("--overlap-moe-expert-parallel-comm --delay-wgrad-compute"), curve(""))
        << kOverlapLayouts[i].name;
  }
}

TEST(ExpertOverlap, ShardedGradientsAndDeterministicMode) {
  for (const std::string& sharding :
       {std::string("--deterministic-mode "),
        std::string("--deterministic-mode --use-distributed-optimizer --overlap-grad-reduce "),
        std::string("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --overlap-grad-reduce "
                    "--overlap-param-gather ")})
    for (const std::size_t i : {0U, 1U, 3U}) expect_same_with_overlap(kOverlapLayouts[i], sharding);
}

// The backward pass recomputes exchanges of the forward pass, in turns too.
TEST(ExpertOverlap, RecomputedActivations) {
  for (const char* again :
       {"--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 ",
        "--recompute-granularity full --recompute-method block --recompute-num-layers 1 ",
        "--recompute-granularity selective --recompute-modules moe core_attn ",
        "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm "})
    for (const std::size_t i : {0U, 2U, 3U}) expect_same_with_overlap(kOverlapLayouts[i], again);
}

TEST(ExpertOverlap, RoutersAndSharedExperts) {
  for (const char* moe :
       {"--moe-shared-expert-overlap ",
        "--moe-router-score-function sigmoid --moe-router-enable-expert-bias ",
        "--moe-router-load-balancing-type global_aux_loss --moe-aux-loss-coeff 0.05 ",
        "--moe-expert-capacity-factor 0.6 ", "--mtp-num-layers 1 --position-embedding-type rope "})
    expect_same_with_overlap(kOverlapLayouts[0], moe);
  expect_same_with_overlap(kOverlapLayouts[2], "--moe-shared-expert-overlap ");
}

// The unsharded gradients of one step agree with those of one rank.
TEST(ExpertOverlap, GradientsAreThoseOfOneRank) {
  const auto flags = test::words(std::string(kOverlapModel) + test::kExperts);
  const test::Gradients one = test::gradients(test::settings(1, flags));
  for (const test::Layout& layout : kOverlapLayouts) {
    SCOPED_TRACE(layout.name);
    const test::Gradients got = test::gradients(
        test::settings(layout.world, flags + test::words(layout.flags) + test::words(kOverlap)));
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, grad] : one) EXPECT_LT(test::distance(got.at(name), grad), 1e-9) << name;
  }
}

/// The plan of a run of two Mixtral layers on two ranks with eight micro-batches each.
config::Run mixtral_run(const std::string& more) {
  return test::planned_run(
      {"Ep2", 2,
       "--expert-model-parallel-size 2 --moe-token-dispatcher-type alltoall --micro-batch-size 1 "
       "--global-batch-size 16 "},
      "--num-layers 2 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
      "--group-query-attention --num-query-groups 8 --vocab-size 32000 --max-position-embeddings 4096 "
      "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --bf16 "
      "--untie-embeddings-and-output-weights --hidden-dropout 0 --attention-dropout 0 --num-experts 8 "
      "--seq-length 2048 " +
          more,
      "meta");
}

// A pair holds about a layer more than a backward pass. The plan is an upper bound of what a step allocates.
TEST(ExpertOverlap, ThePlanCoversThePeakOfPairs) {
  const cost::StageMemory without = cost::plan_memory(mixtral_run(""))[0];
  const cost::StageMemory with = cost::plan_memory(mixtral_run(kOverlap))[0];
  EXPECT_EQ(without.peak_in_flight, 1);
  EXPECT_EQ(with.peak_in_flight, 2);
  EXPECT_GT(with.peak(), without.peak());
  EXPECT_LT(with.peak() - without.peak(), without.activations);
  for (const char* more : {"", "--num-layers 4 ", "--num-layers 4 --moe-layer-freq 2 ",
                           "--recompute-granularity selective --recompute-modules moe core_attn ",
                           "--num-layers 4 --recompute-granularity full --recompute-method uniform "
                           "--recompute-num-layers 1 ",
                           "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads "}) {
    SCOPED_TRACE(more);
    test::expect_peak(mixtral_run(std::string(kOverlap) + more), 0.75, 1.03);
  }
}

}  // namespace
}  // namespace colonnade::job
