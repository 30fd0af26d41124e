// Rules for sizes: model, ranks, batch.
#include <algorithm>
#include <numeric>

#include "colonnade/config/attention.h"
#include "colonnade/config/layer_pattern.h"
#include "colonnade/config/stacks.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

Broken required(const Run& r, const char* flag, const char* key, std::int64_t value, const char* example) {
  if (value >= 1) return std::nullopt;
  return Finding{flag,
                 "must be set to at least 1",
                 text(value),
                 {{key, example}},
                 fmt::format("write {} {} or another number", flag, example),
                 !r.given.contains(key)};
}

Broken heads_hidden(const Run& r) {
  const auto& m = r.model;
  if (m.num_attention_heads < 1 || m.hidden_size < 1 || m.hidden_size % m.num_attention_heads == 0)
    return std::nullopt;
  if (m.kv_channels != 0 && m.kv_channels != m.hidden_size / m.num_attention_heads) return std::nullopt;
  return Finding{
      "--hidden-size",
      "must be a multiple of --num-attention-heads unless --kv-channels sets the head size",
      fmt::format("{} and {}", m.hidden_size, m.num_attention_heads),
      {{"hidden_size", text(round_up(m.hidden_size, m.num_attention_heads))}, {"kv_channels", "0"}},
      fmt::format("set --hidden-size {}", round_up(m.hidden_size, m.num_attention_heads))};
}

Broken heads_tensor(const Run& r) {
  const std::int64_t heads = r.model.num_attention_heads, tp = r.parallel.tensor_model_parallel_size;
  if (heads < 1 || tp < 1 || heads % tp == 0) return std::nullopt;
  return Finding{"--tensor-model-parallel-size",
                 "must divide --num-attention-heads",
                 fmt::format("{} and {} heads", tp, heads),
                 {{"tensor_model_parallel_size", text(std::gcd(heads, tp))}},
                 ""};
}

Broken groups_heads(const Run& r) {
  const std::int64_t heads = r.model.num_attention_heads, groups = r.model.num_query_groups;
  if (heads < 1 || groups < 1 || heads % groups == 0) return std::nullopt;
  return Finding{"--num-query-groups",
                 "must divide --num-attention-heads",
                 fmt::format("{} and {} heads", groups, heads),
                 {{"num_query_groups", text(std::gcd(heads, groups))}},
                 ""};
}

Broken groups_tensor(const Run& r) {
  const std::int64_t groups = r.model.num_query_groups, tp = r.parallel.tensor_model_parallel_size;
  if (groups < 1 || tp < 1 || groups % tp == 0 || tp % groups == 0) return std::nullopt;
  return Finding{"--tensor-model-parallel-size",
                 "must divide --num-query-groups or be a multiple of it",
                 fmt::format("{} and {} groups", tp, groups),
                 {{"tensor_model_parallel_size", text(std::gcd(groups, tp))}},
                 ""};
}

/// Whether some layer has a dense MLP.
bool has_dense_layers(const config::Model& m) {
  if (m.moe.num_experts == 0) return true;
  const auto experts = config::expand_layer_freq(m.moe.layer_freq, m.num_layers);
  return !experts || std::ranges::find(*experts, false) != experts->end();
}

Broken ffn_tensor(const Run& r) {
  const std::int64_t ffn = r.model.ffn_hidden_size, tp = r.parallel.tensor_model_parallel_size;
  if (ffn < 1 || tp < 1 || ffn % tp == 0 || !has_dense_layers(r.model)) return std::nullopt;
  return Finding{"--ffn-hidden-size",
                 "must be a multiple of --tensor-model-parallel-size",
                 fmt::format("{} and {}", ffn, tp),
                 {{"ffn_hidden_size", text(round_up(ffn, tp))}},
                 ""};
}

/// Ranks of one model replica: tensor x pipeline x context size.
std::int64_t model_parallel_size(const config::Parallel& p) {
  return std::int64_t{p.tensor_model_parallel_size} * p.pipeline_model_parallel_size *
         p.context_parallel_size;
}

