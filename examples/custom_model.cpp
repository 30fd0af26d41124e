// Trains a custom model of plain tensor functions and resumes it under any pipeline and data layout.
//
//   colonnade launch --nproc-per-node 2 -- ./custom_model --pipeline-model-parallel-size 2 --save runs/own
//   ./custom_model --load runs/own --save runs/own --train-iters 40
//   ./custom_model plan 64 h100 --pipeline-model-parallel-size 4     plans 64 ranks, without starting any
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <iterator>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/program.h"
#include "colonnade/config/parse.h"
#include "colonnade/job/checkpoint.h"
#include "colonnade/job/job.h"
#include "colonnade/job/recorded_model.h"
#include "colonnade/job/start.h"

namespace col = colonnade;

/// A parameter of `shape`, unsharded on every rank.
std::unique_ptr<col::tensor::Parameter> parameter(const col::layers::Context& context, std::string name,
                                                  std::vector<std::int64_t> shape) {
  col::layout::ParamSpec spec;
  spec.name = std::move(name);
  spec.shape = std::move(shape);
  spec.init.std = 0.05;
  return context.make(spec);
}

/// Input of the model, x [s, b, h].
constexpr auto kX = col::tensor::BatchKey::custom("x");

/// y = x + tanh(x W); the first block reads x from the batch.
class TanhBlock final : public col::tensor::Block {
 public:
  TanhBlock(const col::layers::Context& context, std::int64_t hidden, std::int64_t number)
      : first_(number == 0),
        w_(parameter(context, fmt::format("blocks.{}.weight", number), {hidden, hidden})) {}
  at::Tensor forward(const at::Tensor& x, const col::tensor::Pass& pass) override {
    const at::Tensor in = first_ ? pass.batch.at(kX) : x;
    return in + at::tanh(at::matmul(in, w_->value));
  }
  std::vector<col::tensor::Parameter*> parameters() override { return {w_.get()}; }

 private:
  bool first_;
  std::unique_ptr<col::tensor::Parameter> w_;
};

/// Builds the blocks of this rank's stages, listed in context.blocks.
col::job::Model build(const col::job::BuildContext& context) {
  col::job::Model model;
  for (const auto& part : context.blocks) {
    auto stage = std::make_unique<col::tensor::Stage>();
    for (const std::int64_t i : part.layers())
      stage->blocks.push_back(std::make_unique<TanhBlock>(context.layers, context.run.model.hidden_size, i));
    stage->first = part.has(col::layout::BlockKind::kEmbedding);
    stage->last = part.has(col::layout::BlockKind::kHead);
    model.stages.push_back(std::move(stage));
  }
  return model;
}

/// The task: map x to 2 x. Every micro-batch is a function of its number, so all layouts read the same ones.
col::pipeline::Steps steps_of(const col::job::Job& job) {
  col::pipeline::Steps steps;
  steps.batch = [&job, first = job.counters.iteration * job.num_microbatches()](int microbatch) {
    const auto number = static_cast<std::uint64_t>((first + microbatch) * job.data_ranks() + job.data_rank());
    return col::tensor::Batch(
        {{kX, at::randn({8, 4, 16}, at::make_generator<at::CPUGeneratorImpl>(number))}});
  };
  steps.loss = [](const at::Tensor& y, const col::tensor::Batch& batch) {
    const at::Tensor error = (y - 2 * batch.at(kX)).square().mean();
    return col::pipeline::Loss{error, {{"error", col::pipeline::metric_sum(error, at::ones({}))}}};
  };
  return steps;
}

col::config::Run settings_of(const std::vector<std::string>& more) {
  std::istringstream settings(
      "gpt --num-layers=4 --hidden-size=16 --num-attention-heads=2 --seq-length=8 --max-position-embeddings=8 "
      "--micro-batch-size=4 --global-batch-size=16 --train-iters=20 --lr=1e-2 --mock-data "
      "--tokenizer-type=NullTokenizer --vocab-size=2");
  std::vector<std::string> words{std::istream_iterator<std::string>(settings), {}};
  words.insert(words.end(), more.begin(), more.end());
  return col::config::parse(words);
}

int plan(const std::vector<std::string>& words) {
  if (words.size() < 3)
    throw col::ConfigError(
        "plan requires RANKS and HARDWARE; got fewer words; write, for example, plan 8 h100");
  col::config::Run run = settings_of({words.begin() + 3, words.end()});
  run.parallel.world_size = std::stoi(words[1]);
  fmt::print("{}", col::job::plan_text(std::move(run), build, steps_of, words[2]));
  return 0;
}

int train(const std::vector<std::string>& words) {
  auto [run, world, ranks, seen] = col::job::start(settings_of(words), col::rules::Purpose::kTrain);
  col::job::Job job(run, ranks, build);
  if (const auto found = col::checkpoint::find_checkpoint(run.checkpoint.load, {}, ranks.world()))
    col::job::restore(job, col::checkpoint::CheckpointReader::open_native(found->folder),
                      col::job::Restore::kResume);
  while (job.counters.iteration < *run.training.train_iters) {
    const auto report = job.train_step(steps_of(job), {.learning_rate = 1e-2});
    if (ranks.rank() == 0)
      fmt::print("step {:2}: squared error {:.5f}\n", job.counters.iteration, report.losses.at("error"));
  }
  if (run.checkpoint.save.empty()) return 0;
  if (const auto saved = col::job::save(job, run.checkpoint.save); !saved.ok) throw col::Error(saved.problem);
  return 0;
}

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  return col::run_as_program(
      [&] { return !words.empty() && words[0] == "plan" ? plan(words) : train(words); });
}
