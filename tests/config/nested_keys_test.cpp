// --yaml-cfg: nested files against equivalent command lines, and every message.
#include "colonnade/config/nested_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "config/lines.h"
#include "config/yaml_folder.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class NestedYaml : public YamlFolder {
 protected:
  /// Parses a file; errors and notes are returned without the folder name.
  Parsed read(const std::string& text, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"--yaml-cfg", write("run.yaml", text)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Parsed parsed = parse_all(arguments);
    for (auto* lines : {&parsed.faults, &parsed.run.notes}) {
      for (std::string& line : *lines) {
        for (std::size_t at; (at = line.find(folder_.string() + "/")) != std::string::npos;)
          line.erase(at, folder_.string().size() + 1);
      }
    }
    return parsed;
  }
  Activation activation(const std::string& language_model) {
    const Parsed parsed = read("language_model: {" + language_model + "}\n");
    EXPECT_THAT(parsed.faults, IsEmpty()) << language_model;
    return parsed.run.model.activation;
  }
};

constexpr const char* kLlama = R"(
language_model:
  num_layers: 2
  hidden_size: 64
  ffn_hidden_size: 192
  num_attention_heads: 8
  num_query_groups: 2
  kv_channels: null
  hidden_dropout: 0.0
  attention_dropout: 0.0
  normalization: "RMSNorm"
  layernorm_epsilon: 1.e-6
  layernorm_zero_centered_gamma: False
  add_bias_linear: False
  add_qkv_bias: True
  activation_func: swiglu
  gated_linear_unit: False
  bias_activation_fusion: False
  bias_swiglu_fusion: True
  apply_rope_fusion: True
  persist_layer_norm: False
  fp32_residual_connection: False
  attention_softmax_in_fp32: False
  clone_scatter_output_in_embedding: True
  init_method: null
  init_method_std: 0.01
  num_moe_experts: null
  window_size: [16, 0]
  recompute_granularity: full
  recompute_method: uniform
  recompute_num_layers: 1
  distribute_saved_activations: null

model_parallel:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 2
  context_parallel_size: 1
  sequence_parallel: True
  num_layers_in_first_pipeline_stage: 1
  num_layers_in_last_pipeline_stage: 1
  fp16: False
  bf16: True
  params_dtype: null
  timers: null
  pipeline_dtype: null
  use_cpu_initialization: null
  gradient_accumulation_fusion: True
  async_tensor_model_parallel_allreduce: True
  overlap_p2p_comm: False
  batch_p2p_comm: True
  deallocate_pipeline_outputs: False
  variable_seq_lengths: False
  tp_comm_overlap: False

swiglu: True
squared_relu: False
openai_gelu: False
group_query_attention: False
untie_embeddings_and_output_weights: True
position_embedding_type: rope
add_position_embedding: False
rotary_percent: 0.5
max_position_embeddings: 128
bert_binary_head: True
seq_length: 128
encoder_seq_length: null
decoder_num_layers: null
micro_batch_size: 2
global_batch_size: 16
train_iters: 10
train_samples: null
lr: 2.5e-4
min_lr: 2.5e-5
lr_decay_style: cosine
lr_warmup_iters: 2
data_path: 0.3 a_document 0.7 b_document
split: '99,1,0'
tokenizer_type: NullTokenizer
vocab_size: 1000
use_distributed_optimizer: True
save: out
no_save_optim: null
)";