/// World size that the rule `world` proposes: the given one rounded up to whole replicas.
std::int64_t proposed_world_size(const config::Parallel& p) {
  const std::int64_t block = model_parallel_size(p);
  return block < 1 ? p.world_size : round_up(std::max(p.world_size, 1), block);
}

Broken world(const Run& r) {
  const auto& p = r.parallel;
  const std::int64_t block = model_parallel_size(p);
  if (block < 1 || p.world_size == proposed_world_size(p)) return std::nullopt;
  return Finding{"number of ranks",
                 "must be a multiple of tensor x pipeline x context size",
                 fmt::format("{} ranks for {} x {} x {} = {}", p.world_size, p.tensor_model_parallel_size,
                             p.pipeline_model_parallel_size, p.context_parallel_size, block),
                 {{"world_size", text(proposed_world_size(p))}},
                 ""};
}

/// Checks the batch against the proposed world size where the given one is invalid.
Broken batch(const Run& r) {
  const config::Parallel& p = r.parallel;
  const std::int64_t block = model_parallel_size(p), micro = r.training.micro_batch_size;
  const std::int64_t data_ranks = block < 1 ? 0 : proposed_world_size(p) / block, step = micro * data_ranks;
  const std::int64_t global = r.training.global_batch_size;
  const bool rounds = r.training.decrease_batch_size_if_needed;
  if (step < 1 || (global >= step && (rounds || global % step == 0))) return std::nullopt;
  if (!r.training.step_batch_size_schedule.empty()) return std::nullopt;  // see the rule batch-sizes
  const bool fixed = proposed_world_size(p) != p.world_size;
  // Not given, the batch size was derived from a data-parallel size that will change.
  if (fixed && global == micro * std::max(p.data_parallel_size(), 1)) return std::nullopt;
  return Finding{"--global-batch-size",
                 rounds ? "must be at least micro-batch size x data-parallel size"
                        : "must be a multiple of micro-batch size x data-parallel size",
                 fmt::format("{} for {} x {} data-parallel ranks{}", global, micro, data_ranks,
                             fixed ? fmt::format(" of {} ranks", proposed_world_size(p)) : ""),
                 {{"global_batch_size", text(round_up(std::max<std::int64_t>(global, 1), step))}},
                 ""};
}

Broken max_positions(const Run& r) {
  if (r.training.seq_length < 1 || r.model.max_position_embeddings >= r.training.seq_length)
    return std::nullopt;
  return Finding{"--max-position-embeddings",
                 "must be at least --seq-length",
                 fmt::format("{} and {}", r.model.max_position_embeddings, r.training.seq_length),
                 {{"max_position_embeddings", text(r.training.seq_length)}},
                 ""};
}

Broken sequence_tensor(const Run& r) {
  const std::int64_t seq = r.training.seq_length, tp = r.parallel.tensor_model_parallel_size;
  if (!r.parallel.sequence_parallel || seq < 1 || tp < 1 || seq % tp == 0) return std::nullopt;
  return Finding{"--sequence-parallel",
                 "requires a --seq-length that --tensor-model-parallel-size divides",
                 fmt::format("{} and {}", seq, tp),
                 {{"sequence_parallel", "false"}},
                 fmt::format("remove the flag, or set --seq-length {}", round_up(seq, tp))};
}

Broken rotary_dims(const Run& r) {
  const auto& m = r.model;
  const config::Rotary rotary = config::rotary_of(m);
  const std::int64_t channels = rotary.channels;
  const bool all_channels = !rotary.from_position_embedding && (m.uses_yarn() || m.rotary_percent == 1);
  if (!m.has_rotary() || channels < 2 || all_channels) return std::nullopt;
  const auto dims = static_cast<std::int64_t>(static_cast<double>(channels) * m.rotary_percent);
  if (dims >= 2 && dims % 2 == 0) return std::nullopt;
  const double target = static_cast<double>(std::max<std::int64_t>(dims / 2 * 2, 2));
  const double percent = std::min(1.0, (target + 0.5) / static_cast<double>(channels));
  return Finding{"--rotary-percent",
                 "must select an even number of channels per head, at least 2",
                 fmt::format("{} x {} = {}", channels, m.rotary_percent, dims),
                 {{"rotary_percent", text(percent)}},
                 ""};
}

