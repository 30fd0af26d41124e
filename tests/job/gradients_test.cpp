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
    data = ranks.group({plan::Axis::kDp, plan::Axis::kCp});
    buffers = std::make_unique<data_parallel::GradBuffers>(
        chunks, tied,
        data_parallel::Groups{data, tp, embedding_group(run, ranks), ranks.group({plan::Axis::kEdp})},
        data_parallel::Options{.bucket_elements = plan::bucket_elements(run.parallel, data.size()),
                               .overlap_grad_reduce = run.parallel.overlap_grad_reduce,
                               .overlap_param_gather = run.parallel.overlap_param_gather,
                               .sharding = plan::sharding_of(run.parallel),
                               .units = data_parallel::units_of(list)});
    for (tensor::Stage* stage : list) buffers->attach(*stage);
    const std::int64_t s = run.training.seq_length / (run.parallel.sequence_parallel ? tp.size() : 1);
    executor = std::make_unique<pipeline::Executor>(
        plan::schedule_of(run), list, ranks.group({plan::Axis::kPp}),
        std::vector<std::int64_t>{s, run.training.micro_batch_size, run.model.hidden_size}, options);
  }

  void step() {
    pipeline::Steps steps;
    steps.batch = [this](int microbatch) {
      return test::batch_of(run, (microbatch * data.size() + data.rank()) * run.training.micro_batch_size);
    };
    steps.loss = [](const at::Tensor& y, const tensor::Batch& b) { return gpt_loss(y, b, false); };
    const double weight = 1.0 / (executor->schedule().microbatches * data.size());
    executor->train(steps, weight, [this](int chunk) { buffers->arm(chunk); });
    buffers->finish();
  }

  const config::Run& run;
  std::vector<models::gpt::BuiltStage> built;
  comm::Group data;
  std::unique_ptr<data_parallel::GradBuffers> buffers;
  std::unique_ptr<pipeline::Executor> executor;
};

/// The local gradient of a parameter; not a number where another rank updates it.
at::Tensor owned_gradient(const data_parallel::GradBuffers& buffers,
                          const data_parallel::GradBuffers::Entry& entry) {
  const std::int64_t n = entry.parameter->value.numel();
  at::Tensor all = at::full({n}, std::nan(""), at::kDouble);
  for (const data_parallel::Owned& owned : buffers.owned()) {
    const std::int64_t from = std::max(owned.begin, entry.begin), to = std::min(owned.end, entry.begin + n);
    if (from < to)
      all.narrow(0, from - entry.begin, to - from)
          .copy_(owned.grads.narrow(0, from - owned.begin, to - from));
  }
  return all.view(entry.parameter->shard.shape);
}

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
        const at::Tensor mine = tensor::box_of(owned_gradient(*rank.buffers, entry), held.local, held.length);
        // Where another holder was already, it must say the same.
        const at::Tensor both = mine.isnan().logical_or(place.isnan()).logical_not();
        if (both.any().item<bool>()) {
          EXPECT_LT(test::distance(mine.masked_select(both), place.masked_select(both)), 1e-12)
              << p.spec.name << " on rank " << ranks.rank();
        }
        place.copy_(at::where(mine.isnan(), place, mine));
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

