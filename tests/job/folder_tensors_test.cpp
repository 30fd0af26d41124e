// Unknown, missing and duplicate tensors of Hugging Face folders, and output layers that are not tied.
#include "colonnade/job/folder_tensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/convert/hugging_face.h"
#include "colonnade/models/hf/config.h"
#include "job/saved_runs.h"
#include "support/vectors.h"

namespace colonnade::job {
namespace {

namespace fs = std::filesystem;
using at::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using Tensors = std::map<std::string, Tensor>;

class FolderTensors : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "colonnade_folder_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Loads the recorded folder of `model`, for a test to modify.
  void load(const std::string& model, const nlohmann::json& change = nlohmann::json::object()) {
    const fs::path recorded = fs::path(test::vectors()) / "hf" / model;
    tensors_.clear();
    const auto source = checkpoint::CheckpointReader::open_hugging_face(recorded);
    for (const std::string& name : source.names()) tensors_[name] = source.read(name);
    config_ = source.hf_config();
    config_.update(change);
  }
  [[nodiscard]] checkpoint::CheckpointReader open() const {
    checkpoint::write_safetensors(folder_ / "model.safetensors", tensors_);
    write_file_atomically(folder_ / "config.json", config_.dump());
    return convert::open_hugging_face(folder_);
  }
  /// Error for the folder; "" where it is accepted.
  [[nodiscard]] std::string fault() const {
    const auto source = open();
    auto settings = models::hf::settings_of(config_, "x", source.names());
    untie_stored_output(settings, source);
    config::Run run;
    config::fill(run, settings, "x");
    config::derive(run);
    try {
      testing::internal::CaptureStderr();
      testing::internal::CaptureStdout();
      require_model_tensors(source, run.model, /*logs_unread=*/true);
      printed_ = testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
      return "";
    } catch (const DataError& e) {
      testing::internal::GetCapturedStderr();
      testing::internal::GetCapturedStdout();
      return e.what();
    }
  }
  /// The setting after untie_stored_output, and its note.
  [[nodiscard]] std::pair<std::string, std::string> untied() const {
    const auto source = open();
    auto settings = models::hf::settings_of(config_, "x", source.names());
    std::string note = untie_stored_output(settings, source);
    return {settings.at("untie_embeddings_and_output_weights"), note};
  }

