// Parsing of command lines: Megatron launch scripts, spellings, shorthands, every error message.
#include "colonnade/config/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "config/lines.h"

namespace colonnade::config {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kGpt3 = R"(
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048
  --max-position-embeddings 2048 --attention-backend auto
  --micro-batch-size 1 --global-batch-size 1536 --train-iters 500000 --weight-decay 0.1
  --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0 --fp16
  --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16
  --data-path my-gpt2_text_document --tokenizer-type NullTokenizer --vocab-size 50257 --split 949,50,1
  --log-interval 100 --save-interval 10000 --eval-interval 1000 --save ckpt --load ckpt --eval-iters 10
  --tensorboard-dir tb --distributed-backend nccl --use-flash-attn --use-mcore-models
  --no-masked-softmax-fusion --attention-softmax-in-fp32 --accumulate-allreduce-grads-in-fp32
)";

TEST(ParseScript, Gpt3RunsUnchanged) {
  const config::Run r = run_of(kGpt3);
  EXPECT_EQ(r.model.num_layers, 96);
  EXPECT_EQ(r.model.hidden_size, 12288);
  EXPECT_EQ(r.model.params_dtype, Dtype::kFloat16);
  EXPECT_EQ(r.model.activation, Activation::kGeluTanh) << "biases with the fused kernel: tanh form";
  EXPECT_EQ(r.model.init_method_std, 0.006);
  EXPECT_EQ(r.training.global_batch_size, 1536);
  EXPECT_EQ(r.optimizer.adam_beta2, 0.95);
  EXPECT_EQ(r.schedule.lr, 6e-5);
  EXPECT_EQ(r.schedule.lr_decay_style, LrDecayStyle::kCosine);
  EXPECT_EQ(r.schedule.lr_warmup_fraction, 0.001);
  EXPECT_EQ(r.parallel.pipeline_model_parallel_size, 16);
  EXPECT_THAT(r.data.data_path, ElementsAre("my-gpt2_text_document"));
  EXPECT_EQ(r.data.split, "949,50,1");
  EXPECT_EQ(r.checkpoint.load, "ckpt");
  EXPECT_EQ(r.training.distributed_backend, "nccl");
  EXPECT_EQ(r.no_op_flags.size(), 5U) << ::testing::PrintToString(r.no_op_flags);  // auto is the default
}

constexpr const char* kLlama3 = R"(
  --use-mcore-models --num_layers 32 --hidden_size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
  --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 \
  --max-position-embeddings 8192 --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 \
  --attention-dropout 0.0 --hidden-dropout 0.0 --swiglu --init-method-std 0.0134 --attention-backend fused \
  --normalization "RMSNorm" --norm-epsilon 1e-05 --untie-embeddings-and-output-weights --disable-bias-linear \
  --micro-batch-size 1 --global-batch-size 128 --train-samples 1953125000 --lr-decay-samples 1949218748 \
  --lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001 --lr-decay-style 'cosine' --clip-grad 1.0 \
  --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --bf16 --cross-entropy-loss-fusion \
  --calculate-per-token-loss --manual-gc --use-distributed-optimizer --overlap-grad-reduce \
  --overlap-param-gather --tensor-model-parallel-size 2 --context-parallel-size 1 --sequence-parallel \
  --data-path "0.3" "/data/books with blanks_text_document" 0.7 /data/web_text_document \
  --tokenizer-type Llama2Tokenizer --tokenizer-model /models/tokenizer.model --data-cache-path /cache \
  --split '99,1,0' --no-create-attention-mask-in-dataloader --no-mmap-bin-files --num-workers 1 \
  --log-interval 1 --eval-iters 32 --eval-interval 100 --save-interval 1000 --log-throughput \
  --ckpt-format torch_dist --distributed-timeout-minutes 60 --save "/out/run 1" --tensorboard-dir /out/tb \
  --transformer-impl transformer_engine --exit-signal-handler --local-rank=3
)";

