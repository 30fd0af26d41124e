// Every rule fires on its example, and the edits it proposes mend it.
#include "colonnade/rules/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/rules/rules_page.h"
#include "rules/rule_examples.h"

namespace colonnade::rules {
namespace {

using test::all_examples;
using test::example_of;
using test::ids_of;
using test::problems_of;
using test::words;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

config::Run good() { return example_of("heads").sound; }

TEST(Rules, ZeroBubbleSchedulesAreTakenWithWhatTheyNeed) {
  for (const char* taken :
       {"pipeline_schedule=zb-h1", "pipeline_schedule=zb-v", "pipeline_schedule=dualpipe-v",
        "pipeline_schedule=zb-v; global_batch_size=4",
        "pipeline_schedule=zb-v; num_virtual_stages_per_pipeline_rank=2",
        "pipeline_schedule=zb-v; pipeline_model_parallel_layout=E|t*4|t*4|L", "delay_wgrad_compute=true"}) {
    const RuleExample sound{"", good(), read_edits(taken)};
    EXPECT_EQ(report(problems_of(sound.broken())), "") << taken;
  }
}

TEST(Rules, GroupsByLengthAreTakenWithEveryOtherCut) {
  for (const char* taken :
       {"max_seqlen_per_dp_cp_rank=16", "context_parallel_size=2", "cp_comm_type=all_gather",
        "cp_comm_type=a2a", "pipeline_schedule=zb-h1", "delay_wgrad_compute=true",
        "pipeline_model_parallel_layout=Et*4|t*4L", "use_distributed_optimizer=true",
        "use_megatron_fsdp=true; data_parallel_sharding_strategy=optim", "sequence_parallel=true",
        "world_size=4", "dataloader_type=cyclic", "attention_dropout=0.1; hidden_dropout=0.1",
        "num_virtual_stages_per_pipeline_rank=2", "pipeline_schedule=zb-v", "overlap_grad_reduce=true",
        "use_megatron_fsdp=true; untie_embeddings_and_output_weights=true",
        "mtp_num_layers=1; position_embedding_type=rope",
        ("num_experts=8; add_bias_linear=false; sequence_parallel=true; expert_model_parallel_size=2; "
         "moe_token_dispatcher_type=alltoall")}) {
    const RuleExample sound{"", example_of("hybrid-ranks").sound, read_edits(taken)};
    EXPECT_EQ(report(problems_of(sound.broken())), "") << taken;
  }
}

TEST(Rules, ValidationsInFullAreTakenOfEveryDataWithoutWeights) {
  for (const char* taken :
       {"", "validation_set_names=books code", "valid_data_path=1 b", "valid_data_path=b",
        "eval_interval=unset; skip_train=true", "dataloader_type=cyclic", "eval_iters=0",
        "multiple_validation_sets=false", "multiple_validation_sets=false; valid_data_path=1 b",
        "multiple_validation_sets=false; valid_data_path=; train_data_path=; data_path=a b",
        "multiple_validation_sets=false; valid_data_path=; train_data_path=; mock_data=true",
        "full_validation=false; multiple_validation_sets=false; valid_data_path=0.5 b 0.5 c"}) {
    const RuleExample sound{"", example_of("validation-weights").sound, read_edits(taken)};
    EXPECT_EQ(report(problems_of(sound.broken())), "") << taken;
  }
}

TEST(Rules, GroupsOfExpertsAreMendedTogether) {
  const std::string experts =
      "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_router_topk=";
  for (const char* faulty : {"2; moe_router_num_groups=3; moe_router_group_topk=4",
                             "4; moe_router_num_groups=8; moe_router_group_topk=3",
                             "5; moe_router_num_groups=7; moe_router_group_topk=7",
                             "6; moe_router_num_groups=16; moe_router_group_topk=4"}) {
    config::Run run = RuleExample{"", good(), read_edits(experts + faulty)}.broken();
    const std::vector<Problem> problems = problems_of(run);
    EXPECT_FALSE(problems.empty()) << faulty;
    for (const Problem& problem : problems)
      for (const Edit& edit : problem.edits) apply(run, edit);
    EXPECT_EQ(report(problems_of(run)), "") << faulty;
  }
}

TEST(Rules, MultiLatentAttentionTakesWhatMegatronDoes) {
  for (const char* taken :
       {"position_embedding_type=learned_absolute", "position_embedding_type=none",
        "position_embedding_type=yarn", "rope_type=yarn", "rope_type=rope",
        "rope_type=rope; rotary_percent=0.5", "rotary_percent=0.3",
        "rotary_scaling_factor=40; mscale=0.707; mscale_all_dim=0.707", "kv_channels=128",
        "add_qkv_bias=true", "rope_type=rope; rotary_scaling_factor=40", "rope_type=rope; yarn_beta_fast=16",
        "use_rope_scaling=true", "rotary_seq_len_interpolation_factor=2",
        "position_embedding_type=learned_absolute; rotary_base=500000"}) {
    const RuleExample latent{"", example_of("latent-turned").sound, read_edits(taken)};
    EXPECT_EQ(report(problems_of(latent.broken())), "") << taken;
  }
  for (const char* taken : {"rope_type=rope", "position_embedding_type=rope; rope_type=rope",
                            "rotary_scaling_factor=40; mscale=0.707; mscale_all_dim=0.707"}) {
    const RuleExample other{"", good(), read_edits(taken)};
    EXPECT_EQ(report(problems_of(other.broken())), "") << taken;
  }
}

// Kimi K2 is published with 1 and 1: Transformers then blends in one step.
TEST(Rules, EqualBoundsOfYarnAreTaken) {
  for (const char* taken : {"yarn_beta_fast=1", "yarn_beta_fast=1; yarn_beta_slow=0.5"}) {
    const RuleExample yarn = example_of("yarn-betas");
    const RuleExample sound{
        "", yarn.sound,
        read_edits(std::string("position_embedding_type=yarn; rotary_scaling_factor=4; ") + taken)};
    EXPECT_EQ(report(problems_of(sound.broken())), "") << taken;
  }
}

TEST(Rules, SoundRunsBreakNone) {
  for (const RuleExample& e : rule_examples()) EXPECT_EQ(report(problems_of(e.sound)), "") << e.id;
}

TEST(Rules, EveryIdIsOfOneRule) {
  std::vector<std::string> ids = rule_ids();
  const std::size_t rules = ids.size();
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(ids.size(), rules);
  EXPECT_EQ(rules, rule_examples().size() + 1) << "one for each, and `range`";
}

TEST(Rules, AnExampleOfTheTableBreaksItsRuleAndNoOther) {
  for (const RuleExample& e : rule_examples()) EXPECT_THAT(ids_of(e.broken()), ElementsAre(e.id)) << words(e);
}

TEST(Rules, TheEditsOfEveryExampleMendIt) {
  for (const RuleExample& e : all_examples()) {
    config::Run run = e.broken();
    const std::vector<Problem> problems = problems_of(run);
    const auto found = std::ranges::find(problems, e.id, &Problem::id);
    ASSERT_NE(found, problems.end()) << words(e);
    EXPECT_FALSE(found->edits.empty()) << words(e);
    for (const Edit& edit : found->edits) apply(run, edit);
    EXPECT_THAT(ids_of(run), ::testing::Not(Contains(e.id))) << found->text;
  }
  for (const RuleExample& e : rule_examples()) {
    config::Run run = e.broken();
    for (const Problem& problem : problems_of(run))
      for (const Edit& edit : problem.edits) apply(run, edit);
    EXPECT_EQ(report(problems_of(run)), "") << words(e);
  }
}

TEST(Rules, MendingAllProblemsEndsInAGoodRun) {
  for (const RuleExample& e : all_examples()) {
    config::Run run = e.broken();
    for (int round = 0; round < 4; ++round) {
      for (const Problem& problem : problems_of(run))
        for (const Edit& edit : problem.edits) apply(run, edit);
    }
    EXPECT_EQ(report(problems_of(run)), "") << words(e);
  }
}

TEST(Rules, EveryTextNamesTheThingTheValuesAndTheWayOut) {
  for (const RuleExample& e : all_examples()) {
    for (const Problem& problem : problems_of(e.broken())) {
      EXPECT_THAT(problem.text, HasSubstr("; got ")) << problem.id;
      EXPECT_GT(problem.text.size(), problem.text.rfind("; ") + 6) << problem.text;
    }
  }
}

TEST(Rules, AnEditThatEmptiesASettingSaysToLeaveItOut) {
  const auto way_out = [](const char* given) {
    RuleExample e = example_of("loss-scale");
    for (const Edit& edit : read_edits(given)) e.edits.push_back(edit);
    const auto problems = problems_of(e.broken());
    const auto found = std::ranges::find(problems, "loss-scale", &Problem::id);
    return found == problems.end() ? "" : found->text.substr(found->text.rfind("; ") + 2);
  };
  EXPECT_EQ(way_out(""), "leave out --loss-scale");
  EXPECT_EQ(way_out("min_loss_scale=8589934592"), "leave out --loss-scale and set --min-loss-scale 1");
  EXPECT_EQ(way_out("loss_scale=unset; min_loss_scale=8589934592"), "set --min-loss-scale 1");
}

TEST(Rules, AnEditThatChangesNothingIsNotProposed) {
  const auto text_of = [](const RuleExample& e) { return problems_of(e.broken()).at(0).text; };
  EXPECT_THAT(text_of(example_of("relative-buckets")),
              EndsWith("got 30 and 128; set --relative-attention-num-buckets 32"));
  EXPECT_THAT(text_of(example_of("decoder-tensor")), EndsWith("got 15 and 2; set --decoder-seq-length 16"));
}

TEST(Rules, ImpossibleSizesAreReportedAllAtOnce) {
  config::Run r = good();
  r.model.hidden_size = 100;
  r.model.num_attention_heads = 7;
  r.model.num_layers = 9;
  r.parallel.world_size = 6;
  r.training.global_batch_size = 3;
  r.training.seq_length = 99;
  EXPECT_THAT(ids_of(r), ::testing::IsSupersetOf({"heads-hidden", "heads-tensor", "pipeline-split", "world",
                                                  "batch", "max-positions"}));
  config::derive(r);
  try {
    require(r, Purpose::kTrain,
            {"--num-layer must be a known setting; got --num-layer; did you mean --num-layers?"});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("--num-layer must be"),
                                HasSubstr("--tensor-model-parallel-size must divide "
                                          "--num-attention-heads; got 2 and 7 "
                                          "heads; set --tensor-model-parallel-size 1"),
                                HasSubstr("start 8 ranks")));
  }
}

