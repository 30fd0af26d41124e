// Notes on given settings without effect in this run. Megatron accepts them too and the numbers are the same.
#include "colonnade/rules/no_effect.h"

#include <algorithm>
#include <array>
#include <bit>

#include "colonnade/config/data_flags.h"
#include "colonnade/config/optimizers.h"
#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/layout/buckets.h"
#include "colonnade/layout/layer_kind.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;

/// Settings that have an effect only with another one.
struct Prerequisite {
  std::array<const char*, 7> keys;  ///< dependent settings
  const char* other;                ///< key of the required setting
  const char* text;                 ///< the requirement as a user writes it
  bool (*is_met)(const Run&);
};

/// Given settings of `required` without its prerequisite.
std::vector<const config::Setting*> without_effect(const Run& r, const Prerequisite& required) {
  std::vector<const config::Setting*> found;
  if (required.is_met(r) || r.invalid_keys.contains(required.other)) return found;
  for (const char* key : required.keys) {
    if (key == nullptr) break;
    const config::Setting& s = config::setting(key);
    if (is_given_without_effect(r, s, required.other)) found.push_back(&s);
  }
  return found;
}

bool has_rope(const Run& r) { return r.model.has_rotary(); }

bool has_warmup(const Run& r) {
  const auto& s = r.schedule;
  return s.lr_warmup_iters > 0 || s.lr_warmup_samples > 0 || s.lr_warmup_fraction.value_or(0) > 0;
}

bool is_interleaved(const Run& r) {
  const auto& p = r.parallel;
  if (p.pipeline_schedule != "auto") return p.pipeline_schedule == "interleaved";
  return p.num_virtual_stages_per_pipeline_rank > 1 || p.num_layers_per_virtual_pipeline_stage > 0 ||
         !p.pipeline_model_parallel_layout.empty();
}

bool has_fim(const Run& r) { return r.data.fim.enabled; }

bool has_context_parallel(const Run& r) {
  return r.parallel.context_parallel_size > 1 || r.parallel.hybrid_context_parallel;
}

/// Prerequisites of model and data settings, listed before those of optimizers.
constexpr Prerequisite kModelPrerequisites[] = {
    {{"rope_scaling_factor", "rope_low_freq_factor", "rope_high_freq_factor",
      "rope_original_max_position_embeddings"},
     "use_rope_scaling",
     "--use-rope-scaling",
     [](const Run& r) { return r.model.use_rope_scaling; }},
    {{"longrope_long_factor", "longrope_original_max_position_embeddings", "longrope_attention_factor"},
     "longrope_short_factor",
     "--longrope-short-factor",
     [](const Run& r) { return r.model.uses_longrope(); }},
    {{"layernorm_bias"},
     "normalization",
     "--normalization LayerNorm",
     [](const Run& r) { return r.model.normalization == config::Normalization::kLayerNorm; }},
    {{"rotary_base", "rotary_percent", "rotary_interleaved", "rotary_seq_len_interpolation_factor",
      "longrope_short_factor"},
     "position_embedding_type",
     "--position-embedding-type rope",
     has_rope},
    {{"yarn_original_max_position_embeddings", "yarn_beta_fast", "yarn_beta_slow",
      "yarn_correction_range_round_to_int"},
     "position_embedding_type",
     "--position-embedding-type yarn",
     [](const Run& r) { return r.model.uses_yarn() || r.model.latent.enabled; }},
    {{"q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"},
     "multi_latent_attention",
     "--multi-latent-attention",
     [](const Run& r) { return r.model.latent.enabled; }},
    {{"mtp_loss_scaling_factor"},
     "mtp_num_layers",
     "--mtp-num-layers",
     [](const Run& r) { return r.model.mtp_num_layers > 0; }},
    {{"relative_attention_num_buckets", "relative_attention_max_distance"},
     "position_embedding_type",
     "--position-embedding-type relative",
     [](const Run& r) { return r.model.position_embedding == config::PositionEmbedding::kRelative; }},
    {{"mask_prob", "short_seq_prob"},
     "model",
     "--model t5 or bert",
     [](const Run& r) { return r.model_type == "t5" || r.model_type == "bert"; }},
    {{"fim_rate", "fim_spm_rate", "fim_split_sample", "fim_no_prefix"}, "fim_data", "--fim-data", has_fim},
    {{"fim_prefix_token", "fim_middle_token", "fim_suffix_token", "fim_pad_token", "fim_eod_token"},
     "fim_data",
     "--fim-data",
     has_fim},
    {{"fim_fragment_rate"},
     "fim_split_sample",
     "--fim-split-sample",
     [](const Run& r) { return !r.data.fim.split_sample.empty(); }},
    {{"vocab_extra_ids"}, "model", "--model t5", [](const Run& r) { return r.model_type != "gpt"; }},
    {{"glu_linear_offset", "activation_func_clamp_value"},
     "activation",
     "a gated activation",
     [](const Run& r) { return r.model.is_gated(); }},
    {{"window_attn_skip_freq", "rotary_base_local"},
     "window_size",
     "--window-size",
     [](const Run& r) { return r.model.window_size > 0; }},
    {{"rotary_base_local"}, "position_embedding_type", "--position-embedding-type rope", has_rope},
    {{"mup_base_hidden_size", "mup_embedding_mult", "mup_output_mult", "mup_base_head_dim",
      "mup_attn_scale_power"},
     "use_mup",
     "--use-mup",
     [](const Run& r) { return r.model.use_mup; }},
    {{"mup_base_head_dim", "mup_attn_scale_power"},
     "query_pre_attn_scalar",
     "the default --query-pre-attn-scalar",
     [](const Run& r) { return !r.model.query_pre_attn_scalar.has_value(); }},
    {{"mup_base_head_dim", "mup_attn_scale_power"},
     "multi_latent_attention",
     "standard attention",
     [](const Run& r) { return !r.model.latent.enabled; }},
    {{"qk_clip_alpha", "qk_clip_threshold"},
     "qk_clip",
     "--qk-clip",
     [](const Run& r) { return r.optimizer.qk_clip; }},
    {{"apply_wd_to_qk_layernorm"},
     "qk_layernorm",
     "--qk-layernorm",
     [](const Run& r) {
       return r.model.qk_layernorm && (!r.model.latent.enabled || r.model.latent.q_lora_rank > 0);
     }},
};

