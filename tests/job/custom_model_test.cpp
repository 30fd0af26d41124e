// A model of a custom builder: its checkpoint has its own tensor names, loads in another layout, resumes
// bitwise, and is not mistaken for the GPT of the settings.
#include <gmock/gmock.h>

#include <set>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/checkpoint/verify.h"
#include "colonnade/job/checkpoint.h"
#include "job/runs.h"

namespace colonnade::job {
namespace {

using checkpoint::test::TempFolder;
using ::testing::HasSubstr;

constexpr auto kX = tensor::BatchKey::custom("x");

/// y = x + tanh(x W) scale; the first block reads x from the batch.
class CustomBlock final : public tensor::Block {
 public:
  CustomBlock(const layers::Context& context, std::int64_t hidden, std::int64_t number)
      : first_(number == 0),
        w_(make(context, fmt::format("own.{}.w", number), {hidden, hidden})),
        scale_(make(context, fmt::format("own.{}.scale", number), {hidden})) {}
  at::Tensor forward(const at::Tensor& x, const tensor::Pass& pass) override {
    const at::Tensor in = first_ ? pass.batch.at(kX) : x;
    return in + at::tanh(at::matmul(in, w_->value)) * scale_->value;
  }
  std::vector<tensor::Parameter*> parameters() override { return {w_.get(), scale_.get()}; }

 private:
  static std::unique_ptr<tensor::Parameter> make(const layers::Context& context, std::string name,
                                                 std::vector<std::int64_t> shape) {
    layout::ParamSpec spec;
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.init.std = 0.05;
    return context.make(spec);
  }
  bool first_;
  std::unique_ptr<tensor::Parameter> w_, scale_;
};

Model build_custom(const BuildContext& context) {
  Model model;
  for (const auto& part : context.blocks) {
    auto stage = std::make_unique<tensor::Stage>();
    for (const std::int64_t i : part.layers())
      stage->blocks.push_back(
          std::make_unique<CustomBlock>(context.layers, context.run.model.hidden_size, i));
    stage->first = part.has(layout::BlockKind::kEmbedding);
    stage->last = part.has(layout::BlockKind::kHead);
    model.stages.push_back(std::move(stage));
  }
  return model;
}

config::Run custom_run(int world, const std::string& flags) {
  return test::settings(world,
                        test::words("--num-layers 4 --hidden-size 16 --num-attention-heads 2 --seq-length 8 "
                                    "--max-position-embeddings 8 --micro-batch-size 2 --global-batch-size 8 "
                                    "--vocab-size 2 --openai-gelu " +
                                    flags));
}

pipeline::Steps custom_steps(const Job& job) {
  pipeline::Steps steps;
  const std::int64_t done = job.counters.iteration;
  steps.batch = [&job, done](int microbatch) {
    const std::int64_t global = done * job.num_microbatches() + microbatch;
    const auto number = static_cast<std::uint64_t>(global * job.data_ranks() + job.data_rank());
    return tensor::Batch({{kX, at::randn({8, 2, 16}, at::make_generator<at::CPUGeneratorImpl>(number))}});
  };
  steps.loss = [](const at::Tensor& y, const tensor::Batch& batch) {
    const at::Tensor error = (y - 2 * batch.at(kX)).square().mean();
    return pipeline::Loss{error, {{"squared_error", pipeline::metric_sum(error, at::ones({}))}}};
  };
  return steps;
}

/// Trains to step `last` from the checkpoint `from`, or from scratch, and saves in `folder`.
std::filesystem::path train_custom(const config::Run& run, int last, const std::filesystem::path& folder,
                                   const std::filesystem::path& from = {}) {
  std::filesystem::path saved;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks, build_custom);
    if (!from.empty()) restore(job, checkpoint::CheckpointReader::open_native(from), Restore::kResume);
    while (job.counters.iteration < last) job.train_step(custom_steps(job), {.learning_rate = 1e-2});
    const auto result = save(job, folder);
    EXPECT_TRUE(result.ok) << result.problem;
    if (ranks.rank() == 0) saved = result.folder;
  });
  return saved;
}

