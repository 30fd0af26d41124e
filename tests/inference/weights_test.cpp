// Opening of weights, and settings adopted from a checkpoint's run.
#include "colonnade/inference/weights.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/inference/evaluate.h"
#include "colonnade/inference/generate.h"
#include "colonnade/job/checkpoint.h"
#include "inference/support.h"
#include "support/vectors.h"

namespace colonnade::inference {
namespace {

namespace fs = std::filesystem;

class Weights : public testing::Test {
 protected:
  void SetUp() override { folder_ = fs::temp_directory_path() / fmt::format("weights_test_{}", ::getpid()); }
  void TearDown() override { fs::remove_all(folder_); }

  /// Saves a native checkpoint of a recorded model with tp 2 x pp 2 and additional `settings`.
  void save_native(const std::string& model = "llama", const std::vector<std::string>& more = {},
                   const std::map<std::string, std::string>& settings = {}) const {
    test::Layout layout{2,
                        2,
                        1,
                        {"--mock-data", "--seq-length", "48", "--micro-batch-size", "1", "--split", "8,1,1",
                         "--tokenizer-type", "NullTokenizer", "--sequence-parallel"}};
    layout.flags.insert(layout.flags.end(), more.begin(), more.end());
    config::Run run = test::run_of(model, layout);
    comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
      job::Job job(run, ranks);
      job::restore(job, checkpoint::CheckpointReader::open_hugging_face(test::vectors(model)),
                   job::Restore::kWeights);
      for (const auto& [key, value] : settings) config::set(job.run, key, value);
      job::save(job, folder_);
    });
  }
  [[nodiscard]] config::Run load(std::vector<std::string> words = {}) const {
    words.insert(words.begin(), {"gpt", "--load", folder_.string()});
    return config::parse(words);
  }
  /// Settings of `evaluate` with those adopted from the checkpoint.
  [[nodiscard]] config::Run adopted(const std::vector<std::string>& words = {}) const {
    config::Run run = load(words);
    adopt_settings(run, config::Use::kEvaluateData);
    return run;
  }
  fs::path folder_;
};