bool profiles(const Run& r) { return r.profiling.profile; }

/// Prerequisites of schedule, layout, data and logging settings.
constexpr Prerequisite kRunPrerequisites[] = {
    {{"profile_step_start", "profile_step_end", "use_pytorch_profiler", "pytorch_profiler_collect_shapes",
      "pytorch_profiler_collect_chakra", "record_shapes", "nvtx_ranges"},
     "profile",
     "--profile",
     profiles},
    {{"profile_ranks"},
     "profile",
     "--profile or --record-memory-history",
     [](const Run& r) { return profiles(r) || r.profiling.record_memory_history; }},
    {{"memory_snapshot_path"},
     "record_memory_history",
     "--record-memory-history",
     [](const Run& r) { return r.profiling.record_memory_history; }},
    {{"wandb_exp_name", "wandb_save_dir", "wandb_entity"},
     "wandb_project",
     "--wandb-project",
     [](const Run& r) { return !r.logging.wandb_project.empty(); }},
    {{"timing_log_option"},
     "timing_log_level",
     "--timing-log-level 1 or 2",
     [](const Run& r) { return r.logging.timing_log_level > 0; }},
    {{"lr_warmup_init"}, "lr_warmup_iters", "--lr-warmup-iters", has_warmup},
    {{"microbatch_group_size_per_virtual_pipeline_stage"},
     "num_virtual_stages_per_pipeline_rank",
     "--num-virtual-stages-per-pipeline-rank",
     is_interleaved},
    {{"cp_comm_type", "hierarchical_context_parallel_sizes"},
     "context_parallel_size",
     "--context-parallel-size above 1",
     has_context_parallel},
    {{"max_seqlen_per_dp_cp_rank"},
     "hybrid_context_parallel",
     "--hybrid-context-parallel",
     [](const Run& r) { return r.parallel.hybrid_context_parallel; }},
    {{"torch_fsdp2_reshard_after_forward"},
     "use_megatron_fsdp",
     "--use-megatron-fsdp with --data-parallel-sharding-strategy optim_grads_params",
     [](const Run& r) { return layout::sharding_of(r.parallel) == layout::Sharding::kParameters; }},
    {{"hierarchical_context_parallel_sizes"},
     "cp_comm_type",
     "--cp-comm-type a2a+p2p",
     [](const Run& r) {
       const auto& kinds = r.parallel.cp_comm_type;
       return !has_context_parallel(r) || std::ranges::find(kinds, "a2a+p2p") != kinds.end();
     }},
    {{"no_load_optim", "override_ckpt_iteration"},
     "load",
     "--load",
     [](const Run& r) { return !r.checkpoint.load.empty(); }},
    {{"sft_tokenizer_prompt_format", "chat_template"},
     "sft",
     "--sft",
     [](const Run& r) { return r.data.sft; }},
    {{"full_validation", "multiple_validation_sets", "validation_set_names"},
     "eval_interval",
     "--eval-interval or --skip-train",
     [](const Run& r) { return r.training.eval_interval || r.training.skip_train; }},
    {{"lr_wsd_decay_style"},
     "lr_decay_style",
     "--lr-decay-style WSD",
     [](const Run& r) { return r.schedule.lr_decay_style == config::LrDecayStyle::kWsd; }},

    {{"data_parallel_sharding_strategy"},
     "use_megatron_fsdp",
     "--use-megatron-fsdp",
     [](const Run& r) { return r.parallel.use_megatron_fsdp; }},
    {{"outer_dp_sharding_strategy"},
     "num_distributed_optimizer_instances",
     "--num-distributed-optimizer-instances above 1",
     [](const Run& r) { return r.parallel.num_distributed_optimizer_instances > 1; }},
    {{"ddp_reduce_scatter_with_fp32_accumulation"},
     "grad_reduce_in_bf16",
     "--grad-reduce-in-bf16 and --use-distributed-optimizer",
     [](const Run& r) {
       return r.parallel.grad_reduce_in_bf16 &&
              layout::sharding_of(r.parallel) >= layout::Sharding::kOptimizer;
     }},
    {{"recompute_method", "recompute_num_layers", "distribute_saved_activations"},
     "recompute_granularity",
     "--recompute-granularity full",
     [](const Run& r) { return r.recompute.is_full(); }},
    {{"recompute_modules"},
     "recompute_granularity",
     "--recompute-granularity selective",
     [](const Run& r) { return r.recompute.granularity == "selective"; }},
};

