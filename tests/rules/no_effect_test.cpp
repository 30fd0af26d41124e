// Settings without effect that scripts often pass: one note each, no error.
#include "colonnade/rules/no_effect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/rules/rules.h"

namespace colonnade::rules {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Broken rules and notes of a valid run with additional flags.
std::pair<std::vector<std::string>, std::vector<std::string>> problems_and_notes(
    const std::vector<std::string>& more, int world = 1) {
  std::istringstream text(
      "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --vocab-size 10 --max-position-embeddings 8 "
      "--seq-length 8 --micro-batch-size 2 --train-iters 100 --lr 1e-3");
  std::vector<std::string> words{std::istream_iterator<std::string>(text), {}};
  words.insert(words.end(), more.begin(), more.end());
  config::Parsed parsed = config::parse_all(words);
  parsed.run.parallel.world_size = world;
  config::derive(parsed.run);
  std::vector<std::string> ids;
  for (const Problem& problem : check(parsed.run)) ids.push_back(problem.id);
  return {ids, no_effect_notes(parsed.run)};
}

TEST(NoEffectNotes, AreReportedAndAccepted) {
  const auto [mock, mock_notes] = problems_and_notes(
      {"--mock-data", "--split", "99,1,0", "--data-cache-path", "c", "--mid-level-dataset-surplus", "0.01"});
  EXPECT_THAT(mock, IsEmpty());
  EXPECT_THAT(mock_notes,
              ElementsAre("--split has no effect with --mock-data; got 99,1,0",
                          "--data-cache-path has no effect with --mock-data; got c",
                          "--mid-level-dataset-surplus has no effect with --mock-data; got 0.01"));
  const auto [constant, constant_notes] =
      problems_and_notes({"--data-path", "a", "--split", "99,1,0", "--lr-decay-style", "constant", "--min-lr",
                          "1e-5", "--lr-decay-iters", "90", "--bf16", "--initial-loss-scale", "65536"});
  EXPECT_THAT(constant, IsEmpty());
  EXPECT_THAT(constant_notes,
              ElementsAre("--min-lr has no effect with --lr-decay-style constant; got 1e-05",
                          "--lr-decay-iters has no effect with --lr-decay-style constant; got 90",
                          "--initial-loss-scale has no effect without --fp16; got 65536"));
  EXPECT_THAT(
      problems_and_notes({"--train-data-path", "a", "--split", "99,1,0"}).second,
      ElementsAre("--split has no effect with --train-data-path, --valid-data-path, --test-data-path or "
                  "--per-split-data-args-path; got 99,1,0"));
}

TEST(NoEffectNotes, SettingsWithoutPrerequisite) {
  const std::pair<std::vector<std::string>, const char*> kCases[] = {
      {{"--rotary-base", "500000"},
       "--rotary-base has no effect without --position-embedding-type rope; got 500000"},
      {{"--optimizer", "sgd", "--adam-beta2", "0.95"},
       "--adam-beta2 has no effect without --optimizer adam; got 0.95"},
      {{"--sgd-momentum", "0.5"}, "--sgd-momentum has no effect without --optimizer sgd; got 0.5"},
      {{"--use-precision-aware-optimizer"},
       "--use-precision-aware-optimizer has no effect while --main-grads-dtype, --main-params-dtype, "
       "--exp-avg-dtype and --exp-avg-sq-dtype are fp32; got true"},
      {{"--lion-beta1", "0.9"}, "--lion-beta1 has no effect without --optimizer lion; got 0.9"},
      {{"--lr-wsd-decay-style", "minus_sqrt"},
       "--lr-wsd-decay-style has no effect without --lr-decay-style WSD; got minus_sqrt"},
      {{"--apply-wd-to-qk-layernorm"},
       "--apply-wd-to-qk-layernorm has no effect without --qk-layernorm; got true"},
      {{"--qk-clip-alpha", "0.3"}, "--qk-clip-alpha has no effect without --qk-clip; got 0.3"},
      {{"--mup-base-hidden-size", "8"}, "--mup-base-hidden-size has no effect without --use-mup; got 8"},
      {{"--use-mup", "--mup-base-head-dim", "8", "--query-pre-attn-scalar", "4"},
       "--mup-base-head-dim has no effect without the default --query-pre-attn-scalar; got 8"},
      {{"--kv-lora-rank", "16"}, "--kv-lora-rank has no effect without --multi-latent-attention; got 16"},
      {{"--mtp-loss-scaling-factor", "0.3"},
       "--mtp-loss-scaling-factor has no effect without --mtp-num-layers; got 0.3"},
      {{"--no-load-optim"}, "--no-load-optim has no effect without --load; got true"},
      {{"--cp-comm-type", "a2a"},
       "--cp-comm-type has no effect without --context-parallel-size above 1; got a2a"},
      {{"--recompute-modules", "layernorm"},
       "--recompute-modules has no effect without --recompute-granularity selective; got layernorm"},
      {{"--data-parallel-sharding-strategy", "optim"},
       "--data-parallel-sharding-strategy has no effect without --use-megatron-fsdp; got optim"},
      {{"--profile-step-end", "20"}, "--profile-step-end has no effect without --profile; got 20"},
      {{"--profile-ranks", "0"},
       "--profile-ranks has no effect without --profile or --record-memory-history; got 0"},
      {{"--wandb-entity", "team"}, "--wandb-entity has no effect without --wandb-project; got team"},
      {{"--timing-log-option", "all"},
       "--timing-log-option has no effect without --timing-log-level 1 or 2; got all"},
  };
  for (const auto& [words, note] : kCases) {
    std::vector<std::string> all{"--mock-data"};
    all.insert(all.end(), words.begin(), words.end());
    EXPECT_THAT(problems_and_notes(all).first, IsEmpty()) << note;
    EXPECT_THAT(problems_and_notes(all).second, ElementsAre(note));
  }
}

TEST(NoEffectNotes, SettingsOfOtherOptimizersFollowThoseOfTheModel) {
  EXPECT_THAT(
      problems_and_notes({"--mock-data", "--optimizer", "sgd", "--adam-beta1", "0.8", "--adam-eps", "1e-6",
                          "--sgd-momentum", "0.5", "--lr-warmup-init", "1e-5", "--apply-wd-to-qk-layernorm"})
          .second,
      ElementsAre("--apply-wd-to-qk-layernorm has no effect without --qk-layernorm; got true",
                  "--adam-beta1 has no effect without --optimizer adam; got 0.8",
                  "--adam-eps has no effect without --optimizer adam; got 1e-06",
                  "--lr-warmup-init has no effect without --lr-warmup-iters; got 1e-05"));
}

TEST(NoEffectNotes, NoNoteForAFileSettingDisabledByTheCommandLine) {
  config::Run r;
  config::set(r, "optimizer", "sgd");
  config::set(r, "adam_beta2", "0.95");
  r.given = {{"adam_beta2", "run/config.yaml:3"}, {"optimizer", "the command line"}};
  EXPECT_THAT(no_effect_notes(r), IsEmpty());
  r.given["adam_beta2"] = "the command line";
  EXPECT_THAT(no_effect_notes(r),
              ElementsAre("--adam-beta2 has no effect without --optimizer adam; got 0.95"));
}

TEST(NoEffectNotes, AmbiguousPadsWithoutTokenizer) {
  const std::vector<std::string> words{"--mock-data", "--allow-ambiguous-pad-tokens"};
  EXPECT_THAT(problems_and_notes(words).first, ElementsAre("tokenizer-model-no-effect"));
  std::vector<std::string> numbers = words;
  numbers.insert(numbers.end(), {"--tokenizer-type", "NullTokenizer"});
  EXPECT_THAT(problems_and_notes(numbers).first, IsEmpty());
  EXPECT_THAT(problems_and_notes(numbers).second,
              ElementsAre("--allow-ambiguous-pad-tokens has no effect with --tokenizer-type NullTokenizer; "
                          "got true"));
}

TEST(NoEffectNotes, RotarySettings) {
  const auto notes = [](const char* flags) {
    std::istringstream text(std::string("--mock-data ") + flags);
    const auto result = problems_and_notes({std::istream_iterator<std::string>(text), {}});
    EXPECT_THAT(result.first, IsEmpty()) << flags;
    return result.second;
  };
  EXPECT_THAT(
      notes("--rope-type rope --mscale 0.7"),
      ElementsAre(
          "--rope-type has no effect without --multi-latent-attention; got rope",
          "--mscale has no effect without --multi-latent-attention or --position-embedding-type yarn; "
          "got 0.7"));
  const std::string latent =
      "--multi-latent-attention --kv-lora-rank 4 --qk-head-dim 4 --qk-pos-emb-head-dim 4 --v-head-dim 4 ";
  EXPECT_THAT(notes((latent + "--rotary-scaling-factor 40 --mscale 0.7 --mscale-all-dim 0.7").c_str()),
              IsEmpty());
  EXPECT_THAT(notes((latent + "--rope-type rope --rotary-scaling-factor 40 --mscale-all-dim 0.7").c_str()),
              IsEmpty())
      << "both scale the scores, as in Megatron";
  EXPECT_THAT(
      notes((latent + "--rope-type rope --rotary-scaling-factor 40 --mscale 0.7").c_str()),
      ElementsAre(
          "--mscale has no effect with --rope-type rope; got 0.7",
          "--rotary-scaling-factor has no effect with --rope-type rope, unless both are set and scale the "
          "attention scores; got 40"));
  EXPECT_THAT(
      notes((latent + "--rotary-percent 0.5 --add-qkv-bias").c_str()),
      ElementsAre("--rotary-percent has no effect with --multi-latent-attention, unless --rope-type is rope; "
                  "got 0.5",
                  "--add-qkv-bias has no effect with --multi-latent-attention; got true"));
  EXPECT_THAT(notes((latent + "--rope-type rope --rotary-percent 0.5").c_str()), IsEmpty());
}

TEST(NoEffectNotes, PipelineSettingsOfOneRank) {
  const auto [broken, notes] = problems_and_notes(
      {"--mock-data", "--pipeline-schedule", "gpipe", "--expert-tensor-parallel-size", "1"});
  EXPECT_THAT(broken, IsEmpty());
  EXPECT_THAT(notes, ElementsAre("--expert-tensor-parallel-size has no effect without --num-experts; got 1",
                                 "--pipeline-schedule has no effect with one pipeline rank; got gpipe"));
}

TEST(NoEffectNotes, MoeSettingsOfADenseModel) {
  const std::vector<std::string> words{"--moe-layer-freq",
                                       "2",
                                       "--moe-ffn-hidden-size",
                                       "24",
                                       "--moe-token-dispatcher-type",
                                       "alltoall",
                                       "--moe-shared-expert-intermediate-size",
                                       "8",
                                       "--moe-shared-expert-gate",
                                       "--moe-shared-expert-overlap",
                                       "--moe-router-topk",
                                       "4",
                                       "--moe-router-score-function",
                                       "sigmoid",
                                       "--moe-router-pre-softmax",
                                       "--moe-router-topk-scaling-factor",
                                       "2",
                                       "--moe-router-num-groups",
                                       "4",
                                       "--moe-router-group-topk",
                                       "2",
                                       "--moe-router-group-best",
                                       "2",
                                       "--moe-router-enable-expert-bias",
                                       "--moe-router-bias-update-rate",
                                       "0.1",
                                       "--moe-input-jitter-eps",
                                       "0.1",
                                       "--moe-router-force-load-balancing",
                                       "--moe-router-load-balancing-type",
                                       "seq_aux_loss",
                                       "--moe-aux-loss-coeff",
                                       "0.1",
                                       "--moe-z-loss-coeff",
                                       "0.1",
                                       "--moe-per-layer-logging",
                                       "--moe-expert-capacity-factor",
                                       "1",
                                       "--moe-pad-expert-input-to-capacity",
                                       "--moe-token-drop-policy",
                                       "position"};
  std::vector<std::string> all{"--mock-data"};
  all.insert(all.end(), words.begin(), words.end());
  const auto [broken, notes] = problems_and_notes(all);
  EXPECT_THAT(broken, IsEmpty());
  EXPECT_THAT(notes, testing::Each(testing::HasSubstr(" has no effect without --num-experts; got ")));
  const auto flags = std::ranges::count_if(words, [](const std::string& w) { return w.starts_with("--"); });
  EXPECT_EQ(static_cast<std::ptrdiff_t>(notes.size()), flags);
}

TEST(NoEffectNotes, MoeSettings) {
  const auto of = [](std::vector<std::string> more) {
    const std::vector<std::string> experts{"--mock-data", "--num-experts", "4", "--disable-bias-linear"};
    more.insert(more.begin(), experts.begin(), experts.end());
    const auto [broken, notes] = problems_and_notes(more);
    EXPECT_THAT(broken, IsEmpty());
    return notes;
  };
  EXPECT_THAT(of({"--moe-shared-expert-gate", "--moe-shared-expert-overlap"}),
              ElementsAre("--moe-shared-expert-gate has no effect without "
                          "--moe-shared-expert-intermediate-size; got true",
                          "--moe-shared-expert-overlap has no effect without "
                          "--moe-shared-expert-intermediate-size; got true"));
  EXPECT_THAT(of({"--moe-per-layer-logging", "--moe-z-loss-coeff", "0.1"}), IsEmpty());
  EXPECT_THAT(of({"--moe-per-layer-logging", "--moe-upcycling-granularity", "2"}),
              testing::UnorderedElementsAre(
                  "--moe-per-layer-logging has no effect without a router loss (--moe-aux-loss-coeff, "
                  "--moe-z-loss-coeff); got true",
                  "--moe-upcycling-granularity has no effect without --moe-use-upcycling; got 2"));
  EXPECT_THAT(of({"--moe-router-load-balancing-type", "sinkhorn"}), IsEmpty());
  const std::string sinkhorn = " has no effect with --moe-router-load-balancing-type sinkhorn; got ";
  EXPECT_THAT(
      of({"--moe-router-load-balancing-type", "sinkhorn", "--moe-router-score-function", "sigmoid",
          "--moe-router-pre-softmax", "--moe-router-topk-scaling-factor", "2", "--moe-router-num-groups", "2",
          "--moe-router-group-topk", "1", "--moe-router-group-best", "2"}),
      ElementsAre("--moe-router-score-function" + sinkhorn + "sigmoid",
                  "--moe-router-pre-softmax" + sinkhorn + "true",
                  "--moe-router-topk-scaling-factor" + sinkhorn + "2",
                  "--moe-router-num-groups" + sinkhorn + "2", "--moe-router-group-topk" + sinkhorn + "1",
                  "--moe-router-group-best" + sinkhorn + "2"));
  EXPECT_THAT(of({"--moe-router-pre-softmax"}), IsEmpty());
  EXPECT_THAT(of({"--moe-router-pre-softmax", "--moe-router-score-function", "sigmoid"}),
              ElementsAre("--moe-router-pre-softmax has no effect with a --moe-router-score-function other "
                          "than softmax; got true"));
  EXPECT_THAT(of({"--moe-router-num-groups", "3"}),
              ElementsAre("--moe-router-num-groups has no effect without --moe-router-group-topk; got 3"));
  EXPECT_THAT(of({"--moe-router-bias-update-rate", "0.1"}),
              ElementsAre("--moe-router-bias-update-rate has no effect without "
                          "--moe-router-enable-expert-bias; got 0.1"));
  EXPECT_THAT(of({"--moe-aux-loss-coeff", "0.1", "--moe-router-load-balancing-type", "none"}),
              ElementsAre("--moe-aux-loss-coeff has no effect with --moe-router-load-balancing-type none; "
                          "got 0.1"));
  EXPECT_THAT(of({"--moe-router-load-balancing-type", "seq_aux_loss"}),
              ElementsAre("--moe-router-load-balancing-type has no effect with --moe-aux-loss-coeff 0; "
                          "got seq_aux_loss"));
  EXPECT_THAT(
      of({"--moe-router-force-load-balancing"}),
      ElementsAre(testing::HasSubstr("--moe-router-force-load-balancing routes tokens to random experts")));
}

TEST(NoEffectNotes, ExpertCapacity) {
  const auto of = [](std::vector<std::string> more) {
    const std::vector<std::string> experts{"--mock-data", "--num-experts", "4", "--disable-bias-linear"};
    more.insert(more.begin(), experts.begin(), experts.end());
    const auto [broken, notes] = problems_and_notes(more);
    EXPECT_THAT(broken, IsEmpty());
    return notes;
  };
  EXPECT_THAT(of({"--moe-token-drop-policy", "position"}),
              ElementsAre("--moe-token-drop-policy has no effect without --moe-expert-capacity-factor; got "
                          "position"));
  EXPECT_THAT(of({"--moe-token-drop-policy", "position", "--moe-expert-capacity-factor", "1"}), IsEmpty());
  EXPECT_THAT(
      of({"--moe-token-drop-policy", "position", "--moe-expert-capacity-factor", "2"}),
      ElementsAre("--moe-expert-capacity-factor has no effect if every expert has capacity for "
                  "every token; got 2",
                  "--moe-token-drop-policy has no effect if every expert has capacity for every token; "
                  "got position"));
  const std::vector<std::string> padded{
      "--moe-expert-capacity-factor", "2",       "--moe-pad-expert-input-to-capacity",
      "--moe-router-score-function",  "sigmoid", "--moe-router-enable-expert-bias"};
  EXPECT_THAT(of(padded), ElementsAre("--moe-router-enable-expert-bias has no effect with "
                                      "--moe-pad-expert-input-to-capacity, which gives all experts the same "
                                      "load; got true"));
}

TEST(NoEffectNotes, DataParallelSettingsWithoutReplicas) {
  const std::vector<std::string> words{"--mock-data", "--use-distributed-optimizer", "--overlap-grad-reduce",
                                       "--overlap-param-gather"};
  const std::string no_effect = " has no effect without data-parallel replicas; got true";
  const auto both = [&](int world, std::vector<std::string> more) {
    more.insert(more.end(), words.begin(), words.end());
    return problems_and_notes(more, world);
  };
  EXPECT_THAT(both(1, {}).first, IsEmpty());
  const auto all = ElementsAre("--use-distributed-optimizer" + no_effect, "--overlap-grad-reduce" + no_effect,
                               "--overlap-param-gather" + no_effect);
  EXPECT_THAT(both(1, {}).second, all);
  EXPECT_THAT(both(2, {"--tensor-model-parallel-size", "2"}).second, all);
  EXPECT_THAT(both(2, {}).second, IsEmpty());
  EXPECT_THAT(both(2, {"--context-parallel-size", "2"}).second, IsEmpty());
  std::vector<std::string> experts{
      "--num-experts",      "4", "--disable-bias-linear", "--tensor-model-parallel-size", "2",
      "--sequence-parallel"};
  EXPECT_THAT(both(2, experts).second, all) << "experts are sharded over tensor ranks";
  experts.insert(experts.end(), {"--expert-tensor-parallel-size", "1"});
  EXPECT_THAT(both(2, experts).second, IsEmpty()) << "two ranks hold each expert";
}

TEST(NoEffectNotes, FfnSizeWithoutDenseLayers) {
  std::vector<std::string> words{"--mock-data",           "--num-experts",     "4",
                                 "--disable-bias-linear", "--ffn-hidden-size", "72"};
  EXPECT_THAT(problems_and_notes(words).second, IsEmpty()) << "it is the expert size too";
  words.insert(words.end(), {"--moe-ffn-hidden-size", "24"});
  EXPECT_THAT(problems_and_notes(words).second,
              ElementsAre("--ffn-hidden-size has no effect if every layer is an MoE layer, whose size is "
                          "--moe-ffn-hidden-size; got 72"));
  words.insert(words.end(), {"--moe-layer-freq", "2"});
  EXPECT_THAT(problems_and_notes(words).second, IsEmpty());
}

TEST(NoEffectNotes, DistributedOptimizerInstancesOfOneRank) {
  const std::vector<std::string> words{"--mock-data", "--use-distributed-optimizer",
                                       "--num-distributed-optimizer-instances", "2"};
  EXPECT_THAT(problems_and_notes(words, 2).second,
              ElementsAre(testing::HasSubstr("--use-distributed-optimizer has no effect if "
                                             "--num-distributed-optimizer-instances is")));
  EXPECT_THAT(problems_and_notes(words, 4).second, IsEmpty());
  std::vector<std::string> shared = words;
  shared.insert(shared.end(), {"--outer-dp-sharding-strategy", "optim"});
  EXPECT_THAT(problems_and_notes(shared, 2).second, IsEmpty());
}

TEST(NoEffectNotes, DeterministicModeAcrossPowersOfTwo) {
  const std::vector<std::string> words{"--mock-data", "--deterministic-mode"};
  EXPECT_THAT(
      problems_and_notes(words, 3).second,
      ElementsAre(
          "--deterministic-mode gives bitwise-identical results only across power-of-two data-parallel "
          "sizes; got 3"));
  EXPECT_THAT(problems_and_notes(words, 4).second, IsEmpty());
  EXPECT_THAT(problems_and_notes({"--mock-data"}, 3).second, IsEmpty());
}

TEST(NoEffectNotes, SettingsOfMegatronLaunchScripts) {
  const auto [broken, notes] = problems_and_notes({"--mock-data",
                                                   "--tokenizer-type",
                                                   "NullTokenizer",
                                                   "--tokenizer-model",
                                                   "books.model",
                                                   "--account-for-embedding-in-pipeline-split",
                                                   "--account-for-loss-in-pipeline-split",
                                                   "--override-opt-param-scheduler",
                                                   "--weight-decay",
                                                   "0.7",
                                                   "--weight-decay-incr-style",
                                                   "linear",
                                                   "--start-weight-decay",
                                                   "0.1",
                                                   "--end-weight-decay",
                                                   "0.2",
                                                   "--fp16",
                                                   "--loss-scale",
                                                   "1024",
                                                   "--initial-loss-scale",
                                                   "65536",
                                                   "--hysteresis",
                                                   "3"});
  EXPECT_THAT(broken, IsEmpty());
  EXPECT_THAT(
      notes,
      ElementsAre("--weight-decay has no effect with --weight-decay-incr-style, which uses "
                  "--start-weight-decay and --end-weight-decay; got 0.7",
                  "--override-opt-param-scheduler has no effect without --load; got true",
                  "--initial-loss-scale has no effect with a constant --loss-scale; got 65536",
                  "--hysteresis has no effect with a constant --loss-scale; got 3",
                  "--tokenizer-model has no effect with --tokenizer-type NullTokenizer; got books.model",
                  "--account-for-embedding-in-pipeline-split has no effect with one pipeline rank; got true",
                  "--account-for-loss-in-pipeline-split has no effect with one pipeline rank; got true"));
  EXPECT_THAT(problems_and_notes({"--mock-data", "--use-checkpoint-opt-param-scheduler"}).second,
              ElementsAre("--use-checkpoint-opt-param-scheduler has no effect without --load; got true"));
  EXPECT_THAT(problems_and_notes({"--mock-data", "--tokenizer-model", "books.model"}).first,
              ElementsAre("tokenizer-model-no-effect"))
      << "the file has no tokenizer type";
}

TEST(NoEffectNotes, EvaluationSettings) {
  EXPECT_THAT(
      problems_and_notes({"--mock-data", "--eval-iters", "10", "--log-validation-ppl-to-tensorboard"}).second,
      ElementsAre("--eval-iters has no effect without --eval-interval; got 10",
                  "--log-validation-ppl-to-tensorboard has no effect without --eval-interval; got true"));
  EXPECT_THAT(problems_and_notes({"--mock-data", "--eval-iters", "0", "--eval-interval", "100"}).second,
              ElementsAre("--eval-interval has no effect with --eval-iters 0; got 100"));
  EXPECT_THAT(problems_and_notes({"--mock-data", "--eval-iters", "0"}).second, IsEmpty())
      << "0 disables evaluation";
  EXPECT_THAT(problems_and_notes({"--mock-data", "--eval-iters", "10", "--skip-train"}).second, IsEmpty());
  EXPECT_THAT(problems_and_notes({"--mock-data", "--eval-iters", "10", "--eval-interval", "50",
                                  "--log-validation-ppl-to-tensorboard"})
                  .second,
              IsEmpty());
  const std::string note = "--eval-iters has no effect with --full-validation and no test data; got 10";
  const std::vector<std::string> full{"--data-path",  "a", "--full-validation", "--eval-interval", "50",
                                      "--eval-iters", "10"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), full.begin(), full.end());
    return problems_and_notes(more).second;
  };
  EXPECT_THAT(with({}), IsEmpty()) << "the default split has 1/1000 test data";
  EXPECT_THAT(with({"--split", "99,1,0"}), ElementsAre(note));
  EXPECT_THAT(with({"--split", "99,1"}), ElementsAre(note));
  EXPECT_THAT(
      problems_and_notes({"--mock-data", "--full-validation", "--eval-interval", "50", "--eval-iters", "0"})
          .second,
      IsEmpty());
}

