// Every rule fires on its example, and its edits fix the run.
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

config::Run valid_run() { return example_of("heads").valid; }

TEST(Rules, AcceptZeroBubbleSchedules) {
  for (const char* accepted :
       {"pipeline_schedule=zb-h1", "pipeline_schedule=zb-v", "pipeline_schedule=dualpipe-v",
        "pipeline_schedule=zb-v; global_batch_size=4",
        "pipeline_schedule=zb-v; num_virtual_stages_per_pipeline_rank=2",
        "pipeline_schedule=zb-v; pipeline_model_parallel_layout=E|t*4|t*4|L", "delay_wgrad_compute=true"}) {
    const RuleExample valid{"", valid_run(), read_edits(accepted)};
    EXPECT_EQ(report(problems_of(valid.broken())), "") << accepted;
  }
}

TEST(Rules, AcceptHybridContextParallelismWithOtherParallelisms) {
  for (const char* accepted :
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
    const RuleExample valid{"", example_of("hybrid-ranks").valid, read_edits(accepted)};
    EXPECT_EQ(report(problems_of(valid.broken())), "") << accepted;
  }
}

TEST(Rules, AcceptBatchSizesThatGrow) {
  for (const char* accepted :
       {"eval_global_batch_size=8", "eval_micro_batch_size=4",
        "eval_global_batch_size=6; eval_micro_batch_size=1",
        "num_virtual_stages_per_pipeline_rank=2; eval_global_batch_size=24",
        "step_batch_size_schedule=0:8 1K:16", "global_batch_size=0; step_batch_size_schedule=0:8,1K:16,1M:20",
        "rampup_batch_size=4 4 100", "rampup_batch_size=16 4 100",
        "global_batch_size=19; decrease_batch_size_if_needed=true",
        "rampup_batch_size=6 2 100; decrease_batch_size_if_needed=true",
        "train_iters=unset; train_samples=12; step_batch_size_schedule=0:8 1K:16",
        "num_virtual_stages_per_pipeline_rank=2; step_batch_size_schedule=0:8 1K:16"}) {
    const RuleExample valid{"", valid_run(), read_edits(accepted)};
    EXPECT_EQ(report(problems_of(valid.broken())), "") << accepted;
  }
}

// Three micro-batches on two pipeline ranks, before four.
TEST(Rules, CheckEverySizeOfASchedule) {
  const auto ids = [](const char* given) {
    return ids_of(RuleExample{"", valid_run(), read_edits(given)}.broken());
  };
  EXPECT_THAT(ids("num_virtual_stages_per_pipeline_rank=2; step_batch_size_schedule=0:12 1K:16"),
              ElementsAre("microbatch-group"));
  EXPECT_THAT(ids("num_virtual_stages_per_pipeline_rank=2; rampup_batch_size=8 4 100"),
              ElementsAre("microbatch-group"));
  EXPECT_THAT(ids("global_batch_size=0; step_batch_size_schedule=0:8 1K:18"), ElementsAre("batch-sizes"));
  EXPECT_THAT(ids("rampup_batch_size=2 2 100; decrease_batch_size_if_needed=true"),
              ElementsAre("batch-sizes"));
  EXPECT_THAT(ids("global_batch_size=3; decrease_batch_size_if_needed=true"), ElementsAre("batch"));
  EXPECT_THAT(ids("eval_micro_batch_size=3"), ElementsAre("eval-batch"));
  EXPECT_THAT(ids("num_virtual_stages_per_pipeline_rank=2; eval_global_batch_size=12"),
              ElementsAre("eval-microbatch-group"));
  EXPECT_THAT(ids("train_iters=unset; train_samples=7; step_batch_size_schedule=0:8 1K:16"),
              ElementsAre("train-length-one-step"));
}

TEST(Rules, AcceptFullValidationOfUnweightedData) {
  for (const char* accepted :
       {"", "validation_set_names=books code", "valid_data_path=1 b", "valid_data_path=b",
        "eval_interval=unset; skip_train=true", "dataloader_type=cyclic", "eval_iters=0",
        "multiple_validation_sets=false", "multiple_validation_sets=false; valid_data_path=1 b",
        "multiple_validation_sets=false; valid_data_path=; train_data_path=; data_path=a b",
        "multiple_validation_sets=false; valid_data_path=; train_data_path=; mock_data=true",
        "full_validation=false; multiple_validation_sets=false; valid_data_path=0.5 b 0.5 c"}) {
    const RuleExample valid{"", example_of("validation-weights").valid, read_edits(accepted)};
    EXPECT_EQ(report(problems_of(valid.broken())), "") << accepted;
  }
}