TEST_F(NestedYaml, LlamaFileEqualsItsCommandLine) {
  const Parsed p = read(kLlama);
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_EQ(p.run, run_of(R"(
    --num-layers 2 --hidden-size 64 --ffn-hidden-size 192 --num-attention-heads 8 --group-query-attention
    --num-query-groups 2 --hidden-dropout 0 --attention-dropout 0 --normalization RMSNorm --norm-epsilon 1e-6
    --disable-bias-linear --add-qkv-bias --swiglu --init-method-std 0.01 --window-size 16,0
    --recompute-granularity full --recompute-method uniform --recompute-num-layers 1
    --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel
    --decoder-first-pipeline-num-layers 1 --decoder-last-pipeline-num-layers 1 --bf16
    --untie-embeddings-and-output-weights --position-embedding-type rope --rotary-percent 0.5
    --max-position-embeddings 128 --seq-length 128 --micro-batch-size 2 --global-batch-size 16
    --train-iters 10 --lr 2.5e-4 --min-lr 2.5e-5 --lr-decay-style cosine --lr-warmup-iters 2
    --data-path 0.3 a_document 0.7 b_document --split 99,1,0 --tokenizer-type NullTokenizer --vocab-size 1000
    --use-distributed-optimizer --save out)"));
  EXPECT_THAT(p.run.given.at("decoder_first_pipeline_num_layers"), HasSubstr("run.yaml:39"));
}

TEST_F(NestedYaml, MoeFileEqualsItsCommandLine) {
  const Parsed p = read(R"(
model_parallel:
  tensor_model_parallel_size: 1
  expert_model_parallel_size: 2
  fp16: True
  bf16: False
language_model:
  num_layers: 2
  hidden_size: 32
  num_attention_heads: 4
  num_query_groups: None
  activation_func: gelu
  add_bias_linear: True
  num_moe_experts: 4
  moe_router_topk: 2
  moe_router_load_balancing_type: "aux_loss"
  moe_aux_loss_coeff: 1e-2
  moe_z_loss_coeff: 1e-3
  moe_input_jitter_eps: null
  moe_layer_freq: [0, 1]
  moe_token_dispatcher_type: alltoall
  moe_token_dropping: False
  moe_grouped_gemm: True
  recompute_granularity: null
seq_length: 16
max_position_embeddings: 16
micro_batch_size: 1
train_data_path: [a_document, b_document]
mock_data: yes
)");
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_EQ(p.run, run_of(R"(
    --num-layers 2 --hidden-size 32 --num-attention-heads 4 --no-bias-gelu-fusion --num-experts 4
    --moe-router-topk 2 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 1e-2
    --moe-z-loss-coeff 1e-3 --moe-layer-freq 0,1 --moe-token-dispatcher-type alltoall --moe-grouped-gemm
    --expert-model-parallel-size 2 --fp16 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1
    --train-data-path a_document b_document --mock-data)"));
}

TEST_F(NestedYaml, ActivationMatchesMegatronsReader) {
  EXPECT_EQ(activation("activation_func: swiglu"), Activation::kSwiglu);
  EXPECT_EQ(activation("activation_func: squaredrelu"), Activation::kSquaredRelu);
  EXPECT_EQ(activation("activation_func: gelu, bias_activation_fusion: True"), Activation::kGeluErf)
      << "the reader disables fusion with biases";
  EXPECT_EQ(activation("activation_func: gelu, gated_linear_unit: True, bias_activation_fusion: True"),
            Activation::kGeglu);
  EXPECT_EQ(activation("activation_func: gelu, gated_linear_unit: True, bias_activation_fusion: True, "
                       "add_bias_linear: False"),
            Activation::kGegluTanh)
      << "the fused kernel uses the tanh form";
  EXPECT_EQ(activation("activation_func: gelu, gated_linear_unit: True, add_bias_linear: False"),
            Activation::kGeglu);
  EXPECT_THAT(
      read("language_model:\n  activation_func: squaredrelu\n  gated_linear_unit: True\n").faults,
      ElementsAre("run.yaml:2: activation_func must be swiglu, squaredrelu without gated_linear_unit, or "
                  "gelu; got squaredrelu with gated_linear_unit; write one of them"));
  EXPECT_THAT(read("language_model: {activation_func: relu}\n").faults, ElementsAre(HasSubstr("got relu;")));
  EXPECT_THAT(read("language_model: {gated_linear_unit: True}\n").faults,
              ElementsAre(HasSubstr("gated_linear_unit requires activation_func")));
  EXPECT_THAT(read("language_model: {activation_func: swiglu}\nsquared_relu: True\n").faults,
              ElementsAre(HasSubstr("conflict on --activation")));
}

TEST_F(NestedYaml, QueryGroupsNeedNoFlagAsInMegatronsReader) {
  const std::string heads = "language_model: {num_attention_heads: 8, num_query_groups: ";
  EXPECT_EQ(read(heads + "2}\ngroup_query_attention: False\n").run.model.num_query_groups, 2);
  const Parsed typed = read(heads + "2}\n", {"--num-query-groups", "4"});
  EXPECT_THAT(typed.faults, IsEmpty());
  EXPECT_EQ(typed.run.model.num_query_groups, 4);
  EXPECT_THAT(read(heads + "null}\ngroup_query_attention: True\n").faults,
              ElementsAre(HasSubstr("run.yaml:2: group_query_attention requires num_query_groups")));
}

TEST_F(NestedYaml, CommandLineThenLaterFilesTakePrecedence) {
  const std::string text = "language_model: {num_layers: 2, activation_func: swiglu}\nseed: 1\nlr: 0.1\n";
  const std::string flat = write("flat.yaml", "seed: 5\nlr: 0.5\n");
  const Parsed after = read(text, {"--config", flat, "--lr", "0.3", "--squared-relu"});
  EXPECT_THAT(after.faults, IsEmpty());
  EXPECT_EQ(after.run.model.num_layers, 2);
  EXPECT_EQ(after.run.training.seed, 5);
  EXPECT_EQ(after.run.schedule.lr, 0.3);
  EXPECT_EQ(after.run.model.activation, Activation::kSquaredRelu);
  EXPECT_EQ(parse_all({"--config", flat, "--yaml-cfg", folder_ / "run.yaml"}).run.training.seed, 1);
}

TEST_F(NestedYaml, FieldsWithoutEffectAreNotedUnlessDefault) {
  const Parsed silent = read(R"(
language_model: {init_method: null, memory_efficient_layer_norm: False, softmax_scale: null, fp8_param: False}
model_parallel: {timers: null, batch_p2p_comm: True, enable_autocast: no, _cpu_offloading_context: null}
)");
  EXPECT_THAT(silent.faults, IsEmpty());
  EXPECT_THAT(silent.run.notes, IsEmpty());
  const Parsed noted = read("model_parallel:\n  batch_p2p_comm: False\n  pipeline_dtype: float32\n");
  EXPECT_THAT(noted.faults, IsEmpty());
  EXPECT_THAT(
      noted.run.notes,
      ElementsAre("run.yaml:2: batch_p2p_comm: has no effect; got false: grouping of pipeline messages "
                  "changes no result",
                  AllOf(HasSubstr("run.yaml:3: pipeline_dtype: has no effect; got float32"))));
  EXPECT_THAT(read("model_parallel:\n  enable_autocast: True\n").faults,
              ElementsAre("run.yaml:2: enable_autocast must be false; got true; remove it: --bf16 and --fp16 "
                          "set the precision"));
  EXPECT_THAT(read("language_model: {softmax_scale: 0.5}\n").faults,
              ElementsAre(HasSubstr("softmax_scale must be null; got 0.5")));
  EXPECT_THAT(read("model_parallel: {batch_p2p_comm: 3}\n").faults,
              ElementsAre("run.yaml:1: batch_p2p_comm must be true or false; got \"3\"; write one of them"));
  EXPECT_THAT(read("model_parallel: {pipeline_dtype: [[1]]}\n").faults,
              ElementsAre(HasSubstr("got a list of lists or maps")));
}

TEST_F(NestedYaml, InitMethodIsNullOrXavierUniform) {
  const std::vector<std::string> flag = faults_of("--init-method-xavier-uniform");
  EXPECT_THAT(read("language_model: {init_method: xavier_uniform}\n").faults, SizeIs(flag.size()));
  EXPECT_THAT(read("language_model: {init_method: kaiming}\n").faults,
              ElementsAre(HasSubstr("init_method must be null or xavier_uniform; got kaiming")));
  EXPECT_THAT(read("language_model: {embedding_init_method: xavier_uniform}\n").faults,
              ElementsAre(HasSubstr("embedding_init_method must be null; got xavier_uniform")));
}

TEST_F(NestedYaml, UnsupportedFieldsAreAcceptedAtMegatronsDefault) {
  EXPECT_THAT(read(R"(
language_model: {fp8: null, fp8_margin: 0, fp8_wgrad: True, offload_modules: [], use_mup: False}
onnx_safe: null
sample_rate: 1
adlr_autoresume: False
)")
                  .faults,
              IsEmpty());
  EXPECT_THAT(read("language_model:\n  fp8: hybrid\n").faults,
              ElementsAre(AllOf(HasSubstr("run.yaml:2: fp8: "), HasSubstr("got \"hybrid\""))));
}

TEST_F(NestedYaml, EnvironmentVariablesExpandInPlainScalars) {
  ::setenv("COLONNADE_TEST_ROOT", "/data", 1);
  ::setenv("COLONNADE_TEST_SIZE", "64", 1);
  ::unsetenv("COLONNADE_TEST_NONE");
  const Parsed p = read(R"(
language_model: {hidden_size: "${COLONNADE_TEST_SIZE}", num_layers: 2}
save: "${COLONNADE_TEST_ROOT}"
)");
  EXPECT_THAT(p.faults,
              ElementsAre(HasSubstr("hidden_size must be an integer; got \"${COLONNADE_TEST_SIZE}\"")))
      << "quoted text is not expanded";
  EXPECT_EQ(p.run.checkpoint.save, "${COLONNADE_TEST_ROOT}");
  const Parsed plain = read(R"(
language_model:
  hidden_size: ${COLONNADE_TEST_SIZE}
save: ${COLONNADE_TEST_ROOT}/runs/${COLONNADE_TEST_SIZE}/${
load: !pathex "${COLONNADE_TEST_ROOT}/a b"
train_data_path:
  - ${COLONNADE_TEST_ROOT}/books
)");
  EXPECT_THAT(plain.faults, IsEmpty());
  EXPECT_EQ(plain.run.model.hidden_size, 64);
  EXPECT_EQ(plain.run.checkpoint.save, "/data/runs/64/${");
  EXPECT_EQ(plain.run.checkpoint.load, "/data/a b");
  EXPECT_THAT(plain.run.data.train_data_path, ElementsAre("/data/books"));
  EXPECT_THAT(read("seed: 1\nsave: ${COLONNADE_TEST_NONE}/runs\nlr: 0.5\n").faults,
              ElementsAre("run.yaml:2: save: every ${NAME} must be set in the environment; got "
                          "${COLONNADE_TEST_NONE} unset; export COLONNADE_TEST_NONE"));
  EXPECT_THAT(read("language_model:\n  activation_func: ${COLONNADE_TEST_NONE}\n").faults,
              ElementsAre(HasSubstr("run.yaml:2: activation_func: every ${NAME} must be set")));
  const Parsed flat = parse_all({"--config", write("flat.yaml", "save: ${COLONNADE_TEST_ROOT}\n")});
  EXPECT_EQ(flat.run.checkpoint.save, "${COLONNADE_TEST_ROOT}") << "--config does not expand variables";
  ::unsetenv("COLONNADE_TEST_ROOT");
  ::unsetenv("COLONNADE_TEST_SIZE");
}

TEST_F(NestedYaml, UnknownKeysAreReportedWithLineAndSuggestion) {
  EXPECT_THAT(
      read("language_model:\n  num_layers: 2\n  activation_fun: gelu\n").faults,
      ElementsAre(
          "run.yaml:3: activation_fun must be a known setting; got activation_fun; did you mean activation_func?"));
  EXPECT_THAT(read("num_layer: null\n").faults,
              ElementsAre(HasSubstr("run.yaml:1: num_layer must be a known")));
  EXPECT_THAT(read("language_model:\n  num_layers: four\n").faults,
              ElementsAre("run.yaml:2: num_layers must be an integer; got \"four\"; see `colonnade help "
                          "--num-layers`"));
  EXPECT_THAT(read("model_parallel: {bf16: 16}\n").faults,
              ElementsAre("run.yaml:1: bf16 must be true or false; got \"16\"; write one of them"));
  EXPECT_THAT(read("config: a.yaml\n").faults,
              ElementsAre(AllOf(HasSubstr("cannot name another"), HasSubstr("--yaml-cfg twice"))));
}

TEST_F(NestedYaml, OnlyTheTwoTopLevelSectionsAreMaps) {
  EXPECT_THAT(
      read("language_model: gpt\n").faults,
      ElementsAre("run.yaml:1: language_model must be a section of `key: value` lines; got one value; "
                  "indent its keys below it"));
  EXPECT_THAT(read("model_parallel: [1]\n").faults, ElementsAre(HasSubstr("got a list;")));
  EXPECT_THAT(read("language_model:\nseed: 1\n").faults, IsEmpty()) << "a section without keys";
  EXPECT_THAT(read("training:\n  lr: 1\n").faults,
              ElementsAre("run.yaml:1: training must be one value; got a map; only language_model and "
                          "model_parallel are sections; move its keys to the top level"));
  EXPECT_THAT(read("language_model:\n  model_parallel: {fp16: True}\n").faults,
              ElementsAre(HasSubstr("run.yaml:2: model_parallel must be at the top of the file")));
  EXPECT_THAT(read("language_model: &a\n  language_model: *a\n").faults, SizeIs(1))
      << "a section within itself";
  EXPECT_THAT(read("x-a: &a {language_model: {num_layers: 2}}\n<<: *a\n").faults,
              ElementsAre(HasSubstr("must be at the top of the file")));
  EXPECT_THAT(read(std::string(100000, '[')).faults, SizeIs(1)) << "deep nesting";
  const Parsed merged =
      read("x-a: &a {num_layers: 2, lr: 0.1}\nlanguage_model: {<<: *a, hidden_size: 8}\nlr: 0.2\n");
  EXPECT_THAT(merged.faults, IsEmpty());
  EXPECT_EQ(merged.run.model.num_layers, 2);
  EXPECT_EQ(merged.run.schedule.lr, 0.2) << "own keys of any section override merged ones";
}

TEST_F(NestedYaml, SettingsMayBeGivenOnlyOnceOverAllSections) {
  EXPECT_THAT(read("language_model:\n  num_layers: 2\n  num_layers: 3\n").faults,
              ElementsAre("run.yaml:3: num_layers must be given once; got it twice; remove one"));
  EXPECT_THAT(read("language_model: {num_moe_experts: 2}\nnum_experts: 4\n").faults,
              ElementsAre("run.yaml:2: num_experts must be given once; got num_moe_experts too; remove one"));
  EXPECT_THAT(read("language_model: {seed: 1}\nmodel_parallel: {seed: 1}\n").faults, SizeIs(1));
  EXPECT_THAT(read("language_model: {seed: 1}\nlanguage_model: {lr: 1}\n").faults, SizeIs(1));
  const Parsed other = read("num_layers: null\ndecoder_num_layers: 2\n");
  EXPECT_THAT(other.faults, IsEmpty()) << "null does not count as a value, in any order";
  EXPECT_EQ(other.run.model.num_layers, 2);
}

TEST_F(NestedYaml, UnreadableFilesNameTheFlag) {
  EXPECT_THAT(parse_all({"--yaml-cfg", "/nonexistent/run.yaml"}).faults,
              ElementsAre(AllOf(HasSubstr("--yaml-cfg must name a readable file"),
                                HasSubstr("/nonexistent/run.yaml"))));
  EXPECT_THAT(parse_all({"--yaml-cfg"}).faults, ElementsAre(HasSubstr("--yaml-cfg needs a value")));
  EXPECT_TRUE(read("- a\n").is_incomplete);
  const std::string nested = write("nested.yaml", "language_model: {num_layers: 2}\n");
  EXPECT_THAT(
      parse_all({"--config", nested}).faults,
      ElementsAre(HasSubstr("got a section of Megatron's nested YAML; give the file with --yaml-cfg")));
}

TEST(NestedKeysTable, FieldsDoNotShadowSettingsAndNewNamesAreSettings) {
  std::vector<std::string> both;
  for (const Setting& s : schema())
    if (field_kind(s.key)) both.push_back(s.key);
  EXPECT_THAT(both, ::testing::UnorderedElementsAre("bert_binary_head", "cuda_graph_modules"))
      << "these are ignored at one value only";
  for (const std::string& field : field_names()) {
    const std::string name(setting_name(field));
    EXPECT_TRUE(name == field || find(name)) << field;
    EXPECT_FALSE(find(field)) << field;
  }
}

}  // namespace
}  // namespace colonnade::config
