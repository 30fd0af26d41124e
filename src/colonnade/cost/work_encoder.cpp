// An encoder and its decoder: layers of two lengths side by side, and attention from one to the other.
#include <algorithm>

#include "colonnade/cost/activations/sequences.h"
#include "colonnade/cost/work_sizes.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {
namespace {

/// Layers of a stage that are alike: the first ones of `count` are made again as a whole.
struct Layers {
  std::int64_t first = 0, count = 0, again = 0;
};

/// Those in [begin, end) of the model, of a stage whose first `again` layers are made again.
Layers layers_between(const layout::StageBlocks& stage, std::int64_t again, std::int64_t begin,
                      std::int64_t end) {
  Layers layers;
  layers.first = std::max(stage.first_layer, begin);
  layers.count =
      std::max<std::int64_t>(0, std::min(stage.first_layer + stage.num_layers, end) - layers.first);
  layers.again = std::clamp<std::int64_t>(stage.first_layer + again - layers.first, 0, layers.count);
  return layers;
}

/// The rows of both sequences are laid side by side behind each layer.
Work laid_side_by_side(const Sequences& s) {
  Work work;
  const auto bytes = static_cast<double>(s.hidden());
  work.pass(2 * bytes, 2 * bytes, 1, 1);
  return work;
}

/// The parts of a layer, besides those of its kind alone, and what is made again of each by itself.
class Parts {
 public:
  Parts(const Sequences& s, const config::Run& run, ScoresIn scores) : s_(s), run_(run), scores_(scores) {}

  void add(const Layers& layers) {
    if (layers.count == 0) return;
    const config::Run& own = s_.run(layers.first);
    const bool crosses = s_.crosses(layers.first);
    repeat(attention_work(own, layers.first, scores_), layers);
    if (crosses) repeat(cross_attention_work(run_, scores_), layers);
    repeat(mlp_work(own), layers);
    repeat(laid_side_by_side(s_), layers);
    if (s_.ends_encoder(layers.first + layers.count - 1)) {
      Work norm;
      add_plain_norm(norm, WorkSizes(own).hidden);
      all.push_back({norm, 1, true, layers.again == layers.count ? 1.0 : 0.0});
    }
    if (run_.recompute.granularity != "selective") return;
    Work norm;
    norm.pass(2 * WorkSizes(own).hidden, 0, 1, 0);
    select("layernorm", norm, (crosses ? 3.0 : 2.0) * static_cast<double>(layers.count));
    const auto count = static_cast<double>(layers.count);
    select("core_attn", core_attention_work(own, layers.first, scores_), count);
    if (crosses) select("core_attn", core_cross_attention_work(run_, scores_), count);
    select("mlp", without_norms(own, mlp_work(own)), count);
  }

  std::vector<RepeatedWork> all;

 private:
  void repeat(const Work& work, const Layers& layers) {
    all.push_back({work, static_cast<double>(layers.count), true, static_cast<double>(layers.again)});
  }
  void select(const char* module, const Work& work, double again) {
    if (run_.recompute.selects(module)) all.push_back({work, 0, true, again});
  }

  const Sequences& s_;
  const config::Run& run_;
  ScoresIn scores_;
};

}  // namespace

Work core_cross_attention_work(const config::Run& run, ScoresIn scores) {
  const Sequences s(run);
  const WorkSizes z(s.run(run.model.encoder_num_layers));
  const auto keys = static_cast<double>(run.training.seq_length);
  Work work;
  work.attention.flops = 2 * z.n * keys * 2 * z.q;
  if (scores == ScoresIn::kKernel || (z.m.attention_dropout == 0 && z.m.attn_logit_softcapping == 0))
    return work;
  const double passes = 11 * z.n * keys * z.heads * z.e;
  work.pass(passes, passes, 6, 6);
  return work;
}

Work cross_attention_work(const config::Run& run, ScoresIn scores) {
  const Sequences s(run);
  const WorkSizes z(s.run(run.model.encoder_num_layers)), encoder(s.run(0));
  Work work = core_cross_attention_work(run, scores);
  add_norm(work, z);
  work.products = {{"cross q", z.n, z.q, z.h, LinearCut::kColumns, z.whole},
                   {"cross kv", encoder.n, 2 * z.q, z.h, LinearCut::kColumns, encoder.whole},
                   {"cross proj", z.n, z.h, z.q, LinearCut::kRows, z.whole}};
  return work;
}

std::vector<RepeatedWork> encoder_stage_work(const config::Run& run, const layout::StageBlocks& stage,
                                             ScoresIn scores) {
  const Sequences s(run);
  const std::int64_t encoder = run.model.encoder_num_layers,
                     again = layout::layers_made_again(run, stage).dense;
  const config::Run &decoder_run = s.run(encoder), &encoder_run = s.run(0);
  Parts parts(s, run, scores);
  if (stage.embedding) parts.all = {{embedding_work(encoder_run), 1}, {embedding_work(decoder_run), 1}};
  parts.add(layers_between(stage, again, 0, encoder));
  parts.add(layers_between(stage, again, encoder, run.model.all_layers()));
  if (stage.final_norm) parts.all.push_back({final_norm_work(decoder_run), 1});
  if (stage.head) parts.all.push_back({head_work(decoder_run), 1});
  return parts.all;
}

}  // namespace colonnade::cost
