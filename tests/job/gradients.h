// Shared by the gradient tests: models, and unsharded gradients in float64 for any layout, assembled from the
// shards of all ranks.
#pragma once

#include <map>
#include <mutex>

#include "colonnade/cost/memory.h"
#include "colonnade/job/buffers.h"
#include "colonnade/job/model.h"
#include "colonnade/schedule/kinds.h"
#include "job/runs.h"
#include "support/split.h"

namespace colonnade::test {

using Gradients = std::map<std::string, at::Tensor>;

inline constexpr const char* kCommon =
    "--num-layers 4 --hidden-size 48 --ffn-hidden-size 64 --num-attention-heads 8 --kv-channels 6 "
    "--vocab-size 61 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 2 "
    "--global-batch-size 8 --hidden-dropout 0.2 --attention-dropout 0.1 --make-vocab-size-divisible-by 1 ";
inline constexpr const char* kGroups =
    "--group-query-attention --num-query-groups 2 --position-embedding-type rope ";
inline constexpr const char* kUntied = "--untie-embeddings-and-output-weights ";

// Layers 0 and 2 are MoE layers with shared experts and two load-balancing losses.
inline constexpr const char* kExperts =
    "--num-experts 8 --moe-layer-freq 2 --moe-ffn-hidden-size 20 --moe-shared-expert-intermediate-size 12 "
    "--disable-bias-linear --swiglu --moe-router-load-balancing-type aux_loss seq_aux_loss "
    "--moe-aux-loss-coeff 0.05 0.03 --moe-z-loss-coeff 0.02 ";

// Encoder and decoder; with relative positions each has its own bias table.
inline constexpr const char* kT5Layers =
    "t5 --encoder-num-layers 4 --decoder-seq-length 8 --vocab-extra-ids 5 --init-method-std 0.2 ";
inline constexpr const char* kT5 =
    "t5 --encoder-num-layers 4 --decoder-seq-length 8 --vocab-extra-ids 5 --position-embedding-type relative "
    "--relative-attention-num-buckets 8 --relative-attention-max-distance 12 --init-method-std 0.2 ";

// BERT as Megatron trains it (pre-LN), and as published (post-LN).
inline constexpr const char* kBert = "bert --init-method-std 0.2 ";
inline constexpr const char* kPublishedBert =
    "bert --apply-residual-connection-post-layernorm --bert-no-binary-head --num-tokentypes 2 "
    "--init-method-std 0.2 ";

// GPT-OSS: sinks, windows in every second layer, YaRN, biases in all linear layers, clamped quick-geglu.
inline constexpr const char* kGptOss =
    "--group-query-attention --num-query-groups 2 --position-embedding-type yarn --rotary-scaling-factor 4 "
    "--yarn-original-max-position-embeddings 4 --normalization RMSNorm --hidden-dropout 0 "
    "--attention-dropout 0 --softmax-type learnable --window-size 5,0 --window-attn-skip-freq 2 "
    "--init-method-std 0.2 --quick-geglu --glu-linear-offset 1 --activation-func-clamp-value 1.5 "
    "--num-experts 8 --moe-ffn-hidden-size 20 --moe-aux-loss-coeff 0.05 "
    "--untie-embeddings-and-output-weights ";

// MLA with value heads narrower, and wider, than those of queries and keys.
inline constexpr const char* kLatent =
    "--multi-latent-attention --position-embedding-type rope --q-lora-rank 20 --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --attention-dropout 0 "
    "--normalization RMSNorm ";
inline constexpr const char* kLatentWithoutQueryLora =
    "--multi-latent-attention --position-embedding-type rope --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 14 --untie-embeddings-and-output-weights ";

// Two MTP depths: the last stage also uses the embedding table, tied or not.
inline constexpr const char* kMtp =
    "--mtp-num-layers 2 --mtp-loss-scaling-factor 0.5 --position-embedding-type rope ";

/// Model, gradient buffers and pipeline of one rank, as Job builds them, in float64.
struct Rank {
  Rank(const config::Run& given, comm::Communicators& ranks) : run(given) {
    const auto options = at::dtype(at::kDouble);
    const config::Dtypes dtypes = config::dtypes_of(run).in_float64();
    const layers::Context context = job::layer_context(run, ranks, options);
    std::vector<tensor::Stage*> list;
    const auto blocks = job::blocks_of(run, ranks.coord(layout::Axis::kPp));
    model = job::build_model({run, ranks, blocks, context});
    for (const auto& stage : model.stages) list.push_back(stage.get());
    data = ranks.group({layout::Axis::kDp});
    cp = ranks.group({layout::Axis::kCp});
    buffers = job::make_buffers(run, ranks, list, dtypes, at::kCPU);
    executor = std::make_unique<pipeline::Executor>(
        cost::schedule_of(run), list, ranks.group({layout::Axis::kPp}),
        job::activation_of(run, blocks, context.sequence_part()), options, context.turns);
  }

  void step() {
    pipeline::Steps steps;
    steps.batch = [this](int microbatch) {
      const auto first = (microbatch * data.size() + data.rank()) * run.training.micro_batch_size;
      return job::context_shard(batch_of(run, first), cp.rank(), cp.size(), run.model.mtp_num_layers);
    };
    steps.loss = [](const at::Tensor& y, const tensor::Batch& b) { return job::token_loss(y, b, false); };
    const double weight = 1.0 / (executor->schedule().microbatches * data.size());
    executor->train(steps, weight, job::gradient_events(*buffers));
    buffers->finish();
  }

  const config::Run& run;
  job::Model model;
  comm::Group data, cp;
  std::unique_ptr<data_parallel::GradBuffers> buffers;
  std::unique_ptr<pipeline::Executor> executor;
};

/// The local gradient of a parameter; NaN where another rank updates it.
inline at::Tensor owned_gradient(const data_parallel::GradBuffers& buffers,
                                 const data_parallel::GradBuffers::Entry& entry) {
  const std::int64_t n = entry.parameter->value.numel();
  at::Tensor all = at::full({n}, std::nan(""), at::kDouble);
  for (const data_parallel::OwnedShard& owned : buffers.owned()) {
    const std::int64_t from = std::max(owned.begin, entry.begin), to = std::min(owned.end, entry.begin + n);
    if (from < to)
      all.narrow(0, from - entry.begin, to - from)
          .copy_(owned.grads.narrow(0, from - owned.begin, to - from));
  }
  return all.view(entry.parameter->shard.shape);
}

/// Unsharded gradients of one step from the initial weights, assembled from the shards of all ranks.
inline Gradients gradients(const config::Run& run) {
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
      for (const layout::ShardBox& held : p.shard.boxes) {
        const at::Tensor there = tensor::box_view(into, held.global, held.length);
        const at::Tensor mine =
            tensor::box_view(owned_gradient(*rank.buffers, entry), held.local, held.length);
        // ReplicaCounts must agree.
        const at::Tensor both = mine.isnan().logical_or(there.isnan()).logical_not();
        if (both.any().item<bool>()) {
          EXPECT_LT(distance(mine.masked_select(both), there.masked_select(both)), 1e-12)
              << p.spec.name << " on rank " << ranks.rank();
        }
        there.copy_(at::where(mine.isnan(), there, mine));
      }
    }
  });
  return whole;
}

}  // namespace colonnade::test
