// Settings of a training run: batches, length, evaluation, optimizer, schedules.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kTraining = &Run::training;
constexpr auto kOptimizer = &Run::optimizer;
constexpr auto kSchedule = &Run::schedule;

void batches(Table& t) {
  t.group("training");
  t.add<kTraining, &Training::micro_batch_size>("--micro-batch-size",
                                                "sequences of one forward pass of a rank")
      .unit("sequences")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::global_batch_size>(
       "--global-batch-size",
       "sequences of one step = micro-batch x data ranks x accumulation; 0 (in files): no accumulation")
      .unit("sequences")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::seq_length>("--seq-length",
                                          "tokens of a sequence; of t5 those that the encoder reads")
      .alias("--encoder-seq-length")
      .unit("tokens")
      .range(0, 1'000'000'000'000)
      .common();
  t.add<kTraining, &Training::decoder_seq_length>("--decoder-seq-length",
                                                  "of t5: tokens that the decoder reads")
      .unit("tokens")
      .range(0, 1'000'000'000'000)
      .megatron_default("unset");
  t.add<kTraining, &Training::train_iters>("--train-iters", "steps of the run")
      .unit("steps")
      .at_least(0)
      .common();
  t.add<kTraining, &Training::train_samples>("--train-samples",
                                             "length of the run in sequences; not with --train-iters")
      .unit("sequences")
      .range(0, 1'000'000'000'000);
  t.add<kTraining, &Training::device>("--device",
                                      "where tensors live; unset: cuda where a GPU is found, else cpu")
      .choices({"cpu", "cuda"})
      .own()
      .common();
  t.add<kTraining, &Training::exit_interval>("--exit-interval",
                                             "the program saves and ends after a step that this divides")
      .unit("steps")
      .at_least(1);
  t.add<kTraining, &Training::exit_duration_in_mins>("--exit-duration-in-mins",
                                                     "the program saves and ends after this time")
      .unit("minutes")
      .at_least(1);
  t.add<kTraining, &Training::calculate_per_token_loss>(
      "--calculate-per-token-loss",
      "every token of the global batch weighs the same, however many each micro-batch masks");
  t.add<kTraining, &Training::check_for_nan_in_loss_and_grad>(
      "--check-for-nan-in-loss-and-grad",
      "stop at the first loss or gradient that is not a number; off: the step is skipped and said to be");
}

void validation(Table& t) {
  t.group("validation");
  t.add<kTraining, &Training::eval_iters>("--eval-iters", "steps of an evaluation").unit("steps").at_least(0);
  t.add<kTraining, &Training::eval_interval>("--eval-interval", "steps between evaluations; unset: none")
      .unit("steps")
      .at_least(1)
      .common();
  t.add<kTraining, &Training::skip_train>("--skip-train", "evaluate only");
  t.add<kTraining, &Training::full_validation>(
      "--full-validation",
      "each validation reads its data once, from the first sample on; the end that fills no global batch is left "
      "out; --eval-iters is of the test alone then");
  t.add<&Run::data, &Data::multiple_validation_sets>(
      "--multiple-validation-sets", "each prefix of --valid-data-path is a set with a loss of its own");
  t.add<&Run::data, &Data::validation_set_names>("--validation-set-names",
                                                 "names of the sets; empty: their numbers from 0 on");
}

/// Megatron's older name of --apply-wd-to-qk-layernorm.
std::string set_decay_condition(Run& run, const Words& /*the only one*/) {
  run.optimizer.apply_wd_to_qk_layernorm = true;
  return "";
}