TEST(Rules, ASwitchThatIsOffIsNamedByTheFlagThatSwitchesItOff) {
  config::Run r = config::parse({"gpt", "--bert-no-binary-head"});
  r.given["bert_binary_head"] = "the command line";
  std::string text = report(check(r));
  EXPECT_THAT(text, HasSubstr("--bert-no-binary-head belongs to bert; got true"));
  EXPECT_THAT(text, testing::Not(HasSubstr("--bert-binary-head")));
  r = config::parse({"gpt", "--tokenizer-hf-no-include-special-tokens"});
  text = report(check(r));
  EXPECT_THAT(text,
              HasSubstr("--tokenizer-hf-no-include-special-tokens does nothing without a --tokenizer-type"));
}

TEST(Rules, AModelAloneNeedsNoTrainingSettings) {
  config::Run r;
  r.model.num_layers = 2;
  r.model.hidden_size = 8;
  r.model.num_attention_heads = 2;
  r.model.vocab_size = 10;
  config::derive(r);
  EXPECT_EQ(report(check(r, Purpose::kModel)), "");
  EXPECT_FALSE(check(r).empty());
}

TEST(Rules, SettingsOfDataThatDoNothingAreToldOfAModelToo) {
  for (const char* id : {"fim-data", "fim-rates", "fim-tokenizer", "decoder-family", "decoder-positions"}) {
    config::Run run = example_of(id).broken();
    config::derive(run);
    EXPECT_EQ(first_broken(run, Purpose::kModel), id);
  }
  config::Run tokens = example_of("decoder-length").broken();
  config::derive(tokens);
  EXPECT_EQ(first_broken(tokens, Purpose::kModel), std::nullopt)
      << "evaluate --tokens brings its own lengths";
}