TEST(Rules, FixRouterGroupsTogether) {
  const std::string experts =
      "num_experts=8; add_bias_linear=false; sequence_parallel=true; moe_router_topk=";
  for (const char* faulty : {"2; moe_router_num_groups=3; moe_router_group_topk=4",
                             "4; moe_router_num_groups=8; moe_router_group_topk=3",
                             "5; moe_router_num_groups=7; moe_router_group_topk=7",
                             "6; moe_router_num_groups=16; moe_router_group_topk=4"}) {
    config::Run run = RuleExample{"", valid_run(), read_edits(experts + faulty)}.broken();
    const std::vector<Problem> problems = problems_of(run);
    EXPECT_FALSE(problems.empty()) << faulty;
    for (const Problem& problem : problems)
      for (const Edit& edit : problem.edits) apply(run, edit);
    EXPECT_EQ(report(problems_of(run)), "") << faulty;
  }
}

TEST(Rules, AcceptMegatronsSettingsOfMultiLatentAttention) {
  for (const char* accepted :
       {"position_embedding_type=learned_absolute", "position_embedding_type=none",
        "position_embedding_type=yarn", "rope_type=yarn", "rope_type=rope",
        "rope_type=rope; rotary_percent=0.5", "rotary_percent=0.3",
        "rotary_scaling_factor=40; mscale=0.707; mscale_all_dim=0.707", "kv_channels=128",
        "add_qkv_bias=true", "rope_type=rope; rotary_scaling_factor=40", "rope_type=rope; yarn_beta_fast=16",
        "use_rope_scaling=true", "rotary_seq_len_interpolation_factor=2",
        "position_embedding_type=learned_absolute; rotary_base=500000"}) {
    const RuleExample latent{"", example_of("latent-rope-dims").valid, read_edits(accepted)};
    EXPECT_EQ(report(problems_of(latent.broken())), "") << accepted;
  }
  for (const char* accepted : {"rope_type=rope", "position_embedding_type=rope; rope_type=rope",
                               "rotary_scaling_factor=40; mscale=0.707; mscale_all_dim=0.707"}) {
    const RuleExample other{"", valid_run(), read_edits(accepted)};
    EXPECT_EQ(report(problems_of(other.broken())), "") << accepted;
  }
}

// Kimi K2 is published with 1 and 1: Transformers then uses a step function.
TEST(Rules, AcceptEqualYarnBounds) {
  for (const char* accepted : {"yarn_beta_fast=1", "yarn_beta_fast=1; yarn_beta_slow=0.5"}) {
    const RuleExample yarn = example_of("yarn-betas");
    const RuleExample valid{
        "", yarn.valid,
        read_edits(std::string("position_embedding_type=yarn; rotary_scaling_factor=4; ") + accepted)};
    EXPECT_EQ(report(problems_of(valid.broken())), "") << accepted;
  }
}

TEST(Rules, ValidRunsBreakNoRule) {
  for (const RuleExample& e : rule_examples()) EXPECT_EQ(report(problems_of(e.valid)), "") << e.id;
}

TEST(Rules, IdsAreUnique) {
  std::vector<std::string> ids = rule_ids();
  const std::size_t rules = ids.size();
  std::ranges::sort(ids);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  EXPECT_EQ(ids.size(), rules);
  EXPECT_EQ(rules, rule_examples().size() + 1) << "one example per rule, none for `range`";
}

TEST(Rules, ATableExampleBreaksOnlyItsRule) {
  for (const RuleExample& e : rule_examples()) EXPECT_THAT(ids_of(e.broken()), ElementsAre(e.id)) << words(e);
}

