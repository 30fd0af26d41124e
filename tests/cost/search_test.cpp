// The search: its results agree with plan and estimate of the same settings, no fitting layout is faster, and
// every candidate is accounted for.
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

/// A small MoE model for fast searches: 8 layers, 16 experts.
config::Run small_moe(int world, std::int64_t global) {
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

/// Short text of a sharding: "params no-reshard x 2 outer".
std::string sharding_text(const DataSharding& s) {
  constexpr const char* kNames[] = {"none", "optim", "grads", "params"};
  std::string text = kNames[static_cast<int>(s.sharding)];
  if (s.sharding == layout::Sharding::kParameters)
    text += s.keep_gathered ? " no-reshard" : s.overlap_gather ? "" : " no-overlap";
  if (s.instances > 1) text += " x " + std::to_string(s.instances);
  return text + (s.shard_outer ? " outer" : "");
}

void expect_agreement_with_plan(const config::Run& searched, const Hardware& hardware, std::size_t keep) {
  const SearchResult result = search_layouts(searched, hardware, static_cast<std::int64_t>(keep));
  ASSERT_EQ(result.best.size(), keep);
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

TEST(Search, AgreesWithThePlan) { expect_agreement_with_plan(llama_8b(16, 64), read_hardware("h100"), 40); }

// With little memory; with tensor parallelism; with pipeline parallelism, which splits encoder and decoder of
// a T5.
TEST(Search, AgreesWithThePlanForBertAndT5) {
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
    expect_agreement_with_plan(run, small, 20);
    for (const char* given : {"tensor_model_parallel_size", "pipeline_model_parallel_size"}) {
      config::Run cut = run;
      config::set(cut, given, "2");
      cut.given[given] = "the command line";
      expect_agreement_with_plan(cut, small, 5);
    }
  }
}

// Plans assume that every sample is one sequence.
TEST(Search, AgreesWithThePlanForHybridContextParallelism) {
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
      EXPECT_DOUBLE_EQ(found.time.step, estimate_step(layout::with_fixed_context_size(best), h100).step);
      EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(best));
      const std::int64_t held = best.parallel.max_seqlen_per_dp_cp_rank;
      EXPECT_EQ(held, most > 0 ? most : held);
      if (most == 0) tokens.insert(held);
    }
  }
  EXPECT_GT(tokens.size(), 1U) << "several maximum numbers of tokens per rank are tried";
}

TEST(Search, AccountsForEveryCandidate) {
  const SearchResult result = search_layouts(llama_8b(16, 64), read_hardware("h100"));
  std::int64_t refused = 0;
  for (const auto& [id, count] : result.rejected) {
    EXPECT_THAT(rules::rule_ids(), ::testing::Contains(id));
    refused += count;
  }
  EXPECT_EQ(result.candidates, refused + result.too_big + result.pruned + result.fit);
  EXPECT_GT(result.rejected.at("pipeline-split"), 0);
  EXPECT_GT(result.too_big, 0);
  EXPECT_GT(result.smallest_bytes, read_hardware("h100").usable_bytes());
  EXPECT_EQ(result.best.size(), 10U);
}

TEST(Search, PrunesNoneOfTheFastest) {
  const config::Run run = llama_8b(8, 8);
  const SearchResult all = search_layouts(run, read_hardware("h100"), 1'000'000);
  const SearchResult few = search_layouts(run, read_hardware("h100"), 10);
  EXPECT_EQ(all.pruned, 0);
  EXPECT_GT(few.pruned, 0);
  ASSERT_EQ(few.best.size(), 10U);
  for (std::size_t i = 0; i < few.best.size(); ++i) {
    EXPECT_EQ(few.best[i].run, all.best[i].run) << i;
    EXPECT_EQ(few.best[i].peak_bytes, all.best[i].peak_bytes) << i;
  }
}

