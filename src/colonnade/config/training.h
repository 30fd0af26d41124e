// Training settings other than model and layout: batches, optimizer, schedules, data, checkpoints, logging.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/config/dtypes.h"
#include "colonnade/config/fill_in_the_middle.h"

namespace colonnade::config {

/// Batch sizes and length of the run. global_batch = micro_batch * data_parallel_size * accumulation;
/// global_batch_size is that of the last step where the batch size grows (batch_schedule.h).
struct Training {
  std::int64_t micro_batch_size = 0;           ///< --micro-batch-size
  std::int64_t global_batch_size = 0;          ///< --global-batch-size; 0: micro-batch * data parallel size
  std::string step_batch_size_schedule;        ///< --step-batch-size-schedule: "0:768 250B:1536", in tokens
  std::vector<std::string> rampup_batch_size;  ///< --rampup-batch-size: start, increment, samples
  bool decrease_batch_size_if_needed = false;  ///< --decrease-batch-size-if-needed
  /// Derived with --decrease-batch-size-if-needed: micro-batch * data-parallel size, a multiple of which
  /// every batch is (batch_schedule.h); otherwise 0.
  std::int64_t batch_multiple = 0;
  std::int64_t seq_length = 0;                   ///< --seq-length; of the encoder in encoder-decoder models
  std::int64_t decoder_seq_length = 0;           ///< --decoder-seq-length, with an encoder
  std::optional<std::int64_t> train_iters;       ///< --train-iters
  std::optional<std::int64_t> train_samples;     ///< --train-samples
  std::int64_t seed = 1234;                      ///< --seed
  std::string device = "cpu";                    ///< --device cpu|cuda
  bool skip_train = false;                       ///< --skip-train
  std::vector<std::int64_t> iterations_to_skip;  ///< --iterations-to-skip, in any order
  std::optional<std::int64_t> exit_interval;     ///< --exit-interval
  std::optional<std::int64_t> exit_duration_in_mins;  ///< --exit-duration-in-mins
  bool calculate_per_token_loss = false;       ///< --calculate-per-token-loss; matters with masked tokens
  bool check_for_nan_in_loss_and_grad = true;  ///< off: NaN steps are skipped
  bool check_for_spiky_loss = false;           ///< --check-for-spiky-loss
  bool check_for_large_grads = false;          ///< --check-for-large-grads
  /// --check-weight-hash-across-dp-replicas-interval: steps between comparisons
  std::optional<std::int64_t> check_weight_hash_across_dp_replicas_interval;

  std::int64_t eval_iters = 100;                       ///< --eval-iters
  std::optional<std::int64_t> eval_interval;           ///< --eval-interval; unset: no periodic evaluation
  std::optional<std::int64_t> start_eval_at_iter;      ///< --start-eval-at-iter
  std::optional<std::int64_t> eval_global_batch_size;  ///< --eval-global-batch-size; unset: of training
  std::optional<std::int64_t> eval_micro_batch_size;   ///< --eval-micro-batch-size; unset: of training
  bool full_validation = false;             ///< --full-validation: each validation is one pass over its data
  double distributed_timeout_minutes = 10;  ///< --distributed-timeout-minutes, for every group
  /// --distributed-backend nccl|gloo; unset: nccl on cuda, gloo on cpu.
  std::optional<std::string> distributed_backend;

  /// Whether validation data are read.
  [[nodiscard]] bool reads_validation() const { return full_validation || eval_iters > 0; }

  friend bool operator==(const Training&, const Training&) = default;
};

enum class OptimizerKind { kAdam, kSgd, kLion, kMuon };
enum class LrDecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWsd };
enum class WsdDecayStyle { kExponential, kLinear, kCosine, kMinusSqrt };
enum class WeightDecayIncrStyle { kConstant, kLinear, kCosine };

/// Factor of an orthogonalized update of a matrix [out, in].
enum class MuonScale {
  kSpectral,     ///< sqrt(max(out, in))
  kUnitRmsNorm,  ///< sqrt(out / in)
  kShapeScaling  ///< sqrt(max(1, out / in))
};
/// Coefficients of the Newton-Schulz steps (optim/newton_schulz.h).
enum class MuonCoefficients { kSimple, kQuintic, kPolarExpress, kCans, kAol, kDeepSeekV4, kCubic5 };
/// Matrices that are sharded over tensor ranks: blockwise orthogonalizes each shard by itself, the others
/// whole matrices.
enum class MuonTpMode { kBlockwise, kDuplicated, kDistributed };
enum class MatmulPrecision { kLow, kMedium, kHigh };