const std::string kCustomPp2 = "--pipeline-model-parallel-size 2 --use-distributed-optimizer ";

TEST(CustomModel, KeepsItsNamesAndHasNoHuggingFaceClass) {
  const TempFolder folder;
  const auto saved = train_custom(custom_run(4, kCustomPp2), 2, folder.path());
  std::set<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(saved))
    if (file.path().filename().string().starts_with("model"))
      if (file.path().extension() == ".safetensors")
        for (const auto& [name, info] : std::map(checkpoint::SafetensorsFile(file.path()).tensors()))
          names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"own.0.w", "own.0.scale", "own.1.w", "own.1.scale", "own.2.w",
                                          "own.2.scale", "own.3.w", "own.3.scale"}));
  EXPECT_FALSE(std::filesystem::exists(saved / "config.json"));
  const auto seen = checkpoint::inspect(checkpoint::CheckpointReader::open(saved));
  EXPECT_EQ(seen.at("state").at("model"),
            (nlohmann::json{{"of_settings", false}, {"hugging_face_class", nullptr}}));
  EXPECT_EQ(seen.at("parameters"), 4 * (16 * 16 + 16));
  EXPECT_TRUE(checkpoint::verify(folder.path()).at("checkpoints").at(0).at("ok").get<bool>());
}

TEST(CustomModel, ResumesBitwiseAndLoadsInAnotherLayout) {
  const TempFolder uninterrupted, stopped;
  const config::Run pp2 = custom_run(4, kCustomPp2);
  const auto expected = train_custom(pp2, 4, uninterrupted.path());
  const auto half = train_custom(pp2, 2, stopped.path());
  const auto resumed = train_custom(pp2, 4, stopped.path(), half);
  EXPECT_TRUE(checkpoint::diff(checkpoint::CheckpointReader::open(expected),
                               checkpoint::CheckpointReader::open(resumed))
                  .at("equal")
                  .get<bool>());
  const auto other = train_custom(custom_run(1, ""), 4, stopped.path(), half);
  const auto a = checkpoint::CheckpointReader::open_native(expected),
             b = checkpoint::CheckpointReader::open_native(other);
  ASSERT_EQ(a.names(), b.names());
  for (const std::string& name : a.names())
    EXPECT_TRUE(at::allclose(a.read(name), b.read(name), 1e-4, 1e-6)) << name;
}

/// Error message of loading `from` into the model of `builder`.
std::string load_error(const config::Run& run, const ModelBuilder& builder,
                       const std::filesystem::path& from) {
  std::string text;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks, builder);
    try {
      restore(job, checkpoint::CheckpointReader::open_native(from), Restore::kWeights);
    } catch (const ConfigError& error) {
      text = error.what();
    }
  });
  return text;
}

TEST(CustomModel, IsNotInterchangeableWithTheModelOfTheSettings) {
  const TempFolder own, gpt;
  const config::Run run = custom_run(1, "");
  const auto saved = train_custom(run, 1, own.path());
  EXPECT_THAT(
      load_error(run, build_model, saved),
      HasSubstr("got a model of a program's own builder, with its own tensor names (own.0.scale, "
                "...) to load into a model built from settings; load it with the program that saved it"));
  std::filesystem::path gpt_step;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Job job(run, ranks);
    gpt_step = save(job, gpt.path()).folder;
  });
  EXPECT_THAT(load_error(run, build_custom, gpt_step), HasSubstr("got a model built from settings"));
  EXPECT_EQ(checkpoint::inspect(checkpoint::CheckpointReader::open(gpt_step))
                .at("state")
                .at("model")
                .at("hugging_face_class"),
            "GPT2LMHeadModel");
}

}  // namespace
}  // namespace colonnade::job