// The first layout of every data-parallel sharding.
TEST(Search, AgreesWithThePlanForEverySharding) {
  const Hardware h100 = read_hardware("h100");
  std::set<std::string> seen;
  for (const FoundLayout& found : search_layouts(llama_8b(16, 64), h100, 5000).best) {
    const config::Run run = derived(found.run);
    const config::Parallel& p = run.parallel;
    const std::string sharding =
        sharding_text({layout::sharding_of(p), p.overlap_param_gather, !p.torch_fsdp2_reshard_after_forward,
                       p.num_distributed_optimizer_instances, p.outer_dp_sharding_strategy == "optim"}) +
        (found.run.recompute.granularity ? " recomputed" : "");
    if (!seen.insert(sharding).second) continue;
    EXPECT_DOUBLE_EQ(found.time.step, estimate_step(run, h100).step) << sharding;
    EXPECT_DOUBLE_EQ(found.peak_bytes, peak_of(run)) << sharding;
  }
  EXPECT_THAT(seen,
              ::testing::IsSupersetOf({"none", "optim", "optim x 2", "optim x 2 outer", "grads x 2", "params",
                                       "params no-reshard", "params x 2 outer", "grads recomputed"}));
}

TEST(Search, BeatsLayoutsByHand) {
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

TEST(Search, CoversExpertSizes) {
  const Hardware h100 = read_hardware("h100");
  const SearchResult result = search_layouts(small_moe(8, 32), h100, 100);
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
          config::Run run = small_moe(8, 32);
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

TEST(Search, SpreadsIndivisibleLayersEvenly) {
  const Hardware h100 = read_hardware("h100");
  config::Run run = llama_8b(8, 64);
  run.model.num_layers = 61;  // 61, 62 and 63 are not multiples of 4
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

// One layout on one device: recomputation options in order of cost.
TEST(Search, ChoosesTheCheapestRecomputationThatFits) {
  config::Run run = small_moe(1, 1);
  run.model.moe.layer_freq = "2";
  run.training.micro_batch_size = 1;
  run.training.global_batch_size = 1;
  const auto with = [&](config::Recompute recompute) {
    config::Run other = run;
    other.recompute = std::move(recompute);
    return peak_of(derived(other));
  };
  const std::vector<config::Recompute> options{
      {},
      {.granularity = "selective", .modules = {"layernorm", "moe_act"}},
      {.granularity = "selective", .modules = {"layernorm", "moe_act", "mlp"}},
      {.granularity = "full", .method = "uniform", .num_layers = 1}};
  Hardware device = read_hardware("h100");
  device.reserved_bytes = 0;
  double larger = 2 * with({});
  for (const config::Recompute& option : options) {
    const double peak = with(option);
    ASSERT_LT(peak, larger) << "each option needs less than the one before";
    device.memory_bytes = (peak + std::min(larger, 1.5 * peak)) / 2;
    const SearchResult result = search_layouts(run, device);
    ASSERT_FALSE(result.best.empty());
    EXPECT_EQ(result.best.front().run.recompute, option) << option.modules.size();
    EXPECT_DOUBLE_EQ(result.best.front().peak_bytes, peak);
    larger = peak;
  }
  device.memory_bytes = 0.99 * larger;
  EXPECT_TRUE(search_layouts(run, device).best.empty());
}

TEST(Search, DoesNotRecomputeNormsReadByTheResidualSum) {
  config::Run run = llama_8b(1, 1);
  config::set(run, "model", "bert");
  run.model.normalization = config::Normalization::kLayerNorm;
  run.model.apply_residual_connection_post_layernorm = true;
  run.training.calculate_per_token_loss = false;
  const std::vector<config::Recompute> options{{.granularity = "selective", .modules = {"mlp"}},
                                               {.granularity = "full", .method = "uniform", .num_layers = 1}};
  EXPECT_EQ(recompute_options(run.model), options);
  for (const config::Recompute& option : options) {
    run.recompute = option;
    EXPECT_EQ(rules::first_broken(derived(run), rules::Purpose::kPlan).value_or(""), "")
        << option.granularity.value_or("");
  }
  run.model.moe.num_experts = 2;  // in all layers
  EXPECT_EQ(recompute_options(run.model).front().modules, std::vector<std::string>{"moe_act"});
}

TEST(Search, CoversContextSizesAndZeroBubbleSchedules) {
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

/// Shardings tried on `world` replicas, eight per node; `typed`: settings of the command line.
std::vector<std::string> shardings_tried(int world, const std::vector<rules::Edit>& typed = {}) {
  config::Run run = llama_8b(world, 64);
  for (const auto& [key, value] : typed) {
    config::set(run, key, value);
    run.given[key] = "the command line";
  }
  LayoutChoice replicated;
  std::vector<std::string> all;
  for (const DataSharding& data_sharding : all_data_shardings(run, replicated, 8)) {
    EXPECT_EQ(rules::first_broken(derived(run_of(run, replicated, {.data_sharding = data_sharding})),
                                  rules::Purpose::kPlan),
              std::nullopt)
        << sharding_text(data_sharding);
    all.push_back(sharding_text(data_sharding));
  }
  return all;
}

TEST(Search, CoversEverySharding) {
  EXPECT_THAT(shardings_tried(1), ElementsAre("none"));
  EXPECT_THAT(shardings_tried(8),
              ElementsAre("none", "optim", "grads", "params no-reshard", "params", "params no-overlap"));
  EXPECT_THAT(shardings_tried(16),
              ElementsAre("none", "optim", "optim x 2", "optim x 2 outer", "grads", "grads x 2",
                          "grads x 2 outer", "params no-reshard", "params no-reshard x 2",
                          "params no-reshard x 2 outer", "params", "params x 2", "params x 2 outer",
                          "params no-overlap", "params no-overlap x 2", "params no-overlap x 2 outer"));
}

TEST(Search, KeepsTypedSettings) {
  EXPECT_THAT(shardings_tried(8, {{"use_megatron_fsdp", "false"}}), ElementsAre("none", "optim"));
  EXPECT_THAT(shardings_tried(8, {{"use_distributed_optimizer", "false"}, {"use_megatron_fsdp", "false"}}),
              ElementsAre("none"));
  EXPECT_THAT(shardings_tried(8, {{"use_distributed_optimizer", "true"}}),
              ElementsAre("optim", "grads", "params no-reshard", "params", "params no-overlap"));
  EXPECT_THAT(
      shardings_tried(8, {{"use_megatron_fsdp", "true"}, {"data_parallel_sharding_strategy", "optim_grads"}}),
      ElementsAre("grads"));
  EXPECT_THAT(shardings_tried(8, {{"data_parallel_sharding_strategy", "optim_grads"}}), ElementsAre("grads"));
  EXPECT_THAT(shardings_tried(8, {{"use_megatron_fsdp", "true"},
                                  {"data_parallel_sharding_strategy", "optim_grads_params"},
                                  {"torch_fsdp2_reshard_after_forward", "false"}}),
              ElementsAre("params no-reshard"));
  EXPECT_THAT(shardings_tried(16, {{"use_distributed_optimizer", "true"},
                                   {"use_megatron_fsdp", "false"},
                                   {"num_distributed_optimizer_instances", "4"},
                                   {"outer_dp_sharding_strategy", "optim"}}),
              ElementsAre("optim x 4 outer"));
  EXPECT_THAT(shardings_tried(8, {{"overlap_param_gather", "false"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Contains("params no-overlap"));
  EXPECT_THAT(shardings_tried(8, {{"overlap_grad_reduce", "false"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Not(::testing::Contains("params")));
  EXPECT_THAT(shardings_tried(8, {{"overlap_param_gather", "true"}, {"use_megatron_fsdp", "true"}}),
              ::testing::Not(::testing::Contains("params no-overlap")));
  EXPECT_THAT(shardings_tried(8, {{"deterministic_mode", "true"}}),
              ::testing::Not(::testing::Contains("none")));
}

TEST(Search, ShardedWeightsWinIfNothingElseFitsWithoutModelParallelism) {
  Hardware small = read_hardware("h100");
  small.memory_bytes = small.reserved_bytes + 40.0 * (1 << 30);
  config::Run run = llama_8b(8, 64);
  const FoundLayout best = search_layouts(run, small, 1).best.front();
  const config::Parallel& p = best.run.parallel;
  EXPECT_EQ(layout::sharding_of(p), layout::Sharding::kParameters);
  EXPECT_EQ(p.tensor_model_parallel_size * p.pipeline_model_parallel_size, 1);
  config::Run less = best.run;
  less.parallel.data_parallel_sharding_strategy = "optim_grads";
  EXPECT_GT(peak_of(derived(less)), small.usable_bytes()) << "unsharded weights do not fit";
  EXPECT_LT(estimate_step(derived(less), small).data, best.time.data) << "but communicate less";
  run.parallel.use_megatron_fsdp = false;
  run.given["use_megatron_fsdp"] = "the command line";
  const FoundLayout without_fsdp = search_layouts(run, small, 1).best.front();
  EXPECT_GT(without_fsdp.time.step, best.time.step);
  EXPECT_GT(without_fsdp.run.parallel.tensor_model_parallel_size *
                without_fsdp.run.parallel.pipeline_model_parallel_size,
            1);
}

TEST(Search, IgnoresLayoutSettings) {
  config::Run run = llama_8b(16, 64);
  run.parallel.pipeline_model_parallel_size = 4;
  run.parallel.pipeline_model_parallel_layout = "Et*8|t*8|t*8|t*8L";
  run.parallel.num_layers_per_virtual_pipeline_stage = 2;
  EXPECT_DOUBLE_EQ(search_layouts(run, read_hardware("h100"), 1).best.front().time.step,
                   search_layouts(llama_8b(16, 64), read_hardware("h100"), 1).best.front().time.step);
}

TEST(Search, ReportsNumbersIfNothingFits) {
  Hardware small = read_hardware("h100");
  small.memory_bytes = small.reserved_bytes + 1e6;
  const SearchResult result = search_layouts(llama_8b(4, 4), small);
  EXPECT_THAT(result.best, ::testing::IsEmpty());
  EXPECT_EQ(result.fit, 0);
  EXPECT_THAT(search_text(result, small), HasSubstr("exceed the usable 977 KiB per device (smallest peak "));
}

TEST(Search, TextListsTheLargestLosses) {
  const Hardware h100 = read_hardware("h100");
  const SearchResult result = search_layouts(llama_8b(16, 64), h100, 5);
  const std::string text = search_text(result, h100);
  EXPECT_THAT(text, HasSubstr("search on H100 SXM: "));
  EXPECT_THAT(text, HasSubstr("rejected by rules: pipeline-split "));
  const Table table = search_table(result);
  ASSERT_EQ(table.size(), 6U);
  EXPECT_EQ(table[1].back(), "");
  EXPECT_THAT(table[5].back(), ::testing::ContainsRegex("[0-9] (ms|s)"));
}

TEST(Search, RequiresAGlobalBatch) {
  EXPECT_THROW(search_layouts(llama_8b(4, 0), read_hardware("h100")), ConfigError);
}

TEST(Search, FlagsTurnOneRunIntoAnother) {
  config::Run from = llama_8b(4, 8), to = from;
  to.parallel.tensor_model_parallel_size = 4;
  to.parallel.sequence_parallel = true;
  from.parallel.overlap_grad_reduce = true;
  EXPECT_THAT(flags_between(from, to), ElementsAre("--tensor-model-parallel-size", "4", "--sequence-parallel",
                                                   "--no-overlap-grad-reduce"));
}

}  // namespace
}  // namespace colonnade::cost
