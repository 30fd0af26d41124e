// A job's checkpoint keeps every weight and optimizer state bitwise and loads in any layout; a resumed run
// equals an uninterrupted one.
#include "colonnade/job/checkpoint.h"

#include <array>
#include <mutex>
#include <set>
#include <span>

#include "checkpoint/fixtures.h"
#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/checkpoint/folders.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/optim/scaled.h"
#include "job/runs.h"
#include "job/saved_runs.h"

namespace colonnade::job {
namespace {

using test::operator+;

using at::Tensor;
using checkpoint::test::TempFolder;
using namespace saved;  // from saved_runs.h

/// Unsharded weights and optimizer states, assembled from the shards of all ranks.
class State {
 public:
  void add(Job& job) {
    for (const tensor::Parameter* p : job.parameters()) {
      const data_parallel::LocalSlice here = job.buffers().local_slice(*p);
      put_flat(p->spec.name, *p, here.begin, here.values);
    }
    for (const optim::Segment& s : job.optimizer().segments()) {
      EXPECT_FALSE(s.states.empty());
      for (std::size_t i = 0; i < s.states.size(); ++i)
        put_flat(fmt::format("{}.{}", s.rule->states()[i], s.parameter->spec.name), *s.parameter, s.begin,
                 optim::unscaled(s.states[i], s.scales[i]));
      put_flat("main." + s.parameter->spec.name, *s.parameter, s.begin,
               optim::unscaled(s.main, s.main_scale));
    }
    const std::lock_guard lock(mutex_);
    counters_ = {job.counters.iteration, job.counters.consumed_samples, job.optimizer().steps()};
  }
  [[nodiscard]] Tensor full(const std::string& name) const { return tensors_.at(name); }

  friend void expect_same_bits(const State& got, const State& expected) {
    EXPECT_EQ(got.counters_, expected.counters_);
    ASSERT_EQ(got.tensors_.size(), expected.tensors_.size());
    for (const auto& [name, tensor] : expected.tensors_) {
      EXPECT_FALSE(tensor.isnan().any().item<bool>()) << name;
      EXPECT_TRUE(at::equal(got.full(name), tensor)) << name;
    }
  }

  /// Main values and moments are bitwise equal; weights are the main values in their own dtype.
  friend void expect_same_values_in_new_precision(const State& got, const State& expected) {
    EXPECT_EQ(got.counters_, expected.counters_);
    ASSERT_EQ(got.tensors_.size(), expected.tensors_.size());
    for (const auto& [name, tensor] : got.tensors_) {
      const bool weight = expected.tensors_.contains("main." + name);
      const Tensor& from = expected.full(weight ? "main." + name : name);
      EXPECT_TRUE(at::equal(tensor, from.to(tensor.scalar_type()))) << name;
    }
  }

 private:
  void put(const std::string& name, const tensor::Parameter& p, const Tensor& local) {
    const std::lock_guard lock(mutex_);
    Tensor& whole = tensors_[name];
    if (!whole.defined()) whole = at::full(p.spec.shape, std::nan(""), local.options());
    for (const layout::ShardBox& part : p.shard.boxes) {
      const Tensor to = tensor::box_view(whole, part.global, part.length);
      const Tensor from = tensor::box_view(local, part.local, part.length);
      // ReplicaCounts of the same elements must be bitwise equal.
      EXPECT_TRUE(to.isnan().logical_or(from.isnan()).logical_or(to == from).all().item<bool>()) << name;
      to.copy_(at::where(from.isnan(), to, from));
    }
  }
  void put_flat(const std::string& name, const tensor::Parameter& p, std::int64_t begin,
                const Tensor& values) {
    Tensor local = at::full({p.value.numel()}, std::nan(""), values.options());
    local.narrow(0, begin, values.numel()).copy_(values);
    put(name, p, local.view(p.shard.shape));
  }

