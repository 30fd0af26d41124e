// See list.h.
#include "colonnade/models/hf/families/list.h"

#include <algorithm>

namespace colonnade::models::hf {
namespace {

struct UnsupportedType {
  std::string_view name, needs;
};
constexpr std::string_view kStateSpace = "state-space layers", kDeltaRule = "gated delta-rule layers",
                           kSparse = "sparse attention with an indexer", kImages = "an image encoder";
constexpr UnsupportedType kUnsupportedTypes[] = {
    {"mamba", kStateSpace},
    {"mamba2", kStateSpace},
    {"falcon_mamba", kStateSpace},
    {"bamba", kStateSpace},
    {"jamba", kStateSpace},
    {"zamba2", kStateSpace},
    {"falcon_h1", kStateSpace},
    {"nemotron_h", kStateSpace},
    {"granitemoehybrid", kStateSpace},
    {"lfm2", "gated short convolutions"},
    {"lfm2_moe", "gated short convolutions"},
    {"qwen3_next", kDeltaRule},
    {"qwen3_5", kDeltaRule},
    {"qwen3_5_text", kDeltaRule},
    {"qwen3_5_moe", kDeltaRule},
    {"qwen3_5_moe_text", kDeltaRule},
    {"kimi_linear", kDeltaRule},
    {"deepseek_v32", kSparse},
    {"glm_moe_dsa", kSparse},
    {"deepseek_v4", "compressed attention and hyper-connections"},
    {"gemma3n", "per-layer embeddings"},
    {"gemma4", "per-layer embeddings and an image encoder"},
    {"gemma4_text", "per-layer embeddings"},
    {"mistral4", "query scaling by position in latent attention"},
    {"glm4_moe_lite", "latent attention with other norm epsilons"},
    {"clip_vision_model", kImages},
    {"siglip_vision_model", kImages},
    {"llava", kImages},
    {"llava_next", kImages},
    {"mistral3", kImages},
    {"internvl", kImages},
    {"qwen2_vl", kImages},
    {"qwen2_5_vl", kImages},
    {"qwen3_vl", kImages},
    {"qwen3_vl_moe", kImages},
    {"mllama", kImages},
    {"whisper", "a sound encoder"},
};

}  // namespace

std::span<const Family* const> all_families() {
  static const Family* const kAll[] = {&llama(),      &mistral(),      &seed_oss(),    &qwen2(),
                                       &qwen3(),      &phi3(),         &olmo2(),       &olmo3(),
                                       &granite(),    &smollm3(),      &glm4(),        &nemotron(),
                                       &starcoder2(), &exaone4(),      &cohere2(),     &hunyuan_v1_dense(),
                                       &ministral3(), &olmoe(),        &mixtral(),     &qwen2_moe(),
                                       &qwen3_moe(),  &deepseek_v2(),  &deepseek_v3(), &glm4_moe(),
                                       &minimax_m2(), &ernie4_5_moe(), &gpt_oss(),     &gemma2(),
                                       &gemma3(),     &gpt2(),         &t5(),          &bert()};
  return kAll;
}

std::string_view missing_layers(std::string_view model_type) {
  const auto* found = std::ranges::find(kUnsupportedTypes, model_type, &UnsupportedType::name);
  return found == std::end(kUnsupportedTypes) ? "" : found->needs;
}

}  // namespace colonnade::models::hf