TEST_F(Weights, ANativeCheckpointProvidesModelTokenizerAndData) {
  save_native();
  config::Run run = load();
  adopt_settings(run, config::Use::kEvaluateData);
  EXPECT_EQ(run.data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(run.training.seq_length, 48);
  EXPECT_EQ(run.data.split, "8,1,1");
  EXPECT_TRUE(run.data.mock_data);
  job::prepare(run, rules::Purpose::kModel);
  EXPECT_EQ(run.model.hidden_size, 64);
  EXPECT_EQ(run.model.vocab_size, 320);
}

TEST_F(Weights, AdoptsTheSeedForTheRunsSamplesOnly) {
  save_native("llama", {"--seed", "77"});
  for (const auto& [use, seed] :
       {std::pair{config::Use::kEvaluateData, 77}, std::pair{config::Use::kEvaluateTokens, 1234},
        std::pair{config::Use::kGenerate, 1234}}) {
    config::Run run = load();
    adopt_settings(run, use);
    EXPECT_EQ(run.training.seed, seed);
    EXPECT_EQ(run.data.mock_data, use == config::Use::kEvaluateData);
    EXPECT_EQ(run.data.tokenizer_type, use == config::Use::kEvaluateTokens ? "" : "NullTokenizer");
  }
}

TEST_F(Weights, AHuggingFaceFolderProvidesItsTokenizerForText) {
  fs::create_directories(folder_);
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(test::vectors("llama") + "/" + name, folder_ / name);
  write_file_atomically(folder_ / "tokenizer.json", "damaged: must not be read without need");
  const auto type = [&](config::Use use, const std::vector<std::string>& words = {}) {
    config::Run run = load(words);
    adopt_settings(run, use);
    return run.data.tokenizer_type;
  };
  EXPECT_EQ(type(config::Use::kGenerate), "HuggingFaceTokenizer");
  EXPECT_EQ(type(config::Use::kEvaluateData), "HuggingFaceTokenizer");
  EXPECT_EQ(type(config::Use::kEvaluateData, {"--mock-data"}), "");
  EXPECT_EQ(type(config::Use::kEvaluateTokens), "");
  EXPECT_EQ(type(config::Use::kGenerate, {"--tokenizer-type", "NullTokenizer"}), "NullTokenizer");
  write_file_atomically(folder_ / "run.yaml",
                        "tokenizer_type: HuggingFaceTokenizer\ntokenizer_model: gone\n");
  const std::vector<std::string> yaml{"--config", (folder_ / "run.yaml").string()};
  EXPECT_EQ(type(config::Use::kEvaluateTokens, yaml), "");
  EXPECT_EQ(type(config::Use::kGenerate, yaml), "HuggingFaceTokenizer");
}

TEST_F(Weights, GivenSettingsTakePrecedence) {
  save_native();
  config::Run run = load({"--data-path", "mine", "--seq-length", "16"});
  adopt_settings(run, config::Use::kEvaluateData);
  EXPECT_FALSE(run.data.mock_data);
  EXPECT_EQ(run.data.data_path, std::vector<std::string>{"mine"});
  EXPECT_EQ(run.training.seq_length, 16);
}

TEST_F(Weights, DataFilesOverrideTheRunsData) {
  save_native();
  for (const char* flag : {"--data-args-path", "--per-split-data-args-path"}) {
    const config::Run run = adopted({flag, "file"});
    EXPECT_FALSE(run.data.mock_data) << flag;
    EXPECT_EQ(run.data.split, "8,1,1") << flag;
  }
}

TEST_F(Weights, AdoptsTheRunsSpecialTokens) {
  save_native("llama", {"--tokenizer-hf-no-include-special-tokens"});
  EXPECT_FALSE(adopted().data.tokenizer_hf_include_special_tokens);
  EXPECT_TRUE(adopted({"--tokenizer-hf-include-special-tokens"}).data.tokenizer_hf_include_special_tokens);
}

TEST_F(Weights, ScoresAsManySamplesAsTheRunInAnyLayout) {
  save_native("llama", {"--global-batch-size", "6", "--eval-iters", "2", "--split", "1,1,1"});
  for (const char* micro : {"1", "4"}) {
    config::Run run = adopted({"--micro-batch-size", micro});
    run.parallel.world_size = 1;
    job::prepare(run, rules::Purpose::kModel);
    comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
      InferenceModel network(run, ranks, open_weights(run, ranks.world()));
      const SplitData split = open_split(run, data::Split::kValid);
      EXPECT_EQ(score_data(network, *split.batches, split.samples).tokens, 2 * 6 * 48) << micro;
    });
  }
  // A single data set is still read once.
  config::Run single = adopted({"--data-path", colonnade::test::vectors() + "/indexed/gpt_uint16",
                                "--data-cache-path", (folder_ / "cache").string()});
  job::prepare(single, rules::Purpose::kModel);
  const SplitData split = open_split(single, data::Split::kValid);
  EXPECT_EQ(split.samples, split.batches->size());
  EXPECT_NE(split.samples, 2 * 6);
}

TEST_F(Weights, TokenizerFilesAreGivenOrTheRuns) {
  save_native("llama", {}, {{"vocab_file", "/run.json"}, {"merge_file", "/run.txt"}});
  const auto files = [](const config::Run& run) {
    return std::tuple(run.data.tokenizer_model, run.data.vocab_file, run.data.merge_file);
  };
  EXPECT_EQ(files(adopted()), std::tuple("", "/run.json", "/run.txt"));
  const config::Run other = adopted({"--tokenizer-model", "other.json"});
  EXPECT_EQ(files(other), std::tuple("other.json", "", ""));
  EXPECT_EQ(other.data.tokenizer_type, "NullTokenizer");
  EXPECT_EQ(files(adopted({"--vocab-file", "v.json"})), std::tuple("", "v.json", ""));
}

TEST_F(Weights, IgnoresEvalItersOfARunWithoutValidation) {
  save_native("llama", {"--eval-iters", "0"});
  EXPECT_EQ(adopted().training.eval_iters, 100);
}

