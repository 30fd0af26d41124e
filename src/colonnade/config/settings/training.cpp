// Training settings: batches, length, evaluation, optimizer, schedules.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kTraining = &Run::training;
constexpr auto kOptimizer = &Run::optimizer;
constexpr auto kSchedule = &Run::schedule;

void batch_sizes(Table& t) {
  t.add<kTraining, &Training::micro_batch_size>("--micro-batch-size", "sequences per forward pass of a rank")
      .unit("sequences")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::global_batch_size>(
       "--global-batch-size",
       "sequences per step: micro-batch size x data-parallel size x accumulation steps; 0 (in YAML): no "
       "accumulation")
      .unit("sequences")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::step_batch_size_schedule>(
      "--step-batch-size-schedule",
      "global batch sizes from numbers of consumed tokens on, as \"0:768 250B:1536\" (suffixes K, M, B, T); "
      "replaces --global-batch-size");
  t.add<kTraining, &Training::rampup_batch_size>(
       "--rampup-batch-size",
       "START INCREMENT SAMPLES: the batch size grows from START to --global-batch-size in equal increments "
       "over SAMPLES sequences; recent Megatron ignores it")
      .unit("sequences");
  t.add<kTraining, &Training::decrease_batch_size_if_needed>(
      "--decrease-batch-size-if-needed",
      "round batch sizes down to a multiple of micro-batch size x data-parallel size");
}

std::string set_skipped(Run& run, const Words& words) {
  std::vector<std::int64_t> all;
  for (const std::string& word : words)
    if (std::int64_t one = 0; read_number(word, one) && one > 0)
      all.push_back(one);
    else
      return "must be integers above 0";
  run.training.iterations_to_skip = std::move(all);
  return "";
}

std::optional<Words> get_skipped(const Run& run) {
  Words words;
  for (const std::int64_t one : run.training.iterations_to_skip) words.push_back(fmt::format("{}", one));
  return words;
}

void batches(Table& t) {
  t.group("training");
  batch_sizes(t);
  t.add<kTraining, &Training::seq_length>("--seq-length", "sequence length (t5: of the encoder)")
      .alias("--encoder-seq-length")
      .unit("tokens")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::decoder_seq_length>("--decoder-seq-length", "decoder sequence length (t5)")
      .unit("tokens")
      .range(0, 1'000'000'000'000)
      .megatron_default("unset");
  t.add<kTraining, &Training::train_iters>("--train-iters", "number of training steps")
      .unit("steps")
      .at_least(0)
      .common();
  t.add<kTraining, &Training::train_samples>("--train-samples",
                                             "number of training samples; not with --train-iters")
      .unit("sequences")
      .range(0, 1'000'000'000'000);
  t.add<kTraining, &Training::device>("--device",
                                      "device of the tensors; unset: cuda if a GPU is found, else cpu")
      .choices({"cpu", "cuda"})
      .colonnade_only()
      .common();
  t.special("--iterations-to-skip",
            "iterations that read their data without an update, as for data that make the loss diverge")
      .accessors(Kind::kList, &set_skipped, &get_skipped);
  t.add<kTraining, &Training::exit_interval>("--exit-interval",
                                             "save and exit after the next step that is a multiple of this")
      .unit("steps")
      .at_least(1);
  t.add<kTraining, &Training::exit_duration_in_mins>("--exit-duration-in-mins",
                                                     "save and exit after this many minutes")
      .unit("minutes")
      .at_least(1);
  t.add<kTraining, &Training::calculate_per_token_loss>(
      "--calculate-per-token-loss",
      "average the loss over all unmasked tokens of the global batch instead of per micro-batch");
  t.add<kTraining, &Training::check_for_nan_in_loss_and_grad>(
      "--check-for-nan-in-loss-and-grad",
      "stop at the first NaN or Inf in loss or gradients; off: skip and report such steps");
}