Broken rope_scaling(const Run& r) {
  const auto& m = r.model;
  if (!m.use_rope_scaling || !config::rotary_of(m).from_position_embedding ||
      m.position_embedding == config::PositionEmbedding::kRope)
    return std::nullopt;
  return Finding{"--use-rope-scaling",
                 "requires --position-embedding-type rope",
                 config::text_of(r, config::setting("position_embedding_type")),
                 {{"position_embedding_type", "rope"}},
                 ""};
}

Broken rope_factors(const Run& r) {
  if (!r.model.use_rope_scaling || r.model.rope_high_freq_factor > r.model.rope_low_freq_factor)
    return std::nullopt;
  return Finding{"--rope-high-freq-factor",
                 "must be above --rope-low-freq-factor",
                 fmt::format("{} and {}", r.model.rope_high_freq_factor, r.model.rope_low_freq_factor),
                 {{"rope_low_freq_factor", "1"}, {"rope_high_freq_factor", "4"}},
                 ""};
}

bool has_yarn(const Run& r) {
  return r.model.uses_yarn() && config::rotary_of(r.model).from_position_embedding;
}

Broken yarn_factor(const Run& r) {
  if (!has_yarn(r) || r.model.rotary_scaling_factor > 1) return std::nullopt;
  return Finding{"--rotary-scaling-factor",
                 "must be above 1 with --position-embedding-type yarn",
                 text(r.model.rotary_scaling_factor),
                 {{"position_embedding_type", "rope"}, {"rotary_scaling_factor", "1"}},
                 "set the factor, or use --position-embedding-type rope"};
}

Broken yarn_betas(const Run& r) {
  if (!r.model.uses_yarn() || r.model.yarn_beta_fast >= r.model.yarn_beta_slow) return std::nullopt;
  return Finding{"--yarn-beta-fast",
                 "must be at least --yarn-beta-slow",
                 fmt::format("{} and {}", r.model.yarn_beta_fast, r.model.yarn_beta_slow),
                 {{"yarn_beta_fast", "32"}, {"yarn_beta_slow", "1"}},
                 ""};
}

Broken yarn_once(const Run& r) {
  if (!has_yarn(r) || r.model.rotary_seq_len_interpolation_factor == 1) return std::nullopt;
  return Finding{"--rotary-seq-len-interpolation-factor",
                 "must be 1 with --position-embedding-type yarn",
                 text(r.model.rotary_seq_len_interpolation_factor),
                 {{"rotary_seq_len_interpolation_factor", "1"}},
                 "remove the flag"};
}

Broken window_layers(const Run& r) {
  const auto& m = r.model;
  if (m.window_attn_skip_freq.empty() || m.window_size == 0 || m.num_layers < 1 ||
      config::expand_skip_freq(m.window_attn_skip_freq, m.num_layers))
    return std::nullopt;
  return Finding{"--window-attn-skip-freq",
                 "must be a number above 0, or a list with a 0 or 1 for each layer",
                 fmt::format("{} for {} layers", m.window_attn_skip_freq, m.num_layers),
                 {{"window_attn_skip_freq", ""}},
                 "remove the flag, so that every layer has the window"};
}

Broken sandwich_bias(const Run& r) {
  if (!r.model.sandwich_norm || !r.model.add_bias_linear) return std::nullopt;
  return Finding{"--sandwich-norm",
                 "requires --disable-bias-linear",
                 "linear layers with biases",
                 {{"add_bias_linear", "false"}},
                 "add --disable-bias-linear"};
}