void add_without_prerequisite(const Run& run, std::span<const Prerequisite> table,
                              std::vector<NoEffect>& found) {
  for (const Prerequisite& required : table)
    for (const config::Setting* s : without_effect(run, required))
      found.push_back({s, fmt::format("has no effect without {}", required.text)});
}

/// Names of the optimizers that read the setting `key`: "adam or sgd".
std::string readers_of(std::string_view key) {
  std::vector<std::string_view> names;
  for (const config::OptimizerTraits& traits : config::optimizers())
    if (std::ranges::find(traits.settings, key, &config::OptimizerSetting::key) != traits.settings.end())
      names.push_back(traits.name);
  return fmt::format("{}", fmt::join(names, " or "));
}

/// Adds given settings that only other optimizers read.
void add_other_optimizers(const Run& run, std::vector<NoEffect>& found) {
  constexpr const char* kChoice = "optimizer";
  if (run.invalid_keys.contains(kChoice)) return;
  for (const config::OptimizerSetting& read : config::optimizer_settings()) {
    const config::Setting& s = config::setting(read.key);
    if (!config::optimizer_reads(run.optimizer, read.key) && is_given_without_effect(run, s, kChoice))
      found.push_back({&s, fmt::format("has no effect without --{} {}", kChoice, readers_of(read.key))});
  }
}

constexpr std::array<const char*, 8> kDynamicLossScale{"initial_loss_scale", "min_loss_scale",
                                                       "loss_scale_window", "hysteresis"};

/// Whether no parameter has data-parallel replicas.
bool has_no_replicas(const Run& r) {
  const int world = r.parallel.world_size;
  return world > 0 && std::ranges::all_of(layout::param_groups(r.model), [&](layout::ParamGroup group) {
           layout::AxisSet axes = layout::model_axes(group);
           axes.add(layout::Axis::kPp);
           return world <= layout::size_of(r.parallel, axes);
         });
}

bool has_null_tokenizer(const Run& r) { return r.data.tokenizer_type == "NullTokenizer"; }