TEST(NoEffectNotes, NoNoteForSettingsWithEffect) {
  EXPECT_THAT(
      problems_and_notes({"--data-path", "a", "--split", "99,1,0", "--data-cache-path", "c", "--min-lr",
                          "1e-5", "--lr-decay-iters", "90", "--fp16", "--initial-loss-scale", "65536"})
          .second,
      IsEmpty());
  EXPECT_THAT(problems_and_notes({"--mock-data", "--split", "969, 30, 1", "--lr-decay-style", "constant",
                                  "--lr-warmup-fraction", "0.1", "--lr-decay-iters", "90"})
                  .second,
              IsEmpty())
      << "a default value, and the length of the warm-up fraction";
  EXPECT_THAT(problems_and_notes({"--mock-data", "--lr-decay-style", "constant", "--min-lr", "much"}).second,
              IsEmpty());
  EXPECT_THAT(
      problems_and_notes({"--mock-data", "--load", "run", "--override-opt-param-scheduler", "--weight-decay",
                          "0.7", "--pipeline-model-parallel-size", "2",
                          "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split",
                          "--tokenizer-type", "SentencePieceTokenizer", "--tokenizer-model", "books.model"})
          .second,
      IsEmpty());
}

}  // namespace
}  // namespace colonnade::rules
