// Logits and losses of recorded Hugging Face models in every layout, and the loss over a data set.
#include "colonnade/inference/evaluate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "colonnade/base/error.h"
#include "inference/support.h"
#include "support/recorded_models.h"
#include "support/vectors.h"

namespace colonnade::inference {
namespace {

using test::Layout;
using test::recorded;
using test::with_model;

/// Rows as from read_token_file for the recorded inputs.
TokenRows recorded_rows(const std::string& model) {
  const at::Tensor labels = recorded(model, "in.labels").to(at::kLong);
  const at::Tensor shifted = at::full_like(labels, kIgnoreIndex);
  shifted.narrow(1, 0, 31).copy_(labels.narrow(1, 1, 31));
  return {recorded(model, "in.input_ids").to(at::kLong), shifted};
}

/// Tolerances of the vectors' manifest: logits abs 2e-5 + rel 1e-4, loss rel 1e-5.
void expect_recorded(const std::string& model, const Layout& layout) {
  const double loss = recorded(model, "loss").item<double>();
  with_model(model, layout, [&](InferenceModel& network) {
    const RowScore scored = score_rows(network, recorded_rows(model), /*keep_logits=*/true);
    EXPECT_NEAR(scored.score.loss, loss, 1e-5 * loss);
    EXPECT_NEAR(scored.score.perplexity(), std::exp(loss), 1e-4 * std::exp(loss));
    EXPECT_EQ(scored.logits.defined(), network.is_leader());
    if (scored.logits.defined()) {
      EXPECT_TRUE(at::allclose(scored.logits, recorded(model, "logits"), 1e-4, 2e-5));
    }
  });
}

class Recorded : public testing::TestWithParam<std::string> {};

TEST_P(Recorded, LogitsAndLossInEveryLayout) {
  const Layout one_row_a_time{1, 2, 1, {"--micro-batch-size", "1"}};
  const Layout virtual_stages{
      1, 2, 1, {"--pipeline-model-parallel-layout", "E|t|t|L", "--micro-batch-size", "1"}};
  const Layout as_a_v{
      1, 2, 1, {"--pipeline-model-parallel-layout", "E|t|t|L", "--pipeline-schedule", "zb-v"}};
  for (const Layout& layout :
       {Layout{}, Layout{2, 1}, one_row_a_time, Layout{2, 2}, Layout{1, 1, 2}, virtual_stages, as_a_v})
    expect_recorded(GetParam(), layout);
}

TEST(Evaluate, SupportsExpertParallelism) {
  for (const char* model : {"mixtral", "qwen3_moe", "gpt_oss"})
    for (const char* dispatcher : {"allgather", "alltoall"}) {
      const std::vector<std::string> ep2 = {"--expert-model-parallel-size", "2",
                                            "--moe-token-dispatcher-type", dispatcher};
      auto on_tensor_ranks = ep2;
      on_tensor_ranks.insert(on_tensor_ranks.end(), {"--expert-tensor-parallel-size", "1"});
      expect_recorded(model, {1, 1, 2, ep2});
      expect_recorded(model, {2, 1, 1, on_tensor_ranks});
      expect_recorded(model, {2, 1, 2, ep2});
    }
}

INSTANTIATE_TEST_SUITE_P(
    Families, Recorded,
    testing::ValuesIn(colonnade::test::recorded_models({colonnade::test::ModelKind::kDense})),
    [](const auto& info) { return colonnade::test::test_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Mixtures, Recorded, testing::Values("mixtral", "qwen3_moe", "gpt_oss"),
                         [](const auto& info) { return colonnade::test::test_name(info.param); });

/// The loss over five samples is the same in all layouts.
void expect_one_loss(const std::string& model, const std::vector<Layout>& layouts) {
  std::vector<double> losses;
  for (const Layout& layout : layouts) {
    Layout with_data = layout;
    for (const char* word : {"--mock-data", "--seq-length", "32", "--eval-iters", "5"})
      with_data.flags.emplace_back(word);
    with_model(model, with_data, [&](InferenceModel& network) {
      const SplitData split = open_split(network.run(), data::Split::kValid);
      const Score score = score_data(network, *split.batches, 5);
      EXPECT_EQ(score.tokens, 5 * 32);
      if (network.is_leader()) losses.push_back(score.loss);
    });
  }
  for (const double loss : losses) EXPECT_NEAR(loss, losses.front(), 2e-6 * losses.front());
}

TEST(Evaluate, DataLossIsTheSameInEveryLayout) {
  expect_one_loss("llama", {{}, {2, 1}, {1, 2}, {1, 1, 2}, {1, 1, 3, {"--micro-batch-size", "2"}}});
}

TEST(Evaluate, RanksThatShareExpertsRunInLockstep) {
  const std::vector<std::string> ep2 = {"--expert-model-parallel-size", "2"};
  auto exchange = ep2;
  exchange.insert(exchange.end(), {"--moe-token-dispatcher-type", "alltoall", "--micro-batch-size", "2"});
  expect_one_loss("mixtral", {{},
                              {1, 1, 2, ep2},
                              {1, 1, 2, exchange},
                              {1, 2, 2, exchange},
                              {2, 1, 2, ep2},
                              {1, 1, 2, {"--expert-tensor-parallel-size", "2"}}});
}

TEST(Evaluate, DataLossEqualsTheLossOfItsTokens) {
  with_model("llama", {1, 1, 1, {"--mock-data", "--seq-length", "32", "--eval-iters", "3"}},
             [](InferenceModel& network) {
               const SplitData split = open_split(network.run(), data::Split::kValid);
               EXPECT_EQ(split.samples, 3);
               const auto host = split.batches->get(0, 3);
               const TokenRows rows{at::tensor(host.tokens, at::kLong).view({3, 32}),
                                    at::tensor(host.labels, at::kLong).view({3, 32})};
               const Score by_rows = score_rows(network, rows, false).score;
               const Score by_data = score_data(network, *split.batches, split.samples);
               EXPECT_NEAR(by_data.loss, by_rows.loss, 1e-6 * by_rows.loss);
               EXPECT_EQ(by_data.tokens, by_rows.tokens);
             });
}

TEST(Evaluate, RejectsNonFiniteLossesOfAnyTokens) {
  for (const double loss : {std::nan(""), HUGE_VAL}) {
    EXPECT_THROW(require_finite({.loss = loss, .tokens = 3}), Error);
    EXPECT_NO_THROW(require_finite({.loss = loss, .tokens = 0}));
  }
  EXPECT_NO_THROW(require_finite({.loss = 5.5, .tokens = 3}));
  EXPECT_NO_THROW(require_finite({.loss = 5.5, .tokens = 3, .sop_loss = 0.7}));
  EXPECT_THROW(require_finite({.loss = 5.5, .tokens = 3, .sop_loss = std::nan("")}), Error);
}

TEST(Evaluate, SamplesMustFitTheModelsPositions) {
  const config::Run run = test::run_of("gpt2", {1, 1, 1, {"--mock-data", "--seq-length", "129"}});
  EXPECT_THROW(open_split(run, data::Split::kValid), ConfigError);
}

TEST(Evaluate, ReadsASingleDataSetOnce) {
  const std::string data = colonnade::test::vectors() + "/indexed/gpt_uint16";
  const auto cache = std::filesystem::temp_directory_path() / fmt::format("evaluate_test_{}", ::getpid());
  const auto samples = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--seq-length", "32", "--tokenizer-type", "NullTokenizer", "--data-cache-path",
                               cache.string()});
    return open_split(test::run_of("llama", {1, 1, 1, words}), data::Split::kValid).samples;
  };
  const std::int64_t part = samples({"--data-path", data, "--split", "1,1,0"});
  EXPECT_EQ(samples({"--data-path", "0.5", data, "--split", "1,1,0"}), part);
  const std::int64_t all = samples({"--valid-data-path", data});
  EXPECT_GT(all, part);
  EXPECT_EQ(samples({"--train-data-path", data, data, "--valid-data-path", data}), all);
  EXPECT_NE(samples({"--train-data-path", data, "--valid-data-path", data, data}), all);
  std::filesystem::remove_all(cache);
}

