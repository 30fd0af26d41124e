// Every rule fires on its example, and the edits it proposes mend it.
#include "colonnade/plan/rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"

namespace colonnade::plan {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A run that breaks no rule: 2 x 2 x 2 ranks.
config::Run good() {
  config::Run r;
  r.model.num_layers = 8;
  r.model.hidden_size = 64;
  r.model.num_attention_heads = 8;
  r.model.vocab_size = 100;
  r.model.max_position_embeddings = 32;
  r.training.seq_length = 32;
  r.training.micro_batch_size = 2;
  r.training.global_batch_size = 16;
  r.training.train_iters = 100;
  r.schedule.lr = 1e-3;
  r.data.mock_data = true;
  r.parallel.world_size = 8;
  r.parallel.tensor_model_parallel_size = 2;
  r.parallel.pipeline_model_parallel_size = 2;
  return r;
}

std::vector<Problem> problems_of(config::Run r) {
  config::derive(r);
  return check(r);
}

std::vector<std::string> ids_of(const config::Run& r) {
  std::vector<std::string> ids;
  for (const Problem& problem : problems_of(r)) ids.push_back(problem.id);
  return ids;
}

void apply(config::Run& r, const Edit& edit) {
  if (edit.key == "world_size") {
    r.parallel.world_size = std::stoi(edit.value);
  } else {
    config::set(r, edit.key, edit.value);
  }
}

using Breaker = std::function<void(config::Run&)>;

using Examples = std::multimap<std::string, Breaker>;

/// What breaks each rule, one way or several: sizes and splits.
Examples examples_of_shapes() {
  return {
      {"range", [](config::Run& r) { r.model.hidden_dropout = 1.5; }},
      {"range", [](config::Run& r) { r.data.num_workers = -1; }},
      {"range", [](config::Run& r) { r.parallel.pipeline_schedule = "zigzag"; }},
      {"num-layers", [](config::Run& r) { r.model.num_layers = 0; }},
      {"hidden-size", [](config::Run& r) { r.model.hidden_size = 0; }},
      {"heads", [](config::Run& r) { r.model.num_attention_heads = 0; }},
      {"seq-length",
       [](config::Run& r) { r.training.seq_length = 0, r.model.max_position_embeddings = 4096; }},
      {"micro-batch", [](config::Run& r) { r.training.micro_batch_size = 0; }},
      {"heads-hidden", [](config::Run& r) { r.model.hidden_size = 66; }},
      {"heads-tensor",
       [](config::Run& r) {
         r.model.num_attention_heads = 4, r.parallel.tensor_model_parallel_size = 8,
         r.parallel.world_size = 16;
       }},
      {"groups-heads", [](config::Run& r) { r.model.num_query_groups = 3; }},
      {"groups-tensor",
       [](config::Run& r) {
         r.model.num_attention_heads = 24, r.model.hidden_size = 96, r.model.num_query_groups = 6,
         r.parallel.tensor_model_parallel_size = 4;
       }},
      {"ffn-tensor", [](config::Run& r) { r.model.ffn_hidden_size = 101; }},
      {"world", [](config::Run& r) { r.parallel.world_size = 7; }},
      {"world", [](config::Run& r) { r.parallel.world_size = 1; }},
      {"context-one", [](config::Run& r) { r.parallel.context_parallel_size = 2; }},
      {"expert-one", [](config::Run& r) { r.parallel.expert_model_parallel_size = 2; }},
      {"expert-tensor-one", [](config::Run& r) { r.parallel.expert_tensor_parallel_size = 4; }},
      {"batch", [](config::Run& r) { r.training.global_batch_size = 15; }},
      {"batch", [](config::Run& r) { r.training.global_batch_size = 2; }},
      {"max-positions", [](config::Run& r) { r.training.seq_length = 64; }},
      {"sequence-tensor",
       [](config::Run& r) { r.parallel.sequence_parallel = true, r.training.seq_length = 31; }},
      {"rotary-dims",
       [](config::Run& r) {
         config::set(r, "position_embedding_type", "rope"), r.model.rotary_percent = 0.4;
       }},
      {"rotary-dims",
       [](config::Run& r) { config::set(r, "position_embedding_type", "rope"), r.model.rotary_percent = 0; }},
      {"rope-scaling", [](config::Run& r) { r.model.use_rope_scaling = true; }},
      {"rope-factors",
       [](config::Run& r) {
         config::set(r, "position_embedding_type", "rope"), r.model.use_rope_scaling = true,
                                                            r.model.rope_high_freq_factor = 1;
       }},
      {"hidden-dropout", [](config::Run& r) { r.model.hidden_dropout = 1; }},
      {"attention-dropout", [](config::Run& r) { r.model.attention_dropout = 1; }},
      {"pipeline-split", [](config::Run& r) { r.model.num_layers = 7; }},
      {"pipeline-split", [](config::Run& r) { r.model.num_layers = 1; }},
      {"pipeline-split", [](config::Run& r) { r.parallel.pipeline_model_parallel_layout = "Ett|tL"; }},
      {"pipeline-split", [](config::Run& r) { r.parallel.pipeline_model_parallel_layout = "Et*8L|"; }},
      {"pipeline-split", [](config::Run& r) { r.parallel.num_virtual_stages_per_pipeline_rank = 3; }},
      {"pipeline-split", [](config::Run& r) { r.parallel.num_layers_per_virtual_pipeline_stage = 3; }},
      {"pipeline-split",
       [](config::Run& r) {
         r.parallel.pipeline_model_parallel_layout = "Et*4|t*4L",
         r.parallel.decoder_last_pipeline_num_layers = 4;
       }},
      {"pipeline-split",
       [](config::Run& r) {
         r.parallel.decoder_first_pipeline_num_layers = 3,
         r.parallel.account_for_loss_in_pipeline_split = true;
       }},
  };
}

/// Virtual stages, micro-batch groups, overlap.
Examples examples_of_the_pipeline() {
  return {
      {"virtual-stages",
       [](config::Run& r) {
         r.parallel.pipeline_model_parallel_size = 1, r.parallel.num_virtual_stages_per_pipeline_rank = 2;
       }},
      {"pipeline-schedule", [](config::Run& r) { r.parallel.pipeline_schedule = "interleaved"; }},
      {"pipeline-schedule",
       [](config::Run& r) {
         r.parallel.pipeline_schedule = "gpipe", r.parallel.num_virtual_stages_per_pipeline_rank = 2;
       }},
      {"microbatch-group",
       [](config::Run& r) {
         r.parallel.num_virtual_stages_per_pipeline_rank = 2, r.training.global_batch_size = 4;
       }},
      {"microbatch-group",
       [](config::Run& r) {
         r.parallel.num_virtual_stages_per_pipeline_rank = 2,
         r.parallel.microbatch_group_size_per_virtual_pipeline_stage = 1;
       }},
      {"microbatch-group",
       [](config::Run& r) {
         r.parallel.num_virtual_stages_per_pipeline_rank = 2,
         r.parallel.microbatch_group_size_per_virtual_pipeline_stage = 3;
       }},
      {"param-gather", [](config::Run& r) { r.parallel.overlap_param_gather = true; }},
      {"timeout", [](config::Run& r) { r.training.distributed_timeout_minutes = 0; }},
      {"backend", [](config::Run& r) { r.training.distributed_backend = "nccl"; }},
  };
}

/// Lengths, schedules, optimizer, data and checkpoints.
Examples examples_of_training() {
  return {
      {"train-length", [](config::Run& r) { r.training.train_iters.reset(); }},
      {"train-length-zero", [](config::Run& r) { r.training.train_iters = 0; }},
      {"train-length-zero",
       [](config::Run& r) { r.training.train_iters.reset(), r.training.train_samples = 0; }},
      {"train-length-one-step",
       [](config::Run& r) {
         r.training.train_iters.reset(), r.training.train_samples = r.training.global_batch_size - 1;
       }},
      {"train-length-once", [](config::Run& r) { r.training.train_samples = 10; }},
      {"units-of-samples",
       [](config::Run& r) {
         r.training.train_iters.reset(), r.training.train_samples = 1000, r.schedule.lr_warmup_iters = 3;
       }},
      {"units-of-steps", [](config::Run& r) { r.schedule.lr_decay_samples = 50; }},
      {"warmup-once",
       [](config::Run& r) { r.schedule.lr_warmup_iters = 5, r.schedule.lr_warmup_fraction = 0.1; }},
      {"warmup-decay", [](config::Run& r) { r.schedule.lr_warmup_iters = 100; }},
      {"warmup-decay", [](config::Run& r) { r.schedule.lr_warmup_fraction = 1; }},
      {"warmup-decay",
       [](config::Run& r) {
         r.training.train_iters.reset(), r.training.train_samples = 10, r.schedule.lr_warmup_samples = 10;
       }},
      {"lr", [](config::Run& r) { r.schedule.lr = 0; }},
      {"min-lr", [](config::Run& r) { r.schedule.min_lr = 1; }},
      {"warmup-init", [](config::Run& r) { r.schedule.lr_warmup_init = 1; }},
      {"wsd-length", [](config::Run& r) { config::set(r, "lr_decay_style", "WSD"); }},
      {"wsd-length",
       [](config::Run& r) { config::set(r, "lr_decay_style", "WSD"), r.schedule.lr_wsd_decay_iters = 101; }},
      {"wsd-style", [](config::Run& r) { r.schedule.lr_wsd_decay_iters = 10; }},
      {"weight-decay-ramp",
       [](config::Run& r) {
         config::set(r, "weight_decay_incr_style", "linear"), r.schedule.start_weight_decay = 0.1;
       }},
      {"weight-decay-constant", [](config::Run& r) { r.schedule.end_weight_decay = 0.1; }},
      {"whose-schedule",
       [](config::Run& r) {
         r.schedule.override_opt_param_scheduler = r.schedule.use_checkpoint_opt_param_scheduler = true;
       }},
      {"adam-betas", [](config::Run& r) { r.optimizer.adam_beta2 = 1; }},
      {"loss-scale", [](config::Run& r) { r.optimizer.loss_scale = 0; }},
      {"loss-scale",
       [](config::Run& r) { r.optimizer.initial_loss_scale = 8, r.optimizer.min_loss_scale = 16; }},
      {"data-once", [](config::Run& r) { r.data.mock_data = false; }},
      {"data-once", [](config::Run& r) { r.data.data_path = {"a"}; }},
      {"data-once",
       [](config::Run& r) {
         r.data.mock_data = false, r.data.data_path = {"a"}, r.data.train_data_path = {"b"};
       }},
      {"train-data", [](config::Run& r) { r.data.mock_data = false, r.data.valid_data_path = {"b"}; }},
      {"data-paths",
       [](config::Run& r) {
         r.data.mock_data = false, r.data.data_path = {"0.3", "a", "b"};
       }},
      {"data-paths",
       [](config::Run& r) {
         r.data.mock_data = false, r.data.train_data_path = {"1", "a", "-1", "b"};
       }},
      {"split", [](config::Run& r) { r.data.split = "1,2,x"; }},
      {"vocabulary", [](config::Run& r) { r.model.vocab_size = 0; }},
      {"vocabulary", [](config::Run& r) { r.model.vocab_size = 0, r.data.tokenizer_type = "NullTokenizer"; }},
      {"tokenizer-file", [](config::Run& r) { r.data.tokenizer_type = "SentencePieceTokenizer"; }},
      {"save-interval", [](config::Run& r) { r.checkpoint.save = "out"; }},
      {"retain-interval",
       [](config::Run& r) { r.checkpoint.save_interval = 10, r.checkpoint.save_retain_interval = 15; }},
      {"retain-interval", [](config::Run& r) { r.checkpoint.save_retain_interval = 15; }},
      {"load-given", [](config::Run& r) { r.checkpoint.ckpt_step = 3; }},
  };
}

/// `key` is given and set, but what it needs is not there.
Breaker gives(const std::string& key, const std::string& value) {
  return [key, value](config::Run& r) {
    config::set(r, key, value);
    r.given[key] = "run.yaml:1";
  };
}

/// Settings that would do nothing.
Examples examples_of_idle_settings() {
  return {
      {"idle-rope-scaling", gives("rope_scaling_factor", "4")},
      {"idle-rope-scaling", gives("rope_original_max_position_embeddings", "4096")},
      {"idle-rotary", gives("rotary_base", "500000")},
      {"idle-rotary", gives("rotary_interleaved", "true")},
      {"idle-qk-decay", gives("apply_wd_to_qk_layernorm", "true")},
      {"idle-adam",
       [](config::Run& r) { config::set(r, "optimizer", "sgd"), gives("adam_beta2", "0.95")(r); }},
      {"idle-sgd", gives("sgd_momentum", "0.5")},
      {"idle-warmup-init", gives("lr_warmup_init", "1e-5")},
      {"idle-microbatch-group", gives("microbatch_group_size_per_virtual_pipeline_stage", "2")},
      {"idle-load-optim", gives("no_load_optim", "true")},
      {"idle-tokenizer-model", gives("tokenizer_model", "books.model")},
      {"idle-wsd-style", gives("lr_wsd_decay_style", "cosine")},
  };
}

const Examples& examples() {
  static const Examples table = [] {
    Examples all = examples_of_shapes();
    all.merge(examples_of_the_pipeline());
    all.merge(examples_of_training());
    all.merge(examples_of_idle_settings());
    return all;
  }();
  return table;
}

TEST(Rules, AGoodRunBreaksNone) { EXPECT_EQ(report(problems_of(good())), ""); }

TEST(Rules, EveryRuleHasAnExample) {
  for (const std::string& id : rule_ids()) EXPECT_TRUE(examples().contains(id)) << id;
}

TEST(Rules, EveryExampleFiresAndItsEditsMendIt) {
  for (const auto& [id, breaks] : examples()) {
    config::Run run = good();
    breaks(run);
    EXPECT_THAT(ids_of(run), Contains(id));
    for (int round = 0; round < 3; ++round) {
      for (const Problem& problem : problems_of(run)) {
        if (problem.id != id) continue;
        EXPECT_FALSE(problem.edits.empty()) << id;
        for (const Edit& edit : problem.edits) apply(run, edit);
        EXPECT_THAT(ids_of(run), ::testing::Not(Contains(id))) << problem.text;
        break;
      }
    }
  }
}

TEST(Rules, MendingAllProblemsEndsInAGoodRun) {
  for (const auto& [id, breaks] : examples()) {
    config::Run run = good();
    breaks(run);
    for (int round = 0; round < 4; ++round) {
      for (const Problem& problem : problems_of(run)) {
        for (const Edit& edit : problem.edits) apply(run, edit);
      }
    }
    EXPECT_EQ(report(problems_of(run)), "") << id;
  }
}

TEST(Rules, EveryTextNamesTheThingTheValuesAndTheWayOut) {
  for (const auto& [id, breaks] : examples()) {
    config::Run run = good();
    breaks(run);
    for (const Problem& problem : problems_of(run)) {
      EXPECT_THAT(problem.text, AllOf(HasSubstr(": "), HasSubstr("; got "))) << problem.id;
      EXPECT_GT(problem.text.size(), problem.text.rfind("; ") + 6) << problem.text;
    }
  }
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
            {"--num-layer: must be a known setting; got --num-layer; did you mean --num-layers?"});
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("--num-layer: must be"),
                                HasSubstr("heads-tensor: --tensor-model-parallel-size: must divide "
                                          "--num-attention-heads; got 2 and 7 "
                                          "heads; set --tensor-model-parallel-size 1"),
                                HasSubstr("start 8 ranks")));
  }
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
  EXPECT_THAT(missing, HasSubstr("--save-interval"));
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

TEST(RulesOfIdleSettings, WhatACommandLineSwitchedOffInAFileIsNotHeldAgainstTheFile) {
  config::Run r = good();
  config::set(r, "optimizer", "sgd");
  config::set(r, "adam_beta2", "0.95");
  r.given = {{"adam_beta2", "run/config.yaml:3"}, {"optimizer", "the command line"}};
  EXPECT_EQ(report(problems_of(r)), "");
  r.given["adam_beta2"] = "the command line";
  EXPECT_THAT(ids_of(r), Contains("idle-adam"));
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
}  // namespace colonnade::plan