void step_checks(Table& t) {
  t.add<kTraining, &Training::check_for_spiky_loss>(
      "--check-for-spiky-loss",
      "warn of a micro-batch loss 10 times above the largest of the first 100 of its rank");
  t.add<kTraining, &Training::check_for_large_grads>(
      "--check-for-large-grads",
      "warn of a local gradient norm of a bucket 10 times above the largest of the first 100 of its rank");
  t.add<kTraining, &Training::check_weight_hash_across_dp_replicas_interval>(
       "--check-weight-hash-across-dp-replicas-interval",
       "steps between comparisons of the weights of all data-parallel replicas; a difference ends the run; "
       "unset: none")
      .unit("steps")
      .at_least(1);
}

void validation(Table& t) {
  step_checks(t);
  t.group("validation");
  t.add<kTraining, &Training::eval_iters>("--eval-iters", "steps per evaluation").unit("steps").at_least(0);
  t.add<kTraining, &Training::eval_interval>("--eval-interval", "steps between evaluations; unset: none")
      .unit("steps")
      .at_least(1)
      .common();
  t.add<kTraining, &Training::start_eval_at_iter>("--start-eval-at-iter",
                                                  "first iteration after which an evaluation is run")
      .unit("steps")
      .at_least(0);
  t.add<kTraining, &Training::eval_global_batch_size>(
       "--eval-global-batch-size", "sequences per evaluation step; unset: --global-batch-size")
      .unit("sequences")
      .range(1, 1'000'000'000'000);
  t.add<kTraining, &Training::eval_micro_batch_size>(
       "--eval-micro-batch-size",
       "sequences per forward pass of a rank in evaluations; unset: --micro-batch-size")
      .unit("sequences")
      .range(1, 1'000'000'000'000);
  t.add<kTraining, &Training::skip_train>("--skip-train", "only evaluate");
  t.add<kTraining, &Training::full_validation>(
      "--full-validation",
      "evaluate each validation set once in full, with an incomplete last global batch; --eval-iters then "
      "applies to the test only");
  t.add<&Run::data, &Data::multiple_validation_sets>(
      "--multiple-validation-sets",
      "treat each prefix of --valid-data-path as a separate validation set with its own loss");
  t.add<&Run::data, &Data::validation_set_names>("--validation-set-names",
                                                 "names of the validation sets; empty: numbers from 0");
}

/// Megatron's older name of --apply-wd-to-qk-layernorm.
std::string set_decay_condition(Run& run, const Words& /*the only choice*/) {
  run.optimizer.apply_wd_to_qk_layernorm = true;
  return "";
}

/// dist_muon is Megatron's older name of muon with sharded states.
std::string set_optimizer(Run& run, const Words& words) {
  const bool shards = words.size() == 1 && words[0] == "dist_muon";
  if (shards) run.parallel.use_distributed_optimizer = true;
  return set_field<kOptimizer, &Optimizer::optimizer>(run, shards ? Words{"muon"} : words);
}