TEST(Evaluate, DecoderSamplesMustFitTheModelsPositions) {
  for (const bool fits : {true, false}) {
    config::Run run = config::parse({"t5",
                                     "--num-layers",
                                     "1",
                                     "--hidden-size",
                                     "8",
                                     "--num-attention-heads",
                                     "2",
                                     "--vocab-size",
                                     "40",
                                     "--position-embedding-type",
                                     "learned_absolute",
                                     "--max-position-embeddings",
                                     "32",
                                     "--mock-data",
                                     "--vocab-extra-ids",
                                     "10",
                                     "--seq-length",
                                     "32",
                                     "--decoder-seq-length",
                                     fits ? "32" : "33"});
    run.parallel.world_size = 1;
    std::string message;
    try {
      job::prepare(run, rules::Purpose::kModel);
    } catch (const ConfigError& error) {
      message = error.what();
    }
    EXPECT_EQ(message.find("--max-position-embeddings must "), fits ? std::string::npos : 0U) << message;
    EXPECT_EQ(message.find("[decoder-positions]") == std::string::npos, fits) << message;
  }
}

TEST(Evaluate, HintsAtNoSftForTextsReadAsMessages) {
  for (const bool adopted : {true, false}) {
    config::Run run =
        test::run_of("llama", {1, 1, 1, {"--data-path", "no_such_texts", "--seq-length", "32"}});
    config::set(run, "sft", "true");
    config::set(run, "tokenizer_type", "HuggingFaceTokenizer");
    config::set(run, "tokenizer_model", colonnade::test::vectors() + "/tokenizers/qwen2_bpe.json");
    config::set(run, "sft_tokenizer_prompt_format", "identity");
    if (!adopted) run.given["sft"] = "the command line";
    std::string message;
    try {
      open_split(run, data::Split::kValid);
    } catch (const DataError& error) {
      message = error.what();
    }
    EXPECT_EQ(message.find("no_such_texts: with --sft data must be"), 0U) << message;
    EXPECT_EQ(message.find("use --no-sft") != std::string::npos, adopted) << message;
  }
}

}  // namespace
}  // namespace colonnade::inference
