// Derived settings. Source: Megatron's training/arguments.py (validate_args).
#include "colonnade/config/derive.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>

#include "colonnade/config/attention.h"
#include "colonnade/config/batch_schedule.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/config/stacks.h"

namespace colonnade::config {

namespace {

void derive_model(Model& m) {
  if (!m.output_layer_bias)
    m.output_layer_bias =
        m.bidirectional || (has_several_stacks(m) && !m.untie_embeddings_and_output_weights);
  if (m.bert_binary_head && m.num_tokentypes == 0) m.num_tokentypes = 2;
  if (m.ffn_hidden_size == 0) {
    m.ffn_hidden_size =
        m.activation == Activation::kSwiglu ? m.hidden_size * 8 / 3 / 64 * 64 : m.hidden_size * 4;
  }
  if (m.moe.num_experts > 0 && m.moe.ffn_hidden_size == 0) m.moe.ffn_hidden_size = m.ffn_hidden_size;
}

/// Virtual stages per rank from layers per virtual stage; unchanged if the layers do not divide.
void derive_stages(const Model& m, Parallel& p) {
  if (p.num_layers_per_virtual_pipeline_stage == 0 || p.num_virtual_stages_per_pipeline_rank != 0) return;
  const std::int64_t layers = m.total_layers() + (p.account_for_embedding_in_pipeline_split ? 1 : 0) +
                              (p.account_for_loss_in_pipeline_split ? 1 : 0);
  const std::int64_t layers_per_round =
      std::int64_t{p.pipeline_model_parallel_size} * p.num_layers_per_virtual_pipeline_stage;
  if (layers % layers_per_round != 0) return;
  p.num_virtual_stages_per_pipeline_rank = static_cast<int>(layers / layers_per_round);
  p.num_layers_per_virtual_pipeline_stage = 0;
}

bool has_one_tensor_rank(const Run& r) {
  return r.parallel.tensor_model_parallel_size == 1 && !r.invalid_keys.contains("tensor_model_parallel_size");
}

/// Note text of a no-op flag.
const std::string& note_text(const Setting& s, const Run& run) {
  const auto note =
      std::ranges::find_if(s.conditional_notes, [&](const ConditionalNote& n) { return n.applies(run); });
  return note == s.conditional_notes.end() ? s.help : note->text;
}

/// One note per reason, for all flags that share it.
void note_flags_without_effect(Run& run) {
  std::vector<std::pair<std::string, std::string>> by_reason;
  for (const std::string& key : run.no_op_flags) {
    const Setting& s = setting(key);
    const std::string& instead = note_text(s, run);
    const auto same = std::ranges::find(by_reason, instead, &std::pair<std::string, std::string>::first);
    if (same == by_reason.end())
      by_reason.emplace_back(instead, s.flag);
    else
      same->second += ", " + s.flag;
  }
  for (const auto& [instead, flags] : by_reason) run.notes.push_back(flags + ": " + instead);
  run.no_op_flags.clear();
}

/// NCCL supports GPU tensors only, but launch scripts request it on the CPU too.
void derive_backend(Run& run) {
  auto& backend = run.training.distributed_backend;
  const bool cuda = run.training.device == "cuda";
  if (!cuda && backend == "nccl")
    run.notes.emplace_back("--distributed-backend: gloo replaces nccl on the CPU");
  if (!backend || !cuda) backend = cuda ? "nccl" : "gloo";
}

bool is_power_of_two(int n) { return std::has_single_bit(static_cast<unsigned>(std::max(n, 1))); }

/// Flag and value of a dtype of the optimizer with which results depend on the layout: sums in bf16 are
/// rounded in another order, and each shard of a tensor has a scale of its own. "" if there is none.
std::string layout_dependent_dtype(const Optimizer& o) {
  if (o.main_grads_dtype != Dtype::kFloat32) return "--main-grads-dtype bf16";
  for (const auto& [flag, dtype] :
       {std::pair{"--main-params-dtype", o.main_params_dtype}, std::pair{"--exp-avg-dtype", o.exp_avg_dtype},
        std::pair{"--exp-avg-sq-dtype", o.exp_avg_sq_dtype}})
    if (has_scale(dtype)) return fmt::format("{} {}", flag, name(dtype));
  return "";
}

/// Settings with which the order of gradient sums depends on the layout, so that --deterministic-mode cannot
/// make layouts bitwise identical; "" if there are none.
std::string layout_dependence(const Run& run) {
  const Parallel& p = run.parallel;
  const Moe& moe = run.model.moe;
  if (!is_power_of_two(p.context_parallel_size))
    return fmt::format("--context-parallel-size {}, which is not a power of two", p.context_parallel_size);
  if (moe.num_experts > 0 && !is_power_of_two(p.tensor_model_parallel_size))
    return fmt::format("experts and --tensor-model-parallel-size {}, which is not a power of two",
                       p.tensor_model_parallel_size);
  if (p.num_distributed_optimizer_instances > 1) return "--num-distributed-optimizer-instances";
  if (p.grad_reduce_in_bf16) return "--grad-reduce-in-bf16";
  if (run.optimizer.qk_clip) return "--qk-clip";  // scores are rounded by the shapes of their GEMMs
  if (const std::string dtype = layout_dependent_dtype(run.optimizer); !dtype.empty()) return dtype;
  const auto& kinds = moe.router_load_balancing_type;
  const bool has_global_loss = std::ranges::find(kinds, "global_aux_loss") != kinds.end();
  return moe.num_experts > 0 && has_global_loss ? "--moe-router-load-balancing-type global_aux_loss" : "";
}

/// Repeated launches are bitwise identical in any case, which is all that Megatron's flag means.
void derive_determinism(Run& run) {
  if (!run.parallel.deterministic_mode) return;
  const std::string reason = layout_dependence(run);
  if (reason.empty()) return;
  run.parallel.deterministic_mode = false;
  run.notes.push_back(fmt::format(
      "--deterministic-mode: repeated launches are bitwise identical, but results depend on the layout with {}",
      reason));
}

/// A schedule on the command line replaces the global batch size of a file, such as a run's config.yaml.
void derive_batch_size(Run& run) {
  Training& t = run.training;
  const std::int64_t step = t.micro_batch_size * std::max(run.parallel.data_parallel_size(), 1);
  const std::int64_t scheduled = final_size_of_step_schedule(t);
  const bool replaces = is_from_command_line(run, "step_batch_size_schedule") &&
                        !is_from_command_line(run, "global_batch_size");
  if (scheduled > 0 && (t.global_batch_size == 0 || replaces)) t.global_batch_size = scheduled;
  if (t.global_batch_size == 0) t.global_batch_size = step;
  t.batch_multiple = t.decrease_batch_size_if_needed ? step : 0;
}

void derive_sequence_parallel(Run& run) {
  Parallel& p = run.parallel;
  if (p.tensor_model_parallel_size != 1) return;
  if (p.sequence_parallel && has_one_tensor_rank(run))
    run.notes.emplace_back("--sequence-parallel: has no effect with tensor-parallel size 1; got true");
  p.sequence_parallel = false;
}

}  // namespace

void derive(Run& run) {
  if (run.model_type == "t5") derive_stacks(run.model);
  derive_attention(run);
  derive_model(run.model);
  if (run.model.max_position_embeddings == 0 &&
      run.model.position_embedding != PositionEmbedding::kLearnedAbsolute) {
    run.model.max_position_embeddings = run.training.seq_length;
  }
  derive_batch_size(run);
  derive_backend(run);
  derive_determinism(run);
  derive_stages(run.model, run.parallel);
  Parallel& p = run.parallel;
  if (p.hybrid_context_parallel && p.max_seqlen_per_dp_cp_rank == 0)
    p.max_seqlen_per_dp_cp_rank = run.training.seq_length / std::max(p.context_parallel_size, 1);
  run.optimizer.mup = {.width_mult = run.model.width_mult(),
                       .decoupled_embeddings = run.model.use_mup && run.schedule.decoupled_lr.has_value()};
  note_flags_without_effect(run);
  derive_sequence_parallel(run);
}

}  // namespace colonnade::config