bool has_test_data(const config::Data& d) {
  if (d.mock_data || !d.test_data_path.empty() || !d.per_split_data_args_path.empty()) return true;
  const std::vector<double> shares = config::parse_split(d.split).parts;
  return !d.data_path.empty() && shares.size() > 2 && shares[2] > 0;
}

bool has_latents_without_yarn(const Run& r) { return r.model.latent.enabled && !r.model.uses_yarn(); }

constexpr NoEffectCase kNoEffectCases[] = {
    {{"split", "data_cache_path", "mid_level_dataset_surplus"},
     "with --mock-data",
     [](const Run& r) { return r.data.mock_data; }},
    {{"rope_type"},
     "without --multi-latent-attention",
     [](const Run& r) { return !r.model.latent.enabled && r.model.rope_type == config::RopeType::kRope; }},
    {{"rotary_scaling_factor", "mscale", "mscale_all_dim"},
     "without --multi-latent-attention or --position-embedding-type yarn",
     [](const Run& r) { return !r.model.latent.enabled && !r.model.uses_yarn(); }},
    {{"mscale", "yarn_beta_fast", "yarn_beta_slow", "yarn_original_max_position_embeddings"},
     "with --rope-type rope",
     has_latents_without_yarn},
    {{"yarn_correction_range_round_to_int"}, "with --rope-type rope", has_latents_without_yarn},
    {{"rotary_scaling_factor", "mscale_all_dim"},
     "with --rope-type rope, unless both are set and scale the attention scores",
     [](const Run& r) {
       return has_latents_without_yarn(r) &&
              (r.model.rotary_scaling_factor <= 1 || r.model.mscale_all_dim == 0);
     }},
    {{"rotary_percent"},
     "with --multi-latent-attention, unless --rope-type is rope",
     [](const Run& r) { return r.model.latent.enabled && r.model.uses_yarn(); }},
    {{"add_qkv_bias", "rotary_seq_len_interpolation_factor", "use_rope_scaling", "rope_scaling_factor"},
     "with --multi-latent-attention",
     [](const Run& r) { return r.model.latent.enabled; }},
    {{"reset_position_ids", "reset_attention_mask"},
     "with --dataloader-inter-document-masking",
     [](const Run& r) { return r.data.inter_document_masking; }},
    {{"split"},
     "with --train-data-path, --valid-data-path, --test-data-path or --per-split-data-args-path",
     [](const Run& r) {
       const auto& d = r.data;
       return !d.per_split_data_args_path.empty() || !d.train_data_path.empty() ||
              !d.valid_data_path.empty() || !d.test_data_path.empty();
     }},
    {{"min_lr"},
     "with --lr-decay-style constant",
     [](const Run& r) { return r.schedule.lr_decay_style == config::LrDecayStyle::kConstant; }},
    {{"lr_decay_iters", "lr_decay_samples"},
     "with --lr-decay-style constant",
     [](const Run& r) {
       return r.schedule.lr_decay_style == config::LrDecayStyle::kConstant && !r.schedule.lr_warmup_fraction;
     }},
    {{"weight_decay"},
     "with --weight-decay-incr-style, which uses --start-weight-decay and --end-weight-decay",
     [](const Run& r) {
       return r.schedule.weight_decay_incr_style != config::WeightDecayIncrStyle::kConstant;
     }},
    {{"use_precision_aware_optimizer"},
     "while --main-grads-dtype, --main-params-dtype, --exp-avg-dtype and --exp-avg-sq-dtype are fp32",
     [](const Run& r) {
       const auto& o = r.optimizer;
       return std::ranges::all_of(
           std::array{o.main_grads_dtype, o.main_params_dtype, o.exp_avg_dtype, o.exp_avg_sq_dtype},
           [](config::Dtype dtype) { return dtype == config::Dtype::kFloat32; });
     }},
    {{"override_opt_param_scheduler", "use_checkpoint_opt_param_scheduler"},
     "without --load",
     [](const Run& r) { return r.checkpoint.load.empty(); }},
    {kDynamicLossScale, "with a constant --loss-scale",
     [](const Run& r) { return r.optimizer.loss_scale.has_value(); }},
    {kDynamicLossScale, "without --fp16",
     [](const Run& r) { return !config::dtypes_of(r).needs_loss_scale() && !r.optimizer.loss_scale; }},
    {{"tokenizer_model", "vocab_file", "merge_file"},
     "with --tokenizer-type NullTokenizer",
     has_null_tokenizer},
    {{"tiktoken_pattern", "tiktoken_num_special_tokens", "allow_ambiguous_pad_tokens"},
     "with --tokenizer-type NullTokenizer",
     has_null_tokenizer},
    {{"eval_interval"}, "with --eval-iters 0", [](const Run& r) { return !r.training.reads_validation(); }},
    {{"eval_iters"},
     "with --full-validation and no test data",
     [](const Run& r) { return r.training.full_validation && !has_test_data(r.data); }},
    {{"eval_iters", "log_validation_ppl_to_tensorboard"},
     "without --eval-interval",
     [](const Run& r) {
       return !r.training.eval_interval && !r.training.skip_train && r.training.eval_iters > 0;
     }},
    {{"use_distributed_optimizer", "use_megatron_fsdp"},
     "if --num-distributed-optimizer-instances is the data x context parallel size, unless "
     "--outer-dp-sharding-strategy is optim",
     [](const Run& r) {
       const auto& p = r.parallel;
       const int data = p.data_parallel_size() * p.context_parallel_size;
       return data > 1 && p.num_distributed_optimizer_instances == data &&
              p.outer_dp_sharding_strategy != "optim";
     }},
    {{"use_distributed_optimizer", "overlap_grad_reduce", "overlap_param_gather"},
     "without data-parallel replicas",
     has_no_replicas},
};

