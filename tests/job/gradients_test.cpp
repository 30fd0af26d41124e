// Every gradient tensor of a GPT is the same in float64 on one rank and in every layout, with hidden and
// attention dropout on: what is dropped depends on (seed, name, global index) alone.
#include <map>
#include <mutex>

#include "colonnade/models/gpt/model.h"
#include "colonnade/plan/memory.h"
#include "job/runs.h"
#include "support/split.h"

namespace colonnade::job {
namespace {

using test::operator+;
using Gradients = std::map<std::string, at::Tensor>;

const std::vector<test::Layout> kLayouts = test::with_model_cuts({
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
});

constexpr const char* kCommon =
    "--num-layers 4 --hidden-size 48 --ffn-hidden-size 64 --num-attention-heads 8 --kv-channels 6 "
    "--vocab-size 61 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 "
    "--global-batch-size 8 --hidden-dropout 0.2 --attention-dropout 0.1 ";
constexpr const char* kGroups =
    "--group-query-attention --num-query-groups 2 --position-embedding-type rope ";
constexpr const char* kUntied = "--untie-embeddings-and-output-weights ";

/// The model, buffers and pipeline of one rank, as Job makes them, in float64.
struct Rank {
  Rank(const config::Run& given, comm::Communicators& ranks) : run(given) {
    const auto options = at::dtype(at::kDouble);
    const comm::Group tp = ranks.group({plan::Axis::kTp});
    const layers::Context context = layer_context(run, ranks, options);
    tensor::Parameter* tied = nullptr;
    std::vector<std::vector<tensor::Parameter*>> chunks;
    std::vector<tensor::Stage*> list;
    built = models::gpt::build(blocks_of(run, ranks.coord(plan::Axis::kPp)), run.model, run.parallel, context,
                               run.training.seq_length);
    for (auto& one : built) {
      if (one.word_table != nullptr) tied = one.word_table;
      chunks.push_back(one.stage.trained_parameters());
      list.push_back(&one.stage);
    }
    replicas = ranks.group({plan::Axis::kDp, plan::Axis::kCp});
    data = ranks.group({plan::Axis::kDp});
    parts = ranks.group({plan::Axis::kCp});
    buffers = std::make_unique<data_parallel::GradBuffers>(
        chunks, tied,
        data_parallel::Groups{replicas, tp, embedding_group(run, ranks), ranks.group({plan::Axis::kEdp})},
        data_parallel::Options{.bucket_elements = plan::bucket_elements(run.parallel, replicas.size()),
                               .overlap_grad_reduce = run.parallel.overlap_grad_reduce});
    const std::int64_t s = run.training.seq_length / context.sequence_part().ranks();
    executor = std::make_unique<pipeline::Executor>(
        plan::schedule_of(run), list, ranks.group({plan::Axis::kPp}),
        std::vector<std::int64_t>{s, run.training.micro_batch_size, run.model.hidden_size}, options);
  }

  void step() {
    pipeline::Steps steps;
    steps.batch = [this](int microbatch) {
      const auto first = (microbatch * data.size() + data.rank()) * run.training.micro_batch_size;
      return context_part(test::batch_of(run, first), parts.rank(), parts.size());
    };
    steps.loss = [](const at::Tensor& y, const tensor::Batch& b) { return gpt_loss(y, b, false); };
    const double weight = 1.0 / (executor->schedule().microbatches * data.size());
    executor->train(steps, weight, [this](int chunk) { buffers->arm(chunk); });
    buffers->finish();
  }