TEST(ParseScript, Llama3WithQuotesAndUnderscoresRunsUnchanged) {
  const config::Run r = run_of(kLlama3);
  EXPECT_EQ(r.model.num_layers, 32);
  EXPECT_EQ(r.model.num_query_groups, 8);
  EXPECT_EQ(r.model.activation, Activation::kSwiglu);
  EXPECT_EQ(r.model.position_embedding, PositionEmbedding::kRope);
  EXPECT_EQ(r.model.rotary_base, 1e6);
  EXPECT_EQ(r.model.normalization, Normalization::kRmsNorm);
  EXPECT_FALSE(r.model.add_bias_linear);
  EXPECT_TRUE(r.model.untie_embeddings_and_output_weights);
  EXPECT_EQ(r.model.params_dtype, Dtype::kBfloat16);
  EXPECT_TRUE(r.parallel.sequence_parallel);
  EXPECT_TRUE(r.parallel.overlap_param_gather);
  EXPECT_EQ(r.training.train_samples, 1953125000);
  EXPECT_EQ(r.training.distributed_timeout_minutes, 60);
  EXPECT_THAT(r.data.data_path,
              ElementsAre("0.3", "/data/books with blanks_text_document", "0.7", "/data/web_text_document"));
  EXPECT_EQ(r.checkpoint.save, "/out/run 1");
  EXPECT_EQ(r.given.at("num_layers"), "the command line");
  EXPECT_FALSE(r.given.contains("seed"));
}

constexpr const char* kNemo = R"(gpt --num-layers 24 --hidden-size 1024 --num-attention-heads 16
  --virtual_pipeline_model_parallel_size 2 --pipeline_model_parallel_size 4 --squared-relu
  --no-position-embedding --use-rotary-position-embeddings --window-size "4096,0" --optimizer sgd
  --mock-data --seed 7 --no-check-for-nan-in-loss-and-grad --dp-comm-overlap-bucket-size 1000
  --lr-decay-style WSD --lr-wsd-decay-style minus_sqrt --override-opt_param-scheduler)";

TEST(ParseScript, OlderSpellingsAreAccepted) {
  const config::Run r = run_of(kNemo);
  EXPECT_EQ(r.model_type, "gpt");
  EXPECT_EQ(r.parallel.num_virtual_stages_per_pipeline_rank, 2);
  EXPECT_EQ(r.model.activation, Activation::kSquaredRelu);
  EXPECT_EQ(r.model.position_embedding, PositionEmbedding::kRope);
  EXPECT_EQ(r.model.window_size, 4096);
  EXPECT_EQ(r.optimizer.optimizer, OptimizerKind::kSgd);
  EXPECT_FALSE(r.training.check_for_nan_in_loss_and_grad);
  EXPECT_EQ(r.parallel.ddp_bucket_size, 1000);
  EXPECT_EQ(r.schedule.lr_wsd_decay_style, WsdDecayStyle::kMinusSqrt);
  EXPECT_TRUE(r.schedule.override_opt_param_scheduler);
}

/// Rejected flags, in the order of the messages.
std::vector<std::string> rejected_in(const std::string& line) {
  std::vector<std::string> flags;
  for (const std::string& fault : faults_of(line)) flags.push_back(fault.substr(0, fault.find(':')));
  return flags;
}

// The flags of Megatron-LM's examples/gpt3/train_gpt3_175b_distributed.sh (commit 157006d6).
constexpr const char* kMegatronGpt3 = R"(
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048
  --attention-backend auto --micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375
  --train-iters 500000 --weight-decay 0.1 --adam-beta1 0.9 --adam-beta2 0.95 --init-method-std 0.006 --clip-grad 1.0
  --fp16 --lr 6.0e-5 --lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000
  --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 --data-path D --vocab-file V --merge-file M
  --split 949,50,1 --log-interval 100 --save-interval 10000 --eval-interval 1000 --save C --load C --eval-iters 10
  --tensorboard-dir T)";

