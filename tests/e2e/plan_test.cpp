// `colonnade plan` of a model given by its config.json only: whether it fits, and the cost of the
// run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "program.h"
#include "support/vectors.h"

namespace colonnade::e2e {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

/// The published config.json of Llama 3 8B.
nlohmann::json llama3_8b() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"attention_bias", false},
          {"attention_dropout", 0.0},
          {"bos_token_id", 128000},
          {"eos_token_id", 128001},
          {"hidden_act", "silu"},
          {"hidden_size", 4096},
          {"initializer_range", 0.02},
          {"intermediate_size", 14336},
          {"max_position_embeddings", 8192},
          {"model_type", "llama"},
          {"num_attention_heads", 32},
          {"num_hidden_layers", 32},
          {"num_key_value_heads", 8},
          {"pretraining_tp", 1},
          {"rms_norm_eps", 1e-05},
          {"rope_scaling", nullptr},
          {"rope_theta", 500000.0},
          {"tie_word_embeddings", false},
          {"torch_dtype", "bfloat16"},
          {"use_cache", true},
          {"vocab_size", 128256}};
}

/// A plan of the model in `folder` on H100s.
Words plan_of(const std::filesystem::path& folder, const Words& more) {
  return colonnade(Words{"plan", "--pretrained-checkpoint", folder.string(), "--bf16", "--hardware=h100"} +
                   more);
}

TEST(PlanVerdict, ModelWithoutWeightsDoesNotFitOneDevice) {
  const TempFolder folder;
  write_text(folder / "config.json", llama3_8b().dump());
  const Result plan = run(plan_of(folder.path(), {"--world-size=1"}));
  EXPECT_EQ(plan.code, 0) << "a plan that does not fit is still a plan";
  EXPECT_THAT(plan.text, AllOf(StartsWith("does not fit: "), HasSubstr(" of 74 GiB\n"),
                               HasSubstr("model: 8.03 B parameters"),
                               HasSubstr("`plan --search` finds layouts that fit")));
}

TEST(PlanVerdict, PlanForGpusDoesNotMentionTheCpu) {
  const TempFolder folder;
  write_text(folder / "config.json", llama3_8b().dump());
  const Result plan = run(plan_of(folder.path(), {"--world-size=8", "--distributed-backend=nccl"}));
  EXPECT_EQ(plan.code, 0);
  EXPECT_THAT(plan.text, Not(HasSubstr("gloo")));
}

TEST(PlanVerdict, PrintsTheCostOfTheRun) {
  const TempFolder folder;
  write_text(folder / "config.json", llama3_8b().dump());
  const Result plan =
      run(plan_of(folder.path(), {"--world-size=8", "--tensor-model-parallel-size=8", "--sequence-parallel",
                                  "--global-batch-size=16", "--train-samples=16007", "--json",
                                  (folder / "plan.json").string()}));
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text,
              AllOf(StartsWith("fits: "), HasSubstr(" s per step, "), HasSubstr("\nrun of 1,000 steps: "),
                    HasSubstr(" days"), HasSubstr(" GPU-hours on 8 GPUs"), Not(HasSubstr("--search"))));
  const auto json = nlohmann::json::parse(read_text(folder / "plan.json"));
  EXPECT_TRUE(json.at("fits").get<bool>());
  const double step = json.at("estimate").at("step_seconds");
  EXPECT_NEAR(json.at("run").at("gpu_hours").get<double>(), step * 1000 * 8 / 3600, 1e-6);
}

TEST(PlanVerdict, ConflictOrMissingModelIsAnError) {
  const TempFolder folder;
  write_text(folder / "config.json", llama3_8b().dump());
  const Result against = run(plan_of(folder.path(), {"--world-size=1", "--num-layers=31"}));
  EXPECT_EQ(against.code, 2);
  EXPECT_THAT(against.text, AllOf(HasSubstr("--num-layers"), HasSubstr("config.json")));
  EXPECT_EQ(run(plan_of(folder / "none", {"--world-size=1"})).code, 3);
  write_text(folder / "config.json", "{");
  const Result broken = run(plan_of(folder.path(), {"--world-size=1"}));
  EXPECT_EQ(broken.code, 3);
  EXPECT_THAT(broken.text, HasSubstr("config.json"));
}

TEST(PlanVerdict, SavedRunIsPlannedUnchanged) {
  const TempFolder folder;
  const std::string saved = (folder / "run").string();
  ASSERT_EQ(run(colonnade(small_gpt() + Words{"--train-iters=2", "--save", saved})).code, 0);
  const Result plan =
      run(colonnade({"plan", "--load", saved, "--world-size=2", "--pipeline-model-parallel-size=2"}));
  EXPECT_EQ(plan.code, 0) << plan.text;
  EXPECT_THAT(plan.text, HasSubstr("2 ranks: tensor 1 x context 1 x data 1 x pipeline 2"));
  const Result missing = run(colonnade({"plan", "--load", (folder / "none").string()}));
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.text, AllOf(HasSubstr("--load must contain a checkpoint"), Not(HasSubstr("hidden"))));
  const Result published = run(colonnade({"plan", "--load", test::vectors() + "/hf/llama"}));
  EXPECT_EQ(published.code, 2);
  EXPECT_THAT(published.text, AllOf(HasSubstr("--pretrained-checkpoint"), Not(HasSubstr("hidden"))));
  Words line = small_gpt() + Words{"--load", (folder / "none").string()};
  line.front() = "plan";
  EXPECT_EQ(run(colonnade(line)).code, 0) << "the launch line of a new run";
}

}  // namespace
}  // namespace colonnade::e2e