  const config::Run& run;
  std::vector<models::gpt::BuiltStage> built;
  comm::Group replicas, data, parts;
  std::unique_ptr<data_parallel::GradBuffers> buffers;
  std::unique_ptr<pipeline::Executor> executor;
};

/// One step from the initial weights; whole gradients, put together from what every rank holds.
Gradients gradients(const config::Run& run) {
  Gradients whole;
  std::mutex mutex;
  comm::run_ranks(run.parallel, [&](comm::Communicators& ranks) {
    Rank rank(run, ranks);
    rank.step();
    const std::lock_guard lock(mutex);
    for (const auto& entry : rank.buffers->entries()) {
      const tensor::Parameter& p = *entry.parameter;
      at::Tensor& into = whole[p.spec.name];
      if (!into.defined()) into = at::full(p.spec.shape, std::nan(""), at::kDouble);
      for (const plan::Part& held : p.shard.parts) {
        const at::Tensor place = tensor::box_of(into, held.global, held.length);
        const at::Tensor mine = tensor::box_of(p.main_grad, held.local, held.length);
        // Where another holder was already, it must say the same.
        const bool new_here = place.isnan().any().item<bool>();
        EXPECT_LT(test::distance(mine, new_here ? mine : place), 1e-12)
            << p.spec.name << " on rank " << ranks.rank();
        place.copy_(mine);
      }
    }
  });
  return whole;
}

void expect_all_agree(const std::string& model, const std::vector<test::Layout>& layouts = kLayouts) {
  const auto flags = test::words(kCommon + model);
  const Gradients one = gradients(test::settings(1, flags));
  for (const auto& [name, gradient] : one) EXPECT_GT(gradient.abs().max().item<double>(), 1e-9) << name;
  for (const test::Layout& layout : layouts) {
    SCOPED_TRACE(layout.name);
    const Gradients got = gradients(test::settings(layout.world, flags + test::words(layout.flags)));
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_LT(test::distance(got.at(name), gradient), 1e-9) << name;
  }
}

TEST(Gradients, OfATiedGptWithDropoutAgree) { expect_all_agree(""); }

TEST(Gradients, OfAnUntiedGptWithDropoutAgree) { expect_all_agree(kUntied); }

TEST(Gradients, OfAGptWithSharedKeysAndDropoutAgree) {
  expect_all_agree(fmt::format("{}{}", kGroups, kUntied));
}

constexpr const char* kNoAttentionDropout = "--attention-dropout 0 ";

const std::vector<test::Layout> kContextLayouts = {
    {"Cp2", 2, "--context-parallel-size 2"},
    {"Cp4AllGather", 4, "--context-parallel-size 4 --cp-comm-type all_gather"},
    {"Cp2A2a", 2, "--context-parallel-size 2 --cp-comm-type a2a"},
    {"Cp4TwoLevels", 4,
     "--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2"},
    {"Cp2Tp2SpEachKind", 4,
     "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
     "--cp-comm-type p2p a2a all_gather p2p"},
    {"Cp2Pp2Virtual2", 4,
     "--context-parallel-size 2 --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1"},
    {"Cp2Dp2", 4, "--context-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
};

TEST(Gradients, OfAGptWithSharedSequencesAgree) { expect_all_agree(kNoAttentionDropout, kContextLayouts); }

TEST(Gradients, OfAGptWithSharedSequencesKeysAndAWindowAgree) {
  expect_all_agree(fmt::format("{}{}{}--window-size 6,0 ", kNoAttentionDropout, kGroups, kUntied),
                   kContextLayouts);
}

// Heads are dropped by their number wherever they are computed.
TEST(Gradients, OfAGptWithExchangedHeadsAndAttentionDropoutAgree) {
  expect_all_agree("", {kContextLayouts[2],
                        {"Cp2Tp2Sp", 4,
                         "--context-parallel-size 2 --cp-comm-type a2a --tensor-model-parallel-size 2 "
                         "--sequence-parallel"}});
}

// Layer 0 and 2 have experts, all have shared ones and two balancing losses.
constexpr const char* kExperts =
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 20 --moe-shared-expert-intermediate-size 12 "
    "--disable-bias-linear --swiglu --moe-router-load-balancing-type aux_loss seq_aux_loss "
    "--moe-aux-loss-coeff 0.05 0.03 --moe-z-loss-coeff 0.02 ";

const std::vector<test::Layout> kExpertLayouts = {
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Ep2", 2, "--expert-model-parallel-size 2"},
    {"Ep2Of4", 4, "--expert-model-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Ep4", 4, "--expert-model-parallel-size 4"},
    {"Etp2OverDp", 2, "--expert-tensor-parallel-size 2"},
    {"Tp2Sp", 2, "--tensor-model-parallel-size 2 --sequence-parallel"},
    {"Tp2SpEp2", 2,
     "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1"},
    {"Tp2SpEp2Etp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2"},
    {"Tp4SpEp2Etp1", 4,
     "--tensor-model-parallel-size 4 --sequence-parallel --expert-model-parallel-size 2 "
     "--expert-tensor-parallel-size 1"},
    {"Tp2SpPp2Ep4", 8,
     "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
     "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1"},
};

TEST(Gradients, OfExpertsThatGatherTokensAgree) { expect_all_agree(kExperts, kExpertLayouts); }

TEST(Gradients, OfExpertsThatExchangeRowsAgree) {
  expect_all_agree(fmt::format("{}--moe-token-dispatcher-type alltoall ", kExperts), kExpertLayouts);
}

TEST(Gradients, OfExpertsWithSharedSequencesAgree) {
  const std::vector<test::Layout> layouts{
      {"Cp2", 2, "--context-parallel-size 2"},
      {"Cp2Ep2", 2, "--context-parallel-size 2 --expert-model-parallel-size 2"},
      {"Cp2Tp2SpEp4Etp1", 4,
       "--context-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "
       "--expert-model-parallel-size 4 --expert-tensor-parallel-size 1 --cp-comm-type a2a"},
      {"Cp2Dp2Ep2Etp2", 4,
       "--context-parallel-size 2 --expert-model-parallel-size 2 --expert-tensor-parallel-size 2"}};
  for (const char* dispatcher : {"allgather", "alltoall"})
    expect_all_agree(
        fmt::format("{}{}--moe-token-dispatcher-type {} ", kNoAttentionDropout, kExperts, dispatcher),
        layouts);
}

TEST(Gradients, OfPlainRoutersAgree) {
  for (const char* router : {"--moe-router-pre-softmax --moe-router-topk 1",
                             "--moe-router-score-function sigmoid --moe-router-topk 4 "
                             "--moe-router-num-groups 4 --moe-router-group-topk 2 "
                             "--moe-router-topk-scaling-factor 2.5 --moe-shared-expert-gate"})
    expect_all_agree(fmt::format("{}{} ", kExperts, router), {kExpertLayouts[3], kExpertLayouts[7]});
}

// As GPT-OSS: sinks, windows in every second layer, YaRN, biases of all linears, bounded quick-geglu.
constexpr const char* kGptOss =
    "--group-query-attention --num-query-groups 2 --position-embedding-type yarn --rotary-scaling-factor 4 "
    "--yarn-original-max-position-embeddings 4 --normalization RMSNorm --hidden-dropout 0 "
    "--attention-dropout 0 --softmax-type learnable --window-size 5,0 --window-attn-skip-freq 2 "
    "--init-method-std 0.2 --quick-geglu --glu-linear-offset 1 --activation-func-clamp-value 1.5 "
    "--num-experts 8 --moe-ffn-hidden-size 20 --moe-aux-loss-coeff 0.05 "
    "--untie-embeddings-and-output-weights ";

TEST(Gradients, OfAGptOssThatGathersTokensAgree) { expect_all_agree(kGptOss, kExpertLayouts); }

TEST(Gradients, OfAGptOssThatExchangesRowsAgree) {
  expect_all_agree(fmt::format("{}--moe-token-dispatcher-type alltoall ", kGptOss), kExpertLayouts);
}

// As Gemma 3, with Gemma 2's soft cap: sandwich norms, two rotary bases, scaled embeddings that are tied.
TEST(Gradients, OfAGemmaAgree) {
  expect_all_agree(
      "--group-query-attention --num-query-groups 2 --position-embedding-type rope --rotary-base 1000000 "
      "--rotary-base-local 10000 --normalization RMSNorm --apply-layernorm-1p --qk-layernorm --sandwich-norm "
      "--scale-embeddings --query-pre-attn-scalar 12 --attn-logit-softcapping 0.5 --activation geglu-tanh "
      "--disable-bias-linear --window-size 5,0 --window-attn-skip-freq [1,1,0,1] --softmax-type vanilla ");
}

// Heads of values narrower than those of queries and keys, and wider.
constexpr const char* kLatent =
    "--multi-latent-attention --position-embedding-type rope --q-lora-rank 20 --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --attention-dropout 0 "
    "--normalization RMSNorm ";
constexpr const char* kLatentOfHidden =
    "--multi-latent-attention --position-embedding-type rope --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 14 --untie-embeddings-and-output-weights ";

const std::vector<test::Layout> kLatentLayouts = test::with_model_cuts({
    {"Tp4", 4, "--tensor-model-parallel-size 4"},
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
});

TEST(Gradients, OfLatentAttentionAgree) { expect_all_agree(kLatent, kLatentLayouts); }

TEST(Gradients, OfLatentAttentionWithDropoutAgree) { expect_all_agree(kLatentOfHidden, kLatentLayouts); }

TEST(Gradients, OfLatentAttentionWithExpertsAgree) {
  expect_all_agree(fmt::format("{}{}", kLatent, kExperts),
                   {kExpertLayouts[1], kExpertLayouts[6], kExpertLayouts[9]});
}

// Two further tokens: the last stage reads the embedding's table too, tied or not.
constexpr const char* kFurther =
    "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.5 --position-embedding-type rope ";

const std::vector<test::Layout> kFurtherLayouts = test::with_model_cuts({
    {"Dp2", 2, "--overlap-grad-reduce --ddp-bucket-size 5000"},
    {"Tp2SpPp2Dp2", 8, "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2"},
    {"Pp2ZbV", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v"},
    {"Pp2ZbH1", 2, "--pipeline-model-parallel-size 2 --pipeline-schedule zb-h1"},
    {"LastStageAlone", 4, "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout Et|tt|t|mmL"},
});

TEST(Gradients, OfFurtherTokensAgree) { expect_all_agree(kFurther, kFurtherLayouts); }

TEST(Gradients, OfFurtherTokensUntiedAgree) {
  expect_all_agree(fmt::format("{}{}", kFurther, kUntied), kFurtherLayouts);
}

TEST(Gradients, OfFurtherTokensWithExpertsAndLatentAttentionAgree) {
  expect_all_agree(fmt::format("{}{}{}{}--moe-layer-freq [0,1,0,1] ", kLatent, kFurther, kUntied, kExperts),
                   {kExpertLayouts[1], kExpertLayouts[6], kExpertLayouts[9]});
}

// Eight layers, eight micro-batches or more, so that every schedule fills the pipeline of four.
constexpr const char* kDeep =
    "--num-layers 8 --hidden-size 32 --ffn-hidden-size 48 --kv-channels 4 --micro-batch-size 1 "
    "--global-batch-size 16 ";

constexpr const char* kSchedules[] = {
    "--pipeline-schedule gpipe",
    "--pipeline-schedule 1f1b --delay-wgrad-compute",
    "--num-virtual-stages-per-pipeline-rank 2 --delay-wgrad-compute",
    "--pipeline-schedule zb-h1",
    "--pipeline-schedule zb-v",
    "--pipeline-schedule dualpipe-v",
};

void expect_schedules_agree(const std::string& model) {
  const auto flags = test::words(fmt::format("{}{}{}", kCommon, kDeep, model));
  const Gradients one = gradients(test::settings(1, flags));
  const auto expect_same = [&](int world, const std::string& layout) {
    SCOPED_TRACE(layout);
    const Gradients got = gradients(test::settings(world, flags + test::words(layout)));
    ASSERT_EQ(got.size(), one.size());
    for (const auto& [name, gradient] : one) EXPECT_LT(test::distance(got.at(name), gradient), 1e-9) << name;
  };
  for (const char* schedule : kSchedules)
    for (const int pp : {2, 4}) {
      const auto layout = fmt::format("--pipeline-model-parallel-size {} {}", pp, schedule);
      expect_same(pp, layout);
      expect_same(2 * pp, layout + " --overlap-grad-reduce --ddp-bucket-size 3000");
    }
  expect_same(8,
              "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
              "--pipeline-schedule zb-v --overlap-grad-reduce --ddp-bucket-size 3000");
}

// Embedding and head share their weights, on the first rank of a V in one place.
TEST(Gradients, OfEveryScheduleAgreeWithTiedEmbeddings) { expect_schedules_agree(""); }

TEST(Gradients, OfEveryScheduleAgreeUntied) { expect_schedules_agree(kUntied); }

TEST(Gradients, OfExpertsAgreeInAV) {
  expect_all_agree(kExperts,
                   {{"Pp2Ep2ZbV", 4,
                     "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v "
                     "--expert-model-parallel-size 2 --overlap-grad-reduce --ddp-bucket-size 5000"}});
}

TEST(Gradients, AreTheBitsOf1F1BWhenWeightsWait) {
  const auto flags = test::words(fmt::format("{}{}{}", kCommon, kDeep, kUntied)) +
                     test::words("--pipeline-model-parallel-size 2");
  const Gradients whole = gradients(test::settings(2, flags));
  for (const char* schedule : {"--pipeline-schedule zb-h1", "--pipeline-schedule zb-v",
                               "--pipeline-schedule dualpipe-v", "--delay-wgrad-compute"}) {
    const Gradients split = gradients(test::settings(2, flags + test::words(schedule)));
    for (const auto& [name, gradient] : whole) EXPECT_TRUE(at::equal(split.at(name), gradient)) << name;
  }
}

TEST(Gradients, ChangeWithWhatIsDropped) {
  const auto flags = test::words(kCommon);
  const Gradients one = gradients(test::settings(1, flags));
  for (const char* other : {"--hidden-dropout 0", "--attention-dropout 0"}) {
    const Gradients changed = gradients(test::settings(1, flags + test::words(other)));
    const std::string name = "decoder.layers.0.mlp.linear_fc1.weight";
    EXPECT_GT(test::distance(changed.at(name), one.at(name)), 1e-3) << other;
  }
}

}  // namespace
}  // namespace colonnade::job
