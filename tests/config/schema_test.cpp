// The settings table: every Megatron flag has a class, names are unambiguous, defaults are Megatron's, and
// the list of flags is frozen.
#include "colonnade/config/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "support/vectors.h"

namespace colonnade::config {
namespace {

using ::testing::IsEmpty;

const std::string kHere = test::sources() + "/tests/config/";

struct MegatronFlag {
  std::vector<std::string> names;
  std::string type, value, dest;
};

/// Flag, type, default and destination of every training flag of Megatron-LM d98e8a64.
std::vector<MegatronFlag> megatron_flags() {
  std::istringstream file(read_file(kHere + "megatron_flags.tsv"));
  std::string line;
  std::getline(file, line);
  std::vector<MegatronFlag> flags;
  while (std::getline(file, line)) {
    std::vector<std::string> cells(1);
    for (const char c : line) {
      if (c == '\t')
        cells.emplace_back();
      else
        cells.back() += c;
    }
    cells.resize(4);
    MegatronFlag flag{{}, cells[1], cells[2], cells[3]};
    std::istringstream names(cells[0]);
    for (std::string name; names >> name;) flag.names.push_back(name);
    flags.push_back(flag);
  }
  return flags;
}

TEST(Schema, EveryMegatronFlagHasAClass) {
  const auto flags = megatron_flags();
  ASSERT_EQ(flags.size(), 840U);
  for (const auto& flag : flags) {
    for (const auto& name : flag.names) EXPECT_TRUE(find(name)) << name;
    if (!flag.dest.empty() && flag.dest.find("deprecated") == std::string::npos &&
        !flag.dest.starts_with("disable")) {
      ASSERT_TRUE(find(flag.dest)) << flag.dest;
    }
  }
}

TEST(Schema, SwitchesTurnOnAndOffAsInMegatron) {
  for (const auto& flag : megatron_flags()) {
    const auto match = find(flag.names[0]);
    ASSERT_TRUE(match);
    if (flag.type == "store_true" && match->off) {
      EXPECT_NE(flag.names[0].find("-no-", 2), std::string::npos) << flag.names[0];
    }
    if (flag.type == "store_false" && match->setting->shorthand_key.empty()) {
      EXPECT_TRUE(match->off) << flag.names[0];
    }
    const bool is_switch = flag.type.starts_with("store_") || flag.type.ends_with("nargs=0");
    EXPECT_EQ(match->setting->kind == Kind::kSwitch, is_switch) << flag.names[0];
  }
}

/// Defaults that Megatron derives from None, or that differ from Megatron as documented.
const std::map<std::string, std::string> kOtherDefaults = {
    {"log_interval", "1"},
    {"num_query_groups", "0"},
    {"split", "969, 30, 1"},
    {"window_size", "0,0"},
    {"dataloader_type", "single"},
    {"rotary_seq_len_interpolation_factor", "1"},
    {"moe_aux_loss_coeff", "0"},  // a list
    {"cp_comm_type", "p2p"},      // a list
    {"profile_ranks", ""},        // an empty list
    {"distributed_backend", "unset"},
    {"yarn_original_max_position_embeddings", "4096"},  // as in its YarnRotaryEmbedding
    {"yarn_beta_fast", "32"},
    {"yarn_beta_slow", "1"},
    {"yarn_correction_range_round_to_int", "true"},
    {"recompute_modules", "core_attn"},
    {"iterations_to_skip", ""},
    {"bert_binary_head", "false"},  // of gpt; `bert` turns it on
    {"sft_tokenizer_prompt_format", ""},
    {"ckpt_format", "native"},
};

TEST(Schema, DefaultsAreMegatrons) {
  int compared = 0;
  for (const auto& flag : megatron_flags()) {
    const auto match = find(flag.names[0]);
    const Setting& s = *match->setting;
    if (s.cls != Class::kImplemented || s.get == nullptr) continue;
    const std::string ours = s.default_text();
    const auto other = kOtherDefaults.find(s.key);
    if (other != kOtherDefaults.end()) {
      EXPECT_EQ(ours, other->second) << s.key;
    } else if (flag.type == "store_true") {
      EXPECT_EQ(ours, match->off ? "true" : "false") << s.key;
    } else if (flag.type == "store_false") {
      EXPECT_EQ(ours, "true") << s.key;
    } else if (flag.value == "None") {
      EXPECT_THAT(ours, ::testing::AnyOf("unset", "0", "")) << s.key;
    } else if (s.kind == Kind::kInteger || s.kind == Kind::kNumber) {
      EXPECT_EQ(std::strtod(ours.c_str(), nullptr), std::strtod(flag.value.c_str(), nullptr)) << s.key;
    } else {
      EXPECT_EQ(ours, flag.value) << s.key;
    }
    ++compared;
  }
  EXPECT_GT(compared, 110);
}

TEST(Schema, EveryKeyAndFlagIsUnique) {
  std::set<std::string> keys, flags;
  for (const Setting& s : schema()) {
    EXPECT_TRUE(keys.insert(s.key).second) << s.key;
    EXPECT_TRUE(flags.insert(s.flag).second) << s.flag;
    EXPECT_EQ(find(s.flag)->setting, &s) << s.flag;
    EXPECT_EQ(find(s.key)->setting, &s) << s.key;
    for (const auto& alias : s.aliases) EXPECT_EQ(find(alias)->setting, &s) << alias;
    EXPECT_FALSE(s.cls != Class::kImplemented && s.help.empty()) << s.flag;
    EXPECT_FALSE(s.cls == Class::kUnsupported && s.fix.empty()) << s.flag;
  }
}

TEST(Schema, ImplementedSettingsHaveAFieldUnlessParseTranslatesThem) {
  std::vector<std::string> without;
  for (const Setting& s : schema()) {
    if (s.cls == Class::kImplemented && s.set == nullptr && s.shorthand_key.empty()) without.push_back(s.key);
  }
  EXPECT_THAT(without, ::testing::UnorderedElementsAre("config", "yaml_cfg", "group_query_attention",
                                                       "add_position_embedding", "bias_gelu_fusion",
                                                       "moe_layer_recompute"));
}

TEST(Schema, OldSpellingsFindTheCurrentSetting) {
  EXPECT_EQ(find("--enable-straggler-detection")->setting->flag, "--log-straggler");
  EXPECT_EQ(find("cpu_offload_optimizer")->setting->flag, "--optimizer-cpu-offload");
  EXPECT_EQ(find("dp_comm_overlap_bucket_size")->setting->flag, "--ddp-bucket-size");
  EXPECT_EQ(find("virtual_pipeline_model_parallel_size")->setting->flag,
            "--num-virtual-stages-per-pipeline-rank");
  EXPECT_EQ(find("--micro_batch_size")->setting->flag, "--micro-batch-size");
  EXPECT_EQ(find("layernorm_epsilon")->setting->flag, "--norm-epsilon");
  EXPECT_TRUE(find("--disable-bias-linear")->off);
  EXPECT_TRUE(find("--no-add-bias-linear")->off);
  EXPECT_TRUE(find("--no-sequence-parallel")->off);
}

TEST(Schema, ListOfFlagsIsFrozen) {
  std::string list;
  for (const Setting& s : schema()) {
    const char* cls = s.cls == Class::kImplemented ? "implemented"
                      : s.cls == Class::kNoOp      ? "always"
                                                   : "refused";
    list += s.flag + " " + cls + "\n";
  }
  const std::string golden = kHere + "flags.golden.txt";
  if (std::getenv("COLONNADE_GOLDEN") != nullptr) write_file_atomically(golden, list);
  EXPECT_EQ(list, read_file(golden)) << "to accept: COLONNADE_GOLDEN=1 config_test";
}

}  // namespace
}  // namespace colonnade::config