constexpr NoEffectCase kPipelineCases[] = {
    {{"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split", "pipeline_schedule"},
     "with one pipeline rank",
     [](const Run& r) { return r.parallel.pipeline_model_parallel_size == 1; }},
};

/// Notes YaRN settings that apply to multi-latent attention here, but not in Megatron.
void note_latent_yarn(const Run& run, std::vector<std::string>& notes) {
  if (!run.model.latent.enabled || !run.model.uses_yarn()) return;
  for (const char* key : {"yarn_original_max_position_embeddings", "yarn_beta_fast", "yarn_beta_slow",
                          "yarn_correction_range_round_to_int"}) {
    const config::Setting& s = config::setting(key);
    if (config::is_from_command_line(run, s.key) && config::text_of(run, s) != s.default_text())
      notes.push_back(
          fmt::format("{} has an effect here; with --multi-latent-attention Megatron uses {}; got {}", s.flag,
                      s.default_text(), config::text_of(run, s)));
  }
}

void add_cases(const Run& run, std::span<const NoEffectCase> table, std::vector<std::string>& notes) {
  for (const NoEffectCase& row : table) {
    if (!row.applies(run)) continue;
    for (const char* key : row.keys) {
      if (key == nullptr) break;
      const config::Setting& s = config::setting(key);
      if (!run.given.contains(s.key) || run.invalid_keys.contains(s.key)) continue;
      if (const std::string value = config::text_of(run, s); value != s.default_text())
        notes.push_back(fmt::format("{} has no effect {}; got {}", s.flag, row.reason, value));
    }
  }
}

}  // namespace

std::vector<NoEffect> without_prerequisites(const Run& run) {
  std::vector<NoEffect> found;
  add_without_prerequisite(run, kModelPrerequisites, found);
  add_other_optimizers(run, found);
  add_without_prerequisite(run, kRunPrerequisites, found);
  return found;
}

std::vector<std::string> no_effect_notes(const Run& run) {
  std::vector<std::string> notes;
  const int data_ranks = run.parallel.data_parallel_size();
  if (run.parallel.deterministic_mode && data_ranks > 0 &&
      !std::has_single_bit(static_cast<unsigned>(data_ranks)))
    notes.push_back(fmt::format(
        "--deterministic-mode gives bitwise-identical results only across power-of-two data-parallel sizes; "
        "got {}",
        data_ranks));
  for (const auto& [setting, why] : without_prerequisites(run))
    notes.push_back(fmt::format("{} {}; got {}", setting->flag, why, config::text_of(run, *setting)));
  note_latent_yarn(run, notes);
  if (std::string note = routing_note(run); !note.empty()) notes.push_back(std::move(note));
  add_cases(run, kNoEffectCases, notes);
  add_cases(run, routing_no_effect_cases(), notes);
  add_cases(run, kPipelineCases, notes);
  return notes;
}

}  // namespace colonnade::rules