/// Settings of --optimizer muon; formula in optim/muon.h.
struct Muon {
  double momentum = 0.9;                                        ///< --muon-momentum
  bool nesterov = false;                                        ///< --muon-nesterov
  bool split_qkv = true;                                        ///< off: --muon-no-split-qkv
  bool split_gate_up = false;                                   ///< --muon-split-gate-up
  MuonScale scale_mode = MuonScale::kSpectral;                  ///< --muon-scale-mode
  double extra_scale_factor = 1;                                ///< --muon-extra-scale-factor
  MuonCoefficients coefficients = MuonCoefficients::kQuintic;   ///< --muon-coefficient-type
  int num_ns_steps = 5;                                         ///< --muon-num-ns-steps
  MatmulPrecision matmul_precision = MatmulPrecision::kMedium;  ///< --muon-fp32-matmul-prec
  MuonTpMode tp_mode = MuonTpMode::kDuplicated;                 ///< --muon-tp-mode
  OptimizerKind scalar_optimizer = OptimizerKind::kAdam;        ///< --muon-scalar-optimizer

  friend bool operator==(const Muon&, const Muon&) = default;
};

/// muP's part of the optimizer, derived from model and schedule (config::derive).
struct MupOptimizer {
  double width_mult = 1;              ///< Model::width_mult()
  bool decoupled_embeddings = false;  ///< --decoupled-lr is the rate of word embeddings and output layer

  friend bool operator==(const MupOptimizer&, const MupOptimizer&) = default;
};

struct Optimizer {
  OptimizerKind optimizer = OptimizerKind::kAdam;  ///< --optimizer adam|sgd|lion|muon
  double weight_decay = 0.01;                      ///< --weight-decay; not applied to biases and 1-D tensors
  bool apply_wd_to_qk_layernorm = false;           ///< --apply-wd-to-qk-layernorm
  double clip_grad = 1.0;                          ///< --clip-grad; 0: no clipping
  double adam_beta1 = 0.9;                         ///< --adam-beta1
  double adam_beta2 = 0.999;                       ///< --adam-beta2
  double adam_eps = 1e-8;                          ///< --adam-eps
  double sgd_momentum = 0.9;                       ///< --sgd-momentum
  Muon muon;
  MupOptimizer mup;
  bool qk_clip = false;            ///< --qk-clip: scale query and key weights of heads with large scores
  double qk_clip_alpha = 0.5;      ///< --qk-clip-alpha: exponent of the scale of queries, 1 - alpha of keys
  double qk_clip_threshold = 100;  ///< --qk-clip-threshold, of the largest score
  /// --freeze-parameters: globs over parameter names; these keep their values.
  std::vector<std::string> freeze_parameters;
  double lion_beta1 = 0.95;                    ///< --lion-beta1
  double lion_beta2 = 0.98;                    ///< --lion-beta2
  bool use_precision_aware_optimizer = false;  ///< --use-precision-aware-optimizer, for the dtypes below
  Dtype main_grads_dtype = Dtype::kFloat32;    ///< --main-grads-dtype fp32|bf16
  Dtype main_params_dtype = Dtype::kFloat32;   ///< --main-params-dtype fp32|fp16
  Dtype exp_avg_dtype = Dtype::kFloat32;       ///< --exp-avg-dtype fp32|fp16|bf16|fp8
  Dtype exp_avg_sq_dtype = Dtype::kFloat32;    ///< --exp-avg-sq-dtype fp32|fp16|bf16|fp8
  std::optional<double> loss_scale;            ///< --loss-scale: constant; unset with fp16: dynamic
  double initial_loss_scale = 4294967296.0;    ///< --initial-loss-scale
  double min_loss_scale = 1.0;                 ///< --min-loss-scale
  double loss_scale_window = 1000;             ///< --loss-scale-window
  int hysteresis = 2;                          ///< --hysteresis

  friend bool operator==(const Optimizer&, const Optimizer&) = default;
};