// Flags of examples/llama/train_llama3_8b_h100_fp8.sh with mock data, with the script's quotes.
constexpr const char* kMegatronLlama3 = R"(
  --use-mcore-models --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
  --group-query-attention --num-query-groups 8 --kv-channels 128 --seq-length 8192 --max-position-embeddings 8192
  --position-embedding-type rope --rotary-base 1000000 --rotary-percent 1.0 --attention-dropout 0.0
  --hidden-dropout 0.0 --swiglu --init-method-std 0.0134 --attention-backend fused --apply-layernorm-1p
  --untie-embeddings-and-output-weights --disable-bias-linear --micro-batch-size 1 --global-batch-size 128
  --train-samples 1953125000 --lr-decay-samples 1949218748 --lr-warmup-samples 3906252 --lr 0.00015 --min-lr 0.00001
  --decoupled-lr 5.0e-4 --decoupled-min-lr 4.5e-5 --lr-decay-style cosine --clip-grad 1.0 --weight-decay 0.1
  --adam-beta1 0.9 --adam-beta2 0.95 --bf16 --grad-reduce-in-bf16 --cross-entropy-loss-fusion
  --calculate-per-token-loss --manual-gc --empty-unused-memory-level 1 --exit-duration-in-mins 235
  --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --fp8-format hybrid
  --fp8-amax-history-len 1024 --fp8-amax-compute-algo max --fp8-param-gather --tensor-model-parallel-size 1
  --context-parallel-size 1 --sequence-parallel --mock-data --tokenizer-type NullTokenizer --vocab-size 128256
  --data-cache-path D --tiktoken-pattern v2 --split 99,1,0 --no-create-attention-mask-in-dataloader
  --no-mmap-bin-files --num-workers 1 --log-interval 1 --eval-iters 32 --eval-interval 100 --save-interval 1000
  --log-throughput --profile --profile-step-start 4 --profile-step-end 6 --ckpt-format torch_dist
  --distributed-timeout-minutes 60 --save C --load C --tensorboard-dir T)";

TEST(ParseScript, OnlyUnsupportedFlagsOfMegatronsExamplesAreRejected) {
  EXPECT_THAT(rejected_in(kMegatronGpt3), ::testing::IsEmpty());
  EXPECT_THAT(rejected_in(kMegatronLlama3),
              ::testing::UnorderedElementsAre("--fp8-format", "--fp8-amax-history-len",
                                              "--fp8-amax-compute-algo", "--fp8-param-gather"));
}

