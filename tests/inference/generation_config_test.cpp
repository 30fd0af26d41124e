// generation_config.json: recorded texts of Transformers, precedence of keys, and invalid files.
#include "colonnade/inference/generation_config.h"

#include <gmock/gmock.h>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/inference/generate.h"
#include "inference/support.h"
#include "support/vectors.h"

namespace colonnade::inference {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

class GenerationConfigFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / fmt::format("generation_config_test_{}", ::getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Configuration of a folder with this file; null: without one.
  [[nodiscard]] GenerationConfig read(const json& file, const json& hf_config = nullptr) const {
    return read_text(file.is_null() ? "" : file.dump(), hf_config);
  }
  [[nodiscard]] GenerationConfig read_text(const std::string& text, const json& hf_config = nullptr) const {
    fs::remove(folder_ / "generation_config.json");
    if (!text.empty()) write_file_atomically(folder_ / "generation_config.json", text);
    return read_generation_config(folder_, hf_config);
  }
  fs::path folder_;
};

TEST_F(GenerationConfigFile, ReproducesTheTextsOfTransformers) {
  const json recorded =
      json::parse(read_file(fmt::format("{}/generation/expected.json", colonnade::test::vectors())));
  const auto prompt = recorded.at("prompt").get<std::vector<std::int32_t>>();
  const std::int64_t limit = recorded.at("limit");
  test::with_model("llama", {}, [&](InferenceModel& network) {
    for (const json& one : recorded.at("cases")) {
      json hf_config{{"eos_token_id", one.at("config_eos")}};
      hf_config.update(one.value("config", json::object()));
      const auto config = read(one.at("generation_config"), hf_config);
      Request request{.prompt = prompt, .sampling = sampling_of(config, {}, 1)};
      request.eos_ids = config.eos_ids.value_or(std::vector<std::int32_t>{});
      request.max_new_tokens = new_tokens_of(config, static_cast<std::int64_t>(prompt.size()), limit);
      const Generated made = generate(network, request);
      EXPECT_EQ(made.tokens, one.at("tokens").get<std::vector<std::int32_t>>()) << one.at("name");
      EXPECT_EQ(made.ended, one.at("ended").get<bool>()) << one.at("name");
      EXPECT_TRUE(config.not_applied.empty()) << one.at("name");
    }
  });
}

TEST_F(GenerationConfigFile, EosIdsComeFromTheNearestFile) {
  const json outer{{"eos_token_id", 7}}, inner{{"text_config", {{"eos_token_id", {8, 9}}}}};
  EXPECT_THAT(*read({{"eos_token_id", {1, 2}}}, outer).eos_ids, ElementsAre(1, 2));
  EXPECT_THAT(*read({{"eos_token_id", nullptr}}, outer).eos_ids, ElementsAre()) << "as Transformers";
  EXPECT_THAT(*read({{"temperature", 1}}, outer).eos_ids, ElementsAre(7));
  EXPECT_THAT(*read(nullptr, outer).eos_ids, ElementsAre(7));
  EXPECT_THAT(*read(nullptr, inner).eos_ids, ElementsAre(8, 9));
  EXPECT_THAT(*read({{"eos_token_id", -1}}, outer).eos_ids, ElementsAre());
  EXPECT_FALSE(read(nullptr).eos_ids);
  EXPECT_EQ(read({{"bos_token_id", 5}}).bos, 5);
}

TEST_F(GenerationConfigFile, ConfigJsonAppliesWithoutTheFile) {
  const json keys{{"repetition_penalty", 1.7}, {"max_length", 20}, {"bos_token_id", 5},   {"do_sample", true},
                  {"temperature", nullptr},    {"top_k", 9},       {"vocab_size", 64000}, {"num_beams", 3}};
  const GenerationConfig found = read(nullptr, keys);
  EXPECT_EQ(found.values.repetition_penalty, 1.7);
  EXPECT_EQ(found.max_length, 20);
  EXPECT_EQ(found.bos, -1) << "our runs write the tokenizer's, which need not begin documents";
  EXPECT_TRUE(found.do_sample);
  EXPECT_FALSE(found.values.temperature);
  EXPECT_EQ(found.values.top_k, 9);
  EXPECT_THAT(found.not_applied, ElementsAre(HasSubstr("config.json: num_beams is not applied; got 3")));
  EXPECT_FALSE(read({{"top_p", 0.5}}, keys).max_length)
      << "with the file, config.json only provides eos_token_id";
  const GenerationConfig inner =
      read(nullptr, {{"top_k", 7}, {"text_config", {{"top_k", 8}, {"repetition_penalty", 1.5}}}});
  EXPECT_EQ(inner.values.top_k, 7);
  EXPECT_EQ(inner.values.repetition_penalty, 1.5);
  EXPECT_THROW((void)read(nullptr, {{"repetition_penalty", "high"}}), DataError);
}

TEST_F(GenerationConfigFile, TopPZeroKeepsTheMostProbableToken) {
  const GenerationConfig file =
      read({{"do_sample", true}, {"top_k", 0}, {"top_p", 0.0}, {"temperature", 5.0}});
  const std::vector<float> logits{1.0F, 1.125F, 1.0F, 1.0625F};
  for (std::int64_t position = 0; position < 20; ++position)
    EXPECT_EQ(sample(logits, sampling_of(file, {}, 1), position), 1) << position;
  EXPECT_EQ(sampling_of(file, {.top_p = 0}, 1).top_p, 0) << "0 of a flag means all tokens";
}

TEST_F(GenerationConfigFile, GivenValuesOverrideTheFileAndItsDefaults) {
  const auto sampling = [&](const json& file, const SamplingValues& given = {}) {
    const Sampling s = sampling_of(read(file), given, 1);
    return std::tuple{s.temperature, s.top_k, s.top_p};
  };
  const json file{{"do_sample", true}, {"temperature", 0.6}, {"top_p", 0.95}};
  EXPECT_EQ(sampling(nullptr), (std::tuple{0.0, 0, 0.0}));
  EXPECT_EQ(sampling({{"do_sample", true}}), (std::tuple{1.0, 50, 1.0}));
  EXPECT_EQ(sampling(file), (std::tuple{0.6, 50, 0.95}));
  EXPECT_EQ(sampling(file, {.temperature = 0}), (std::tuple{0.0, 50, 0.95}));
  EXPECT_EQ(sampling(file, {.top_k = 0, .top_p = 0.5}), (std::tuple{0.6, 0, 0.5}));
  EXPECT_EQ(sampling({{"temperature", 0.6}, {"top_k", 9}}), (std::tuple{0.0, 0, 0.0}));
  EXPECT_EQ(sampling({{"temperature", 0.6}}, {.top_p = 0.5}), (std::tuple{0.6, 0, 0.5}))
      << "other values come from the file";
  const GenerationConfig penalty = read({{"repetition_penalty", 1.2}});
  EXPECT_EQ(sampling_of(penalty, {}, 1).repetition_penalty, 1.2);
  EXPECT_EQ(sampling_of(penalty, {.repetition_penalty = 1}, 1).repetition_penalty, 1);
  EXPECT_FALSE(SamplingValues{.repetition_penalty = 2}.requests_sampling());
}

TEST_F(GenerationConfigFile, ReportsIgnoredKeysThatAffectTheText) {
  const auto reported = [&](const json& file) { return read(file).not_applied; };
  EXPECT_THAT(reported({{"num_beams", 4}}),
              ElementsAre(AllOf(HasSubstr("generation_config.json: num_beams is not applied; got 4"))));
  EXPECT_THAT(
      reported({{"suppress_tokens", {1, 2}}, {"no_repeat_ngram_size", 3}}),
      ElementsAre(HasSubstr("no_repeat_ngram_size"), HasSubstr("suppress_tokens is not applied; got [1,2]")));
  EXPECT_THAT(reported({{"warp_speed", 3}}), ElementsAre(HasSubstr("warp_speed is unknown")));
  EXPECT_THAT(reported({{"do_sample", true}, {"min_p", 0.1}}), ElementsAre(HasSubstr("min_p")));
  EXPECT_THAT(reported({{"min_p", 0.1}}), ElementsAre()) << "only read when sampling";
  EXPECT_THAT(reported({{"num_beams", 1},
                        {"typical_p", 1.0},
                        {"do_sample", true},
                        {"suppress_tokens", json::array()},
                        {"min_length", 0},
                        {"bad_words_ids", nullptr},
                        {"use_cache", true},
                        {"pad_token_id", 0},
                        {"transformers_version", "5.23.0"},
                        {"_from_model_config", true}}),
              ElementsAre());
}

TEST_F(GenerationConfigFile, NamesFileAndKeyOfInvalidValues) {
  const auto fault = [&](const std::string& text) -> std::string {
    try {
      (void)read_text(text);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(fault("{"),
              HasSubstr("generation_config.json must be JSON; got parse error at line 1, column 2"));
  EXPECT_THAT(fault("[1]"), HasSubstr("must be a JSON object; got [1]"));
  EXPECT_THAT(fault("version https://git-lfs.github.com/spec/v1"), HasSubstr("got a Git LFS pointer"));
  EXPECT_THAT(fault(R"({"eos_token_id": "</s>"})"), HasSubstr("eos_token_id must be a token id or a list"));
  EXPECT_THAT(fault(R"({"eos_token_id": [1, 2.5]})"), HasSubstr("got 2.5"));
  EXPECT_THAT(fault(R"({"eos_token_id": 5000000000})"), HasSubstr("got 5000000000"));
  EXPECT_THAT(fault(R"({"do_sample": "yes"})"), HasSubstr("do_sample must be true or false"));
  EXPECT_THAT(fault(R"({"temperature": -1})"), HasSubstr("temperature must be a number, 0 or more; got -1"));
  EXPECT_THAT(fault(R"({"top_p": 2})"), HasSubstr("top_p must be a number, 0 to 1; got 2"));
  EXPECT_THAT(fault(R"({"top_k": 1.5})"), HasSubstr("top_k must be an integer"));
  EXPECT_THAT(fault(R"({"repetition_penalty": 0})"), HasSubstr("repetition_penalty must be above 0"));
  EXPECT_THAT(fault(R"({"max_new_tokens": 0})"), HasSubstr("max_new_tokens"));
}

TEST_F(GenerationConfigFile, MaxLengthBelowThePromptIsAnError) {
  EXPECT_EQ(new_tokens_of(read({{"max_length", 9}}), 8, 128), 1);
  EXPECT_THROW((void)new_tokens_of(read({{"max_length", 8}}), 8, 128), ConfigError);
  EXPECT_EQ(new_tokens_of(read(nullptr), 8, 128), 128);
}

}  // namespace
}  // namespace colonnade::inference