/// Schedules of learning rate and weight decay. Units are samples; iteration counts are multiplied by the
/// global batch size. Source: Megatron's core/optimizer_param_scheduler.py.
struct Schedule {
  double lr = 0;                           ///< --lr
  double min_lr = 0;                       ///< --min-lr
  std::optional<double> decoupled_lr;      ///< --decoupled-lr: of word embeddings and output layer
  std::optional<double> decoupled_min_lr;  ///< --decoupled-min-lr; unset: min_lr
  LrDecayStyle lr_decay_style = LrDecayStyle::kLinear;             ///< --lr-decay-style
  WsdDecayStyle lr_wsd_decay_style = WsdDecayStyle::kExponential;  ///< --lr-wsd-decay-style
  std::optional<std::int64_t> lr_decay_iters, lr_decay_samples;    ///< unset: the whole run
  std::optional<std::int64_t> lr_wsd_decay_iters, lr_wsd_decay_samples;
  std::int64_t lr_warmup_iters = 0, lr_warmup_samples = 0;
  std::optional<double> lr_warmup_fraction;                    ///< fraction of the decay length
  double lr_warmup_init = 0;                                   ///< --lr-warmup-init
  std::optional<double> start_weight_decay, end_weight_decay;  ///< ends of the ramp; unset: weight_decay
  WeightDecayIncrStyle weight_decay_incr_style = WeightDecayIncrStyle::kConstant;
  bool override_opt_param_scheduler = false;        ///< this run's schedule replaces the checkpoint's
  bool use_checkpoint_opt_param_scheduler = false;  ///< the checkpoint's schedule is used

  friend bool operator==(const Schedule&, const Schedule&) = default;
};

struct Data {
  std::vector<std::string> data_path;  ///< --data-path: prefixes, or weight prefix pairs
  std::vector<std::string> train_data_path, valid_data_path, test_data_path;
  bool multiple_validation_sets = false;          ///< --multiple-validation-sets: a loss per set
  std::vector<std::string> validation_set_names;  ///< --validation-set-names; empty: 0, 1, ...
  std::string split = "969, 30, 1";               ///< --split
  bool mock_data = false;                         ///< --mock-data
  std::string data_cache_path;                    ///< --data-cache-path; "": next to the data
  std::string dataloader_type = "single";         ///< --dataloader-type single|cyclic
  int num_workers = 2;                            ///< --num-workers: batches prefetched by threads
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  bool inter_document_masking = false;  ///< --dataloader-inter-document-masking
  bool eod_mask_loss = false;
  double mid_level_dataset_surplus = 0.005;
  std::string data_args_path;               ///< --data-args-path: file with the value of data_path
  std::string per_split_data_args_path;     ///< --per-split-data-args-path: JSON with the paths per split
  bool allow_ambiguous_pad_tokens = false;  ///< --allow-ambiguous-pad-tokens
  FillInTheMiddle fim;
  double mask_prob = 0.15;           ///< --mask-prob, of bert and t5
  double short_seq_prob = 0.1;       ///< --short-seq-prob, of bert and t5
  std::int64_t vocab_extra_ids = 0;  ///< --vocab-extra-ids: sentinel ids after the tokenizer's
  std::string tokenizer_type;        ///< --tokenizer-type, a name known to tokenizers::make_tokenizer
  std::string tokenizer_model;       ///< --tokenizer-model: a file or a folder
  std::string vocab_file;            ///< --vocab-file, of GPT-2's and BERT's tokenizers
  std::string merge_file;            ///< --merge-file, of GPT-2's
  std::string tiktoken_pattern;      ///< --tiktoken-pattern v1|v2
  std::int64_t tiktoken_num_special_tokens = 1000;  ///< --tiktoken-num-special-tokens
  bool tokenizer_hf_include_special_tokens = true;  ///< off: --tokenizer-hf-no-include-special-tokens
  bool sft = false;                                 ///< --sft: data are JSONL files of chat messages
  std::string sft_tokenizer_prompt_format;          ///< --sft-tokenizer-prompt-format
  std::string chat_template;                        ///< --chat-template: a file, or the template itself

  /// Tokens attend to their own document only.
  [[nodiscard]] bool attends_within_documents() const {
    return reset_attention_mask || inter_document_masking;
  }
  /// Positions restart at documents.
  [[nodiscard]] bool restarts_positions() const { return reset_position_ids || inter_document_masking; }
  /// Samples of --sft hold several conversations.
  [[nodiscard]] bool packs_conversations() const {
    return (reset_position_ids && reset_attention_mask) || inter_document_masking;
  }
  friend bool operator==(const Data&, const Data&) = default;
};

