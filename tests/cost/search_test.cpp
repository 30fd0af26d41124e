// The search: everything it finds is what the plan and the estimate say of the same settings, nothing that
// fits is faster, and every candidate is accounted for.
#include "colonnade/cost/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/search_space.h"
#include "colonnade/layout/context_groups.h"
#include "colonnade/rules/rules.h"
#include "support/presets.h"

namespace colonnade::cost {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

config::Run llama_8b(int world, std::int64_t global) {
  config::Run run;
  run.model = test::llama3_8b();
  run.parallel.world_size = world;
  run.training.seq_length = 4096;
  run.training.global_batch_size = global;
  run.training.device = "cuda";
  return run;
}

/// A mixture small enough to be searched in a blink: 8 layers, 16 experts.
config::Run mixture(int world, std::int64_t global) {
  config::Run run = llama_8b(world, global);
  run.model.num_layers = 8;
  run.model.moe.num_experts = 16;
  run.model.moe.ffn_hidden_size = 1024;
  return run;
}

config::Run derived(config::Run run) {
  config::derive(run);
  return run;
}

double peak_of(const config::Run& run) {
  std::int64_t peak = 0;
  for (const StageMemory& m : plan_memory(run)) {
    peak = std::max({peak, m.peak(), m.start_up()});
    if (run.training.eval_interval) peak = std::max(peak, m.evaluation_peak());
  }
  return static_cast<double>(peak);
}

/// "params kept x 2 outer": a way to share, in short.
std::string words(const Shares& s) {
  constexpr const char* kNames[] = {"none", "optim", "grads", "params"};
  std::string text = kNames[static_cast<int>(s.sharding)];
  if (s.sharding == layout::Sharding::kParameters) text += s.stays ? " kept" : s.ahead ? "" : " late";
  if (s.instances > 1) text += " x " + std::to_string(s.instances);
  return text + (s.outer ? " outer" : "");
}

void expect_what_the_plan_says(const config::Run& searched, const Hardware& hardware, std::size_t places) {
  const SearchResult result = search_layouts(searched, hardware, static_cast<std::int64_t>(places));
  ASSERT_EQ(result.best.size(), places);
  double last = 0;
  for (const FoundLayout& found : result.best) {
    const config::Run run = derived(found.run);
    EXPECT_THAT(check(run, rules::Purpose::kPlan), ::testing::IsEmpty());
    EXPECT_DOUBLE_EQ(found.time.step, estimate_step(run, hardware).step);
    EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(run));
    EXPECT_LE(found.peak_bytes, hardware.usable_bytes());
    EXPECT_GE(found.time.step, last);
    last = found.time.step;
  }
}

TEST(Search, WhatItFindsIsWhatThePlanSays) {
  expect_what_the_plan_says(llama_8b(16, 64), read_hardware("h100"), 40);
}

// In little memory; with tensor ranks; with stages, of a T5 those of the encoder and those of the decoder.
TEST(Search, OfABertAndAT5FindsWhatThePlanSays) {
  Hardware small = read_hardware("h100");
  small.memory_bytes = 10.0 * (1 << 30);
  for (const bool bert : {true, false}) {
    std::vector<std::string> words{bert ? "bert" : "t5",     "--max-position-embeddings=512",
                                   "--hidden-size=1024",     "--num-attention-heads=16",
                                   "--num-layers=24",        "--seq-length=512",
                                   "--vocab-size=30522",     "--mock-data",
                                   "--global-batch-size=64", "--bf16"};
    if (!bert)
      for (const char* word :
           {"--encoder-num-layers=24", "--decoder-seq-length=128", "--vocab-extra-ids=100"})
        words.emplace_back(word);
    config::Run run = config::parse(words);
    run.parallel.world_size = 8;
    expect_what_the_plan_says(run, small, 20);
    for (const char* given : {"tensor_model_parallel_size", "pipeline_model_parallel_size"}) {
      config::Run cut = run;
      config::set(cut, given, "2");
      cut.given[given] = "the command line";
      expect_what_the_plan_says(cut, small, 5);
    }
  }
}

