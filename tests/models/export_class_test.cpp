// Hugging Face class of a run's checkpoints, and the flags that prevent one.
#include "colonnade/models/hf/export_class.h"

#include <gtest/gtest.h>

#include "colonnade/config/parse.h"
#include "models/names_support.h"

namespace colonnade::models::hf {
namespace {

using namespace test;  // NOLINT(google-build-using-namespace)

std::string exported(std::vector<std::string> flags) {
  for (const char* word : {"--num-layers", "2", "--hidden-size", "64", "--num-attention-heads", "4",
                           "--seq-length", "32", "--max-position-embeddings", "32", "--vocab-size", "64"})
    flags.emplace_back(word);
  config::Run run = config::parse(flags);
  config::derive(run);
  return export_text(run.model);
}

const std::vector<std::string> kLlama = {"--position-embedding-type", "rope",    "--swiglu",
                                         "--normalization",           "RMSNorm", "--disable-bias-linear"};

std::string exported_llama(std::vector<std::string> more) {
  more.insert(more.begin(), kLlama.begin(), kLlama.end());
  return exported(more);
}

TEST(ExportClass, NamesTheClassOfEveryFamily) {
  for (const char* folder : {"llama", "mistral", "qwen2", "qwen3", "mixtral", "gpt2", "qwen3_moe", "gpt_oss",
                             "gemma2", "gemma3_text", "deepseek_v3", "t5", "bert"})
    EXPECT_EQ(export_text(run_of(folder).model), config_in(folder).at("architectures").at(0)) << folder;
  for (const char* name : colonnade::test::kFurtherModels)
    if (const std::string folder = std::string("hf_more/") + name;
        colonnade::test::is_written_as_read(folder)) {
      EXPECT_EQ(export_text(run_of(folder).model), config_in(folder).at("architectures").at(0)) << folder;
    }
}

TEST(ExportClass, NamesTheFewestFlagsThatPreventOne) {
  EXPECT_EQ(exported({}), "GPT2LMHeadModel");
  EXPECT_EQ(exported_llama({}), "LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--apply-layernorm-1p"}),
            "no Hugging Face class: without --apply-layernorm-1p it would be LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--rotary-percent", "0.5"}), "Phi3ForCausalLM");
  EXPECT_EQ(exported_llama({"--rotary-interleaved"}),
            "no Hugging Face class: without --rotary-interleaved it would be LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--qk-l2-norm"}),
            "no Hugging Face class: without --qk-l2-norm it would be LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--attention-output-gate"}),
            "no Hugging Face class: without --attention-output-gate it would be LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--qk-layernorm", "--window-size", "8,0"}),
            "no Hugging Face class: without --qk-layernorm it would be MistralForCausalLM");
  EXPECT_EQ(exported({"--position-embedding-type", "rope", "--swiglu", "--normalization", "RMSNorm"}),
            "no Hugging Face class: with --disable-bias-linear it would be LlamaForCausalLM");
  EXPECT_EQ(exported_llama({"--num-experts", "4"}), "MixtralForCausalLM");
  EXPECT_EQ(exported_llama({"--num-experts", "4", "--moe-router-load-balancing-type", "sinkhorn"}),
            "no Hugging Face class: with --moe-router-load-balancing-type aux_loss it would be "
            "MixtralForCausalLM");
  EXPECT_EQ(exported_llama({"--num-experts", "4", "--moe-latent-size", "16"}),
            "no Hugging Face class: none has such layers");
  EXPECT_EQ(exported({"--position-embedding-type", "rope", "--swiglu"}),
            "no Hugging Face class: with --normalization RMSNorm, with --disable-bias-linear it would be "
            "LlamaForCausalLM");
}

}  // namespace
}  // namespace colonnade::models::hf