Broken one_qk_norm(const Run& r) {
  if (!r.model.qk_l2_norm || !r.model.qk_layernorm) return std::nullopt;
  return Finding{"--qk-l2-norm",
                 "is not supported with --qk-layernorm",
                 "both",
                 {{"qk_l2_norm", "false"}},
                 "remove one of them"};
}

Broken parallel_residual(const Run& r) {
  const bool sandwich = r.model.sandwich_norm;
  if (!r.model.parallel_residual || (!sandwich && !config::has_several_stacks(r.model))) return std::nullopt;
  return Finding{"--parallel-residual",
                 "is not supported with --sandwich-norm or encoder-decoder models",
                 sandwich ? "--sandwich-norm" : "cross-attention in decoder layers",
                 {{"parallel_residual", "false"}},
                 "remove --parallel-residual"};
}

/// Megatron asserts the same.
Broken fp32_residual(const Run& r) {
  if (!r.model.fp32_residual_connection || r.model.params_dtype != config::Dtype::kFloat32)
    return std::nullopt;
  return Finding{"--fp32-residual-connection",
                 "requires --bf16 or --fp16",
                 "fp32 layers",
                 {{"fp32_residual_connection", "false"}},
                 "use --no-fp32-residual-connection, or add --bf16"};
}

Broken sinks_dropout(const Run& r) {
  if (r.model.softmax_type == config::SoftmaxType::kVanilla || r.model.attention_dropout == 0)
    return std::nullopt;
  return Finding{"--softmax-type",
                 "other than vanilla requires --attention-dropout 0",
                 fmt::format("{} with dropout {}", config::text_of(r, config::setting("softmax_type")),
                             r.model.attention_dropout),
                 {{"attention_dropout", "0"}},
                 ""};
}

/// A dropout of 1 drops everything.
template <double config::Model::*kDropout>
Broken dropout(const Run& r, const char* flag, const char* key) {
  if (r.model.*kDropout < 1) return std::nullopt;
  return Finding{flag, "must be below 1", text(r.model.*kDropout), {{key, "0.1"}}, ""};
}