TEST(Gradients, OfPlainRoutersAgree) {
  for (const char* router : {"--moe-router-pre-softmax --moe-router-topk 1",
                             "--moe-router-score-function sigmoid --moe-router-topk 4 "
                             "--moe-router-num-groups 4 --moe-router-group-topk 2 "
                             "--moe-router-topk-scaling-factor 2.5 --moe-shared-expert-gate"})
    expect_all_agree(fmt::format("{}{} ", kExperts, router), {kExpertLayouts[3], kExpertLayouts[7]});
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

/// Bits of the same layout that keeps everything, dropout on.
void expect_same_bits_made_again(int world, const std::string& settings,
                                 std::initializer_list<const char*> kinds) {
  SCOPED_TRACE(settings);
  const auto flags = test::words(kCommon + settings);
  const Gradients kept = gradients(test::settings(world, flags));
  for (const char* kind : kinds) {
    const Gradients again = gradients(test::settings(world, flags + test::words(kind)));
    ASSERT_EQ(again.size(), kept.size());
    for (const auto& [name, gradient] : kept)
      EXPECT_TRUE(at::equal(again.at(name), gradient)) << kind << name;
  }
}

constexpr const char* kAllAgain =
    "--recompute-granularity full --recompute-method uniform --recompute-num-layers 2";
constexpr const char* kSomeAgain =
    "--recompute-granularity full --recompute-method block --recompute-num-layers 1";
constexpr const char* kPartsAgain =
    "--recompute-granularity selective --recompute-modules core_attn layernorm mlp";

TEST(Gradients, AreTheBitsOfActivationsThatAreKept) {
  const auto expect = [](int world, const std::string& layout) {
    for (const char* model : {kUntied,
                              "--group-query-attention --num-query-groups 2 --swiglu --qk-layernorm "
                              "--position-embedding-type rope --disable-bias-linear "
                              "--normalization RMSNorm --hidden-dropout 0 "})
      expect_same_bits_made_again(world, model + layout,
                                  {"--recompute-activations", kAllAgain, kSomeAgain, kPartsAgain});
  };
  expect(1, "");
  expect(4,
         "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 "
         "--num-virtual-stages-per-pipeline-rank 2 --num-layers 8");
  expect(4,
         "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-h1 "
         "--micro-batch-size 1");
  expect(4,
         "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --micro-batch-size 1 --num-layers 8 "
         "--global-batch-size 16 --overlap-grad-reduce --ddp-bucket-size 3000");
}

TEST(Gradients, OfExpertsAreTheBitsOfActivationsThatAreKept) {
  for (const char* dispatcher : {"allgather", "alltoall"}) {
    const auto expect = [&](int world, const char* layout) {
      expect_same_bits_made_again(
          world, fmt::format("{}--moe-token-dispatcher-type {} {}", kExperts, dispatcher, layout),
          {kAllAgain, kPartsAgain, "--recompute-granularity selective --recompute-modules moe core_attn",
           "--recompute-granularity selective --recompute-modules moe_act shared_experts layernorm"});
    };
    expect(1, "");
    expect(4, "--tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2");
    expect(4,
           "--pipeline-model-parallel-size 2 --pipeline-schedule zb-v --expert-model-parallel-size 2 "
           "--overlap-grad-reduce --ddp-bucket-size 5000 --micro-batch-size 1");
  }
}

constexpr const char* kShardings[] = {
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params",
    "--use-megatron-fsdp --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 2000",
};

void expect_shardings_agree(const std::string& model, const std::vector<test::Layout>& layouts) {
  const auto flags = test::words(kCommon + model);
  const Gradients one = gradients(test::settings(1, flags));
  for (const test::Layout& layout : layouts)
    for (const char* sharding : kShardings) {
      SCOPED_TRACE(fmt::format("{} {}", layout.name, sharding));
      const Gradients got =
          gradients(test::settings(layout.world, flags + test::words(layout.flags) + test::words(sharding)));
      ASSERT_EQ(got.size(), one.size());
      for (const auto& [name, gradient] : one)
        EXPECT_LT(test::distance(got.at(name), gradient), 1e-9) << name;
    }
}

TEST(Gradients, AgreeWhenDataRanksShardThem) {
  expect_shardings_agree(
      fmt::format("{}{}", kGroups, kUntied),
      {{"Dp2", 2, ""},
       {"Tp2SpDp2", 4, "--tensor-model-parallel-size 2 --sequence-parallel"},
       {"Pp2Virtual2Dp2", 4,
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}});
  expect_shardings_agree(
      fmt::format("{}{}", kExperts, kUntied),
      {{"Ep2Of4", 4, "--expert-model-parallel-size 2"}, {"Ep2Of2", 2, "--expert-model-parallel-size 2"}});
}

TEST(Gradients, AreTheBitsOfTheDistributedOptimizersWithOneMicroBatch) {
  const auto flags = test::words(fmt::format("{}{}{}", kCommon, kUntied, "--micro-batch-size 4 "));
  const Gradients one = gradients(test::settings(2, flags + test::words("--use-distributed-optimizer")));
  for (const char* sharding : kShardings) {
    const Gradients sharded = gradients(test::settings(2, flags + test::words(sharding)));
    for (const auto& [name, gradient] : one) EXPECT_TRUE(at::equal(sharded.at(name), gradient)) << name;
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