TEST(Rules, OfDataAreToldThoseAboutWhatDecidesSamples) {
  std::vector<std::string> told;
  for (const RuleExample& example : rule_examples()) {
    config::Run run = example.broken();
    config::derive(run);
    if (first_broken(run, Purpose::kData) == example.id) told.push_back(example.id);
  }
  EXPECT_THAT(told, ElementsAreArray({"seq-length",
                                      "batch",
                                      "encoder-family",
                                      "decoder-family",
                                      "bert-heads",
                                      "context-sequence",
                                      "hybrid-documents",
                                      "train-length-zero",
                                      "train-length-one-step",
                                      "train-length-once",
                                      "train-data",
                                      "data-paths",
                                      "split",
                                      "vocabulary",
                                      "tokenizer-file",
                                      "fim-data",
                                      "hidden-tokens",
                                      "fim-tokenizer",
                                      "fim-rates",
                                      "sft-data",
                                      "sft-model",
                                      "sft-tokenizer",
                                      "sft-documents",
                                      "sft-format",
                                      "load-given",
                                      "validation-weights",
                                      "validation-sets-in-full",
                                      "bert-sentinels",
                                      "idle-tokenizer-model"}));
  EXPECT_EQ(report(check(config::parse({"--data-path", "books", "--seq-length", "8"}), Purpose::kData)), "")
      << "what a run needs besides may be missing";
}

