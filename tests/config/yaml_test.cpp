// YAML settings files: keys, lists, merges, precedence, malformed files; and the dump.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/dump.h"
#include "colonnade/config/parse.h"
#include "config/yaml_folder.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Yaml : public YamlFolder {
 protected:
  Parsed read(const std::string& text, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments{"--config", write("run.yaml", text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Parsed parsed = parse_all(arguments);
    for (std::string& fault : parsed.faults) {
      for (std::size_t at; (at = fault.find(folder_.string() + "/")) != std::string::npos;) {
        fault.erase(at, folder_.string().size() + 1);
      }
    }
    return parsed;
  }
};

TEST_F(Yaml, AcceptsMegatronKeysFlagSpellingsAndLists) {
  const Parsed p = read(R"(
model: gpt
num_layers: 4
hidden-size: 64
layernorm_epsilon: 1.0e-6
disable_bias_linear: true
data_path: [0.3, a b, 0.7, "c"]
split: [99, 1, 0]
window_size: [128, 0]
bf16: yes
swiglu: True
train_iters: null
tokenizer_model: ~
)");
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_EQ(p.run.model.num_layers, 4);
  EXPECT_EQ(p.run.model.hidden_size, 64);
  EXPECT_EQ(p.run.model.norm_epsilon, 1e-6);
  EXPECT_FALSE(p.run.model.add_bias_linear);
  EXPECT_EQ(p.run.model.params_dtype, Dtype::kBfloat16);
  EXPECT_EQ(p.run.model.activation, Activation::kSwiglu);
  EXPECT_EQ(p.run.model.window_size, 128);
  EXPECT_EQ(p.run.data.split, "99,1,0");
  EXPECT_THAT(p.run.data.data_path, ElementsAre("0.3", "a b", "0.7", "c"));
  EXPECT_FALSE(p.run.training.train_iters.has_value());
  EXPECT_FALSE(p.run.given.contains("train_iters"));
  EXPECT_THAT(p.run.given.at("num_layers"), HasSubstr("run.yaml:3"));
}

TEST_F(Yaml, ListsOfTextSettingsBecomeText) {
  const Parsed p = read(R"(
moe_layer_freq: [0, 1, 1, 1]
pipeline_model_parallel_layout: [["embedding", "decoder"], [decoder, "loss"], []]
)");
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_EQ(p.run.model.moe.layer_freq, "0,1,1,1");
  EXPECT_EQ(p.run.parallel.pipeline_model_parallel_layout, "[[embedding,decoder],[decoder,loss],[]]");
  EXPECT_THAT(read("pipeline_model_parallel_layout: [[a: 1]]\n").faults,
              ElementsAre(HasSubstr("got a list of lists or maps")));
  EXPECT_THAT(read("num_layers: [[1]]\n").faults, ElementsAre(HasSubstr("got a list of lists or maps")));
}

TEST_F(Yaml, OwnKeysOverrideMergedMaps) {
  const Parsed p = read(R"(
x-base: &base
  num_layers: 4
  hidden_size: 64
  lr: 0.1
x-wide: &wide {<<: *base, hidden_size: 128}
<<: [*wide, *base]
lr: 0.2
)");
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_EQ(p.run.model.num_layers, 4);
  EXPECT_EQ(p.run.model.hidden_size, 128);
  EXPECT_EQ(p.run.schedule.lr, 0.2);
}

TEST_F(Yaml, CommandLineThenLaterFilesTakePrecedence) {
  const std::string base =
      write("base.yaml", "num_layers: 2\nhidden_size: 32\nseed: 1\nactivation: swiglu\nbf16: true\n");
  const Parsed p = read("hidden_size: 64\nseed: 2\n", {"--seed", "3", "--squared-relu"});
  EXPECT_THAT(p.faults, IsEmpty());
  const Parsed q = parse_all(
      {"--seed", "3", "--config", base, "--config", folder_ / "run.yaml", "--squared-relu", "--no-bf16"});
  EXPECT_THAT(q.faults, IsEmpty());
  EXPECT_EQ(q.run.model.num_layers, 2);
  EXPECT_EQ(q.run.model.hidden_size, 64);
  EXPECT_EQ(q.run.training.seed, 3);
  EXPECT_EQ(q.run.model.activation, Activation::kSquaredRelu)
      << "a shorthand on the command line overrides YAML";
  EXPECT_EQ(q.run.model.params_dtype, Dtype::kFloat32);
}

TEST_F(Yaml, MalformedFilesGiveOneMessageWithTheLine) {
  EXPECT_THAT(read("num_layers: [1, 2\nlr: 3\n").faults,
              ElementsAre(AllOf(HasSubstr("run.yaml:"), HasSubstr("must be YAML"))));
  EXPECT_THAT(
      read("- a\n- b\n").faults,
      ElementsAre("run.yaml must hold `key: value` lines; got a list; see `colonnade help --markdown`"));
  EXPECT_THAT(
      read("num_layer: 3\n").faults,
      ElementsAre(
          "run.yaml:1: num_layer must be a known setting; got num_layer; did you mean --num-layers?"));
  EXPECT_THAT(read("a: 1\nlanguage_model:\n  num_layers: 3\n").faults.size(), 2U);
  EXPECT_THAT(read("num_layers:\n  x: 3\n").faults,
              ElementsAre("run.yaml:1: num_layers must be one value; got a map; settings are flat"));
  EXPECT_THAT(read("seed: 1\nseed: 2\n").faults,
              ElementsAre("run.yaml:2: seed must be given once; got it twice; remove one"));
  EXPECT_THAT(
      read("num_layers: four\n").faults,
      ElementsAre(
          "run.yaml:1: num_layers must be an integer; got \"four\"; see `colonnade help --num-layers`"));
  EXPECT_THAT(read("bf16: maybe\n").faults,
              ElementsAre("run.yaml:1: bf16 must be true or false; got \"maybe\"; write one of them"));
  EXPECT_THAT(read("config: other.yaml\n").faults, ElementsAre(HasSubstr("a YAML file cannot name another")));
  EXPECT_THAT(read("<<: 3\n").faults, ElementsAre(HasSubstr("must name a map")));
  EXPECT_THAT(read("x-a: &a {<<: *a}\n<<: *a\n").faults.size(), 1U) << "a map that merges itself";
  std::string bomb = "x-0: &a0 {seed: 1}\n";
  for (int i = 1; i < 15; ++i) {
    const std::string below = fmt::format("*a{}", i - 1);
    bomb += fmt::format("x-{}: &a{} {{<<: [{}, {}, {}, {}]}}\n", i, i, below, below, below, below);
  }
  EXPECT_THAT(read(bomb + "<<: *a14\n").faults, ElementsAre(HasSubstr("merge at most 1000 maps")));
  EXPECT_THAT(read(std::string(100000, '[')).faults.size(), 1U) << "deep nesting";
  EXPECT_THAT(read("kitchen_recipe_number: 1\n").faults,
              ElementsAre(HasSubstr("no FP8, FP4 and Transformer Engine recipes")));
  EXPECT_THAT(read("").faults, IsEmpty());
}

TEST_F(Yaml, TwoSpellingsOfOneSettingAreAnError) {
  EXPECT_THAT(read("num_layers: 2\nnum-layers: 7\n").faults,
              ElementsAre("run.yaml:2: num-layers must be given once; got num_layers too; remove one"));
  EXPECT_THAT(read("swiglu: true\nno_swiglu: true\n").faults,
              ElementsAre(HasSubstr("run.yaml:2: no_swiglu must be given once; got swiglu too")));
  EXPECT_THAT(read("x-a: &a {norm_epsilon: 1, layernorm_epsilon: 2}\n<<: *a\n").faults,
              ElementsAre(HasSubstr("layernorm_epsilon must be given once; got norm_epsilon too")));
  EXPECT_THAT(read("num_layers: 2\nnum_layers: null\n").faults.size(), 1U);
  const Parsed unset = read("num_layers: null\ndecoder_num_layers: 2\n");
  EXPECT_THAT(unset.faults, IsEmpty()) << "null does not count as a value, in any order";
  EXPECT_EQ(unset.run.model.num_layers, 2);
  EXPECT_EQ(read("x-a: &a {lr: 0.5}\n<<: *a\nlr: null\n").run.schedule.lr, config::Run{}.schedule.lr)
      << "an own null overrides a merged value";
  const Parsed merged = read("x-a: &a {num-layers: 7, norm_epsilon: 1}\n<<: *a\nnum_layers: 2\n");
  EXPECT_THAT(merged.faults, IsEmpty()) << "another spelling in a merged map is overridden";
  EXPECT_EQ(merged.run.model.num_layers, 2);
}

TEST_F(Yaml, SecondDocumentIsAnErrorWithItsLine) {
  const Parsed two = read("seed: 1\n---\nseed: 2\n");
  EXPECT_THAT(two.faults, ElementsAre(AllOf(HasSubstr("run.yaml:3: "), HasSubstr("must hold one document"))));
  EXPECT_TRUE(two.is_incomplete);
  EXPECT_THAT(read("seed: 1\n---\nseed: [\n").faults, ElementsAre(HasSubstr("must be YAML")));
  const Parsed one = read("---\n---\nseed: 5\n...\n---\n# nothing\n");
  EXPECT_THAT(one.faults, IsEmpty());
  EXPECT_EQ(one.run.training.seed, 5) << "empty documents are ignored";
}

TEST_F(Yaml, UnreadableFilesAreMarked) {
  EXPECT_TRUE(read("num_layers: [1, 2\nlr: 3\n").is_incomplete);
  EXPECT_TRUE(read("- a\n- b\n").is_incomplete);
  EXPECT_TRUE(parse_all({"--config", "/nonexistent/run.yaml"}).is_incomplete);
  EXPECT_FALSE(read("num_layer: 3\n").is_incomplete);
}

TEST_F(Yaml, MissingFilesAndFoldersAreNamed) {
  EXPECT_THAT(parse_all({"--config", "/nonexistent/run.yaml"}).faults,
              ElementsAre(AllOf(HasSubstr("--config"), HasSubstr("/nonexistent/run.yaml"))));
  EXPECT_THAT(parse_all({"--config", folder_}).faults, ElementsAre(HasSubstr("got a folder")));
}

/// Sets a non-default value of a setting with a field.
void set_non_default(config::Run& run, const Setting& s) {
  if (s.key == "model") return;
  if (s.kind == Kind::kSwitch) return set(run, s.key, text_of(run, s) == "true" ? "false" : "true");
  if (s.key == "window_size") return set(run, s.key, "77,0");
  if (s.key == "moe_aux_loss_coeff") return set(run, s.key, "0.1 0.30000000000000004");
  if (s.key == "iterations_to_skip" || s.key == "profile_ranks") return set(run, s.key, "3 7");
  if (s.key == "cp_comm_type") return set(run, s.key, "a2a all_gather");
  if (s.key == "hierarchical_context_parallel_sizes") return set(run, s.key, "2 4");
  if (s.key == "moe_router_load_balancing_type") return set(run, s.key, "seq_aux_loss global_aux_loss");
  if (s.key == "recompute_modules") return set(run, s.key, "layernorm moe_act");
  if (s.kind == Kind::kChoice) return set(run, s.key, s.choices.back());
  if (s.kind == Kind::kInteger) return set(run, s.key, s.max && *s.max < 7 ? fmt::format("{}", *s.max) : "7");
  if (s.kind == Kind::kNumber) return set(run, s.key, s.max ? "0.30000000000000004" : "7.1");
  set(run, s.key, s.kind == Kind::kList ? "0.5 a\\b 0.5 \"c\"" : "a: 'b' \"c\" \\ # \t[x]");
}

TEST_F(Yaml, DumpRoundTripsEverySetting) {
  config::Run all;
  all.model.num_attention_heads = 28;
  for (const Setting& s : schema()) {
    if (s.get == nullptr || s.set == nullptr) continue;
    config::Run one;
    one.model.num_attention_heads = 28;
    set_non_default(one, s);
    EXPECT_EQ(read(dump(one)).run, one) << s.key;
    set_non_default(all, s);
  }
  all.model.num_attention_heads = 28;
  const Parsed back = read(dump(all));
  EXPECT_THAT(back.faults, IsEmpty());
  EXPECT_EQ(back.run, all);
  EXPECT_EQ(values(back.run), values(all));
}

TEST_F(Yaml, DumpOfADerivedRunRoundTrips) {
  config::Run run = parse({"--num-layers",
                           "4",
                           "--hidden-size",
                           "64",
                           "--num-attention-heads",
                           "8",
                           "--group-query-attention",
                           "--num-query-groups",
                           "2",
                           "--swiglu",
                           "--seq-length",
                           "32",
                           "--micro-batch-size",
                           "2",
                           "--bf16",
                           "--pipeline-model-parallel-size",
                           "2",
                           "--num-layers-per-virtual-pipeline-stage",
                           "1",
                           "--use-rotary-position-embeddings",
                           "--no-position-embedding"});
  run.parallel.world_size = 4;
  derive(run);
  Parsed back = read(dump(run));
  EXPECT_THAT(back.faults, IsEmpty());
  back.run.parallel.world_size = 4;
  EXPECT_EQ(back.run, run);
  derive(back.run);
  EXPECT_EQ(back.run, run);
}

}  // namespace
}  // namespace colonnade::config