void optimizer(Table& t) {
  t.group("optimizer");
  std::vector<std::string> optimizers = enum_names<OptimizerKind>();
  optimizers.emplace_back("dist_muon");
  t.add<kOptimizer, &Optimizer::optimizer>(
       "--optimizer",
       "adam (AdamW), sgd with momentum, lion, or muon for matrices with --muon-scalar-optimizer for the rest; "
       "dist_muon: muon with --use-distributed-optimizer")
      .accessors(Kind::kChoice, &set_optimizer, &get_field<kOptimizer, &Optimizer::optimizer>)
      .choices(optimizers)
      .unsupported({"adaptive_muon"}, "AdaMuon and NorMuon optimizers")
      .unsupported({"soap"}, "SOAP optimizer");
  t.add<kOptimizer, &Optimizer::weight_decay>("--weight-decay",
                                              "weight decay; not applied to biases and norms")
      .at_least(0)
      .common();
  t.add<kOptimizer, &Optimizer::apply_wd_to_qk_layernorm>(
      "--apply-wd-to-qk-layernorm", "apply weight decay to query and key norms as well");
  t.special("--no-weight-decay-cond-type", "apply_wd_to_qk_layernorm: same as --apply-wd-to-qk-layernorm")
      .accessors(Kind::kChoice, &set_decay_condition, nullptr)
      .choices({"apply_wd_to_qk_layernorm"});
  t.add<kOptimizer, &Optimizer::clip_grad>("--clip-grad", "maximum global gradient norm; 0: no clipping")
      .at_least(0)
      .common();
  t.add<kOptimizer, &Optimizer::adam_beta1>("--adam-beta1", "Adam decay rate of the first moment")
      .range(0, 1);
  t.add<kOptimizer, &Optimizer::adam_beta2>("--adam-beta2", "Adam decay rate of the second moment")
      .range(0, 1);
  t.add<kOptimizer, &Optimizer::adam_eps>("--adam-eps", "Adam epsilon").at_least(0);
  t.add<kOptimizer, &Optimizer::sgd_momentum>("--sgd-momentum", "SGD momentum").range(0, 1);
  t.add<kOptimizer, &Optimizer::lion_beta1>("--lion-beta1", "Lion weight of the momentum in the update")
      .range(0, 1);
  t.add<kOptimizer, &Optimizer::lion_beta2>("--lion-beta2", "Lion decay rate of the momentum").range(0, 1);
  t.add<kOptimizer, &Optimizer::qk_clip>(
      "--qk-clip",
      "after each step, scale the query and key weights of heads whose largest attention score exceeds "
      "--qk-clip-threshold");
  t.add<kOptimizer, &Optimizer::qk_clip_alpha>(
       "--qk-clip-alpha", "share of the scale that queries take, as an exponent; keys take the rest")
      .range(0, 1);
  t.add<kOptimizer, &Optimizer::qk_clip_threshold>("--qk-clip-threshold",
                                                   "largest attention score that --qk-clip accepts")
      .at_least(0);
  t.add<kOptimizer, &Optimizer::freeze_parameters>(
       "--freeze-parameters",
       "parameters that keep their initial or loaded values: patterns over names, such as 'embedding.*' "
       "'*.router.weight'")
      .colonnade_only();
}

void muon(Table& t) {
  constexpr auto kMuon = &Optimizer::muon;
  t.add<kOptimizer, kMuon, &Muon::momentum>("--muon-momentum", "decay rate of the momentum").range(0, 1);
  t.add<kOptimizer, kMuon, &Muon::nesterov>("--muon-nesterov", "Nesterov momentum");
  t.add<kOptimizer, kMuon, &Muon::split_qkv>(
       "--muon-split-qkv", "orthogonalize the query, key and value rows of a fused weight separately")
      .off_alias("--muon-no-split-qkv");
  t.add<kOptimizer, kMuon, &Muon::split_gate_up>(
       "--muon-split-gate-up", "orthogonalize the gate and up rows of a fused weight separately")
      .colonnade_only();
  t.add<kOptimizer, kMuon, &Muon::scale_mode>(
      "--muon-scale-mode",
      "factor of the update of a matrix [out, in]: spectral sqrt(max(out, in)), unit_rms_norm sqrt(out / in), "
      "shape_scaling sqrt(max(1, out / in))");
  t.add<kOptimizer, kMuon, &Muon::extra_scale_factor>("--muon-extra-scale-factor", "factor of all updates");
  t.add<kOptimizer, kMuon, &Muon::coefficients>("--muon-coefficient-type",
                                                "coefficients of the Newton-Schulz steps");
  t.add<kOptimizer, kMuon, &Muon::num_ns_steps>("--muon-num-ns-steps", "number of Newton-Schulz steps")
      .unit("steps")
      .range(1, 1000);
  t.add<kOptimizer, kMuon, &Muon::matmul_precision>(
      "--muon-fp32-matmul-prec",
      "precision of the Newton-Schulz matmuls on CUDA: low and medium bf16, high fp32; on the CPU always fp32");
  t.add<kOptimizer, kMuon, &Muon::tp_mode>(
      "--muon-tp-mode",
      "weights sharded over tensor ranks: blockwise orthogonalizes each shard by itself, the others the whole "
      "matrix");
  t.add<kOptimizer, kMuon, &Muon::scalar_optimizer>(
      "--muon-scalar-optimizer", "optimizer of embeddings, output layer, biases and norms with muon");
}