constexpr Rule kShapes[] = {
    {"num-layers", false,
     [](const Run& r) { return required(r, "--num-layers", "num_layers", r.model.num_layers, "12"); },
     "num_layers=0", "As in Megatron, model sizes have no default."},
    {"hidden-size", false,
     [](const Run& r) { return required(r, "--hidden-size", "hidden_size", r.model.hidden_size, "768"); },
     "hidden_size=0", "As in Megatron, model sizes have no default."},
    {"heads", false,
     [](const Run& r) {
       return required(r, "--num-attention-heads", "num_attention_heads", r.model.num_attention_heads, "12");
     },
     "num_attention_heads=0; hidden_size=96", "As in Megatron, model sizes have no default."},
    {"seq-length", true,
     [](const Run& r) { return required(r, "--seq-length", "seq_length", r.training.seq_length, "1024"); },
     "seq_length=0; max_position_embeddings=4096", "As in Megatron, the sequence length has no default."},
    {"micro-batch", true,
     [](const Run& r) {
       return required(r, "--micro-batch-size", "micro_batch_size", r.training.micro_batch_size, "1");
     },
     "micro_batch_size=0", "As in Megatron, the micro-batch size has no default."},
    {"heads-hidden", false, heads_hidden, "hidden_size=66",
     "The default head size is the hidden size divided by the number of heads.", "num_attention_heads"},
    {"heads-tensor", false, heads_tensor,
     "num_attention_heads=4; tensor_model_parallel_size=8; world_size=16",
     "Tensor parallelism assigns whole attention heads to ranks."},
    {"groups-heads", false, groups_heads, "num_query_groups=6",
     "Every query group has the same number of query heads."},
    {"groups-tensor", false, groups_tensor,
     "num_attention_heads=24; hidden_size=96; num_query_groups=6; tensor_model_parallel_size=4",
     "Each tensor-parallel rank holds whole key/value heads, or several ranks replicate one."},
    {"ffn-tensor", false, ffn_tensor, "ffn_hidden_size=101",
     "Tensor parallelism shards the FFN dimension evenly.", "moe_layer_freq"},
    {"world", false, world, "world_size=7",
     "The data-parallel size is ranks / (tensor x pipeline x context). The expert-parallel size is no "
     "factor: expert layers divide the same ranks.",
     "tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size"},
    {"batch", true, batch, "global_batch_size=15",
     "Every data-parallel rank runs the same number of micro-batches per step. The data-parallel size is "
     "ranks / (tensor x pipeline x context), also for MoE models.",
     "micro_batch_size tensor_model_parallel_size pipeline_model_parallel_size context_parallel_size"},
    {"max-positions", true, max_positions, "seq_length=64", "Every token needs a position embedding.",
     "seq_length position_embedding_type"},
    {"sequence-tensor", true, sequence_tensor, "sequence_parallel=true; seq_length=31",
     "Sequence parallelism shards the sequence evenly over tensor-parallel ranks."},
    {"rotary-dims", false, rotary_dims, "position_embedding_type=rope; rotary_percent=0.4",
     "RoPE rotates channels in pairs.", "kv_channels hidden_size num_attention_heads"},
    {"rope-scaling", false, rope_scaling, "use_rope_scaling=true",
     "The flag scales the frequencies of RoPE."},
    {"rope-factors", false, rope_factors,
     "position_embedding_type=rope; use_rope_scaling=true; rope_high_freq_factor=1",
     "The interpolation between the two divides by their difference."},
    {"yarn-factor", false, yarn_factor, "position_embedding_type=yarn",
     "YaRN extends the context by this factor; a factor of 1 extends nothing."},
    {"yarn-betas", false, yarn_betas,
     "position_embedding_type=yarn; rotary_scaling_factor=4; yarn_beta_fast=0.5",
     "The blend ramps from the slow to the fast bound."},
    {"yarn-once", false, yarn_once,
     "position_embedding_type=yarn; rotary_scaling_factor=4; rotary_seq_len_interpolation_factor=2",
     "Positions would be interpolated twice.", "position_embedding_type"},
    {"window-layers", false, window_layers, "window_size=4,0; window_attn_skip_freq=[1,0,1]",
     "With N, every N-th layer has full attention, all others a sliding window.", "num_layers window_size"},
    {"sandwich-bias", false, sandwich_bias, "sandwich_norm=true",
     "Biases of output projections are added together with the residual, after the norm.", "add_bias_linear"},
    {"one-qk-norm", false, one_qk_norm, "qk_l2_norm=true; qk_layernorm=true",
     "Queries and keys have one norm; Megatron would ignore --qk-layernorm.", "qk_layernorm"},
    {"parallel-residual", false, parallel_residual,
     "parallel_residual=true; sandwich_norm=true; add_bias_linear=false",
     "Parallel residuals are not supported with sandwich norms or cross-attention: no published model "
     "combines them.",
     "sandwich_norm encoder_num_layers"},
    {"fp32-residual", false, fp32_residual, "fp32_residual_connection=true",
     "The residual stream of fp32 layers is fp32 already.", "params_dtype"},
    {"sinks-dropout", true, sinks_dropout, "softmax_type=learnable; attention_dropout=0.1",
     "The attention path with dropout does not implement sinks.", "softmax_type"},
    {"hidden-dropout", true,
     [](const Run& r) {
       return dropout<&config::Model::hidden_dropout>(r, "--hidden-dropout", "hidden_dropout");
     },
     "hidden_dropout=1", "Dropout scales by 1 / (1 - p)."},
    {"attention-dropout", true,
     [](const Run& r) {
       return dropout<&config::Model::attention_dropout>(r, "--attention-dropout", "attention_dropout");
     },
     "attention_dropout=1", "Dropout scales by 1 / (1 - p)."},
};

}  // namespace

std::span<const Rule> shape_rules() { return kShapes; }

}  // namespace colonnade::rules