/// A temporary YAML file.
class File {
 public:
  explicit File(const std::string& text) { write_file_atomically(path_, text); }
  ~File() { std::filesystem::remove(path_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("parse_test_" + std::to_string(::getpid()) + ".yaml");
};

TEST(ParseShorthand, NegatedShorthandCancelsItsValueInAFile) {
  const File file("params_dtype: bf16\nactivation: swiglu\nposition_embedding_type: rope\n");
  const config::Run r = run_of("--config " + file.path() + " --no-bf16 --no-swiglu");
  EXPECT_EQ(r.model.params_dtype, Dtype::kFloat32);
  EXPECT_EQ(r.model.activation, Activation::kGeluTanh);
  EXPECT_EQ(r.model.position_embedding, PositionEmbedding::kRope);
  EXPECT_EQ(r.given.at("params_dtype"), "the command line");
  EXPECT_EQ(run_of("--config " + file.path() + " --no-bf16 --fp16").model.params_dtype, Dtype::kFloat16);
  EXPECT_EQ(run_of("--config " + file.path() + " --no-fp16").model.params_dtype, Dtype::kBfloat16);
}

TEST(ParseShorthand, CommandLineOverridesAShorthandInAFile) {
  const File file("bf16: false\nswiglu: false\n");
  EXPECT_EQ(run_of("--bf16 --config " + file.path()).model.params_dtype, Dtype::kBfloat16);
  EXPECT_EQ(run_of("--activation swiglu --config " + file.path()).model.activation, Activation::kSwiglu);
  const File contradiction("bf16: false\nparams_dtype: bf16\n");
  EXPECT_THAT(faults_of("--config " + contradiction.path()),
              ElementsAre(HasSubstr("conflict on --params-dtype")));
}

TEST(Parse, UnknownFamilySuppressesOtherErrors) {
  const Parsed parsed = parse_all(shell("mamba --bert-no-binary-heads --num-layers x"));
  EXPECT_THAT(parsed.faults, ElementsAre(HasSubstr("must be one of gpt, t5, bert; got \"mamba\"")));
  EXPECT_TRUE(parsed.is_incomplete);
}

TEST(Parse, AcceptsAllFormsOfValues) {
  EXPECT_EQ(run_of("--num-layers=4").model.num_layers, 4);
  EXPECT_EQ(run_of("--lr -0").schedule.lr, 0);
  EXPECT_EQ(run_of("--num-layers 4 --num_layers 6").model.num_layers, 6) << "the last one counts";
  EXPECT_FALSE(run_of("--sequence-parallel --no-sequence-parallel").parallel.sequence_parallel);
  EXPECT_TRUE(run_of("--sequence-parallel=true").parallel.sequence_parallel);
  EXPECT_TRUE(run_of("--no-load-optim").checkpoint.no_load_optim);
  EXPECT_FALSE(run_of("--no-load-optim --load-optim").checkpoint.no_load_optim);
  EXPECT_EQ(run_of("--window-size (128,0)").model.window_size, 128);
  EXPECT_EQ(run_of("--window-size -1,-1").model.window_size, 0);
  EXPECT_EQ(run_of("--data-path").data.data_path.size(), 0U);
}

TEST(Parse, GeluFormMatchesMegatron) {
  EXPECT_EQ(run_of("").model.activation, Activation::kGeluTanh);
  EXPECT_EQ(run_of("--no-bias-gelu-fusion").model.activation, Activation::kGeluErf);
  EXPECT_EQ(run_of("--disable-bias-linear").model.activation, Activation::kGeluErf);
  EXPECT_EQ(run_of("--no-bias-gelu-fusion --openai-gelu").model.activation, Activation::kGeluTanh);
  EXPECT_EQ(run_of("--activation gelu").model.activation, Activation::kGeluErf);
  EXPECT_EQ(run_of("--activation geglu-tanh").model.activation, Activation::kGegluTanh);
  EXPECT_EQ(run_of("--swiglu --no-swiglu").model.activation, Activation::kGeluTanh);
}

TEST(Parse, TransformerEngineActivationsUseTheTanhForm) {
  for (const std::string flag : {"--use-te-activation-func", "--use-transformer-engine-op-fuser"}) {
    EXPECT_EQ(run_of("--disable-bias-linear " + flag).model.activation, Activation::kGeluTanh) << flag;
    EXPECT_EQ(run_of("--no-bias-gelu-fusion " + flag).model.activation, Activation::kGeluTanh) << flag;
    EXPECT_EQ(run_of("--swiglu " + flag).model.activation, Activation::kSwiglu) << flag;
    EXPECT_EQ(run_of("--activation gelu " + flag).model.activation, Activation::kGeluErf) << flag;
  }
}

TEST(Parse, OldNameOfWeightDecayOnQkNormsIsAccepted) {
  EXPECT_TRUE(
      run_of("--no-weight-decay-cond-type apply_wd_to_qk_layernorm").optimizer.apply_wd_to_qk_layernorm);
  EXPECT_THAT(faults_of("--no-weight-decay-cond-type other"),
              ElementsAre(HasSubstr("must be one of apply_wd_to_qk_layernorm")));
}

TEST(Parse, GroupQueryAttentionDefaultsToOneGroup) {
  EXPECT_EQ(run_of("--num-attention-heads 8 --group-query-attention").model.num_query_groups, 1);
  EXPECT_EQ(run_of("--num-attention-heads 8").model.num_query_groups, 0);
  EXPECT_EQ(run_of("--num-attention-heads 8 --num-query-groups 8").model.num_query_groups, 8);
  const config::Run ungrouped = run_of("--num-attention-heads 8 --num-query-groups 2");
  EXPECT_EQ(ungrouped.model.num_query_groups, 0) << "as in Megatron";
  EXPECT_THAT(ungrouped.notes,
              ElementsAre(HasSubstr("--num-query-groups: has no effect without --group-query-attention")));
}

struct BadLine {
  const char* line;
  const char* message;
};

class EveryMessage : public ::testing::TestWithParam<BadLine> {};

TEST_P(EveryMessage, NamesSubjectRuleValueAndFix) {
  const auto faults = faults_of(GetParam().line);
  ASSERT_EQ(faults.size(), 1U) << ::testing::PrintToString(faults);
  EXPECT_EQ(faults[0], GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Parse, EveryMessage,
    ::testing::Values(
        BadLine{"--num-layer 4",
                "--num-layer must be a known setting; got --num-layer; did you mean --num-layers?"},
        BadLine{"--qqqqqqqqqqqqqqqqqqqq 1",
                "--qqqqqqqqqqqqqqqqqqqq must be a known setting; got --qqqqqqqqqqqqqqqqqqqq; `--help-all` "
                "lists every setting"},
        BadLine{"--num-layers",
                "--num-layers needs a value; got the end of the command line; write --num-layers VALUE"},
        BadLine{"--num-layers --bf16",
                "--num-layers needs a value; got the flag --bf16; write --num-layers VALUE"},
        BadLine{"--num-layers four",
                "--num-layers must be an integer; got \"four\"; see `colonnade help --num-layers`"},
        BadLine{"--num-layers 4.0",
                "--num-layers must be an integer; got \"4.0\"; see `colonnade help --num-layers`"},
        BadLine{"--num-layers 99999999999999999999",
                "--num-layers must be an integer; got \"99999999999999999999\"; see `colonnade help "
                "--num-layers`"},
        BadLine{"--num-layers -2",
                "--num-layers must lie between 0 and 1000000; got \"-2\"; see `colonnade help --num-layers`"},
        BadLine{"--lr nan", "--lr must be a number; got \"nan\"; see `colonnade help --lr`"},
        BadLine{
            "--hidden-dropout 1.5",
            "--hidden-dropout must lie between 0 and 1; got \"1.5\"; see `colonnade help --hidden-dropout`"},
        BadLine{"--normalization L2Norm",
                "--normalization must be one of LayerNorm, RMSNorm; got \"L2Norm\"; see `colonnade help "
                "--normalization`"},
        BadLine{
            "--tokenizer-type TiktokTokenizer",
            "--tokenizer-type must be one of NullTokenizer, HuggingFaceTokenizer, GPT2BPETokenizer, "
            "SentencePieceTokenizer, GPTSentencePieceTokenizer, Llama2Tokenizer, TikTokenizer, "
            "BertWordPieceLowerCase, BertWordPieceCase, SFTTokenizer; got \"TiktokTokenizer\"; see `colonnade help --tokenizer-type`"},
        BadLine{
            "--optimizer soap",
            "--optimizer: this version has no SOAP optimizer; got \"soap\"; remove it, or write adam or sgd or lion "
            "or muon or dist_muon"},
        BadLine{"--bf16=maybe",
                "--bf16 must have no value, true or false; got \"maybe\"; write --bf16 alone"},
        BadLine{"--bf16 stray",
                "\"stray\" must follow a flag; got a word that no flag accepts after --bf16; remove it, or "
                "quote it with its value"},
        BadLine{
            "--window-size 4,4",
            "--window-size must be W,0: W earlier tokens and none later; got \"4,4\"; see `colonnade help "
            "--window-size`"},
        BadLine{"--bf16 --fp16",
                "--bf16 and --fp16 conflict on --params-dtype; got bf16 and fp16; remove one"},
        BadLine{
            "--swiglu --squared-relu",
            "--swiglu and --squared-relu conflict on --activation; got swiglu and squared-relu; remove one"},
        BadLine{"--swiglu --activation geglu",
                "--swiglu and --activation conflict on --activation; got swiglu and geglu; remove one"},
        BadLine{
            "--no-position-embedding",
            "--no-position-embedding must not be combined with learned positions; got --position-embedding-type "
            "learned_absolute; "
            "write --position-embedding-type none or rope"},
        BadLine{
            "--kitchen-recipe-number 1",
            "--kitchen-recipe-number: this version has no FP8, FP4 and Transformer Engine recipes; got \"1\"; "
            "remove it and use --bf16"},
        BadLine{
            "--moe-paged-stash",
            "--moe-paged-stash: this version has no paged stash of expert activations; got \"true\"; remove "
            "it; --recompute-modules moe_act saves memory"},
        BadLine{"--moe-aux-loss-coeff 0.1 -1",
                "--moe-aux-loss-coeff must be numbers of at least 0; got \"0.1 -1\"; see `colonnade help "
                "--moe-aux-loss-coeff`"},
        BadLine{"--fp8-format e4m3",
                "--fp8-format: this version has no FP8, FP4 and Transformer Engine recipes; got \"e4m3\"; "
                "remove it and use --bf16"},
        BadLine{
            "--ckpt-format zarr",
            "--ckpt-format must be one of native, torch_dist, torch, torch_dcp, fsdp_dtensor; got \"zarr\"; see "
            "`colonnade help --ckpt-format`"},
        BadLine{
            "--attention-backend foo",
            "--attention-backend must be auto or flash or fused or unfused or local; got \"foo\"; remove it: "
            "the attention kernel is picked by device and shape; results do not depend on it"},
        BadLine{"--manual-gc-interval x",
                "--manual-gc-interval must be an integer; got \"x\"; remove it: there is no garbage "
                "collector"},
        BadLine{"--num-dataset-builder-threads abc",
                "--num-dataset-builder-threads must be an integer; got \"abc\"; remove it: index caches are "
                "built once, by the first rank that needs them"},
        BadLine{"--flash-attention-version two",
                "--flash-attention-version must be an integer; got \"two\"; remove it: the attention "
                "kernel is "
                "picked by device and shape; results do not depend on it"},
        BadLine{
            "--logits-load-kd-loss-alpha 5e-1",
            "--logits-load-kd-loss-alpha: this version has no distillation; got \"5e-1\"; remove it; the loss "
            "is computed from the data"},
        BadLine{"--params-dtype bf16 --no-bf16",
                "--no-bf16 and --params-dtype conflict on --params-dtype; got not bf16 and bf16; "
                "remove one"},
        BadLine{"--num-attention-heads x --num-query-groups 8",
                "--num-attention-heads must be an integer; got \"x\"; see `colonnade help "
                "--num-attention-heads`"},
        BadLine{"mamba",
                "pretrain must be one of gpt, t5, bert; got \"mamba\"; see `colonnade help --model`"}));

TEST(Parse, ReportsAllErrorsAtOnce) {
  try {
    run_of("--num-layer 4 --hidden-size x --kitchen-recipe-number 3 --bf16 --fp16");
    FAIL();
  } catch (const ConfigError& e) {
    EXPECT_THAT(e.what(), AllOf(HasSubstr("4 settings are wrong:\n"), HasSubstr("--num-layer must be"),
                                HasSubstr("--hidden-size must be"), HasSubstr("--kitchen-recipe-number:"),
                                HasSubstr("--bf16 and --fp16 conflict")));
  }
}

TEST(Parse, UnsupportedFlagsAreAcceptedAtMegatronsDefault) {
  EXPECT_THAT(
      faults_of("--megatron-fsdp-version 1 --tp-comm-overlap-cfg None --mtp-loss-scaling-factor 0.10"),
      IsEmpty());
  EXPECT_EQ(faults_of("--moe-paged-stash").size(), 1U);
  EXPECT_THAT(faults_of("--no-moe-paged-stash"), IsEmpty());
  EXPECT_EQ(faults_of("--no-fp8-wgrad").size(), 1U);
}

TEST(Parse, NegatedSwitchesHaveNoDoubleNegation) {
  for (const Setting& s : schema()) {
    if (s.key.starts_with("no_")) {
      EXPECT_FALSE(find("no_" + s.key)) << s.key;
    }
    if (s.flag.starts_with("--no-")) {
      EXPECT_FALSE(find("--no-" + s.flag.substr(2))) << s.flag;
    }
  }
  EXPECT_TRUE(find("--no-load-optim"));
  EXPECT_THAT(parse_all({"gpt", "--no-no-load-optim"}).faults,
              ElementsAre(HasSubstr("must be a known setting")));
}

TEST(Parse, NoOpFlagsAreAcceptedAndNotedOnce) {
  config::Run r = run_of("--use-mcore-models --transformer-impl local --use-mcore-models");
  derive(r);
  EXPECT_THAT(r.notes, ::testing::UnorderedElementsAre(
                           "--use-mcore-models: there is one model implementation",
                           "--transformer-impl: layers have one implementation, on LibTorch"));
  EXPECT_THAT(faults_of("--attention-backend magic"),
              ElementsAre(HasSubstr("must be auto or flash or fused or unfused or local; got \"magic\"")));
}

TEST(Parse, VocabularyFilesSelectTheTokenizerOfMegatronsEntryPoints) {
  EXPECT_EQ(run_of("--vocab-file v.json --merge-file m.txt").data.tokenizer_type, "GPT2BPETokenizer");
  EXPECT_EQ(run_of("--model bert --vocab-file v.txt").data.tokenizer_type, "BertWordPieceLowerCase");
  EXPECT_EQ(run_of("--model t5 --vocab-file v.txt").data.tokenizer_type, "BertWordPieceLowerCase");
  EXPECT_EQ(run_of("--model bert --vocab-file v.txt --tokenizer-type BertWordPieceCase").data.tokenizer_type,
            "BertWordPieceCase");
  EXPECT_EQ(run_of("--merge-file m.txt").data.tokenizer_type, "");
  EXPECT_EQ(run_of("--vocab-file=").data.tokenizer_type, "");
  EXPECT_THAT(
      run_of("--vocab-file v.json").notes,
      ElementsAre("--vocab-file: read by GPT2BPETokenizer, Megatron's default for gpt (change it with "
                  "--tokenizer-type)"));
}

TEST(Parse, MoeLayerRecomputeSelectsMoe) {
  const config::Run alone = run_of("--moe-layer-recompute");
  EXPECT_EQ(alone.recompute.granularity, "selective");
  EXPECT_THAT(alone.recompute.modules, ElementsAre("core_attn", "moe"));
  EXPECT_THAT(
      run_of("--moe-layer-recompute --recompute-granularity selective --recompute-modules moe layernorm")
          .recompute.modules,
      ElementsAre("moe", "layernorm"));
  EXPECT_THAT(faults_of("--moe-layer-recompute --recompute-granularity full"),
              ElementsAre(HasSubstr("must not be combined with --recompute-granularity full")));
}

TEST(Parse, ListsMayBeInBrackets) {
  for (const char* words : {"[moe layernorm]", "[moe, layernorm]", "moe layernorm"})
    EXPECT_THAT(run_of(std::string("--recompute-modules ") + words).recompute.modules,
                ElementsAre("moe", "layernorm"))
        << words;
  const Parsed one =
      parse_all({"--recompute-modules", "[moe layernorm]", "--hierarchical-context-parallel-sizes", "2 4"});
  EXPECT_THAT(one.faults, IsEmpty());
  EXPECT_THAT(one.run.recompute.modules, ElementsAre("moe", "layernorm"));
  EXPECT_THAT(one.run.parallel.hierarchical_context_parallel_sizes, ElementsAre(2, 4));
}

TEST(Parse, FlexDispatcherIsAllToAll) {
  EXPECT_EQ(run_of("--moe-token-dispatcher-type flex").model.moe.token_dispatcher_type,
            TokenDispatcher::kAllToAll);
}

TEST(Parse, ValuesOfUnsupportedFeaturesNameThem) {
  EXPECT_THAT(faults_of("--optimizer soap"),
              ElementsAre(HasSubstr("this version has no SOAP optimizer; got \"soap\"")));
  EXPECT_THAT(faults_of("--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec"),
              ElementsAre(HasSubstr("this version has no hybrid layers (Mamba)")));
  EXPECT_THAT(faults_of("--spec my.own layers"), ElementsAre(HasSubstr("must be among local, ")));
  EXPECT_THAT(faults_of("--spec local"), IsEmpty());
  EXPECT_THAT(faults_of("--spec 'megatron.core.models.gpt.gpt_layer_specs get_gpt_layer_local_spec'"),
              IsEmpty());
}

TEST(Parse, NegativeCapacityFactorDisablesDropping) {
  EXPECT_EQ(run_of("--num-experts 4 --moe-expert-capacity-factor -1").model.moe.expert_capacity_factor,
            std::nullopt);
  EXPECT_EQ(run_of("--num-experts 4 --moe-expert-capacity-factor 1.5").model.moe.expert_capacity_factor, 1.5);
}

TEST(Parse, VerbFlagsAreSeparateFromSettings) {
  const std::vector<VerbFlag> extras{{"--prompt", "TEXT", "text"}, {"--quiet", "", ""}, {"--top-k", "N", ""}};
  const Parsed p = parse_all({"--prompt", "Once upon", "--quiet", "--top_k=3", "--load", "dir"}, extras);
  EXPECT_THAT(p.faults, IsEmpty());
  EXPECT_THAT(p.extras.at("--prompt"), ElementsAre("Once upon"));
  EXPECT_THAT(p.extras.at("--top-k"), ElementsAre("3"));
  EXPECT_TRUE(p.extras.contains("--quiet"));
  EXPECT_EQ(p.run.checkpoint.load, "dir");
  EXPECT_THAT(parse_all({"--promt", "x"}, extras).faults[0], HasSubstr("did you mean --prompt?"));
}

}  // namespace
}  // namespace colonnade::config
