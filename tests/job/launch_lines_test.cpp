// Megatron-LM launch commands train unchanged, shrunk in size; flags without effect leave results bitwise
// equal.
#include "support/launch_lines.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "job/runs.h"

namespace colonnade::job {
namespace {

using test::operator+;

constexpr const char* kFlagModel =
    "--num-layers 2 --hidden-size 32 --num-attention-heads 4 --vocab-size 61 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 2 --global-batch-size 4 --disable-bias-linear "
    "--position-embedding-type rope --swiglu --hidden-dropout 0.1 --attention-dropout 0.1 ";
constexpr const char* kExperts =
    "--num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 32 --moe-aux-loss-coeff 0.01 "
    "--moe-token-dispatcher-type alltoall ";

test::Curve trained(const test::Words& flags) {
  return test::train(test::settings(1, test::words(std::string(kFlagModel) + kExperts) + flags), 2);
}

/// The flag with a value that is not Megatron's default.
test::Words non_default(const config::Setting& s) {
  if (s.kind == config::Kind::kSwitch) return {s.default_text() == "true" ? s.off_flag() : s.flag};
  for (const std::string& choice : s.choices)
    if (choice != s.default_text()) return {s.flag, choice};
  if (!s.choices.empty()) return {s.flag, s.choices[0]};
  const bool number = s.kind == config::Kind::kInteger || s.kind == config::Kind::kNumber;
  return {s.flag, number ? "7" : "word"};
}

TEST(LaunchLines, FlagsWithoutEffectAreBitwiseNeutral) {
  const test::Curve without = trained({});
  ASSERT_THAT(without.loss, testing::SizeIs(2));
  std::size_t flags = 0;
  for (const config::Setting& s : config::schema()) {
    if (s.cls != config::Class::kNoOp) continue;
    EXPECT_EQ(trained(non_default(s)), without) << fmt::format("{}", fmt::join(non_default(s), " "));
    ++flags;
  }
  EXPECT_GT(flags, 150U);
  // Flags that affect a run but not its results.
  for (const char* words :
       {"--distributed-backend nccl", "--logging-level 40", "--moe-layer-recompute",
        "--moe-token-dispatcher-type flex", "--no-use-tokenizer-model-from-checkpoint-args"})
    EXPECT_EQ(trained(test::words(words)), without) << words;
}

/// Shrinks a command to 2 layers of width 64 and at most 2 ranks of each kind, on the test's data.
void shrink(test::LaunchLine& line) {
  for (const char* flag : {"--data-path", "--save", "--load", "--tensorboard-dir", "--data-cache-path",
                           "--train-samples", "--lr-decay-samples", "--lr-warmup-samples",
                           "--lr-wsd-decay-samples", "--finetune", "--no-load-optim"})
    line.remove(flag);
  const std::pair<const char*, const char*> sizes[] = {
      {"--num-layers", "2"},
      {"--encoder-num-layers", "2"},
      {"--decoder-num-layers", "2"},
      {"--hidden-size", "64"},
      {"--num-attention-heads", "8"},
      {"--num-query-groups", "2"},
      {"--kv-channels", "8"},
      {"--ffn-hidden-size", "128"},
      {"--seq-length", "32"},
      {"--encoder-seq-length", "32"},
      {"--decoder-seq-length", "16"},
      {"--max-position-embeddings", "32"},
      {"--micro-batch-size", "1"},
      {"--train-iters", "3"},
      {"--moe-ffn-hidden-size", "32"},
      {"--moe-shared-expert-intermediate-size", "32"},
      {"--moe-layer-freq", "([0]*1+[1]*1)"},
      {"--q-lora-rank", "16"},
      {"--kv-lora-rank", "16"},
      {"--qk-head-dim", "8"},
      {"--qk-pos-emb-head-dim", "8"},
      {"--v-head-dim", "8"},
      {"--exit-interval", "9"},
      {"--vocab-size", "128"},
  };
  for (const auto& [flag, size] : sizes)
    if (!line.value(flag).empty()) line.replace(flag, size);
  for (const char* flag : {"--tensor-model-parallel-size", "--pipeline-model-parallel-size",
                           "--context-parallel-size", "--expert-model-parallel-size",
                           "--expert-tensor-parallel-size", "--moe-router-topk", "--mtp-num-layers"})
    if (line.size(flag, 0) > 2) line.replace(flag, "2");
  if (line.size("--num-experts", 0) > 8) line.replace("--num-experts", "8");
  const int model = line.size("--tensor-model-parallel-size") * line.size("--pipeline-model-parallel-size") *
                    line.size("--context-parallel-size");
  line.replace("--global-batch-size", std::to_string(2 * line.world(1) / model));
  line.args.emplace_back("--mock-data");
}

/// The run of a command; none where 2 layers cannot be split as requested, or a feature is not supported.
std::optional<config::Run> shrunk_run(const test::LaunchLine& line) {
  try {
    return test::settings(line.world(1), test::words(line.model == "gpt" ? "" : line.model) + line.args);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

TEST(LaunchLines, ThirtyTrainUnchanged) {
  constexpr std::size_t kLines = 30;
  std::vector<std::pair<std::string, config::Run>> valid;
  for (test::LaunchLine& line : test::launch_lines()) {
    shrink(line);
    if (auto run = shrunk_run(line)) valid.emplace_back(line.name, std::move(*run));
  }
  ASSERT_GE(valid.size(), kLines);
  for (std::size_t i = 0; i < kLines; ++i) {
    const auto& [name, run] = valid[i * valid.size() / kLines];
    const test::Curve curve = test::train(run, 3);
    ASSERT_THAT(curve.loss, testing::SizeIs(3)) << name;
    for (const double loss : curve.loss) EXPECT_NEAR(loss, std::log(128.0), 0.8) << name;
    for (const double norm : curve.grad_norm) EXPECT_GT(norm, 0) << name;
    EXPECT_NE(curve.loss[0], curve.loss[2]) << name;
  }
}

}  // namespace
}  // namespace colonnade::job