  fs::path folder_;
  Tensors tensors_;
  nlohmann::json config_;
  mutable std::string printed_;
};

TEST_F(FolderTensors, ExactTensorsOfAModelAreAcceptedSilently) {
  for (const char* model : {"llama", "gpt2", "t5", "bert", "mixtral", "deepseek_v3", "gpt_oss", "gemma2"}) {
    load(model);
    EXPECT_EQ(fault(), "") << model;
    EXPECT_EQ(printed_, "") << model;
  }
}

TEST_F(FolderTensors, UnreadTensorsAreLoggedInOneLine) {
  load("gpt2");
  tensors_["transformer.h.0.attn.bias"] = at::ones({1, 1, 4, 4});
  tensors_["h.1.attn.masked_bias"] = at::ones({1});
  tensors_["score.weight"] = at::ones({2, 64});
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(
      printed_,
      AllOf(HasSubstr("not read: 2 buffers (transformer.h.0.attn.bias, transformer.h.1.attn.masked_bias)"),
            HasSubstr("1 tensors of heads for other tasks (score.weight)")));
  EXPECT_EQ(std::ranges::count(printed_, '\n'), 1);
  load("deepseek_v3");
  tensors_["model.layers.2.enorm.weight"] = at::ones({64});
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(printed_,
              HasSubstr("1 tensors of layers for multi-token prediction (model.layers.2.enorm.weight)"));
}

TEST_F(FolderTensors, UnknownTensorsAreRejectedWithTheLikelyReason) {
  const auto with = [&](const std::string& name) {
    load("llama");
    tensors_[name] = at::ones({2, 2});
    return fault();
  };
  EXPECT_THAT(with("model.layers.0.self_attn.q_proj.lora_A.weight"), HasSubstr("merge_and_unload"));
  EXPECT_THAT(with("model.layers.0.mlp.up_proj.weight_scale_inv"), HasSubstr("quantized to FP8 in blocks"));
  EXPECT_THAT(with("model.layers.7.input_layernorm.weight"),
              HasSubstr("config.json says 2 layers and the weights have layer 7"));
  EXPECT_THAT(with("model.layers.0.self_attn.q_proj.bias"),
              AllOf(HasSubstr("got 1 others: model.layers.0.self_attn.q_proj.bias"),
                    HasSubstr("without these biases")));
  EXPECT_THAT(with("model.layers.0.attn.bias"), HasSubstr("got 1 others")) << "a buffer of GPT-2 only";
  EXPECT_THAT(with("model.layers.0.other.weight"),
              HasSubstr("use the config.json that was saved with these weights"));
}

TEST_F(FolderTensors, MissingTensorsAreRejectedByName) {
  load("llama");
  tensors_.erase("lm_head.weight");
  EXPECT_THAT(
      fault(),
      AllOf(HasSubstr("got no lm_head.weight: the folder holds the base model without its output layer"),
            HasSubstr("\"tie_word_embeddings\": true")));
  tensors_.erase("model.norm.weight");
  EXPECT_THAT(fault(), HasSubstr("got 2 missing: lm_head.weight, model.norm.weight; save or download"));
  load("bert");
  for (const char* name : {"bias", "transform.dense.weight", "transform.dense.bias",
                           "transform.LayerNorm.weight", "transform.LayerNorm.bias"})
    tensors_.erase(std::string("cls.predictions.") + name);
  EXPECT_THAT(fault(), HasSubstr("the base model without its head; save the model with its head"));
}

/// T5 of Transformers scales its logits unless tie_word_embeddings is false or scale_decoder_outputs says
/// otherwise.
TEST_F(FolderTensors, AdviceForT5KeepsTheScaleOfItsLogits) {
  const auto setting = [&](const char* name) { return models::hf::settings_of(config_, "x").at(name); };
  load("t5", {{"tie_word_embeddings", false}});
  config_.erase("scale_decoder_outputs");
  EXPECT_EQ(setting("scale_decoder_outputs"), "false");
  EXPECT_THAT(fault(), HasSubstr("or write \"tie_word_embeddings\": true and "
                                 "\"scale_decoder_outputs\": false in config.json"));
  config_.update({{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}});
  EXPECT_EQ(setting("scale_decoder_outputs"), "false");
  EXPECT_EQ(fault(), "");
  config_.erase("scale_decoder_outputs");
  EXPECT_EQ(setting("scale_decoder_outputs"), "true");
  tensors_["lm_head.weight"] = tensors_.at("shared.weight") + 1;
  EXPECT_THAT(untied().second, HasSubstr("(write \"tie_word_embeddings\": false and "
                                         "\"scale_decoder_outputs\": true in config.json)"));
  config_.update({{"tie_word_embeddings", false}, {"scale_decoder_outputs", true}});
  EXPECT_EQ(setting("scale_decoder_outputs"), "true");
  EXPECT_EQ(untied(), std::pair(std::string("true"), std::string()));
  config_.update({{"tie_word_embeddings", true}, {"scale_decoder_outputs", false}});
  EXPECT_THAT(untied().second, HasSubstr("\"scale_decoder_outputs\": false"));
}

TEST_F(FolderTensors, CopiesMustBeEqual) {
  load("t5");
  tensors_["encoder.embed_tokens.weight"] = tensors_.at("shared.weight").clone();
  EXPECT_EQ(fault(), "");
  tensors_["decoder.embed_tokens.weight"] = tensors_.at("shared.weight") + 1;
  EXPECT_THAT(fault(), HasSubstr("decoder.embed_tokens.weight must hold the values of shared.weight"));
  load("bert");
  tensors_["cls.predictions.decoder.bias"] = tensors_.at("cls.predictions.bias") + 1;
  EXPECT_EQ(fault(), "");
  EXPECT_THAT(printed_, HasSubstr("the decoder's bias is read, as in Transformers"));
}

TEST_F(FolderTensors, SavedUntiedBertHasItsOutputBiasTwice) {
  for (const bool own : {true, false}) {
    const auto step = folder_ / (own ? "own" : "tied");
    const auto run = saved::saved_run(
        saved::kOne, fmt::format("bert --apply-residual-connection-post-layernorm --activation gelu "
                                 "--norm-epsilon 1e-12 --num-tokentypes 2 --mask-prob 0.2 {}",
                                 own ? "--untie-embeddings-and-output-weights" : ""));
    fs::path written;
    const auto bias_of = [](Job& job) {
      for (const tensor::Parameter* p : job.parameters())
        if (p->spec.name == "output_layer.bias")
          return p->value.detach().narrow(0, 0, p->spec.shape[0]).clone();
      return Tensor();
    };
    Tensor bias;
    test::on_jobs(run, [&](Job& job) {
      test::train(job, 1);
      bias = bias_of(job);
      written = save(job, step).folder;
    });
    ASSERT_TRUE(bias.defined());
    EXPECT_GT(bias.abs().max().item<float>(), 0);
    const auto source = checkpoint::CheckpointReader::open_hugging_face(written);
    EXPECT_TRUE(at::equal(source.read("cls.predictions.bias"), bias));
    ASSERT_EQ(source.has("cls.predictions.decoder.bias"), own)
        << "Transformers ties the bias where the tables are tied";
    if (own) {
      EXPECT_TRUE(at::equal(source.read("cls.predictions.decoder.bias"), bias));
    }
    test::on_jobs(run, [&](Job& job) {
      restore(job, convert::open_hugging_face(written), Restore::kWeights);
      EXPECT_TRUE(at::equal(bias_of(job), bias));
    });
  }
}

TEST_F(FolderTensors, DifferingOutputLayerIsUntied) {
  for (const auto& [model, embedding, output] :
       {std::tuple{"gpt2", "transformer.wte.weight", "lm_head.weight"},
        std::tuple{"gemma2", "model.embed_tokens.weight", "lm_head.weight"},
        std::tuple{"t5", "shared.weight", "lm_head.weight"},
        std::tuple{"bert", "bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight"}}) {
    SCOPED_TRACE(model);
    load(model);
    EXPECT_EQ(untied(), std::pair(std::string("false"), std::string()));
    tensors_[output] = tensors_.at(embedding).clone();
    EXPECT_EQ(untied(), std::pair(std::string("false"), std::string()));
    EXPECT_EQ(fault(), "");
    tensors_[output][3][5] += 0.25;
    const auto& [setting, note] = untied();
    EXPECT_EQ(setting, "true");
    EXPECT_THAT(note, AllOf(HasSubstr(output), HasSubstr("it is left untied, as in Transformers"),
                            HasSubstr("\"tie_word_embeddings\": false")));
    EXPECT_EQ(fault(), "");
  }
  load("llama", {{"tie_word_embeddings", true}});
  EXPECT_EQ(untied().first, "true");
}

}  // namespace
}  // namespace colonnade::job
