// Text with the cache is the text without it, in every layout.
#include "colonnade/inference/generate.h"

#include <gmock/gmock.h>

#include <atomic>
#include <limits>
#include <mutex>

#include "colonnade/base/error.h"
#include "inference/support.h"

namespace colonnade::inference {
namespace {

using test::Layout;
using test::with_network;
using Tokens = std::vector<std::int32_t>;

const Tokens kPrompt = {104, 310, 7, 239, 316, 5, 18};

/// What rank 0 makes; every rank must make the same.
Generated generated(const std::string& model, const Layout& layout, const Request& request) {
  std::mutex mutex;
  std::vector<Generated> all;
  with_network(model, layout, [&](Network& network) {
    Tokens heard;
    Generated out = generate(network, request, [&](std::int32_t token) { heard.push_back(token); });
    EXPECT_EQ(heard, out.tokens);
    const std::lock_guard lock(mutex);
    all.push_back(std::move(out));
  });
  for (const Generated& one : all) EXPECT_EQ(one.tokens, all.front().tokens);
  return all.front();
}

/// The largest logit after all tokens so far, computed anew for every token.
Tokens recomputed(const std::string& model, const Tokens& prompt, int count) {
  Tokens all = prompt;
  with_network(model, {}, [&](Network& network) {
    for (int i = 0; i < count; ++i) {
      tensor::Batch batch;
      batch.set("tokens", at::tensor(all, at::kInt).to(colonnade::test::device(), at::kLong).unsqueeze(0));
      all.push_back(network.forward(batch, {})[0][-1].argmax().item<std::int32_t>());
    }
  });
  return {all.begin() + static_cast<std::ptrdiff_t>(prompt.size()), all.end()};
}

class EachModel : public testing::TestWithParam<const char*> {};

TEST_P(EachModel, CacheGivesTheTextOfRecomputation) {
  const Request request{.prompt = kPrompt, .max_new_tokens = 40, .sampling = {.temperature = 0}};
  EXPECT_EQ(generated(GetParam(), {}, request).tokens, recomputed(GetParam(), kPrompt, 40));
}

/// Llama: rotary positions scaled as llama3's, grouped keys. GPT-2: learned positions, tied embeddings.
/// Mistral: a sliding window shorter than the text. Qwen2: biases of keys; Qwen3: their norms. Mixtral:
/// experts. DeepSeek-V3: heads made of narrow vectors.
INSTANTIATE_TEST_SUITE_P(Families, EachModel,
                         testing::Values("llama", "gpt2", "mistral", "qwen2", "qwen3", "mixtral", "qwen3_moe",
                                         "gpt_oss", "gemma2", "gemma3_text", "deepseek_v3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Generate, LogitsOfAPromptInTwoPassesAreThoseOfOne) {
  with_network("llama", {}, [](Network& network) {
    const at::Tensor ids = test::recorded("llama", "in.input_ids").to(at::kLong);
    tensor::KeyValueCache cache;
    std::vector<at::Tensor> parts;
    for (const auto& [begin, count] : {std::pair{0, 20}, std::pair{20, 12}}) {
      tensor::Batch batch;
      batch.set("tokens", ids.narrow(1, begin, count).contiguous());
      batch.set("position_ids", at::arange(begin, begin + count, at::kLong).expand({2, count}).contiguous());
      parts.push_back(network.forward(batch, {.cache = &cache}));
      cache.advance(count);
    }
    EXPECT_TRUE(at::allclose(at::cat(parts, 1), test::recorded("llama", "logits"), 1e-4, 2e-5));
  });
}

TEST(Generate, EveryLayoutMakesTheSameText) {
  const Layout virtual_stages{1, 2, 1, {"--pipeline-model-parallel-layout", "E|t|t|L"}};
  for (const Sampling& sampling :
       {Sampling{.temperature = 0}, Sampling{.temperature = 0.9, .top_k = 50, .top_p = 0.95, .seed = 3}})
    for (const char* model : {"llama", "gpt2"}) {
      const Request request{.prompt = kPrompt, .max_new_tokens = 24, .sampling = sampling};
      const Tokens expected = generated(model, {}, request).tokens;
      ASSERT_EQ(expected.size(), 24U);
      for (const Layout& layout : {Layout{2, 1}, Layout{1, 2}, Layout{2, 2}, Layout{1, 1, 2}, virtual_stages})
        EXPECT_EQ(generated(model, layout, request).tokens, expected)
            << model << " tp " << layout.tensor << " pp " << layout.pipeline << " dp " << layout.data;
    }
}

TEST(Generate, SequenceParallelSettingsDoNotMatter) {
  const Request request{.prompt = kPrompt, .max_new_tokens = 5, .sampling = {.temperature = 0}};
  EXPECT_EQ(generated("llama", {2, 1, 1, {"--sequence-parallel"}}, request).tokens,
            generated("llama", {}, request).tokens);
}

TEST(Generate, SeedsChangeTheText) {
  Request request{.prompt = kPrompt, .max_new_tokens = 24};
  const Tokens first = generated("llama", {}, request).tokens;
  EXPECT_EQ(generated("llama", {}, request).tokens, first);
  request.sampling.seed += 1;
  EXPECT_NE(generated("llama", {}, request).tokens, first);
}

TEST(Generate, StopsAtTheFirstOfItsEnds) {
  Request request{.prompt = kPrompt, .max_new_tokens = 10, .sampling = {.temperature = 0}};
  const Generated whole = generated("llama", {}, request);
  EXPECT_FALSE(whole.ended);
  request.ends = {319, whole.tokens[4]};
  const auto first = std::find(whole.tokens.begin(), whole.tokens.end(), whole.tokens[4]);
  const Generated cut = generated("llama", {1, 2}, request);
  EXPECT_TRUE(cut.ended);
  EXPECT_EQ(cut.tokens, Tokens(whole.tokens.begin(), first));
}

TEST(Generate, MakesOnlyTokensTheTokenizerKnows) {
  const Request request{.prompt = kPrompt, .max_new_tokens = 30, .vocab_size = 12};
  for (const std::int32_t token : generated("llama", {}, request).tokens) EXPECT_LT(token, 12);
}

TEST(Generate, LogitsThatAreNotFiniteAreOneErrorOnAllRanks) {
  for (const Layout& layout : {Layout{}, Layout{2, 1}, Layout{1, 2}, Layout{1, 1, 2}}) {
    std::atomic<int> told = 0;
    with_network("llama", layout, [&](Network& network) {
      for (const auto& stage : network.model().stages)
        for (const auto& block : stage->blocks)
          for (tensor::Parameter* parameter : block->parameters()) {
            const at::NoGradGuard no_grad;
            parameter->value.fill_(std::numeric_limits<double>::quiet_NaN());
          }
      try {
        generate(network, {.prompt = kPrompt, .max_new_tokens = 3});
      } catch (const CommError&) {
        throw;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr("logits: they must be finite; got nan"));
        ++told;
      }
    });
    EXPECT_EQ(told, layout.tensor * layout.pipeline * layout.data);
  }
}

TEST(Generate, RefusesWhatTheModelCannotRead) {
  with_network("gpt2", {}, [](Network& network) {
    EXPECT_THROW(generate(network, {.prompt = {}, .max_new_tokens = 1}), ConfigError);
    EXPECT_THROW(generate(network, {.prompt = {1, 320}, .max_new_tokens = 1}), DataError);
    EXPECT_THROW(generate(network, {.prompt = {-1}, .max_new_tokens = 1}), DataError);
    EXPECT_THROW(generate(network, {.prompt = kPrompt, .max_new_tokens = 122}), ConfigError);
    EXPECT_EQ(generate(network, {.prompt = kPrompt, .max_new_tokens = 121}).tokens.size(), 121U);
    EXPECT_TRUE(generate(network, {.prompt = kPrompt}).tokens.empty());
  });
}

}  // namespace
}  // namespace colonnade::inference