TEST(Rules, TheEditsOfEveryExampleFixIt) {
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

TEST(Rules, FixingAllProblemsYieldsAValidRun) {
  for (const RuleExample& e : all_examples()) {
    config::Run run = e.broken();
    for (int round = 0; round < 4; ++round) {
      for (const Problem& problem : problems_of(run))
        for (const Edit& edit : problem.edits) apply(run, edit);
    }
    EXPECT_EQ(report(problems_of(run)), "") << words(e);
  }
}

TEST(Rules, EveryMessageHasSubjectValuesAndFix) {
  for (const RuleExample& e : all_examples()) {
    for (const Problem& problem : problems_of(e.broken())) {
      EXPECT_THAT(problem.text, HasSubstr("; got ")) << problem.id;
      EXPECT_THAT(problem.text.substr(0, problem.text.find("; got ")),
                  Not(::testing::ContainsRegex("--[a-z0-9-]+: ")));
      EXPECT_THAT(problem.line(), EndsWith(" [" + problem.id + "]"));
      EXPECT_GT(problem.text.size(), problem.text.rfind("; ") + 6) << problem.text;
    }
  }
}

TEST(Rules, AnEditToTheDefaultSaysRemove) {
  const auto fix_of = [](const char* given) {
    RuleExample e = example_of("loss-scale");
    for (const Edit& edit : read_edits(given)) e.edits.push_back(edit);
    const auto problems = problems_of(e.broken());
    const auto found = std::ranges::find(problems, "loss-scale", &Problem::id);
    return found == problems.end() ? "" : found->text.substr(found->text.rfind("; ") + 2);
  };
  EXPECT_EQ(fix_of(""), "remove --loss-scale");
  EXPECT_EQ(fix_of("min_loss_scale=8589934592"), "remove --loss-scale and set --min-loss-scale 1");
  EXPECT_EQ(fix_of("loss_scale=unset; min_loss_scale=8589934592"), "set --min-loss-scale 1");
}

TEST(Rules, ANoOpEditIsNotProposed) {
  const auto text_of = [](const RuleExample& e) { return problems_of(e.broken()).at(0).text; };
  EXPECT_THAT(text_of(example_of("relative-buckets")),
              EndsWith("got 30 and 128; set --relative-attention-num-buckets 32"));
  EXPECT_THAT(text_of(example_of("decoder-tensor")), EndsWith("got 15 and 2; set --decoder-seq-length 16"));
}

TEST(Rules, ReportAllInvalidSizesAtOnce) {
  config::Run r = valid_run();
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

TEST(Rules, ADisabledSwitchIsNamedByItsNegativeFlag) {
  config::Run r = config::parse({"gpt", "--bert-no-binary-head"});
  r.given["bert_binary_head"] = "the command line";
  std::string text = report(check(r));
  EXPECT_THAT(text, HasSubstr("--bert-no-binary-head must be used with a BERT model; got true"));
  EXPECT_THAT(text, testing::Not(HasSubstr("--bert-binary-head")));
  r = config::parse({"gpt", "--tokenizer-hf-no-include-special-tokens"});
  text = report(check(r));
  EXPECT_THAT(text,
              HasSubstr("--tokenizer-hf-no-include-special-tokens must be given with a --tokenizer-type"));
}

TEST(Rules, AModelNeedsNoTrainingSettings) {
  config::Run r;
  r.model.num_layers = 2;
  r.model.hidden_size = 8;
  r.model.num_attention_heads = 2;
  r.model.vocab_size = 10;
  config::derive(r);
  EXPECT_EQ(report(check(r, Purpose::kModel)), "");
  EXPECT_FALSE(check(r).empty());
}

TEST(Rules, DataRulesApplyToModelsToo) {
  for (const char* id :
       {"fim-data", "fim-rates", "fim-tokenizer", "decoder-length-model", "decoder-positions"}) {
    config::Run run = example_of(id).broken();
    config::derive(run);
    EXPECT_EQ(first_broken(run, Purpose::kModel), id);
  }
  config::Run tokens = example_of("decoder-length").broken();
  config::derive(tokens);
  EXPECT_EQ(first_broken(tokens, Purpose::kModel), std::nullopt) << "evaluate --tokens has its own lengths";
}

TEST(Rules, DataInspectReportsOnlySampleSettings) {
  std::vector<std::string> reported;
  for (const RuleExample& example : rule_examples()) {
    config::Run run = example.broken();
    config::derive(run);
    if (first_broken(run, Purpose::kData) == example.id) reported.push_back(example.id);
  }
  EXPECT_THAT(reported, ElementsAreArray({"seq-length",
                                          "batch",
                                          "step-schedule",
                                          "step-schedule-once",
                                          "rampup",
                                          "batch-schedule-once",
                                          "eval-batch",
                                          "batch-sizes",
                                          "encoder-layers-model",
                                          "decoder-length-model",
                                          "bert-heads",
                                          "context-sequence",
                                          "hybrid-documents",
                                          "eval-microbatch-group",
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
                                          "fim-documents",
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
                                          "tokenizer-model-no-effect"}));
  EXPECT_EQ(report(check(config::parse({"--data-path", "books", "--seq-length", "8"}), Purpose::kData)), "")
      << "other required settings may be missing";
}

/// Rule ids that `colonnade plan` reports for a command line, and the flags it reports as missing.
std::vector<std::string> ids_of_plan(const std::vector<std::string>& words, std::string* missing = nullptr) {
  config::Parsed parsed = config::parse_all(words);
  config::derive(parsed.run);
  if (missing != nullptr) *missing = missing_for_training(parsed.run);
  std::vector<std::string> ids;
  for (const Problem& problem : check(parsed.run, Purpose::kPlan)) ids.push_back(problem.id);
  return ids;
}

const std::vector<std::string> kModelFlags{"--num-layers",
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
  std::vector<std::string> words = kModelFlags;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST(PlanRules, MissingTrainingSettingsAreNoError) {
  std::string missing;
  EXPECT_THAT(ids_of_plan(kModelFlags, &missing), IsEmpty());
  EXPECT_EQ(missing, "--seq-length, --micro-batch-size, --train-iters, --lr, --data-path or --mock-data");
  EXPECT_THAT(ids_of_plan(model_with({"--save", "run"}), &missing), IsEmpty());
  EXPECT_THAT(missing, Not(HasSubstr("--save-interval"))) << "without it, the run saves at its end";
  EXPECT_THAT(ids_of_plan({"--num-layers", "2", "--vocab-size", "10"}), Contains("hidden-size"));
}

TEST(PlanRules, ReportTrainingMistakes) {
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

TEST(ParseFaults, UnparsedSettingsAreNotChecked) {
  using Words = std::vector<std::string>;
  const Words valid =
      model_with({"--seq-length", "8", "--micro-batch-size", "2", "--global-batch-size", "8", "--train-iters",
                  "10", "--lr", "1e-3", "--mock-data", "--save", "run", "--save-interval", "5"});
  for (const char* flag :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--max-position-embeddings", "--seq-length",
        "--micro-batch-size", "--train-iters", "--lr", "--save-interval", "--mock-data", "--vocab-size"}) {
    Words words = valid;
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
  EXPECT_EQ(report(check(tensor.run)), "") << "the data-parallel size is unknown";
}

TEST(ParseFaults, SettingsOfConflictingFlagsAreNotChecked) {
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"--recompute-activations", "--recompute-granularity", "full",
                                 "--recompute-method", "uniform", "--recompute-num-layers", "1"},
        {"--no-recompute-activations", "--recompute-granularity", "selective", "--recompute-num-layers",
         "1"}}) {
    config::Parsed parsed = config::parse_all(model_with(words));
    EXPECT_THAT(parsed.faults, ElementsAre(HasSubstr("conflict on --recompute-granularity")));
    config::derive(parsed.run);
    EXPECT_EQ(report(check(parsed.run, Purpose::kPlan)), "") << words[0];
  }
}

TEST(ParseFaults, UnparsedMoeSettingsAreNotChecked) {
  const std::vector<std::string> valid = model_with({"--seq-length",
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
  config::Parsed complete = config::parse_all(valid);
  complete.run.parallel.world_size = 6;
  config::derive(complete.run);
  EXPECT_EQ(report(check(complete.run)), "");
  for (auto flag = std::ranges::find(valid, "--num-experts"); flag != valid.end(); ++flag) {
    if (!flag->starts_with("--")) continue;
    std::vector<std::string> broken = valid;
    broken[static_cast<std::size_t>(flag - valid.begin()) + 1] = "abc";
    config::Parsed parsed = config::parse_all(broken);
    EXPECT_EQ(parsed.faults.size(), 1U) << *flag;
    parsed.run.parallel.world_size = 6;
    config::derive(parsed.run);
    EXPECT_EQ(report(check(parsed.run)), "") << *flag;
  }
}

TEST(Rules, DoNotCrashOnEmptyAndExtremeRuns) {
  EXPECT_FALSE(problems_of(config::Run{}).empty());
  config::Run r = valid_run();
  r.parallel.world_size = 0;
  r.parallel.tensor_model_parallel_size = 0;
  r.parallel.pipeline_model_parallel_size = -3;
  r.model.num_attention_heads = -1;
  EXPECT_FALSE(check(r).empty());
}

TEST(Rules, NumMicrobatchesIsTheGradientAccumulation) {
  EXPECT_EQ(num_microbatches(valid_run()), 4);
  config::Run r = valid_run();
  r.training.global_batch_size = 15;
  EXPECT_EQ(num_microbatches(r), 0);
}

}  // namespace
}  // namespace colonnade::rules
