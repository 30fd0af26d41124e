// A toy model equals the single-rank run in float64 under every schedule and split.
#include "colonnade/pipeline/executor.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>

#include "colonnade/base/progress.h"
#include "pipeline/toy.h"
#include "support/backends.h"

namespace colonnade::pipeline {
namespace {

/// Results of a run on all ranks.
struct Outcome {
  std::mutex mutex;
  std::map<std::string, Tensor> grads;
  std::map<int, Tensor> outputs;  ///< evaluation outputs by micro-batch
  std::vector<double> report;     ///< sum and count
  std::map<int, int> batches;     ///< batch step calls by rank
  int armed = 0;                  ///< number of before_last_backward calls
};

void keep_report(Outcome& outcome, const Result& result) {
  for (const auto& [name, one] : result.report.metric_sums) {
    EXPECT_EQ(name, "loss");
    outcome.report = {one[0].item<double>(), one[1].item<double>()};
  }
}

Steps steps_of(Outcome& outcome, const comm::Group& pp) {
  Steps steps;
  steps.batch = [&outcome, rank = pp.rank()](int microbatch) {
    const std::lock_guard lock(outcome.mutex);
    ++outcome.batches[rank];
    return batch_of(microbatch);
  };
  steps.loss = mean_loss;
  return steps;
}

/// Doubles the output of every stage but the last, so that the result depends on the number of stages that
/// ran it.
Tensor doubled(tensor::Stage& stage, const Tensor& x, const tensor::Pass& pass) {
  const Tensor y = stage.forward(x, pass);
  return stage.last ? y : 2 * y;
}

/// Listens to the parameters of a rank like data parallelism.
class Listener {
 public:
  explicit Listener(const Rank& rank) : done_(rank.stages.size(), 0), armed_(rank.stages.size(), false) {
    for (std::size_t c = 0; c < rank.stages.size(); ++c)
      for (const auto& block : rank.stages[c]->blocks) {
        auto& toy = dynamic_cast<Toy&>(*block);
        toy.weight->on_grad_ready = [this, c, weight = toy.weight.get(), counts = counts_pass(c, toy)] {
          if (counts) ++done_[c];
          if (armed_[c]) complete_[weight].push_back(weight->main_grad.clone());
        };
      }
  }
  /// Called before the last backward pass of the chunk.
  void arm(int chunk, int microbatches) {
    EXPECT_EQ(done_[static_cast<std::size_t>(chunk)], microbatches - 1);
    armed_[static_cast<std::size_t>(chunk)] = true;
  }
  /// Expects one on_grad_ready call per parameter since then, with the final gradient.
  void expect_all_ready(const Rank& rank) const {
    for (tensor::Stage* stage : rank.stages)
      for (const Parameter* p : stage->parameters()) {
        ASSERT_EQ(complete_.count(p), 1U) << p->spec.name;
        EXPECT_EQ(complete_.at(p).size(), 1U) << p->spec.name;
        EXPECT_TRUE(at::equal(complete_.at(p).front(), p->main_grad)) << p->spec.name;
      }
  }