// What a plan assumes of such runs: every sample one sequence.
TEST(Search, OfGroupsByLengthFindsWhatThePlanSays) {
  const Hardware h100 = read_hardware("h100");
  config::Run run = llama_8b(16, 64);
  run.training.micro_batch_size = 1;
  run.training.calculate_per_token_loss = true;
  run.data.reset_position_ids = run.data.reset_attention_mask = true;
  run.parallel.hybrid_context_parallel = true;
  std::set<std::int64_t> tokens;
  for (const std::int64_t most : {0, 1024}) {
    run.parallel.max_seqlen_per_dp_cp_rank = most;
    const SearchResult result = search_layouts(run, h100, 40);
    ASSERT_FALSE(result.best.empty());
    for (const FoundLayout& found : result.best) {
      const config::Run best = derived(found.run);
      EXPECT_TRUE(best.parallel.hybrid_context_parallel);
      EXPECT_THAT(check(best, rules::Purpose::kPlan), ::testing::IsEmpty());
      EXPECT_DOUBLE_EQ(found.time.step, estimate_step(layout::with_equal_groups(best), h100).step);
      EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(best));
      const std::int64_t held = best.parallel.max_seqlen_per_dp_cp_rank;
      EXPECT_EQ(held, most > 0 ? most : held);
      if (most == 0) tokens.insert(held);
    }
  }
  EXPECT_GT(tokens.size(), 1U) << "numbers of tokens a rank are tried";
}

TEST(Search, EveryCandidateIsAccountedFor) {
  const SearchResult result = search_layouts(llama_8b(16, 64), read_hardware("h100"));
  std::int64_t refused = 0;
  for (const auto& [id, count] : result.refused) {
    EXPECT_THAT(rules::rule_ids(), ::testing::Contains(id));
    refused += count;
  }
  EXPECT_EQ(result.candidates, refused + result.too_big + result.slower + result.fit);
  EXPECT_GT(result.refused.at("pipeline-split"), 0);
  EXPECT_GT(result.too_big, 0);
  EXPECT_GT(result.smallest_bytes, read_hardware("h100").usable_bytes());
  EXPECT_EQ(result.best.size(), 10U);
}

TEST(Search, WhatIsLeftAloneIsNoneOfTheFastest) {
  const config::Run run = llama_8b(8, 8);
  const SearchResult all = search_layouts(run, read_hardware("h100"), 1'000'000);
  const SearchResult few = search_layouts(run, read_hardware("h100"), 10);
  EXPECT_EQ(all.slower, 0);
  EXPECT_GT(few.slower, 0);
  ASSERT_EQ(few.best.size(), 10U);
  for (std::size_t i = 0; i < few.best.size(); ++i) {
    EXPECT_EQ(few.best[i].run, all.best[i].run) << i;
    EXPECT_EQ(few.best[i].peak_bytes, all.best[i].peak_bytes) << i;
  }
}

/// The first found of every way in which ranks share.
TEST(Search, EveryWayToShareIsWhatThePlanSays) {
  const Hardware h100 = read_hardware("h100");
  std::set<std::string> seen;
  for (const FoundLayout& found : search_layouts(llama_8b(16, 64), h100, 5000).best) {
    const config::Run run = derived(found.run);
    const config::Parallel& p = run.parallel;
    const std::string way =
        words({layout::sharding_of(p), p.overlap_param_gather, !p.torch_fsdp2_reshard_after_forward,
               p.num_distributed_optimizer_instances, p.outer_dp_sharding_strategy == "optim"}) +
        (found.run.recompute.granularity ? " again" : "");
    if (!seen.insert(way).second) continue;
    EXPECT_DOUBLE_EQ(found.time.step, estimate_step(run, h100).step) << way;
    EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(run)) << way;
  }
  EXPECT_THAT(seen, ::testing::IsSupersetOf({"none", "optim", "optim x 2", "optim x 2 outer", "grads x 2",
                                             "params", "params kept", "params x 2 outer", "grads again"}));
}

TEST(Search, NoLayoutByHandIsFaster) {
  const Hardware h100 = read_hardware("h100");
  const double best = search_layouts(llama_8b(16, 64), h100, 1).best.front().time.step;
  for (const int tp : {1, 2, 4, 8}) {
    for (const int pp : {1, 2, 4}) {
      for (const int chunks : {1, 2, 4}) {
        for (const std::int64_t micro : {1, 2, 4}) {
          config::Run run = llama_8b(16, 64);
          run.parallel.tensor_model_parallel_size = tp;
          run.parallel.pipeline_model_parallel_size = pp;
          run.parallel.num_virtual_stages_per_pipeline_rank = chunks > 1 ? chunks : 0;
          run.parallel.sequence_parallel = tp > 1;
          run.parallel.use_distributed_optimizer = run.parallel.overlap_grad_reduce =
              run.parallel.overlap_param_gather = true;
          run.training.micro_batch_size = micro;
          run = derived(run);
          if (!check(run, rules::Purpose::kPlan).empty() || peak_of(run) > h100.usable_bytes()) continue;
          EXPECT_GE(estimate_step(run, h100).step, best * (1 - 1e-12))
              << tp << ' ' << pp << ' ' << chunks << ' ' << micro;
        }
      }
    }
  }
}