void optimizer_dtypes(Table& t) {
  t.add<kOptimizer, &Optimizer::use_precision_aware_optimizer>(
      "--use-precision-aware-optimizer",
      "allow dtypes below fp32 for main gradients, main parameters and Adam's states");
  t.add<kOptimizer, &Optimizer::main_grads_dtype>("--main-grads-dtype",
                                                  "dtype in which gradients are accumulated and reduced")
      .choices({"fp32", "bf16"});
  t.add<kOptimizer, &Optimizer::main_params_dtype>(
       "--main-params-dtype", "dtype of main parameters; fp16: with a scale per parameter shard")
      .choices({"fp32", "fp16"});
  t.add<kOptimizer, &Optimizer::exp_avg_dtype>(
       "--exp-avg-dtype", "dtype of Adam's first moment; fp16, fp8 (e4m3): with a scale per parameter shard")
      .choices({"fp32", "fp16", "bf16", "fp8"});
  t.add<kOptimizer, &Optimizer::exp_avg_sq_dtype>(
       "--exp-avg-sq-dtype",
       "dtype of Adam's second moment; in fp8 elements below 2^-18 of the largest become 0")
      .choices({"fp32", "fp16", "bf16", "fp8"});
}

void learning_rate(Table& t) {
  t.group("learning rate and weight decay");
  t.add<kSchedule, &Schedule::lr>("--lr", "peak learning rate").at_least(0).common();
  t.add<kSchedule, &Schedule::min_lr>("--min-lr", "minimum learning rate after warm-up").at_least(0).common();
  t.add<kSchedule, &Schedule::decoupled_lr>(
       "--decoupled-lr", "peak learning rate of word embeddings and output layer; unset: --lr")
      .at_least(0);
  t.add<kSchedule, &Schedule::decoupled_min_lr>(
       "--decoupled-min-lr", "minimum learning rate of word embeddings and output layer; unset: --min-lr")
      .at_least(0);
  t.add<kSchedule, &Schedule::lr_decay_style>("--lr-decay-style", "learning-rate schedule after warm-up")
      .common();
  t.add<kSchedule, &Schedule::lr_wsd_decay_style>("--lr-wsd-decay-style",
                                                  "decay style of the final phase of WSD");
  t.add<kSchedule, &Schedule::lr_decay_iters>("--lr-decay-iters",
                                              "step at which the decay ends; unset: end of training")
      .unit("steps")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_decay_samples>("--lr-decay-samples",
                                                "sample count at which the decay ends, with --train-samples")
      .unit("sequences")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_wsd_decay_iters>("--lr-wsd-decay-iters",
                                                  "length of the final decay phase of WSD")
      .unit("steps")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_wsd_decay_samples>(
       "--lr-wsd-decay-samples", "length of the final decay phase of WSD, with --train-samples")
      .unit("sequences")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_warmup_iters>("--lr-warmup-iters", "warm-up steps")
      .unit("steps")
      .at_least(0)
      .common();
  t.add<kSchedule, &Schedule::lr_warmup_samples>("--lr-warmup-samples",
                                                 "warm-up samples, with --train-samples")
      .unit("sequences")
      .range(0, 1'000'000'000'000);
  t.add<kSchedule, &Schedule::lr_warmup_fraction>("--lr-warmup-fraction",
                                                  "warm-up as a fraction of the decay length")
      .range(0, 1);
  t.add<kSchedule, &Schedule::lr_warmup_init>("--lr-warmup-init", "initial learning rate of the warm-up")
      .at_least(0);
  t.add<kSchedule, &Schedule::start_weight_decay>("--start-weight-decay",
                                                  "weight decay at the start of the ramp")
      .at_least(0);
  t.add<kSchedule, &Schedule::end_weight_decay>("--end-weight-decay", "weight decay at the end of the ramp")
      .at_least(0);
  t.add<kSchedule, &Schedule::weight_decay_incr_style>("--weight-decay-incr-style",
                                                       "weight-decay ramp; constant: none");
  t.add<kSchedule, &Schedule::override_opt_param_scheduler>(
      "--override-opt-param-scheduler", "use the schedule given here instead of the checkpoint's");
  t.add<kSchedule, &Schedule::use_checkpoint_opt_param_scheduler>("--use-checkpoint-opt-param-scheduler",
                                                                  "use the checkpoint's schedule");
}

}  // namespace

void add_training(Table& t) {
  batches(t);
  validation(t);
  optimizer(t);
  optimizer_dtypes(t);
  muon(t);
  learning_rate(t);
}

}  // namespace colonnade::config
