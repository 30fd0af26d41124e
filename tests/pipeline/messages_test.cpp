// Timing of pipeline messages, and lifetime of batches.
#include "pipeline/toy.h"
#include "support/recording_backend.h"

namespace colonnade::pipeline {
namespace {

// On rank 1 the batch of the next micro-batch exists too, since its receive is posted early.
TEST(Messages, ABatchIsReleasedAfterItsLastForwardOnARank) {
  const auto schedule = schedule::gpipe(2, 8);
  on_ranks(2, [&](const comm::Group& pp) {
    Rank rank(schedule, pp);
    std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> masks;
    Steps steps;
    steps.loss = mean_loss;
    steps.batch = [&](int microbatch) {
      EXPECT_LE(std::ranges::count_if(masks, [](const auto& mask) { return !mask.expired(); }), pp.rank());
      tensor::Batch batch = batch_of(microbatch);
      const Tensor mask = at::ones({1});
      masks.emplace_back(mask.getIntrusivePtr());
      batch.set(tensor::Field::kCuSeqlens, mask);
      return batch;
    };
    rank.executor->train(steps, 1, {});
    rank.executor->evaluate(steps);
    EXPECT_EQ(masks.size(), 16U);
  });
}

// Rank 0 of two runs forward 0 and 1, then backward 0: the gradient of 0 overlaps with forward 1.
TEST(Messages, OverlapWithThePreviousComputeAction) {
  const auto backend = std::make_shared<test::RecordingBackend>(2);
  Rank rank(schedule::one_f_one_b(2, 3), comm::Group(backend, "pp"));
  Steps steps;
  steps.batch = [](int microbatch) { return batch_of(microbatch); };
  steps.forward = [&](tensor::Stage& stage, const Tensor& x, const tensor::Pass& pass) {
    backend->events.emplace_back("forward");
    return stage.forward(x, pass);
  };
  rank.executor->train(steps, 1.0, {});
  std::vector<std::string> seen;
  for (const std::string& event : backend->events)
    if (event == "forward" || event.find("receive gradient") != std::string::npos)
      seen.push_back(event.substr(0, event.find(' ')) + event.substr(event.size() - 1));
  EXPECT_EQ(seen, (std::vector<std::string>{"forwardd", "start0", "forwardd", "wait0", "start1", "forwardd",
                                            "wait1", "start2", "wait2"}));
}

}  // namespace
}  // namespace colonnade::pipeline