TEST(Search, MixturesAreSearchedOverTheirExpertsToo) {
  const Hardware h100 = read_hardware("h100");
  const SearchResult result = search_layouts(mixture(8, 32), h100, 100);
  std::set<int> sizes;
  for (const FoundLayout& found : result.best) {
    const config::Run run = derived(found.run);
    EXPECT_THAT(check(run, rules::Purpose::kPlan), ::testing::IsEmpty());
    EXPECT_DOUBLE_EQ(found.time.step, estimate_step(run, h100).step);
    EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(run));
    sizes.insert(run.parallel.expert_model_parallel_size);
  }
  EXPECT_GT(sizes.size(), 2U);
  const double best = result.best.front().time.step;
  for (const int tp : {1, 2}) {
    for (const int etp : {1, 2}) {
      for (const int ep : {1, 4, 8}) {
        for (const auto kind : {config::TokenDispatcher::kAllToAll, config::TokenDispatcher::kAllGather}) {
          config::Run run = mixture(8, 32);
          run.parallel.tensor_model_parallel_size = tp;
          run.parallel.sequence_parallel = tp > 1;
          run.parallel.expert_model_parallel_size = ep;
          run.parallel.expert_tensor_parallel_size = etp;
          run.parallel.use_distributed_optimizer = run.parallel.overlap_grad_reduce =
              run.parallel.overlap_param_gather = true;
          run.model.moe.token_dispatcher_type = kind;
          run.training.micro_batch_size = 2;
          run = derived(run);
          if (!check(run, rules::Purpose::kPlan).empty() || peak_of(run) > h100.usable_bytes()) continue;
          EXPECT_GE(estimate_step(run, h100).step, best * (1 - 1e-12)) << tp << ' ' << etp << ' ' << ep;
        }
      }
    }
  }
}

TEST(Search, LayersThatNothingDividesAreSpread) {
  const Hardware h100 = read_hardware("h100");
  config::Run run = llama_8b(8, 64);
  run.model.num_layers = 61;  // 61, 62 and 63 are no multiples of 4
  const SearchResult result = search_layouts(run, h100, 1000);
  std::set<std::string> layouts;
  for (const FoundLayout& found : result.best) {
    if (found.run.parallel.pipeline_model_parallel_layout.empty()) continue;
    const config::Run other = derived(found.run);
    EXPECT_THAT(check(other, rules::Purpose::kPlan), ::testing::IsEmpty());
    EXPECT_DOUBLE_EQ(found.time.step, estimate_step(other, h100).step);
    EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(other));
    layouts.insert(other.parallel.pipeline_model_parallel_layout);
  }
  EXPECT_THAT(layouts, ::testing::IsSupersetOf({"Et*15|(t*16|)*2t*14L", "Et*7|(t*8|)*6t*6L"}));
}

/// Of one layout on one device: as little is made again as fits, in the order of its cost.
TEST(Search, MakesAsLittleAgainAsFits) {
  config::Run run = mixture(1, 1);
  run.model.moe.layer_freq = "2";
  run.training.micro_batch_size = 1;
  run.training.global_batch_size = 1;
  const auto with = [&](config::Recompute again) {
    config::Run other = run;
    other.recompute = std::move(again);
    return peak_of(derived(other));
  };
  const std::vector<config::Recompute> ways{
      {},
      {.granularity = "selective", .modules = {"layernorm", "moe_act"}},
      {.granularity = "selective", .modules = {"layernorm", "moe_act", "mlp"}},
      {.granularity = "full", .method = "uniform", .num_layers = 1}};
  Hardware device = read_hardware("h100");
  device.reserved_bytes = 0;
  double larger = 2 * with({});
  for (const config::Recompute& way : ways) {
    const double peak = with(way);
    ASSERT_LT(peak, larger) << "each way needs less than the one before";
    device.memory_bytes = (peak + std::min(larger, 1.5 * peak)) / 2;
    const SearchResult result = search_layouts(run, device);
    ASSERT_FALSE(result.best.empty());
    EXPECT_EQ(result.best.front().run.recompute, way) << way.modules.size();
    EXPECT_DOUBLE_EQ(result.best.front().peak_bytes, peak);
    larger = peak;
  }
  device.memory_bytes = 0.99 * larger;
  EXPECT_TRUE(search_layouts(run, device).best.empty());
}

