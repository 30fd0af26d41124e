// Settings read by evaluate, generate and data inspect: groups, exceptions, completeness.
#include "colonnade/config/use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace colonnade::config {
namespace {

using Keys = std::set<std::string>;

/// Implemented settings of `groups` that `use` reads (`read`) or does not read.
Keys keys_of(Use use, const Keys& groups, bool read) {
  Keys keys;
  for (const Setting& s : schema())
    if (s.cls == Class::kImplemented && groups.contains(s.group) && reads(use, s) == read) keys.insert(s.key);
  return keys;
}

constexpr Use kOthers[] = {Use::kEvaluateData, Use::kEvaluateTokens, Use::kGenerate, Use::kInspect};

TEST(Use, EveryGroupHasARowAndTrainingReadsAllSettings) {
  for (const Setting& s : schema()) {
    EXPECT_TRUE(reads(Use::kTrain, s)) << s.flag;
    for (const Use use : kOthers) EXPECT_NO_THROW(reads(use, s)) << s.flag;
  }
}

TEST(Use, GenerateReadsModelLayoutWeightsAndSeed) {
  const Keys training = {"training",   "validation", "optimizer",        "learning rate and weight decay",
                         "data",       "logging",    "data parallelism", "initial values and precision",
                         "checkpoints"};
  EXPECT_EQ(keys_of(Use::kGenerate, training, true),
            (Keys{"device", "distributed_backend", "distributed_timeout_minutes", "seed", "params_dtype",
                  "bf16", "fp16", "fp32_residual_connection", "load", "pretrained_checkpoint", "ckpt_step",
                  "exit_on_missing_checkpoint", "use_checkpoint_args",
                  "use_tokenizer_model_from_checkpoint_args", "logging_level"}));
  const Keys model = {"run",      "network size", "positions", "layers", "parallel sizes",
                      "pipeline", "tokenizer"};
  EXPECT_EQ(
      keys_of(Use::kGenerate, model, false),
      (Keys{"hidden_dropout", "attention_dropout", "sequence_parallel", "cp_comm_type",
            "hierarchical_context_parallel_sizes", "hybrid_context_parallel", "max_seqlen_per_dp_cp_rank",
            "overlap_moe_expert_parallel_comm", "pipeline_schedule", "delay_wgrad_compute",
            "microbatch_group_size_per_virtual_pipeline_stage", "chat_template"}));
}

TEST(Use, EvaluateAlsoReadsData) {
  EXPECT_EQ(keys_of(Use::kEvaluateData, {"data"}, false), (Keys{"dataloader_type", "num_workers"}));
  EXPECT_EQ(keys_of(Use::kEvaluateData, {"training", "validation"}, true),
            (Keys{"device", "micro_batch_size", "global_batch_size", "seq_length", "decoder_seq_length",
                  "eval_iters"}));
  EXPECT_EQ(keys_of(Use::kEvaluateTokens, {"data", "training", "validation"}, true),
            (Keys{"device", "micro_batch_size"}));
  for (const Setting& s : schema())
    EXPECT_TRUE(reads(Use::kEvaluateData, s) || !reads(Use::kEvaluateTokens, s)) << s.flag;
}

TEST(Use, InspectReadsSettingsThatDetermineSamples) {
  Keys groups;
  for (const Setting& s : schema()) groups.insert(s.group);
  for (const char* group : {"fill-in-the-middle", "tokenizer", "run"}) {
    EXPECT_THAT(keys_of(Use::kInspect, {group}, false), testing::IsEmpty());
    groups.erase(group);
  }
  EXPECT_EQ(keys_of(Use::kInspect, {"data"}, false),
            (Keys{"num_workers", "eod_mask_loss", "allow_ambiguous_pad_tokens"}));
  groups.erase("data");
  EXPECT_EQ(keys_of(Use::kInspect, groups, true), (Keys{"bert_binary_head",
                                                        "seed",
                                                        "global_batch_size",
                                                        "step_batch_size_schedule",
                                                        "rampup_batch_size",
                                                        "seq_length",
                                                        "decoder_seq_length",
                                                        "train_iters",
                                                        "train_samples",
                                                        "eval_iters",
                                                        "eval_interval",
                                                        "start_eval_at_iter",
                                                        "eval_global_batch_size",
                                                        "skip_train",
                                                        "full_validation",
                                                        "multiple_validation_sets",
                                                        "load",
                                                        "pretrained_checkpoint",
                                                        "ckpt_step",
                                                        "finetune",
                                                        "exit_on_missing_checkpoint",
                                                        "use_checkpoint_args",
                                                        "use_tokenizer_model_from_checkpoint_args"}));
}

TEST(Use, AcceptsUnimplementedFlags) {
  for (const Setting& s : schema()) {
    EXPECT_TRUE(s.cls == Class::kImplemented || reads(Use::kGenerate, s)) << s.flag;
  }
}

}  // namespace
}  // namespace colonnade::config
