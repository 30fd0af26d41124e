// Memory, traffic, FLOPs and time of 200 settings of Llama's kind and 200 of DeepSeek-V3's, as recorded
// before the formulas moved into blocks: tests/cost/frozen_costs.golden.txt.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/cost/communication.h"
#include "colonnade/cost/flops.h"
#include "colonnade/cost/hardware.h"
#include "colonnade/cost/memory.h"
#include "colonnade/cost/model_cost.h"
#include "colonnade/cost/recomputed_flops.h"
#include "colonnade/cost/step_time.h"
#include "colonnade/rules/rules.h"
#include "support/vectors.h"

namespace colonnade::cost {
namespace {

constexpr int kSettings = 200;

/// Draws settings; the same on every machine.
class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  std::string one_of(const std::vector<std::string>& choices) { return choices[random_() % choices.size()]; }
  bool once_in(std::uint32_t times) { return random_() % times == 0; }
  void maybe(std::uint32_t times, const std::string& words) {
    if (once_in(times)) add(words);
  }
  void add(const std::string& text) { words_ += words_.empty() ? text : " " + text; }
  [[nodiscard]] const std::string& words() const { return words_; }

 private:
  std::mt19937 random_;
  std::string words_;
};

void add_layout(Draw& d) {
  const std::string tp = d.one_of({"1", "2", "4", "8"});
  d.add("--tensor-model-parallel-size " + tp);
  if (tp != "1" && !d.once_in(3)) d.add("--sequence-parallel");
  const std::string pp = d.one_of({"1", "2", "4"});
  d.add("--pipeline-model-parallel-size " + pp);
  if (pp != "1") {
    const std::string schedule =
        d.one_of({"1f1b", "1f1b", "interleaved", "interleaved", "gpipe", "zb-h1", "zb-v", "dualpipe-v"});
    d.add("--pipeline-schedule " + schedule);
    if (schedule == "interleaved") d.add("--num-virtual-stages-per-pipeline-rank " + d.one_of({"2", "4"}));
    d.maybe(4, "--delay-wgrad-compute");
  }
  const std::string cp = d.one_of({"1", "1", "2", "4"});
  d.add("--context-parallel-size " + cp);
  if (cp != "1") d.add("--cp-comm-type " + d.one_of({"p2p", "a2a", "all_gather"}));
}

void add_training(Draw& d) {
  d.add("--seq-length " + d.one_of({"2048", "4096", "8192"}));
  d.add("--micro-batch-size " + d.one_of({"1", "2", "4"}) + " --global-batch-size " +
        d.one_of({"64", "256", "512"}));
  if (!d.once_in(5)) d.add("--bf16");
  if (!d.once_in(3)) d.add("--use-distributed-optimizer");
  d.maybe(4, "--data-parallel-sharding-strategy " + d.one_of({"optim", "optim_grads", "optim_grads_params"}));
  d.maybe(3, "--overlap-grad-reduce");
  d.maybe(4, "--overlap-param-gather");
  d.maybe(6, "--grad-reduce-in-bf16");
  d.maybe(8, "--num-distributed-optimizer-instances 2");
  d.maybe(6, "--hidden-dropout 0.1");
  d.maybe(6, "--attention-dropout 0.1");
  d.maybe(8, "--deterministic-mode");
  d.maybe(8, "--use-flash-attn");
  d.maybe(8, "--optimizer sgd");
}

void add_recomputation(Draw& d, const std::vector<std::string>& modules) {
  if (d.once_in(2)) return;
  if (d.once_in(2)) {
    d.add("--recompute-granularity full --recompute-method " + d.one_of({"uniform", "block"}) +
          " --recompute-num-layers " + d.one_of({"1", "2", "3"}));
    return;
  }
  d.add("--recompute-granularity selective --recompute-modules");
  bool any = false;
  for (const std::string& module : modules) {
    if (!d.once_in(3)) continue;
    d.add(module);
    any = true;
  }
  if (!any) d.add("core_attn");
}

constexpr const char* kAll =
    "--train-iters 10 --lr 1 --mock-data --vocab-size 32000 --position-embedding-type rope --normalization RMSNorm "
    "--swiglu --disable-bias-linear --num-layers 16 ";
constexpr const char* kDeepSeek =
    "--untie-embeddings-and-output-weights --hidden-size 2048 --num-attention-heads 16 --ffn-hidden-size 8192 "
    "--qk-layernorm --multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
    "--v-head-dim 128 --moe-ffn-hidden-size 1024 ";

std::string llama(std::uint32_t seed) {
  Draw d(seed);
  d.add(d.one_of({"--hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008",
                  "--hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 "
                  "--ffn-hidden-size 14336",
                  "--hidden-size 8192 --num-attention-heads 64 --group-query-attention --num-query-groups 8 "
                  "--ffn-hidden-size 28672"}));
  d.maybe(2, "--untie-embeddings-and-output-weights");
  d.maybe(5, "--window-size 1023,0");
  d.maybe(8, "--qk-layernorm");
  d.maybe(8, "--attn-logit-softcapping 50");
  d.maybe(8, "--add-bias-linear");
  add_layout(d);
  add_training(d);
  add_recomputation(d, {"core_attn", "mlp", "layernorm"});
  return d.words();
}

std::string deepseek(std::uint32_t seed) {
  Draw d(seed);
  d.maybe(2, "--q-lora-rank 768");
  d.add("--num-experts " + d.one_of({"16", "64"}) + " --moe-router-topk " + d.one_of({"2", "4", "6"}));
  d.add("--moe-layer-freq " + d.one_of({"1", "2", "([0]*3+[1]*13)"}));
  d.maybe(2, "--moe-shared-expert-intermediate-size 2048");
  d.maybe(5, "--moe-expert-capacity-factor 1.25");
  d.maybe(3, "--moe-router-score-function sigmoid --moe-router-enable-expert-bias");
  d.add("--moe-token-dispatcher-type " + d.one_of({"alltoall", "alltoall", "allgather"}));
  d.add("--expert-model-parallel-size " + d.one_of({"1", "2", "4", "8"}));
  d.maybe(3, "--expert-tensor-parallel-size 1");
  d.maybe(3, "--mtp-num-layers " + d.one_of({"1", "2"}));
  add_layout(d);
  add_training(d);
  add_recomputation(d, {"core_attn", "mlp", "layernorm", "moe", "shared_experts", "mla_up_proj", "moe_act"});
  return d.words();
}

std::vector<std::string> split_words(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string memory_text(const config::Run& run) {
  const std::vector<StageMemory> plan = plan_memory(run);
  std::string text = fmt::format("peak {}", max_peak_bytes(run, plan));
  for (const StageMemory& stage : plan)
    text += fmt::format(" | {} {} {} {} {} {}", stage.num_parameters, stage.resident(), stage.activations,
                        stage.workspace, stage.evaluation, stage.start_up());
  return text;
}

std::string traffic_text(const config::Run& run) {
  std::string text;
  for (const StageTraffic& t : plan_traffic(run))
    text += fmt::format(" | {:.8g} {:.8g} {:.8g} {:.8g} {:.8g} {:.8g} {:.8g}", t.tensor, t.pipeline,
                        t.context, t.dispatch, t.data, t.outer_data, t.shared_embeddings);
  return text;
}

std::string time_text(const config::Run& run) {
  static const Hardware kHardware = read_hardware("h100");
  const StepTime t = estimate_step(run, kHardware);
  return fmt::format("{:.8g} = {:.8g} {:.8g} {:.8g} {:.8g} {:.8g} {:.8g} {:.8g}, mfu {:.8g}", t.step,
                     t.compute, t.tensor, t.context, t.dispatch, t.bubble, t.data, t.optimizer, t.mfu);
}

/// The first `count` sound settings that `make` draws beside the `common` ones, and their costs.
std::string table(const std::string& common, std::string (*make)(std::uint32_t), int count) {
  std::string text;
  int sound = 0;
  for (std::uint32_t seed = 1; sound < count && seed < 20'000; ++seed) {
    const std::string words = make(seed);
    config::Run run;
    try {
      run = config::parse(split_words(common + words));
    } catch (const ConfigError&) {
      continue;
    }
    run.parallel.world_size = 64;
    config::derive(run);
    if (!rules::check(run, rules::Purpose::kPlan).empty()) continue;
    ++sound;
    const std::int64_t batch = run.training.global_batch_size;
    text += fmt::format(
        "{} {}\n  memory {}\n  traffic{}\n  flops {:.10g} {:.10g}\n  seconds {}\n", seed, words,
        memory_text(run), traffic_text(run),
        training_flops(run.model, run.training.seq_length, batch, run.parallel.tensor_model_parallel_size),
        recomputed_flops(ModelCost(run), batch).total(), time_text(run));
  }
  return text;
}

TEST(FrozenCosts, AreThoseOfTheTable) {
  const std::string golden = test::sources() + "/tests/cost/frozen_costs.golden.txt";
  const std::string costs =
      table(kAll, llama, kSettings) + table(std::string(kAll) + kDeepSeek, deepseek, kSettings);
  if (std::getenv("COLONNADE_GOLDEN") != nullptr) write_file_atomically(golden, costs);
  std::istringstream expected(read_file(golden)), got(costs);
  std::string want, line, settings;
  while (std::getline(expected, want)) {
    ASSERT_TRUE(std::getline(got, line));
    if (want.front() != ' ') settings = want;
    EXPECT_EQ(line, want) << settings;
  }
}

}  // namespace
}  // namespace colonnade::cost