TEST(Search, NormsThatSumsReadAreNotMadeAgain) {
  config::Run run = llama_8b(1, 1);
  config::set(run, "model", "bert");
  run.model.normalization = config::Normalization::kLayerNorm;
  run.model.apply_residual_connection_post_layernorm = true;
  run.training.calculate_per_token_loss = false;
  const std::vector<config::Recompute> ways{{.granularity = "selective", .modules = {"mlp"}},
                                            {.granularity = "full", .method = "uniform", .num_layers = 1}};
  EXPECT_EQ(ways_to_make_again(run.model), ways);
  for (const config::Recompute& way : ways) {
    run.recompute = way;
    EXPECT_EQ(rules::first_broken(derived(run), rules::Purpose::kPlan).value_or(""), "")
        << way.granularity.value_or("");
  }
  run.model.moe.num_experts = 2;  // in all layers
  EXPECT_EQ(ways_to_make_again(run.model).front().modules, std::vector<std::string>{"moe_act"});
}

TEST(Search, ContextRanksAndSchedulesOfSplitBackwardsAreTried) {
  config::Run run = llama_8b(8, 16);
  run.training.seq_length = run.model.max_position_embeddings = 16384;
  const SearchResult result = search_layouts(run, read_hardware("h200"), 1000);
  std::set<std::string> schedules;
  std::set<int> contexts;
  for (const FoundLayout& found : result.best) {
    schedules.insert(found.run.parallel.pipeline_schedule);
    contexts.insert(found.run.parallel.context_parallel_size);
  }
  EXPECT_THAT(schedules, ::testing::IsSupersetOf({"auto", "zb-h1", "zb-v", "dualpipe-v"}));
  EXPECT_THAT(contexts, ::testing::IsSupersetOf({1, 2, 4}));
}

/// What is tried on `world` ranks that hold the same, eight to a node; `typed` on the command line.
std::vector<std::string> tried(int world, const std::vector<rules::Edit>& typed = {}) {
  config::Run run = llama_8b(world, 64);
  for (const auto& [key, value] : typed) {
    config::set(run, key, value);
    run.given[key] = "the command line";
  }
  Choices alone;
  std::vector<std::string> all;
  for (const Shares& shares : all_shares(run, alone, 8)) {
    EXPECT_EQ(rules::first_broken(derived(run_of(run, alone, {.shares = shares})), rules::Purpose::kPlan),
              std::nullopt)
        << words(shares);
    all.push_back(words(shares));
  }
  return all;
}

TEST(Search, RanksShareInEveryWayThereIs) {
  EXPECT_THAT(tried(1), ElementsAre("none"));
  EXPECT_THAT(tried(8), ElementsAre("none", "optim", "grads", "params kept", "params", "params late"));
  EXPECT_THAT(tried(16), ElementsAre("none", "optim", "optim x 2", "optim x 2 outer", "grads", "grads x 2",
                                     "grads x 2 outer", "params kept", "params kept x 2",
                                     "params kept x 2 outer", "params", "params x 2", "params x 2 outer",
                                     "params late", "params late x 2", "params late x 2 outer"));
}