 private:
  /// Whether `toy` is the first block of the chunk without deferred gradient.
  bool counts_pass(std::size_t chunk, const Toy& toy) {
    return !toy.splits() && counted_.insert(chunk).second;
  }
  std::set<std::size_t> counted_;
  std::vector<int> done_;  ///< backward passes of every chunk
  std::vector<bool> armed_;
  std::map<const Parameter*, std::vector<Tensor>> complete_;
};

void train(Outcome& outcome, const schedule::Schedule& schedule, double scale = 0.25, bool custom = false,
           bool of_steps = false) {
  on_ranks(schedule.ranks, [&](const comm::Group& pp) {
    Rank rank(of_steps ? schedule::one_f_one_b(schedule.ranks, 3) : schedule, pp);
    Listener listener(rank);
    Steps steps = steps_of(outcome, pp);
    if (of_steps) steps.schedule = std::make_shared<const schedule::Schedule>(schedule);  // not its own
    if (custom) steps.forward = doubled;
    const auto result = rank.executor->train(steps, scale, {.before_last_backward = [&](int chunk) {
                                               listener.arm(chunk, schedule.microbatches);
                                               const std::lock_guard lock(outcome.mutex);
                                               ++outcome.armed;
                                             }});
    listener.expect_all_ready(rank);
    EXPECT_EQ(result.report.metric_sums.empty(), !rank.stages.back()->last);
    const std::lock_guard lock(outcome.mutex);
    keep_report(outcome, result);
    for (tensor::Stage* stage : rank.stages)
      for (const Parameter* p : stage->parameters()) outcome.grads[p->spec.name] = p->main_grad;
  });
}

/// Single-rank autograd over the micro-batches; the output of every stage but the last is scaled by `factor`.
Outcome& single_rank(Outcome& outcome, int microbatches, double scale, int stages = 1, double factor = 1) {
  std::map<std::string, Tensor> w;
  std::vector<std::string> names{"first", "last"};
  for (int i = 0; i < kMiddle; ++i) names.push_back(fmt::format("middle {}", i));
  for (const auto& name : names)
    w[name] = test::named_random(name, {kH, kH}).mul(0.3).set_requires_grad(true);
  outcome.report = {0, 0};
  for (int m = 0; m < microbatches; ++m) {
    const auto batch = batch_of(m);
    Tensor x = at::linear(batch.at(kX), w["first"]);
    for (int i = 0; i < kMiddle; ++i) {
      const Tensor& one = w[fmt::format("middle {}", i)];
      x = x + at::linear(x, one).tanh();
      if ((i + 1) % (kMiddle / stages) == 0 && i + 1 < kMiddle) x = factor * x;
    }
    const Tensor logits = at::linear(x, w["last"]);
    const Tensor loss = (logits * batch.at(kProbe)).sum(-1).square().t();
    (loss.mean() * scale).backward();
    outcome.report[0] += loss.sum().item<double>();
    outcome.report[1] += static_cast<double>(loss.numel());
    outcome.outputs[m] = logits.detach();
  }
  for (auto& [name, one] : w) outcome.grads[name] = one.grad();
  return outcome;
}

void expect_same(const Outcome& got, const Outcome& expected) {
  ASSERT_EQ(got.grads.size(), expected.grads.size());
  for (const auto& [name, grad] : expected.grads)
    EXPECT_LT(test::distance(got.grads.at(name), grad), 1e-12) << name;
  ASSERT_EQ(got.report.size(), 2U);
  EXPECT_NEAR(got.report[0], expected.report[0], 1e-12 * std::abs(expected.report[0]));
  EXPECT_EQ(got.report[1], expected.report[1]);
}

std::vector<schedule::Schedule> all_schedules() {
  std::vector<schedule::Schedule> all;
  for (const int ranks : {1, 2, 4}) {
    if (ranks > test::thread_ranks(ranks)) continue;
    for (const int microbatches : {1, 3, 8}) {
      all.push_back(schedule::gpipe(ranks, microbatches));
      all.push_back(schedule::one_f_one_b(ranks, microbatches));
    }
    for (const int microbatches : {1, 2, 5, 8, 12}) {
      all.push_back(schedule::zb_h1(ranks, microbatches));
      all.push_back(schedule::zb_v(ranks, microbatches));
      all.push_back(schedule::dualpipe_v(ranks, microbatches));
    }
    for (const int microbatches : {1, 3, 9}) {
      all.push_back(schedule::dualpipe_v(ranks, microbatches, /*overlapped=*/true));
      all.push_back(schedule::one_f_one_b(ranks, microbatches, /*paired=*/true));
    }
    all.push_back(schedule::interleaved(ranks, 2, 8, ranks, /*paired=*/true));
    all.push_back(schedule::with_delayed_wgrad(schedule::interleaved(ranks, 2, 12, 2 * ranks, true)));
    all.push_back(schedule::with_delayed_wgrad(schedule::one_f_one_b(ranks, 7, /*paired=*/true)));
    all.push_back(schedule::with_delayed_wgrad(schedule::one_f_one_b(ranks, 5)));
    all.push_back(schedule::with_delayed_wgrad(schedule::interleaved(ranks, 2, 8, ranks)));
    for (const int chunks : {1, 2, 3}) {
      all.push_back(schedule::interleaved(ranks, chunks, 8, ranks));
      all.push_back(schedule::interleaved(ranks, chunks, 12, 2 * ranks));
    }
  }
  return all;
}

std::string name_of(const schedule::Schedule& s) {
  return fmt::format("{} ranks {} chunks {} micro-batches {}", s.kind, s.ranks, s.chunks, s.microbatches);
}

TEST(Executor, EveryScheduleEqualsTheSingleRankRun) {
  for (const auto& schedule : all_schedules()) {
    SCOPED_TRACE(name_of(schedule));
    Outcome expected, got;
    single_rank(expected, schedule.microbatches, 0.25);
    train(got, schedule);
    expect_same(got, expected);
    EXPECT_EQ(got.armed, schedule.stages());
    for (const auto& [rank, calls] : got.batches)
      EXPECT_EQ(calls, schedule.microbatches) << "batches of rank " << rank;
  }
}

TEST(Executor, EvaluationReturnsOutputsWithoutGradients) {
  for (const auto& schedule : all_schedules()) {
    SCOPED_TRACE(name_of(schedule));
    Outcome expected, got;
    single_rank(expected, schedule.microbatches, 1);
    on_ranks(schedule.ranks, [&](const comm::Group& pp) {
      Rank rank(schedule, pp);
      const auto losses = rank.executor->evaluate(steps_of(got, pp));
      const auto logits = rank.executor->evaluate(steps_of(got, pp), tensor::Output::kLogits,
                                                  [&](int microbatch, const Tensor& y) {
                                                    const std::lock_guard lock(got.mutex);
                                                    got.outputs[microbatch] = y;
                                                  });
      EXPECT_TRUE(logits.report.metric_sums.empty());
      const std::lock_guard lock(got.mutex);
      keep_report(got, losses);
      for (tensor::Stage* stage : rank.stages)
        for (const auto& block : stage->blocks) {
          EXPECT_FALSE(dynamic_cast<Toy&>(*block).trained);
          EXPECT_FALSE(dynamic_cast<Toy&>(*block).weight->has_grad());
        }
    });
    ASSERT_EQ(got.outputs.size(), expected.outputs.size());
    for (const auto& [m, y] : expected.outputs) EXPECT_LT(test::distance(got.outputs.at(m), y), 1e-12) << m;
    EXPECT_NEAR(got.report.at(0), expected.report[0], 1e-12 * std::abs(expected.report[0]));
  }
}

TEST(Executor, ACustomForwardStepIsCalledForEveryStage) {
  for (const auto& schedule : {schedule::one_f_one_b(2, 4), schedule::interleaved(2, 2, 4, 2),
                               schedule::interleaved(1, 3, 4, 1), schedule::zb_v(2, 4)}) {
    SCOPED_TRACE(name_of(schedule));
    Outcome expected, got;
    single_rank(expected, schedule.microbatches, 1, schedule.stages(), 2);
    train(got, schedule, 1, /*custom=*/true);
    expect_same(got, expected);
  }
}

/// Records message channels and, like NCCL, blocks the first send of a channel until its receive.
class ChannelBackend final : public test::ForwardingBackend {
 public:
  struct Record {
    std::mutex mutex;
    std::set<std::tuple<int, int, int>> channels;  ///< from, to, tag
    std::set<std::tuple<int, int, int>> late;      ///< first used after `closed`
    std::atomic<bool> closed{false};
  };
  ChannelBackend(std::shared_ptr<comm::Backend> to, Record& record)
      : ForwardingBackend(std::move(to)), record_(record) {}
  comm::Work send(at::Tensor tensor, int to, int tag, const comm::Call& call) override {
    const bool first = is_new({rank(), to, tag});
    comm::Work work = ForwardingBackend::send(tensor, to, tag, call);
    if (first) ForwardingBackend::recv(at::zeros({1}), to, -1 - tag, call).wait();
    return work;
  }
  comm::Work recv(at::Tensor tensor, int from, int tag, const comm::Call& call) override {
    if (connected_.emplace(from, tag).second)
      ForwardingBackend::send(at::zeros({1}), from, -1 - tag, call).wait();
    return ForwardingBackend::recv(tensor, from, tag, call);
  }