  std::mutex mutex_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::int64_t> counters_;
};

/// Trains two steps in `layout` and saves. Returns the loss of the next step.
double save_after_two_steps(const Saved& layout, const std::string& flags, const TempFolder& folder,
                            State& saved) {
  double next_loss = 0;
  test::on_jobs(saved_run(layout, flags), [&](Job& job) {
    test::train(job, 2);
    save_in(job, folder);
    saved.add(job);
    const auto next = test::train(job, 1);
    if (job.ranks.rank() == 0) next_loss = next.loss[0];
  });
  return next_loss;
}

/// Saves after two steps in `from` and loads in each of `layouts`.
void check_layouts(const Saved& from, const std::string& flags, std::span<const Saved> layouts) {
  const TempFolder folder;
  State saved;
  const double next_loss = save_after_two_steps(from, flags, folder, saved);
  for (const Saved& to : layouts) {
    SCOPED_TRACE(fmt::format("from '{}' to '{}'", from.flags, to.flags));
    State loaded;
    const config::Run run = saved_run(to, flags);
    test::on_jobs(run, [&](Job& job) {
      restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
      loaded.add(job);
      EXPECT_NEAR(test::train(job, 1).loss[0], next_loss, test::loss_bound(run) * next_loss);
    });
    expect_same_bits(loaded, saved);
  }
}

void check_every_layout(const Saved& from, const std::string& flags) { check_layouts(from, flags, kSaved); }

TEST(Checkpoint, LlamaLoadsInEveryLayout) {
  for (const Saved& from : kSaved) check_every_layout(from, kLlamaRun);
}

TEST(Checkpoint, ShardedWeightsLoadAcrossLayouts) {
  const std::array layouts{kOne, kDp2Distributed,
                           Saved{4, "--use-megatron-fsdp --tensor-model-parallel-size 2"},
                           Saved{4, "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather"},
                           Saved{2, "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads"}};
  for (const Saved& from : layouts) check_layouts(from, std::string(kLlamaRun) + "--bf16 ", layouts);
  check_layouts(layouts[2], kLlamaRun, layouts);
}

TEST(Checkpoint, OptimizerInstancesLoadAcrossLayouts) {
  const Saved layouts[] = {
      kOne,
      {8,
       "--tensor-model-parallel-size 2 --use-distributed-optimizer --num-distributed-optimizer-instances 2 "
       "--outer-dp-sharding-strategy optim --overlap-grad-reduce --overlap-param-gather"},
      {4, "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --context-parallel-size 2"},
      {4, "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --outer-dp-sharding-strategy optim"}};
  for (const Saved& from : layouts) check_layouts(from, std::string(kLlamaRun) + "--bf16 ", layouts);
}

TEST(Checkpoint, TiedGpt2LoadsInEveryLayout) {
  for (const Saved& from : kSaved) check_every_layout(from, std::string(kGpt2));
}

TEST(Checkpoint, MixtralLoadsInEveryLayout) {
  const std::string mixtral = std::string(kLlamaRun) + kExpertFlags;
  for (const Saved& from : kWithExperts) check_layouts(from, mixtral, kWithExperts);
  for (const char* more : {"--qk-layernorm --moe-layer-freq [0,1] ",
                           "--moe-router-score-function sigmoid --moe-router-enable-expert-bias "})
    check_layouts(kWithExperts[2], mixtral + more, kWithExperts);
}

// A layer's expert weights are transposed and stored in one tensor, with biases; sinks are per head.
TEST(Checkpoint, GptOssLoadsInEveryLayout) {
  const std::string gpt_oss = fmt::format(
      "{}{}--add-bias-linear --quick-geglu --glu-linear-offset 1 --activation-func-clamp-value 7 "
      "--softmax-type learnable --window-size 3,0 --window-attn-skip-freq 2 ",
      kOss, kExpertFlags);
  for (const Saved& from : {kWithExperts[0], kWithExperts[2]}) check_layouts(from, gpt_oss, kWithExperts);
}

TEST(Checkpoint, GemmaLoadsInEveryLayout) {
  const std::string gemma = fmt::format(
      "{}--apply-layernorm-1p --qk-layernorm --sandwich-norm --scale-embeddings "
      "--query-pre-attn-scalar 8 --disable-bias-linear --activation geglu-tanh --window-size 3,0 "
      "--window-attn-skip-freq 2 --rotary-base-local 5000 ",
      kOss);
  check_every_layout(kTp2Pp2, gemma);
}

// A model without a Hugging Face class keeps Megatron's names.
TEST(Checkpoint, ParallelResidualLoadsInEveryLayout) {
  check_every_layout(kTp2Pp2, "--parallel-residual --position-embedding-type rope ");
}

constexpr const char* kLatent =
    "--position-embedding-type rope --normalization RMSNorm --swiglu --disable-bias-linear --hidden-dropout 0 "
    "--attention-dropout 0 --multi-latent-attention --q-lora-rank 8 --kv-lora-rank 6 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --v-head-dim 5 --qk-layernorm --norm-epsilon 1e-6 --mtp-num-layers 2 ";

// Multi-latent attention, experts and two MTP depths under DeepSeek-V3's names, also with the distributed
// optimizer.
TEST(Checkpoint, DeepSeekWithMtpLoadsInEveryLayout) {
  const std::string deepseek =
      std::string(kLatent) + kExpertFlags +
      "--moe-layer-freq [0,1] --moe-shared-expert-intermediate-size 12 --moe-router-score-function sigmoid "
      "--moe-router-enable-expert-bias --untie-embeddings-and-output-weights ";
  EXPECT_EQ(models::hf::family_of(saved_run(kOne, deepseek).model),
            models::hf::family_of_type("deepseek_v3"));
  for (const Saved& from : {kWithExperts[0], kWithExperts[2], kWithExperts[4]})
    check_layouts(from, deepseek, kWithExperts);
}

TEST(Checkpoint, MtpWithTiedEmbeddingsLoadsInEveryLayout) {
  const Saved head_alone{4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et|t|mm|L"};
  const std::array layouts{kOne, kTp2Pp2, kDp2Distributed, head_alone};
  for (const Saved& from : layouts) check_layouts(from, kLatent, layouts);
}

TEST(Checkpoint, ModelWithoutFamilyLoadsInEveryLayout) {
  check_every_layout(kTp2Pp2, std::string(kLlamaRun) + "--qk-layernorm --add-qkv-bias ");
}

TEST(Checkpoint, EmptyStageLoadsAcrossLayouts) {
  const std::array layouts{kOne, kEmptyStage};
  for (const Saved& from : layouts) check_layouts(from, std::string(kLlamaRun) + "--bf16 ", layouts);
}

TEST(Checkpoint, KeepsMainValuesOfBfloat16) {
  check_every_layout(kDp2Distributed, std::string(kLlamaRun) + "--bf16 ");
  check_every_layout(kOne, std::string(kLlamaRun) + "--bf16 ");
}

// The weights of a 16-bit run, evaluated in float64: losses of two layouts differ in bf16 by rounding only.
TEST(Checkpoint, Bf16WeightsGiveEqualLossesInFloat64) {
  const std::string flags = std::string(kLlamaRun) + "--bf16 ";
  const Saved sharded{4, "--use-megatron-fsdp --tensor-model-parallel-size 2"};
  const Saved instances{
      4, "--use-megatron-fsdp --num-distributed-optimizer-instances 2 --context-parallel-size 2"};
  const TempFolder folder;
  State saved;
  const double in_bf16 = save_after_two_steps(sharded, flags, folder, saved);
  double expected = 0;
  for (const Saved& to : {kOne, kDp2Distributed, kTp2Pp2, sharded, instances}) {
    SCOPED_TRACE(to.flags);
    test::on_jobs(
        saved_run(to, flags),
        [&](Job& job) {
          restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
          const double loss = test::train(job, 1).loss[0];
          if (job.ranks.rank() == 0 && expected == 0) expected = loss;
          EXPECT_NEAR(loss, expected, 1e-9 * expected);
        },
        test::kFloat64);
  }
  EXPECT_NEAR(in_bf16, expected, 0x1p-9 * expected);
}

/// Saves after two steps in one precision and resumes in another, in every layout: the fp32 values and the
/// moments are kept, and the weights are the fp32 values in the new dtype.
void check_change_of_precision(const std::string& model, const std::string& before, const std::string& after,
                               std::span<const Saved> layouts = kSaved) {
  for (const Saved& from : {kOne, kTp4Dp2Distributed}) {
    const TempFolder folder;
    State saved;
    const double next_loss = save_after_two_steps(from, model + before, folder, saved);
    for (const Saved& to : layouts) {
      SCOPED_TRACE(fmt::format("'{}' to '{}', from '{}' to '{}'", before, after, from.flags, to.flags));
      State loaded;
      test::on_jobs(saved_run(to, model + after), [&](Job& job) {
        restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
        loaded.add(job);
        EXPECT_NEAR(test::train(job, 1).loss[0], next_loss, 0.01 * next_loss);
      });
      expect_same_values_in_new_precision(loaded, saved);
    }
  }
}

TEST(Checkpoint, ResumesInAnotherPrecision) {
  check_change_of_precision(kLlamaRun, "", "--bf16 ");
  check_change_of_precision(kLlamaRun, "--bf16 ", "");
  check_change_of_precision(kGpt2, "", "--fp16 --initial-loss-scale 1024 ");
  check_change_of_precision(kGpt2, "--bf16 ", "");
  check_change_of_precision(kLlamaRun, "", "--bf16 ", std::array{Saved{4, "--use-megatron-fsdp"}});
}

TEST(Checkpoint, SixteenBitWeightsDoNotReplaceMissingMainValues) {
  const TempFolder folder;
  const auto run = saved_run(kOne, std::string(kLlamaRun) + "--bf16 ");
  test::on_jobs(run, [&](Job& job) {
    auto shot = snapshot(job);
    std::erase_if(shot.optimizer,
                  [](const auto& slice) { return slice.name.starts_with("optimizer.fp32_param."); });
    ASSERT_TRUE(checkpoint::save(folder.path(), 0, shot, job.ranks.world()).ok);
  });
  test::on_jobs(run, [&](Job& job) {
    EXPECT_THROW(restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume), ConfigError);
  });
}

constexpr const char* kBf16States =
    "--bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 ";
constexpr const char* kScaledStates =
    "--bf16 --use-precision-aware-optimizer --main-params-dtype fp16 --exp-avg-dtype fp8 "
    "--exp-avg-sq-dtype fp16 ";

TEST(Checkpoint, KeepsStatesBelowFp32) {
  check_every_layout(kDp2Distributed, std::string(kLlamaRun) + kBf16States + "--main-grads-dtype bf16 ");
  for (const Saved& layout : {kOne, kTp2Pp2, kDp2Distributed})  // scales belong to the shards of a layout
    check_layouts(layout, std::string(kLlamaRun) + kScaledStates, std::array{layout});
}

TEST(Checkpoint, StatesLoadInOtherDtypes) {
  const std::array layouts{kOne, kTp2Pp2, kDp2Distributed};
  check_change_of_precision(kLlamaRun, "--bf16 ", kBf16States, layouts);
  check_change_of_precision(kLlamaRun, kBf16States, "--bf16 ", layouts);
  check_change_of_precision(kLlamaRun, kScaledStates, "--bf16 ", layouts);
}

// fp8 has 4 significant bits, fp16 11; numbers far below the largest of a shard have fewer.
TEST(Checkpoint, Fp32StatesLoadInDtypesWithScales) {
  const TempFolder folder;
  State saved;
  save_after_two_steps(kOne, std::string(kLlamaRun) + "--bf16 ", folder, saved);
  State loaded;
  test::on_jobs(saved_run(kDp2Distributed, std::string(kLlamaRun) + kScaledStates), [&](Job& job) {
    restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
    loaded.add(job);
  });
  for (const auto& [kind, unit] :
       {std::pair{"main.", 0x1p-11}, {"exp_avg.", 0x1p-4}, {"exp_avg_sq.", 0x1p-11}}) {
    const std::string name = kind + std::string("decoder.layers.0.mlp.linear_fc2.weight");
    const Tensor expected = saved.full(name), got = loaded.full(name);
    const Tensor bound = expected.abs() * unit + expected.abs().max() * 0x1p-17;
    EXPECT_TRUE(((got - expected).abs() <= bound).all().item<bool>()) << name;
    EXPECT_FALSE(at::equal(got, expected)) << name;
  }
}

TEST(Checkpoint, KeepsTheMomentumOfSgdLionAndMuon) {
  for (const char* flags : {"--optimizer sgd ", "--optimizer lion ", "--optimizer muon --muon-nesterov "})
    check_every_layout(kTp2Pp2, std::string(kLlamaRun) + flags);
}

TEST(Checkpoint, StatesHaveTheNamesOfTheirOptimizer) {
  const std::pair<const char*, std::set<std::string>> kCases[] = {
      {"--bf16 ", {"exp_avg", "exp_avg_sq", "fp32_param"}},
      {"--optimizer sgd ", {"exp_avg"}},
      {"--optimizer lion --bf16 ", {"exp_avg", "fp32_param"}},
      {"--optimizer muon --bf16 ", {"exp_avg", "exp_avg_sq", "momentum_buffer", "fp32_param"}},
      {"--optimizer sgd --sgd-momentum 0 --bf16 ", {"fp32_param"}}};
  for (const auto& [flags, expected] : kCases) {
    const TempFolder folder;
    test::on_jobs(saved_run(kOne, kLlamaRun + std::string(flags)), [&](Job& job) { save_in(job, folder); });
    std::set<std::string> states;
    for (const std::string& name : checkpoint::CheckpointReader::open(folder).names())
      if (name.starts_with("optimizer.")) states.insert(name.substr(10, name.find('.', 10) - 10));
    EXPECT_EQ(states, expected) << flags;
  }
}

TEST(Checkpoint, ResumedRunEqualsUninterruptedRunBitwise) {
  const std::string scaled = std::string(kLlamaRun) + kScaledStates;
  for (const std::string& flags : {std::string(kGpt2), std::string(kLlamaRun), scaled})
    for (const Saved& layout : kSaved) {
      SCOPED_TRACE(fmt::format("{} {}", flags, layout.flags));
      const TempFolder folder;
      const auto run = saved_run(layout, flags);
      State uninterrupted, resumed;
      test::Curve whole, second;
      test::on_jobs(run, [&](Job& job) {
        const auto mine = test::train(job, 4);
        uninterrupted.add(job);
        if (job.ranks.rank() == 0) whole = mine;
      });
      test::on_jobs(run, [&](Job& job) {
        test::train(job, 2);
        save_in(job, folder);
      });
      test::on_jobs(run, [&](Job& job) {
        restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
        EXPECT_EQ(job.counters.consumed_samples, 8);
        const auto mine = test::train(job, 2);
        resumed.add(job);
        if (job.ranks.rank() == 0) second = mine;
      });
      expect_same_bits(resumed, uninterrupted);
      EXPECT_EQ(second.loss, std::vector<double>(whole.loss.begin() + 2, whole.loss.end()));
      EXPECT_EQ(second.grad_norm, std::vector<double>(whole.grad_norm.begin() + 2, whole.grad_norm.end()));
    }
}

TEST(Checkpoint, KeepsLossScale) {
  const TempFolder folder;
  const auto run = saved_run(kOne, std::string(kLlamaRun) + "--fp16 --initial-loss-scale 1024 ");
  const optim::LossScale kept{.scale = 32, .growth = 7, .hysteresis = 1, .dynamic = true};
  test::on_jobs(run, [&](Job& job) {
    job.optimizer().set_loss_scale(kept);
    save_in(job, folder);
  });
  test::on_jobs(run, [&](Job& job) {
    restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
    const auto& scale = job.optimizer().loss_scale();
    EXPECT_EQ(scale.scale, kept.scale);
    EXPECT_EQ(scale.growth, kept.growth);
    EXPECT_EQ(scale.hysteresis, kept.hysteresis);
    EXPECT_TRUE(scale.dynamic);
  });
}

TEST(Checkpoint, Bfloat16RunProvidesNoLossScale) {
  const TempFolder folder;
  const std::string fp16 = std::string(kLlamaRun) + "--fp16 --initial-loss-scale 1024 --hysteresis 3 ";
  test::on_jobs(saved_run(kOne, std::string(kLlamaRun) + "--bf16 "), [&](Job& job) { save_in(job, folder); });
  test::on_jobs(saved_run(kOne, fp16), [&](Job& job) {
    restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
    EXPECT_EQ(job.optimizer().loss_scale().scale, 1024);
    EXPECT_EQ(job.optimizer().loss_scale().hysteresis, 3);
  });
}

TEST(Checkpoint, WithoutOptimizerStatesAdamRestarts) {
  for (const char* flag : {"--no-load-optim ", "--no-save-optim --no-load-optim "}) {
    const TempFolder folder;
    const auto fresh = saved_run(kOne, std::string(kLlamaRun) + "--clip-grad 0 --load x " + flag);
    test::on_jobs(fresh, [&](Job& job) {
      test::train(job, 3);
      save_in(job, folder);
    });
    test::on_jobs(fresh, [&](Job& job) {
      restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
      EXPECT_EQ(job.counters.iteration, 3);
      EXPECT_EQ(job.counters.consumed_samples, 12);
      EXPECT_EQ(job.optimizer().steps(), 0);
      const tensor::Parameter& norm = *job.parameters().back();
      const Tensor before = norm.value.detach().clone();
      test::train(job, 1);
      // Adam's first step changes an element by the learning rate (and decay), whatever its gradient.
      const double change = (norm.value - before).abs().max().item<double>();
      EXPECT_NEAR(change, 1e-3, 1e-4 + 1e-3 * 0.1) << flag;
    });
  }
}

TEST(Checkpoint, RejectsStatesOfAnotherOptimizer) {
  const TempFolder folder;
  test::on_jobs(saved_run(kOne, kLlamaRun), [&](Job& job) { save_in(job, folder); });
  test::on_jobs(saved_run(kOne, std::string(kLlamaRun) + "--optimizer sgd "), [&](Job& job) {
    try {
      restore(job, checkpoint::CheckpointReader::open(folder), Restore::kResume);
      FAIL();
    } catch (const ConfigError& e) {
      EXPECT_NE(std::string(e.what()).find("got sgd and adam in"), std::string::npos) << e.what();
    }
    EXPECT_NO_THROW(restore(job, checkpoint::CheckpointReader::open(folder), Restore::kWeights));
  });
}

TEST(Checkpoint, OpensAsAHuggingFaceFolder) {
  for (const char* flags : {kLlamaRun, kGpt2}) {
    const TempFolder folder;
    State saved;
    std::filesystem::path step;
    test::on_jobs(saved_run(kTp2Pp2, flags), [&](Job& job) {
      test::train(job, 1);
      const auto result = save(job, folder);
      saved.add(job);
      if (job.ranks.rank() == 0) step = result.folder;
    });
    const auto source = checkpoint::CheckpointReader::open_hugging_face(step);
    EXPECT_EQ(source.hf_config().at("vocab_size"), 37);
    if (flags == std::string(kLlamaRun)) {
      const Tensor qkv = saved.full("decoder.layers.1.self_attention.linear_qkv.weight");
      EXPECT_TRUE(at::equal(source.read("model.layers.1.self_attn.k_proj.weight"), qkv.narrow(0, 16, 8)));
      EXPECT_TRUE(at::equal(source.read("lm_head.weight"), saved.full("output_layer.weight")));
    } else {
      const Tensor fc1 = saved.full("decoder.layers.1.mlp.linear_fc1.weight");
      EXPECT_TRUE(at::equal(source.read("transformer.h.1.mlp.c_fc.weight"), fc1.t()));
      EXPECT_TRUE(
          at::equal(source.read("transformer.wte.weight"), saved.full("embedding.word_embeddings.weight")));
    }
    test::on_jobs(saved_run(kOne, flags), [&](Job& job) {
      restore(job, source, Restore::kWeights);
      for (const tensor::Parameter* p : job.parameters())
        EXPECT_TRUE(at::equal(p->value.narrow(0, 0, p->spec.shape[0]), saved.full(p->spec.name)))
            << p->spec.name;
      EXPECT_EQ(job.counters.iteration, 0);
      EXPECT_THROW(restore(job, source, Restore::kResume), ConfigError);  // it has no optimizer state
    });
  }
}

TEST(Checkpoint, OverriddenIterationResetsSamplesAndSkippedSteps) {
  const nlohmann::json state{{"iteration", 5}, {"consumed_samples", 40}, {"skipped", 2}};
  config::Run run;
  run.training.global_batch_size = 6;
  const Counters kept = resumed_counters(state, run);
  EXPECT_EQ((std::array{kept.iteration, kept.consumed_samples, kept.skipped}),
            (std::array<std::int64_t, 3>{5, 40, 2}));
  run.checkpoint.override_ckpt_iteration = 3;
  const Counters counted = resumed_counters(state, run);
  EXPECT_EQ((std::array{counted.iteration, counted.consumed_samples, counted.skipped}),
            (std::array<std::int64_t, 3>{3, 18, 0}));
}

}  // namespace
}  // namespace colonnade::job