TEST(Search, WhatIsTypedStays) {
  EXPECT_THAT(tried(8, {{"use_megatron_fsdp", "false"}}), ElementsAre("none", "optim"));
  EXPECT_THAT(tried(8, {{"use_distributed_optimizer", "false"}, {"use_megatron_fsdp", "false"}}),
              ElementsAre("none"));
  EXPECT_THAT(tried(8, {{"use_distributed_optimizer", "true"}}),
              ElementsAre("optim", "grads", "params kept", "params", "params late"));
  EXPECT_THAT(tried(8, {{"use_megatron_fsdp", "true"}, {"data_parallel_sharding_strategy", "optim_grads"}}),
              ElementsAre("grads"));
  EXPECT_THAT(tried(8, {{"data_parallel_sharding_strategy", "optim_grads"}}), ElementsAre("grads"));
  EXPECT_THAT(tried(8, {{"use_megatron_fsdp", "true"},
                        {"data_parallel_sharding_strategy", "optim_grads_params"},
                        {"torch_fsdp2_reshard_after_forward", "false"}}),
              ElementsAre("params kept"));
  EXPECT_THAT(tried(16, {{"use_distributed_optimizer", "true"},
                         {"use_megatron_fsdp", "false"},
                         {"num_distributed_optimizer_instances", "4"},
                         {"outer_dp_sharding_strategy", "optim"}}),
              ElementsAre("optim x 4 outer"));
  EXPECT_THAT(tried(8, {{"overlap_param_gather", "false"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Contains("params late"));
  EXPECT_THAT(tried(8, {{"overlap_grad_reduce", "false"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Not(::testing::Contains("params")));
  EXPECT_THAT(tried(8, {{"overlap_param_gather", "true"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Not(::testing::Contains("params late")));
  EXPECT_THAT(tried(8, {{"deterministic_mode", "true"}}), ::testing::Not(::testing::Contains("none")));
}

TEST(Search, SharedWeightsWinWhereNothingElseFitsOneRank) {
  Hardware small = read_hardware("h100");
  small.memory_bytes = small.reserved_bytes + 40.0 * (1 << 30);
  config::Run run = llama_8b(8, 64);
  const FoundLayout best = search_layouts(run, small, 1).best.front();
  const config::Parallel& p = best.run.parallel;
  EXPECT_EQ(layout::sharding_of(p), layout::Sharding::kParameters);
  EXPECT_EQ(p.tensor_model_parallel_size * p.pipeline_model_parallel_size, 1);
  config::Run less = best.run;
  less.parallel.data_parallel_sharding_strategy = "optim_grads";
  EXPECT_GT(peak_of(derived(less)), small.usable_bytes()) << "whole weights do not fit";
  EXPECT_LT(estimate_step(derived(less), small).data, best.time.data) << "but are gathered less often";
  run.parallel.use_megatron_fsdp = false;
  run.given["use_megatron_fsdp"] = "the command line";
  const FoundLayout cut = search_layouts(run, small, 1).best.front();
  EXPECT_GT(cut.time.step, best.time.step);
  EXPECT_GT(cut.run.parallel.tensor_model_parallel_size * cut.run.parallel.pipeline_model_parallel_size, 1);
}

TEST(Search, LayoutsOfTheSettingsDoNotLimitIt) {
  config::Run run = llama_8b(16, 64);
  run.parallel.pipeline_model_parallel_size = 4;
  run.parallel.pipeline_model_parallel_layout = "Et*8|t*8|t*8|t*8L";
  run.parallel.num_layers_per_virtual_pipeline_stage = 2;
  EXPECT_DOUBLE_EQ(search_layouts(run, read_hardware("h100"), 1).best.front().time.step,
                   search_layouts(llama_8b(16, 64), read_hardware("h100"), 1).best.front().time.step);
}

TEST(Search, NothingFitsIsSaidWithNumbers) {
  Hardware small = read_hardware("h100");
  small.memory_bytes = small.reserved_bytes + 1e6;
  const SearchResult result = search_layouts(llama_8b(4, 4), small);
  EXPECT_THAT(result.best, ::testing::IsEmpty());
  EXPECT_EQ(result.fit, 0);
  EXPECT_THAT(search_text(result, small),
              HasSubstr("need more than the 977 KiB that tensors may take (the smallest of them "));
}

TEST(Search, TheTextSaysWhyOthersLose) {
  const Hardware h100 = read_hardware("h100");
  const SearchResult result = search_layouts(llama_8b(16, 64), h100, 5);
  const std::string text = search_text(result, h100);
  EXPECT_THAT(text, HasSubstr("search on H100 SXM: "));
  EXPECT_THAT(text, HasSubstr("break a rule: pipeline-split "));
  const Table table = search_table(result);
  ASSERT_EQ(table.size(), 6U);
  EXPECT_EQ(table[1].back(), "");
  EXPECT_THAT(table[5].back(), ::testing::ContainsRegex("[0-9] (ms|s)"));
}

TEST(Search, NeedsAGlobalBatch) {
  EXPECT_THROW(search_layouts(llama_8b(4, 0), read_hardware("h100")), ConfigError);
}

TEST(Search, FlagsLeadFromOneRunToAnother) {
  config::Run from = llama_8b(4, 8), to = from;
  to.parallel.tensor_model_parallel_size = 4;
  to.parallel.sequence_parallel = true;
  from.parallel.overlap_grad_reduce = true;
  EXPECT_THAT(flags_between(from, to), ElementsAre("--tensor-model-parallel-size", "4", "--sequence-parallel",
                                                   "--no-overlap-grad-reduce"));
}

}  // namespace
}  // namespace colonnade::cost