void optimizer(Table& t) {
  t.group("optimizer");
  t.add<kOptimizer, &Optimizer::optimizer>("--optimizer", "adam (AdamW) or sgd with momentum")
      .missing({"muon", "dist_muon", "adaptive_muon"}, "Muon optimizer")
      .missing({"lion"}, "Lion optimizer")
      .missing({"soap"}, "SOAP optimizer");
  t.add<kOptimizer, &Optimizer::weight_decay>("--weight-decay", "not on biases and norms")
      .at_least(0)
      .common();
  t.add<kOptimizer, &Optimizer::apply_wd_to_qk_layernorm>(
      "--apply-wd-to-qk-layernorm", "weight decay on the norms of queries and keys too");
  t.special("--no-weight-decay-cond-type", "apply_wd_to_qk_layernorm: the same as --apply-wd-to-qk-layernorm")
      .how(Kind::kChoice, &set_decay_condition, nullptr)
      .choices({"apply_wd_to_qk_layernorm"});
  t.add<kOptimizer, &Optimizer::clip_grad>("--clip-grad",
                                           "largest global norm of the gradient; 0: no clipping")
      .at_least(0)
      .common();
  t.add<kOptimizer, &Optimizer::adam_beta1>("--adam-beta1", "decay of the first moment").range(0, 1);
  t.add<kOptimizer, &Optimizer::adam_beta2>("--adam-beta2", "decay of the second moment").range(0, 1);
  t.add<kOptimizer, &Optimizer::adam_eps>("--adam-eps", "added to the root of the second moment").at_least(0);
  t.add<kOptimizer, &Optimizer::sgd_momentum>("--sgd-momentum", "momentum of sgd").range(0, 1);
}

void learning_rate(Table& t) {
  t.group("learning rate and weight decay");
  t.add<kSchedule, &Schedule::lr>("--lr", "highest learning rate").at_least(0).common();
  t.add<kSchedule, &Schedule::min_lr>("--min-lr", "lowest learning rate after warm-up").at_least(0).common();
  t.add<kSchedule, &Schedule::lr_decay_style>("--lr-decay-style", "shape of the decay").common();
  t.add<kSchedule, &Schedule::lr_wsd_decay_style>("--lr-wsd-decay-style", "shape of the last part of WSD");
  t.add<kSchedule, &Schedule::lr_decay_iters>("--lr-decay-iters", "end of the decay; unset: the whole run")
      .unit("steps")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_decay_samples>("--lr-decay-samples",
                                                "end of the decay, with --train-samples")
      .unit("sequences")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_wsd_decay_iters>("--lr-wsd-decay-iters", "length of the last part of WSD")
      .unit("steps")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_wsd_decay_samples>("--lr-wsd-decay-samples",
                                                    "length of the last part of WSD, with --train-samples")
      .unit("sequences")
      .at_least(1);
  t.add<kSchedule, &Schedule::lr_warmup_iters>("--lr-warmup-iters", "steps of warm-up")
      .unit("steps")
      .at_least(0)
      .common();
  t.add<kSchedule, &Schedule::lr_warmup_samples>("--lr-warmup-samples", "warm-up, with --train-samples")
      .unit("sequences")
      .range(0, 1'000'000'000'000);
  t.add<kSchedule, &Schedule::lr_warmup_fraction>("--lr-warmup-fraction", "warm-up as a share of the decay")
      .range(0, 1);
  t.add<kSchedule, &Schedule::lr_warmup_init>("--lr-warmup-init", "learning rate at the start of warm-up")
      .at_least(0);
  t.add<kSchedule, &Schedule::start_weight_decay>("--start-weight-decay",
                                                  "weight decay at the start of a ramp")
      .at_least(0);
  t.add<kSchedule, &Schedule::end_weight_decay>("--end-weight-decay", "weight decay at the end of a ramp")
      .at_least(0);
  t.add<kSchedule, &Schedule::weight_decay_incr_style>("--weight-decay-incr-style",
                                                       "shape of the ramp; constant: no ramp");
  t.add<kSchedule, &Schedule::override_opt_param_scheduler>(
      "--override-opt-param-scheduler", "the schedule given here wins over the checkpoint's");
  t.add<kSchedule, &Schedule::use_checkpoint_opt_param_scheduler>("--use-checkpoint-opt-param-scheduler",
                                                                  "the checkpoint's schedule wins");
}

}  // namespace

void add_training(Table& t) {
  batches(t);
  validation(t);
  optimizer(t);
  learning_rate(t);
}

}  // namespace colonnade::config