/// What `colonnade plan` says of a command line, and what it says is missing.
std::vector<std::string> ids_of_plan(const std::vector<std::string>& words, std::string* missing = nullptr) {
  config::Parsed parsed = config::parse_all(words);
  config::derive(parsed.run);
  if (missing != nullptr) *missing = missing_for_training(parsed.run);
  std::vector<std::string> ids;
  for (const Problem& problem : check(parsed.run, Purpose::kPlan)) ids.push_back(problem.id);
  return ids;
}

const std::vector<std::string> kModelAlone{"--num-layers",
                                           "2",
                                           "--hidden-size",
                                           "8",
                                           "--num-attention-heads",
                                           "2",
                                           "--vocab-size",
                                           "10",
                                           "--max-position-embeddings",
                                           "8"};

std::vector<std::string> model_with(const std::vector<std::string>& more) {
  std::vector<std::string> words = kModelAlone;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(RulesOfAPlan, WhatIsMissingIsSaidAndNoError) {
  std::string missing;
  EXPECT_THAT(ids_of_plan(kModelAlone, &missing), IsEmpty());
  EXPECT_EQ(missing, "--seq-length, --micro-batch-size, --train-iters, --lr, --data-path or --mock-data");
  EXPECT_THAT(ids_of_plan(model_with({"--save", "run"}), &missing), IsEmpty());
  EXPECT_THAT(missing, Not(HasSubstr("--save-interval"))) << "without it the run saves at its end";
  EXPECT_THAT(ids_of_plan({"--num-layers", "2", "--vocab-size", "10"}), Contains("hidden-size"));
}

TEST(RulesOfAPlan, MistakesOfTrainingAreFoundBeforeARun) {
  using Words = std::vector<std::string>;
  const std::pair<const char*, Words> mistakes[] = {
      {"param-gather", {"--overlap-param-gather"}},
      {"loss-scale", {"--fp16", "--loss-scale", "0"}},
      {"units-of-steps", {"--lr-warmup-samples", "5", "--train-iters", "100"}},
      {"load-given", {"--finetune"}},
      {"train-length-zero", {"--train-iters", "0"}},
      {"lr", {"--lr", "0"}},
      {"micro-batch", {"--micro-batch-size", "0"}},
  };
  for (const auto& [id, words] : mistakes) EXPECT_THAT(ids_of_plan(model_with(words)), Contains(id));
}

TEST(RulesOfFaults, WordsThatCouldNotBeReadAreNotJudgedToo) {
  using Words = std::vector<std::string>;
  const Words whole =
      model_with({"--seq-length", "8", "--micro-batch-size", "2", "--global-batch-size", "8", "--train-iters",
                  "10", "--lr", "1e-3", "--mock-data", "--save", "run", "--save-interval", "5"});
  for (const char* flag :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings", "--seq-length",
        "--micro-batch-size", "--train-iters", "--lr", "--save-interval", "--mock-data", "--vocab-size"}) {
    Words words = whole;
    if (std::string(flag) == "--mock-data")
      *std::find(words.begin(), words.end(), flag) = "--mock-data=perhaps";
    else
      *std::next(std::find(words.begin(), words.end(), flag)) = "abc";
    config::Parsed parsed = config::parse_all(words);
    EXPECT_EQ(parsed.faults.size(), 1U) << flag;
    config::derive(parsed.run);
    EXPECT_EQ(report(check(parsed.run)), "") << flag;
  }
  config::Parsed tensor = config::parse_all(
      model_with({"--tensor-model-parallel-size", "two", "--micro-batch-size", "1", "--global-batch-size",
                  "4", "--seq-length", "8", "--train-iters", "10", "--lr", "1e-3", "--mock-data"}));
  tensor.run.parallel.world_size = 8;
  config::derive(tensor.run);
  EXPECT_EQ(report(check(tensor.run)), "") << "8 data ranks are a guess";
}

