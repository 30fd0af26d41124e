// Pairs of a forward and a backward pass that take turns at exchanges between ranks: the order of their
// calls, the state of the second thread, and failures.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <thread>

#include "colonnade/base/progress.h"
#include "pipeline/toy.h"

namespace colonnade::pipeline {
namespace {

using testing::ElementsAre;

/// What the passes did, in order: "F0 computes", "F0 starts", "F0 waits"; B for backward.
struct Recorder {
  Turns* turns = nullptr;
  std::vector<std::string> events = {};
  std::function<void(const std::string& event)> look = {};  ///< called for every event

  void add(const std::string& pass, const char* what) {
    events.push_back(fmt::format("{} {}", pass, what));
    if (look) look(events.back());
  }
  void exchange(const std::string& pass) {
    add(pass, "starts");
    if (turns != nullptr) turns->hand_over();
    add(pass, "waits");
  }
};

/// x; records its computation and an exchange of its result.
struct RecordedExchange : torch::autograd::Function<RecordedExchange> {
  struct Saved {
    Recorder* recorder;
    int index;
  };
  static Tensor forward(torch::autograd::AutogradContext* ctx, const Tensor& x, Recorder* recorder,
                        int index) {
    tensor::save_value(ctx, Saved{recorder, index});
    recorder->add(fmt::format("F{}", index), "computes");
    recorder->exchange(fmt::format("F{}", index));
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = tensor::saved_value<Saved>(ctx);
    saved.recorder->exchange(fmt::format("B{}", saved.index));
    saved.recorder->add(fmt::format("B{}", saved.index), "computes");
    return {grads[0], Tensor(), Tensor()};
  }
};

class ExchangeBlock final : public tensor::Block {
 public:
  ExchangeBlock(Recorder& recorder, int index) : recorder_(recorder), index_(index) {}
  Tensor forward(const Tensor& x, const tensor::Pass&) override {
    return RecordedExchange::apply(x, &recorder_, index_);
  }
  std::vector<Parameter*> parameters() override { return {}; }

 private:
  Recorder& recorder_;
  int index_;
};

/// A model of two exchanges on one rank, with 1F1B in pairs.
struct TwoExchanges {
  explicit TwoExchanges(int microbatches, bool with_turns = true) {
    if (with_turns) turns = std::make_shared<Turns>();
    recorder.turns = turns.get();
    stage.first = stage.last = true;
    stage.blocks.push_back(std::make_unique<Toy>(Toy::Kind::kFirst, "first"));
    for (int i = 0; i < 2; ++i) stage.blocks.push_back(std::make_unique<ExchangeBlock>(recorder, i));
    stage.blocks.push_back(std::make_unique<Toy>(Toy::Kind::kLast, "last"));
    executor = std::make_unique<Executor>(schedule::one_f_one_b(1, microbatches, /*paired=*/true),
                                          std::vector<tensor::Stage*>{&stage}, comm::Group(), shape_of,
                                          test::options(at::kDouble), turns);
  }
  void train() const { executor->train({.batch = batch_of, .loss = mean_loss}, 1, {}); }

  std::shared_ptr<Turns> turns;
  Recorder recorder;
  tensor::Stage stage;
  std::unique_ptr<Executor> executor;
};

// Between the start of each exchange of a pair and its wait, the other pass computes.
TEST(Pairs, AnExchangeIsInFlightWhileTheOtherPassComputes) {
  TwoExchanges run(2);
  run.train();
  EXPECT_THAT(run.recorder.events,
              ElementsAre("F0 computes", "F0 starts", "F0 waits", "F1 computes", "F1 starts", "F1 waits",
                          // the pair: backward of micro-batch 0, forward of micro-batch 1
                          "B1 starts",                             //
                          "F0 computes", "F0 starts",              //
                          "B1 waits", "B1 computes", "B0 starts",  //
                          "F0 waits", "F1 computes", "F1 starts",  //
                          "B0 waits", "B0 computes",               //
                          "F1 waits",                              //
                          "B1 starts", "B1 waits", "B1 computes", "B0 starts", "B0 waits", "B0 computes"));
}

TEST(Pairs, WithoutTurnsThePassesRunOneAfterTheOther) {
  TwoExchanges run(2, /*with_turns=*/false);
  run.train();
  const std::vector<std::string> forward{"F0 computes", "F0 starts", "F0 waits",
                                         "F1 computes", "F1 starts", "F1 waits"},
      backward{"B1 starts", "B1 waits", "B1 computes", "B0 starts", "B0 waits", "B0 computes"};
  std::vector<std::string> expected;
  for (const auto* pass : {&forward, &forward, &backward, &backward})
    expected.insert(expected.end(), pass->begin(), pass->end());
  EXPECT_EQ(run.recorder.events, expected);
}

TEST(Pairs, AnEvaluationHasNoPairs) {
  TwoExchanges run(2);
  run.executor->evaluate({.batch = batch_of, .loss = mean_loss});
  EXPECT_THAT(run.recorder.events,
              ElementsAre("F0 computes", "F0 starts", "F0 waits", "F1 computes", "F1 starts", "F1 waits",
                          "F0 computes", "F0 starts", "F0 waits", "F1 computes", "F1 starts", "F1 waits"));
}

// The backward pass of a pair reports to the rank's progress page and uses as many threads.
TEST(Pairs, BothPassesHaveTheStateOfTheRank) {
  if (test::device().is_cuda()) GTEST_SKIP() << "the autograd engine's thread runs backward";
  Progress page;
  const ProgressScope scope(page);
  TwoExchanges run(3);
  const auto main = std::this_thread::get_id();
  const int threads = at::get_num_threads();
  int others = 0;
  run.recorder.look = [&](const std::string& event) {
    EXPECT_EQ(&progress(), &page) << event;
    EXPECT_EQ(at::get_num_threads(), threads) << event;
    EXPECT_FALSE(at::GradMode::is_enabled() && event[0] == 'B') << event;
    if (event[0] == 'F') {
      EXPECT_EQ(std::this_thread::get_id(), main) << event;
    } else {
      others += std::this_thread::get_id() == main ? 0 : 1;
    }
  };
  run.train();
  EXPECT_EQ(others, 2 * 2 * 3) << "two pairs of two exchanges with three events each";
}

// A failure of one pass ends the other, and train() reports it.
TEST(Pairs, AFailureOfEitherPassEndsTheStep) {
  for (const char* where : {"F0 starts", "F1 waits", "B1 starts", "B0 waits"}) {
    TwoExchanges run(4);
    int seen = 0;
    run.recorder.look = [&](const std::string& event) {
      if (event == where && ++seen == 2) throw Error(std::string("failed at ") + where);
    };
    try {
      run.train();
      ADD_FAILURE() << where;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), std::string("failed at ") + where);
    }
  }
}

}  // namespace
}  // namespace colonnade::pipeline