TEST_F(Weights, OtherKindsOfSamplesOverrideTheRunsTexts) {
  save_native("llama", {},
              {{"fim_data", "true"},
               {"eod_mask_loss", "true"},
               {"reset_position_ids", "true"},
               {"allow_ambiguous_pad_tokens", "true"}});
  const config::Run texts = adopted();
  EXPECT_TRUE(texts.data.fim.enabled);
  EXPECT_TRUE(texts.data.eod_mask_loss);
  EXPECT_THAT(texts.notes, testing::Contains(testing::HasSubstr("--no-fim-data")));
  EXPECT_TRUE(adopted({"--no-sft"}).data.eod_mask_loss);
  const config::Run chats = adopted({"--sft"});
  EXPECT_FALSE(chats.data.fim.enabled || chats.data.eod_mask_loss || chats.data.reset_position_ids ||
               chats.data.allow_ambiguous_pad_tokens);
  const config::Run mock = adopted({"--mock-data"});
  EXPECT_FALSE(mock.data.fim.enabled);
  EXPECT_TRUE(mock.data.eod_mask_loss);
  EXPECT_THAT(mock.notes, testing::Not(testing::Contains(testing::HasSubstr("--no-fim-data"))));
}

TEST_F(Weights, GivenSettingsOverrideTheRunsMessages) {
  const auto of_messages = [](const config::Run& run) {
    return std::tuple(run.data.sft, run.data.sft_tokenizer_prompt_format, run.data.chat_template);
  };
  save_native("llama", {}, {{"sft", "true"}, {"sft_tokenizer_prompt_format", "identity"}});
  EXPECT_EQ(of_messages(adopted()), std::tuple(true, "identity", ""));
  EXPECT_THAT(adopted().notes, testing::Contains(testing::HasSubstr("--no-sft")));
  EXPECT_EQ(of_messages(adopted({"--chat-template", "mine"})), std::tuple(true, "", "mine"));
  for (const char* other : {"--no-sft", "--mock-data", "--fim-data"})
    EXPECT_EQ(of_messages(adopted({other})), std::tuple(false, "", "")) << other;
  fs::remove_all(folder_);
  save_native("llama", {}, {{"sft", "true"}, {"chat_template", "its own"}});
  EXPECT_EQ(of_messages(adopted({"--sft-tokenizer-prompt-format", "identity"})),
            std::tuple(true, "identity", ""));
  EXPECT_EQ(of_messages(adopted({"--sft-tokenizer-prompt-format", "default"})),
            std::tuple(true, "default", "its own"));
}

/// Other load-balancing types only affect training; sinkhorn also affects the router's weights.
TEST_F(Weights, SinkhornRoutersKeepTheirRouting) {
  for (const auto& [kind, kept] : {std::pair{"sinkhorn", true}, std::pair{"seq_aux_loss", false}}) {
    fs::remove_all(folder_);
    save_native("mixtral", {}, {{"moe_router_load_balancing_type", kind}});
    config::Run run = load();
    adopt_settings(run, config::Use::kGenerate);
    job::prepare(run, rules::Purpose::kModel);
    EXPECT_EQ(run.model.moe.uses_sinkhorn(), kept) << kind;
  }
}

TEST_F(Weights, EveryLayoutReadsANativeCheckpoint) {
  for (const char* model :
       {"llama", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "gemma2", "gemma3_text"}) {
    SCOPED_TRACE(model);
    fs::remove_all(folder_);
    save_native(model);
    const Request request{.prompt = {104, 310, 7}, .max_new_tokens = 12, .sampling = {.temperature = 0}};
    std::vector<std::int32_t> expected;
    test::with_model(model, {},
                     [&](InferenceModel& network) { expected = generate(network, request).tokens; });
    for (const auto& [tp, pp] : {std::pair{1, 1}, std::pair{2, 1}, std::pair{1, 2}}) {
      config::Run run = load({"--tensor-model-parallel-size", std::to_string(tp),
                              "--pipeline-model-parallel-size", std::to_string(pp)});
      run.parallel.world_size = tp * pp;
      adopt_settings(run, config::Use::kEvaluateData);
      job::prepare(run, rules::Purpose::kModel);
      config::Model folder = test::run_of(model).model;
      folder.hidden_dropout =
          run.model.hidden_dropout;  // a training setting: native checkpoints keep their run's
      folder.attention_dropout = run.model.attention_dropout;
      EXPECT_EQ(run.model, folder);
      comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
        InferenceModel network(run, ranks, open_weights(run, ranks.world()));
        EXPECT_EQ(generate(network, request).tokens, expected);
      });
    }
  }
}

