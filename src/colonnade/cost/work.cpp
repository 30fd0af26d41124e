// Counts by formula; see work.h for the letters.
#include "colonnade/cost/work.h"

#include <algorithm>
#include <utility>

#include "colonnade/cost/flops.h"
#include "colonnade/cost/work_sizes.h"
#include "colonnade/layout/params/gpt.h"
#include "colonnade/layout/recompute.h"

namespace colonnade::cost {

Work embedding_work(const config::Run& run) {
  const WorkSizes z(run);
  Work work;
  const double kinds = z.m.num_tokentypes > 0 ? 1 : 0;
  work.pass(2 * z.whole + kinds * z.hidden, 2 * z.whole + kinds * z.hidden, 2 + static_cast<int>(kinds),
            2 + static_cast<int>(kinds));
  add_closing(work, z, z.whole);
  return work;
}

Work mlp_work(const config::Run& run) {
  const WorkSizes z(run);
  Work work;
  add_norm(work, z);
  add_sandwich_norm(work, z);
  add_mlp(work, z, "fc1", "fc2", z.ffn);
  return work;
}

Work head_work(const config::Run& run) {
  const WorkSizes z(run);
  Work work;
  const double rows = static_cast<double>(padded_vocab_size(z.m, static_cast<int>(z.t))) / z.t;
  const double logits = z.n * rows * z.e;
  work.pass(2 * logits, 2 * logits, 4, 1);
  work.products = {{"output", z.n, rows, z.h, LinearCut::kColumns, z.whole}};
  if (!z.m.lm_head_transform) return work;
  add_plain_norm(work, z.hidden);
  work.pass(2 * z.hidden, 3 * z.hidden, 1, 1);
  work.products.push_back({"dense", z.r, z.h, z.h, LinearCut::kWhole});
  if (!z.m.bert_binary_head) return work;
  const auto samples = static_cast<double>(run.training.micro_batch_size);
  work.products.push_back({"pooler", samples, z.h, z.h, LinearCut::kWhole});
  work.products.push_back({"binary head", samples, 2, z.h, LinearCut::kWhole});
  if (z.by_sequence) work.collectives.push_back({Among::kTensor, false, samples * z.h * z.e, 1, 0});
  return work;
}

Work final_norm_work(const config::Run& run) {
  Work work;
  add_norm(work, WorkSizes(run));
  return work;
}

Work joined_states_work(const config::Run& run, const layout::StageBlocks& stage) {
  Work work;
  const auto bytes = [&](std::int64_t states) { return static_cast<double>(states) * WorkSizes(run).hidden; };
  if (stage.states_out > stage.states_in) work.pass(2 * bytes(stage.states_out), 0, 1, 0);
  if (stage.states_in > stage.states_out) work.pass(0, 2 * bytes(stage.states_in), 0, 1);
  return work;
}

Work prediction_work(const config::Run& run) {
  const WorkSizes z(run);
  Work work;
  add_plain_norm(work, z.hidden);
  add_plain_norm(work, z.hidden);
  work.pass(4 * z.hidden, 4 * z.hidden, 1, 1);
  work.products = {{"eh_proj", z.r, z.h, 2 * z.h, LinearCut::kWhole}};
  return work;
}

Work without_norms(const config::Run& run, Work work) {
  const WorkSizes z(run);
  Work norms;
  add_norm(norms, z);
  add_sandwich_norm(norms, z);
  work.pass(-norms.forward_bytes, -norms.backward_bytes, -norms.forward_kernels, -norms.backward_kernels);
  return work;
}

namespace {

double real(std::int64_t number) { return static_cast<double>(number); }

/// Layers of a stage whose attention is alike: the first one, and how many.
std::vector<std::pair<std::int64_t, std::int64_t>> alike(const config::Run& run,
                                                         const layout::StageBlocks& stage) {
  if (stage.num_layers == 0) return {};
  const bool one_window = run.model.window_size == 0 || run.model.window_attn_skip_freq.empty();
  if (one_window && (run.parallel.context_parallel_size == 1 || run.parallel.cp_comm_type.size() == 1))
    return {{stage.first_layer, stage.num_layers}};
  std::vector<std::pair<std::int64_t, std::int64_t>> layers;
  for (std::int64_t i = 0; i < stage.num_layers; ++i) layers.emplace_back(stage.first_layer + i, 1);
  return layers;
}

/// Attention of the stage's layers, of which the first `again` are made again.
void add_attentions(const config::Run& run, const layout::StageBlocks& stage, ScoresIn scores,
                    std::int64_t again, std::vector<RepeatedWork>& parts) {
  for (const auto& [first, count] : alike(run, stage)) {
    const std::int64_t left = stage.first_layer + again - first;
    parts.push_back({attention_work(run, first, scores), real(count), true,
                     real(std::clamp(left, std::int64_t{0}, count))});
  }
}

/// Each further token is embedded and passes a layer of the last one's kind.
void add_predictions(const config::Run& run, ScoresIn scores, std::vector<RepeatedWork>& parts) {
  const auto depths = static_cast<double>(run.model.mtp_num_layers);
  if (depths == 0) return;
  const double again = layout::makes_predictions_again(run.recompute) ? depths : 0;
  const bool experts = layout::layers_with_experts(run.model).back();
  parts.push_back({embedding_work(run), depths});
  parts.push_back({prediction_work(run), depths, false, again});
  parts.push_back({attention_work(run, run.model.num_layers, scores), depths, true, again});
  parts.push_back({experts ? experts_work(run) : mlp_work(run), depths, true, again});
}

/// What is made again of every layer by itself.
void add_selected(const config::Run& run, const layout::StageBlocks& stage, ScoresIn scores,
                  std::vector<RepeatedWork>& parts) {
  if (run.recompute.granularity != "selective") return;
  const layout::LayerCounts layers = layout::layers_with_predictions(run.model, stage);
  const double dense = real(layers.dense), experts = real(layers.experts);
  const auto add = [&](const char* module, const Work& work, double again) {
    if (run.recompute.selects(module) && again > 0) parts.push_back({work, 0, true, again});
  };
  Work norm;
  norm.pass(2 * WorkSizes(run).hidden, 0, 1, 0);
  add("layernorm", norm, 2 * (dense + experts));
  const auto add_attention = [&](std::int64_t layer, double again) {
    add("core_attn", core_attention_work(run, layer, scores), again);
    if (run.model.latent.enabled) add("mla_up_proj", narrow_heads_work(run, layer), again);
  };
  for (const auto& [first, count] : alike(run, stage)) add_attention(first, real(count));
  if (stage.final_norm) add_attention(run.model.num_layers, real(run.model.mtp_num_layers));
  add("mlp", without_norms(run, mlp_work(run)), dense);
  if (layers.experts == 0) return;
  add("moe", without_norms(run, experts_work(run)), experts);
  if (run.recompute.selects("moe")) return;
  add("moe_act", expert_activation_work(run), experts);
  add("shared_experts", shared_experts_work(run), experts);
}

}  // namespace

std::vector<RepeatedWork> stage_work(const config::Run& run, const layout::StageBlocks& stage,
                                     ScoresIn scores) {
  if (run.model.has_encoder()) return encoder_stage_work(run, stage, scores);
  const layout::LayerCounts counts = layout::layers_of(run.model, stage),
                            whole = layout::layers_made_again(run, stage);
  std::vector<RepeatedWork> parts;
  if (stage.embedding) parts.push_back({embedding_work(run), 1});
  add_attentions(run, stage, scores, whole.dense + whole.experts, parts);
  if (counts.dense > 0) parts.push_back({mlp_work(run), real(counts.dense), true, real(whole.dense)});
  if (counts.experts > 0)
    parts.push_back({experts_work(run), real(counts.experts), true, real(whole.experts)});
  const double predicted = 1 + real(run.model.mtp_num_layers);
  if (stage.final_norm) parts.push_back({final_norm_work(run), predicted});
  if (stage.final_norm) add_predictions(run, scores, parts);
  if (stage.states_out != stage.states_in) parts.push_back({joined_states_work(run, stage), 1});
  if (stage.head) parts.push_back({head_work(run), predicted});
  add_selected(run, stage, scores, parts);
  return parts;
}

}  // namespace colonnade::cost
