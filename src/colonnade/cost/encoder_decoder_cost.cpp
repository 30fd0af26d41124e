// Costs of encoder-decoder models: layers with two sequence lengths, and cross-attention.
#include <algorithm>

#include "colonnade/cost/activations/sequences.h"
#include "colonnade/cost/block_sizes.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

using layout::BlockKind;

/// Equal layers of a stage; the first `recomputed` of them are fully recomputed.
struct Layers {
  std::int64_t first = 0, count = 0, recomputed = 0;
};

/// The stage's layers in [begin, end) of the model; the first `recomputed` layers of the stage are
/// recomputed.
Layers layers_in_range(const layout::StageBlocks& stage, std::int64_t recomputed, std::int64_t begin,
                       std::int64_t end) {
  Layers layers;
  layers.first = std::max(stage.layers().first, begin);
  layers.count = std::max<std::int64_t>(0, std::min(stage.layers().last, end) - layers.first);
  layers.recomputed =
      std::clamp<std::int64_t>(stage.layers().first + recomputed - layers.first, 0, layers.count);
  return layers;
}

/// Concatenation of both sequences' rows after each layer.
BlockCost sequence_concat_cost(const Sequences& s) {
  BlockCost cost;
  const auto bytes = static_cast<double>(s.hidden());
  cost.add_elementwise(2 * bytes, 2 * bytes, 1, 1);
  return cost;
}

/// Collects the blocks of a stage and the modules that selective recomputation repeats.
class StageBlockList {
 public:
  StageBlockList(const Sequences& s, const config::Run& run, AttentionKernel kernel)
      : s_(s), run_(run), kernel_(kernel) {}

  void add(const Layers& layers) {
    if (layers.count == 0) return;
    const config::Run& own = s_.run(layers.first);
    const bool crosses = s_.has_cross_attention(layers.first);
    repeat(attention_cost(own, layers.first, kernel_), layers);
    if (crosses) repeat(cross_attention_cost(run_, kernel_), layers);
    repeat(mlp_cost(own), layers);
    repeat(sequence_concat_cost(s_), layers);
    if (s_.ends_encoder(layers.first + layers.count - 1)) {
      BlockCost norm;
      add_plain_norm(norm, BlockSizes(own).hidden);
      all.push_back({norm, 1, true, layers.recomputed == layers.count ? 1.0 : 0.0});
    }
    if (run_.recompute.granularity != "selective") return;
    BlockCost norm;
    norm.add_elementwise(2 * BlockSizes(own).hidden, 0, 1, 0);
    select("layernorm", norm, (crosses ? 3.0 : 2.0) * static_cast<double>(layers.count));
    const auto count = static_cast<double>(layers.count);
    select("core_attn", core_attention_cost(own, layers.first, kernel_), count);
    if (crosses) select("core_attn", core_cross_attention_cost(run_, kernel_), count);
    select("mlp", without_norms(own, mlp_cost(own)), count);
  }

  std::vector<RepeatedBlock> all;

 private:
  void repeat(const BlockCost& cost, const Layers& layers) {
    all.push_back({cost, static_cast<double>(layers.count), true, static_cast<double>(layers.recomputed)});
  }
  void select(const char* module, const BlockCost& cost, double recomputed) {
    if (run_.recompute.recomputes(module)) all.push_back({cost, 0, true, recomputed});
  }

  const Sequences& s_;
  const config::Run& run_;
  AttentionKernel kernel_;
};

}  // namespace

BlockCost core_cross_attention_cost(const config::Run& run, AttentionKernel kernel) {
  const Sequences s(run);
  const BlockSizes z(s.run(run.model.encoder_num_layers));
  const auto keys = static_cast<double>(run.training.seq_length);
  BlockCost cost;
  cost.attention.flops = 2 * z.n * keys * 2 * z.q;
  if (kernel == AttentionKernel::kFused || (z.m.attention_dropout == 0 && z.m.attn_logit_softcapping == 0))
    return cost;
  const double passes = 11 * z.n * keys * z.heads * z.e;
  cost.add_elementwise(passes, passes, 6, 6);
  return cost;
}

BlockCost cross_attention_cost(const config::Run& run, AttentionKernel kernel) {
  const Sequences s(run);
  const BlockSizes z(s.run(run.model.encoder_num_layers)), encoder(s.run(0));
  BlockCost cost = core_cross_attention_cost(run, kernel);
  add_norm(cost, z);
  cost.matmuls = {{"cross q", z.n, z.q, z.h, LinearSharding::kColumns, z.full_hidden},
                  {"cross kv", encoder.n, 2 * z.q, z.h, LinearSharding::kColumns, encoder.full_hidden},
                  {"cross proj", z.n, z.h, z.q, LinearSharding::kRows, z.full_hidden}};
  return cost;
}

std::vector<RepeatedBlock> encoder_stage_cost(const config::Run& run, const layout::StageBlocks& stage,
                                              AttentionKernel kernel) {
  const Sequences s(run);
  const std::int64_t encoder = run.model.encoder_num_layers,
                     recomputed = layout::recomputed_layers(run, stage).dense;
  const config::Run &decoder_run = s.run(encoder), &encoder_run = s.run(0);
  StageBlockList blocks(s, run, kernel);
  if (stage.has(BlockKind::kEmbedding))
    blocks.all = {{embedding_cost(encoder_run), 1}, {embedding_cost(decoder_run), 1}};
  blocks.add(layers_in_range(stage, recomputed, 0, encoder));
  blocks.add(layers_in_range(stage, recomputed, encoder, run.model.total_layers()));
  if (stage.has(BlockKind::kFinalNorm)) blocks.all.push_back({final_norm_cost(decoder_run), 1});
  if (stage.has(BlockKind::kHead)) blocks.all.push_back({head_cost(decoder_run), 1});
  return blocks.all;
}

}  // namespace colonnade::cost