struct Checkpoint {
  std::string save;                                     ///< --save: run folder; "": runs/<time>
  std::string load;                                     ///< --load: run folder or step folder
  std::string pretrained_checkpoint;                    ///< --pretrained-checkpoint: initial weights only
  std::optional<std::int64_t> save_interval;            ///< --save-interval
  std::optional<std::int64_t> save_retain_interval;     ///< --save-retain-interval: older others are deleted
  std::optional<std::int64_t> exit_after_failed_saves;  ///< --exit-after-failed-saves: in a row
  std::optional<std::int64_t> ckpt_step;                ///< --ckpt-step: load this step
  bool finetune = false;                                ///< --finetune: weights only, counters are reset
  bool no_load_optim = false, no_save_optim = false;
  bool exit_on_missing_checkpoint = false;
  bool use_checkpoint_args = false;               ///< --use-checkpoint-args: see config::checkpoint_wins
  bool use_mp_args_from_checkpoint_args = false;  ///< uses the parallel sizes of the checkpoint's run
  bool use_tokenizer_model_from_checkpoint_args = true;  ///< the checkpoint's tokenizer may be used
  std::optional<std::int64_t> override_ckpt_iteration;   ///< iteration assigned to the loaded checkpoint
  std::string ckpt_format = "native";                    ///< --ckpt-format: native, or Megatron's torch_dist
  std::string save_hf;  ///< --save-hf: folder of exported Hugging Face folders; "": none
  std::optional<std::int64_t>
      save_hf_interval;  ///< --save-hf-interval: steps between them; unset: at the end

  [[nodiscard]] bool saves_torch_dist() const { return ckpt_format == "torch_dist"; }

  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

struct Logging {
  std::int64_t log_interval = 1;  ///< --log-interval; Megatron's default is 100
  std::string tensorboard_dir;    ///< --tensorboard-dir; "": <save>/tensorboard
  std::int64_t tensorboard_log_interval = 1;
  bool log_params_norm = false;          ///< --log-params-norm
  bool log_num_zeros_in_grad = false;    ///< --log-num-zeros-in-grad
  bool log_max_attention_logit = false;  ///< --log-max-attention-logit; also on with --qk-clip
  bool log_timers_to_tensorboard = false;
  bool log_memory_to_tensorboard = false;
  bool log_validation_ppl_to_tensorboard = false;
  std::optional<std::int64_t> logging_level;  ///< --logging-level: Python's level (log::level_from_python)
  std::int64_t timing_log_level = 0;          ///< --timing-log-level 0|1|2
  std::string timing_log_option = "minmax";   ///< --timing-log-option max|minmax|all
  std::optional<std::int64_t> log_memory_interval;  ///< --log-memory-interval
  bool log_energy = false;                          ///< --log-energy
  std::string wandb_project;   ///< --wandb-project; "": no offline run of Weights & Biases
  std::string wandb_exp_name;  ///< --wandb-exp-name; "": name of the run folder
  std::string wandb_save_dir;  ///< --wandb-save-dir; "": the run folder
  std::string wandb_entity;    ///< --wandb-entity

  friend bool operator==(const Logging&, const Logging&) = default;
};

/// Traces of some steps, and memory snapshots (Megatron's ProfilingConfig).
struct Profiling {
  bool profile = false;                                  ///< --profile
  std::int64_t profile_step_start = 10;                  ///< --profile-step-start: first step
  std::int64_t profile_step_end = 12;                    ///< --profile-step-end: step after the last one
  std::vector<std::int64_t> profile_ranks;               ///< --profile-ranks; empty: all
  bool use_pytorch_profiler = false;                     ///< --use-pytorch-profiler
  bool pytorch_profiler_collect_shapes = false;          ///< --pytorch-profiler-collect-shapes
  bool pytorch_profiler_collect_chakra = false;          ///< --pytorch-profiler-collect-chakra
  bool record_shapes = false;                            ///< --record-shapes
  bool nvtx_ranges = false;                              ///< --nvtx-ranges
  bool record_memory_history = false;                    ///< --record-memory-history
  std::string memory_snapshot_path = "snapshot.pickle";  ///< --memory-snapshot-path

  friend bool operator==(const Profiling&, const Profiling&) = default;
};

}  // namespace colonnade::config