// Step folders without rope_type were written before the setting existed.
TEST_F(Weights, OlderMlaCheckpointsKeepTheirRotaryEmbedding) {
  for (const auto& [positions, type] :
       {std::pair("rope", config::RopeType::kRope), {"yarn", config::RopeType::kYarn}}) {
    save_native("deepseek_v3", {}, {{"rope_type", "unset"}, {"position_embedding_type", positions}});
    config::Run run = load({"--kv-channels", "999", "--position-embedding-type", "rope"});
    job::prepare(run, rules::Purpose::kModel);
    EXPECT_EQ(run.model.rope_type, type);
    EXPECT_EQ(run.model.kv_channels, run.model.latent.qk_head_dim + run.model.latent.qk_pos_emb_head_dim);
    fs::remove_all(folder_);
  }
  save_native("deepseek_v3", {}, {{"rope_type", "unset"}, {"use_rope_scaling", "true"}});
  config::Run scaled = load();
  EXPECT_THROW(job::prepare(scaled, rules::Purpose::kModel), ConfigError) << "the scaling is applied no more";
}

TEST_F(Weights, LoadMayNameAHuggingFaceFolder) {
  config::Run run = config::parse({"gpt", "--load", test::vectors("llama")});
  adopt_settings(run, config::Use::kEvaluateData);
  EXPECT_EQ(run.checkpoint.pretrained_checkpoint, test::vectors("llama"));
  EXPECT_EQ(open_weights(run).folder(), test::vectors("llama"));
}

TEST_F(Weights, BinaryHeadsMayBeIgnored) {
  fs::create_directories(folder_);
  fs::copy_file(test::vectors("bert") + "/model.safetensors", folder_ / "model.safetensors");
  auto config = nlohmann::json::parse(read_file(test::vectors("bert") + "/config.json"));
  config["architectures"] = {"BertForPreTraining"};
  write_file_atomically(folder_ / "config.json", config.dump());
  for (const bool wanted : {true, false}) {
    std::vector<std::string> words{"bert", "--pretrained-checkpoint", folder_.string()};
    if (!wanted) words.emplace_back("--bert-no-binary-head");
    config::Run run = config::parse(words);
    adopt_settings(run, config::Use::kEvaluateData);
    job::prepare(run, rules::Purpose::kModel);
    EXPECT_EQ(run.model.bert_binary_head, wanted);
  }
}

TEST_F(Weights, ReportsABinaryHeadThatConfigJsonLacks) {
  fs::create_directories(folder_);
  fs::copy_file(test::vectors("bert") + "/config.json", folder_ / "config.json");
  for (const bool held : {true, false}) {
    checkpoint::write_safetensors(folder_ / "model.safetensors",
                                  {{held ? "cls.seq_relationship.weight" : "x", at::zeros({2, 64})}});
    config::Run run = config::parse({"bert", "--pretrained-checkpoint", folder_.string()});
    job::prepare(run, rules::Purpose::kModel);
    EXPECT_EQ(run.model.bert_binary_head, held);
    const auto is_reported = [](const std::string& note) {
      return note.find("a sentence-order head, which config.json does not name") != std::string::npos;
    };
    EXPECT_EQ(std::ranges::count_if(run.notes, is_reported), held ? 1 : 0);
  }
}

TEST_F(Weights, ReportsMissingWeights) {
  config::Run none = config::parse({"gpt"});
  EXPECT_THROW(adopt_settings(none, config::Use::kEvaluateData), ConfigError);
  fs::create_symlink(folder_.filename(), folder_);  // a loop: cannot be opened
  config::Run closed = load();
  EXPECT_THROW(adopt_settings(closed, config::Use::kEvaluateData), ConfigError);
  fs::remove(folder_);
  config::Run missing = load();
  EXPECT_THROW(adopt_settings(missing, config::Use::kEvaluateData), DataError);
  config::Run pretrained = config::parse({"gpt", "--pretrained-checkpoint", folder_.string()});
  EXPECT_THROW(adopt_settings(pretrained, config::Use::kEvaluateData), DataError);
}

}  // namespace
}  // namespace colonnade::inference