 private:
  bool is_new(const std::tuple<int, int, int>& channel) {
    const std::lock_guard lock(record_.mutex);
    const bool first = record_.channels.insert(channel).second;
    if (first && record_.closed) record_.late.insert(channel);
    return first;
  }
  Record& record_;
  std::set<std::pair<int, int>> connected_;
};

TEST(Executor, P2pWarmUpCoversAllChannelsOfEverySchedule) {
  for (const auto& schedule : all_schedules()) {
    SCOPED_TRACE(name_of(schedule));
    ChannelBackend::Record record;
    Outcome expected, got;
    single_rank(expected, schedule.microbatches, 0.25);
    config::Parallel parallel;
    parallel.world_size = parallel.pipeline_model_parallel_size = schedule.ranks;
    comm::run_ranks(
        parallel,
        [&](comm::Communicators& all) {
          comm::Group pp;
          if (schedule.ranks > 1)
            pp = comm::Group(std::make_shared<ChannelBackend>(
                                 all.factory()->make(all.world().ranks(), all.rank(), "channels"), record),
                             "pp");
          Rank rank(schedule, pp);
          rank.executor->warm_up_p2p();
          all.world().barrier("warmed up");
          record.closed = true;
          const auto result = rank.executor->train(steps_of(got, pp), 0.25, {});
          const std::lock_guard lock(got.mutex);
          keep_report(got, result);
          for (tensor::Stage* stage : rank.stages)
            for (const Parameter* p : stage->parameters()) got.grads[p->spec.name] = p->main_grad;
        },
        std::chrono::seconds(20));
    expect_same(got, expected);
    EXPECT_TRUE(record.late.empty());
    std::map<std::pair<int, int>, int> of_pair;
    for (const auto& [from, to, tag] : record.channels) ++of_pair[std::minmax(from, to)];
    for (const auto& [pair, count] : of_pair) EXPECT_LE(count, 4);
  }
}

TEST(Executor, EveryActionReportsProgress) {
  Progress page;
  const ProgressScope scope(page);
  const auto schedule = schedule::one_f_one_b(1, 3);
  Outcome outcome;
  Rank rank(schedule, comm::Group());
  Steps steps = steps_of(outcome, comm::Group());
  std::vector<std::int64_t> seen{page.read().heartbeat_ns};
  steps.forward = [&](tensor::Stage& stage, const Tensor& x, const tensor::Pass& pass) {
    seen.push_back(page.read().heartbeat_ns);
    return stage.forward(x, pass);
  };
  rank.executor->train(steps, 1, {});
  rank.executor->evaluate(steps);
  ASSERT_EQ(seen.size(), 7U);
  EXPECT_TRUE(std::ranges::is_sorted(seen, std::ranges::less_equal())) << "strictly rising";
}

// Independent of the number of micro-batches and of which rank is slower.
TEST(Executor, AnEvaluationHasTwoSendsInFlight) {
  for (const auto& schedule :
       {schedule::one_f_one_b(2, 24), schedule::interleaved(2, 2, 24, 2), schedule::zb_v(2, 24)}) {
    SCOPED_TRACE(name_of(schedule));
    Outcome outcome;
    std::vector<std::size_t> most(2, 0);
    on_ranks(schedule.ranks, [&](const comm::Group& pp) {
      Rank rank(schedule, pp);
      Steps steps = steps_of(outcome, pp);
      std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> made;
      steps.forward = [&](tensor::Stage& stage, const Tensor& x, const tensor::Pass& pass) {
        if (pp.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const auto alive = std::ranges::count_if(made, [](const auto& one) { return !one.expired(); });
        std::size_t& seen = most[static_cast<std::size_t>(pp.rank())];
        seen = std::max(seen, static_cast<std::size_t>(alive));
        const Tensor y = stage.forward(x, pass);
        if (!stage.last) made.emplace_back(y.storage().getWeakStorageImpl());
        return y;
      };
      rank.executor->evaluate(steps);
    });
    // A rank with several chunks also holds the inputs of its own next chunk.
    EXPECT_LE(most[0], schedule.chunks == 1 ? 2U : 6U);
  }
}

/// The meta device substitutes for a GPU.
TEST(Executor, MovesBatchesToTheDeviceOfTheStages) {
  const auto schedule = schedule::one_f_one_b(1, 3);
  const auto stages = stages_of(0, schedule);
  Executor executor(schedule, {stages.front().get()}, comm::Group(), shape_of,
                    at::dtype(at::kDouble).device(at::kMeta));
  int seen = 0;
  Steps steps{.batch = batch_of};
  steps.forward = [&](tensor::Stage&, const Tensor&, const tensor::Pass& pass) {
    EXPECT_TRUE(pass.batch.at(kProbe).is_meta());
    return pass.batch.at(kX);
  };
  steps.loss = [&](const Tensor& output, const tensor::Batch& batch) {
    EXPECT_TRUE(output.is_meta() && batch.at(kProbe).is_meta());
    ++seen;
    return mean_loss(output, batch);
  };
  EXPECT_TRUE(executor.evaluate(steps).report.metric_sums.at("loss").is_meta());
  EXPECT_EQ(seen, 3);
}

TEST(Executor, StepsAreBitwiseReproducible) {
  const auto schedule = schedule::interleaved(2, 2, 4, 2);
  Outcome first, second;
  train(first, schedule);
  train(second, schedule);
  for (const auto& [name, grad] : first.grads) EXPECT_TRUE(at::equal(second.grads.at(name), grad)) << name;
}

// Deferred weight gradients are accumulated in the same order, and those of pairs.
TEST(Executor, SplitBackwardsAndPairsAreBitwiseEqualTo1F1B) {
  Outcome full;
  train(full, schedule::one_f_one_b(2, 6));
  for (const auto& schedule :
       {schedule::zb_h1(2, 6), schedule::zb_v(2, 6), schedule::dualpipe_v(2, 6),
        schedule::with_delayed_wgrad(schedule::one_f_one_b(2, 6)),
        schedule::with_delayed_wgrad(schedule::gpipe(2, 6)), schedule::one_f_one_b(2, 6, /*paired=*/true),
        schedule::interleaved(2, 2, 6, 2, /*paired=*/true), schedule::dualpipe_v(2, 6, /*overlapped=*/true),
        schedule::with_delayed_wgrad(schedule::one_f_one_b(2, 6, /*paired=*/true))}) {
    SCOPED_TRACE(name_of(schedule));
    Outcome split;
    train(split, schedule);
    for (const auto& [name, grad] : full.grads) EXPECT_TRUE(at::equal(split.grads.at(name), grad)) << name;
  }
}

TEST(MetricSum, IsOnTheDeviceOfTheSum) {
  const Tensor both = metric_sum(at::full({}, 6.0, test::options(at::kFloat)), at::full({}, 3.0));
  EXPECT_EQ(both.device(), test::device());
  EXPECT_EQ(both.scalar_type(), at::kDouble);
  EXPECT_EQ(both[0].item<double>(), 6);
  EXPECT_EQ(both[1].item<double>(), 3);
}

TEST(Executor, RejectsAScheduleForOtherRanks) {
  const auto schedule = schedule::one_f_one_b(2, 4);
  on_ranks(1, [&](const comm::Group& pp) { EXPECT_THROW(Rank(schedule, pp), Error); });
}

TEST(Executor, StepsMayHaveTheirOwnSchedule) {
  Outcome expected, got;
  train(got, schedule::one_f_one_b(2, 5), 0.25, /*custom=*/false, /*of_steps=*/true);
  expect_same(got, single_rank(expected, 5, 0.25));
}

}  // namespace
}  // namespace colonnade::pipeline