TEST(RulesOfFaults, WhatTwoFlagsSayDifferentThingsAboutIsNotJudgedToo) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--recompute-activations", "--recompute-granularity", "full",
                                 "--recompute-method", "uniform", "--recompute-num-layers", "1"},
        {"--no-recompute-activations", "--recompute-granularity", "selective", "--recompute-num-layers",
         "1"}}) {
    config::Parsed parsed = config::parse_all(model_with(words));
    EXPECT_THAT(parsed.faults, ElementsAre(HasSubstr("say different things about --recompute-granularity")));
    config::derive(parsed.run);
    EXPECT_EQ(report(check(parsed.run, Purpose::kPlan)), "") << words[0];
  }
}

TEST(RulesOfFaults, OfExpertsAreNotJudgedToo) {
  const std::vector<std::string> whole = model_with({"--seq-length",
                                                     "8",
                                                     "--micro-batch-size",
                                                     "2",
                                                     "--train-iters",
                                                     "10",
                                                     "--lr",
                                                     "1e-3",
                                                     "--mock-data",
                                                     "--disable-bias-linear",
                                                     "--num-experts",
                                                     "12",
                                                     "--moe-ffn-hidden-size",
                                                     "9",
                                                     "--moe-router-topk",
                                                     "6",
                                                     "--moe-router-num-groups",
                                                     "4",
                                                     "--moe-router-group-topk",
                                                     "3",
                                                     "--moe-router-score-function",
                                                     "sigmoid",
                                                     "--moe-router-load-balancing-type",
                                                     "aux_loss",
                                                     "seq_aux_loss",
                                                     "--moe-aux-loss-coeff",
                                                     "0.1",
                                                     "0.2",
                                                     "--expert-model-parallel-size",
                                                     "2",
                                                     "--expert-tensor-parallel-size",
                                                     "3"});
  config::Parsed sound = config::parse_all(whole);
  sound.run.parallel.world_size = 6;
  config::derive(sound.run);
  EXPECT_EQ(report(check(sound.run)), "");
  for (auto flag = std::ranges::find(whole, "--num-experts"); flag != whole.end(); ++flag) {
    if (!flag->starts_with("--")) continue;
    std::vector<std::string> broken = whole;
    broken[static_cast<std::size_t>(flag - whole.begin()) + 1] = "abc";
    config::Parsed parsed = config::parse_all(broken);
    EXPECT_EQ(parsed.faults.size(), 1U) << *flag;
    parsed.run.parallel.world_size = 6;
    config::derive(parsed.run);
    EXPECT_EQ(report(check(parsed.run)), "") << *flag;
  }
}

TEST(Rules, AnEmptyRunAndExtremesDoNotCrash) {
  EXPECT_FALSE(problems_of(config::Run{}).empty());
  config::Run r = good();
  r.parallel.world_size = 0;
  r.parallel.tensor_model_parallel_size = 0;
  r.parallel.pipeline_model_parallel_size = -3;
  r.model.num_attention_heads = -1;
  EXPECT_FALSE(check(r).empty());
}

TEST(Rules, MicrobatchesAreTheAccumulation) {
  EXPECT_EQ(num_microbatches(good()), 4);
  config::Run r = good();
  r.training.global_batch_size = 15;
  EXPECT_EQ(num_microbatches(r), 0);
}

}  // namespace
}  // namespace colonnade::rules
