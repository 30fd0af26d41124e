// Rules for training length, learning rate and weight decay.
#include <algorithm>

#include "colonnade/config/batch_schedule.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool is_sample_based(const Run& r) { return r.training.train_samples.has_value(); }

/// Learning rate decay length in steps or samples; 0 if unknown.
std::int64_t decay_length(const Run& r) {
  if (is_sample_based(r)) return r.schedule.lr_decay_samples.value_or(*r.training.train_samples);
  return r.schedule.lr_decay_iters.value_or(r.training.train_iters.value_or(0));
}

Broken length_required(const Run& r) {
  if (r.training.skip_train || r.training.train_iters || r.training.train_samples) return std::nullopt;
  return Finding{"--train-iters",
                 "or --train-samples must be set",
                 "neither",
                 {{"train_iters", "1000"}, {"train_samples", "unset"}},
                 "write --train-iters N or --train-samples N",
                 true};
}

Broken length_above_zero(const Run& r) {
  const auto& t = r.training;
  if (t.skip_train || (t.train_iters.value_or(1) > 0 && t.train_samples.value_or(1) > 0)) return std::nullopt;
  const bool samples = t.train_samples.has_value();
  return Finding{samples ? "--train-samples" : "--train-iters",
                 "must be above 0",
                 "0",
                 {{samples ? "train_samples" : "train_iters", "1000"}},
                 "set a length, or add --skip-train to evaluate only"};
}

Broken length_below_one_step(const Run& r) {
  const auto& t = r.training;
  const std::int64_t samples = t.train_samples.value_or(0);
  const std::int64_t first = config::batch_schedule(t).batch_size_at(0);
  if (t.skip_train || samples < 1 || samples >= first) return std::nullopt;
  return Finding{"--train-samples",
                 "must be at least one global batch",
                 fmt::format("{} and a global batch size of {}", samples, first),
                 {{"train_samples", text(first)}},
                 ""};
}

Broken length_given_twice(const Run& r) {
  if (!r.training.train_iters || !r.training.train_samples) return std::nullopt;
  return Finding{"--train-iters",
                 "is not supported with --train-samples",
                 fmt::format("{} and {}", *r.training.train_iters, *r.training.train_samples),
                 {{"train_samples", "unset"}},
                 "remove one of them"};
}

Broken schedule_in_samples(const Run& r) {
  const auto& s = r.schedule;
  if (!is_sample_based(r) || (!s.lr_decay_iters && !s.lr_wsd_decay_iters && s.lr_warmup_iters == 0))
    return std::nullopt;
  return Finding{
      "--train-samples",
      "requires a learning rate schedule in samples",
      fmt::format("--lr-decay-iters {}, --lr-wsd-decay-iters {}, --lr-warmup-iters {} (0: unset)",
                  s.lr_decay_iters.value_or(0), s.lr_wsd_decay_iters.value_or(0), s.lr_warmup_iters),
      {{"lr_decay_iters", "unset"}, {"lr_wsd_decay_iters", "unset"}, {"lr_warmup_iters", "0"}},
      "use --lr-decay-samples, --lr-wsd-decay-samples and --lr-warmup-samples"};
}

Broken schedule_in_steps(const Run& r) {
  const auto& s = r.schedule;
  if (is_sample_based(r) || (!s.lr_decay_samples && !s.lr_wsd_decay_samples && s.lr_warmup_samples == 0))
    return std::nullopt;
  return Finding{
      "--train-iters",
      "requires a learning rate schedule in iterations",
      fmt::format("--lr-decay-samples {}, --lr-wsd-decay-samples {}, --lr-warmup-samples {} (0: unset)",
                  s.lr_decay_samples.value_or(0), s.lr_wsd_decay_samples.value_or(0), s.lr_warmup_samples),
      {{"lr_decay_samples", "unset"}, {"lr_wsd_decay_samples", "unset"}, {"lr_warmup_samples", "0"}},
      "use --lr-decay-iters, --lr-wsd-decay-iters and --lr-warmup-iters, or --train-samples"};
}

Broken warmup_given_twice(const Run& r) {
  const auto& s = r.schedule;
  if (!s.lr_warmup_fraction || (s.lr_warmup_iters == 0 && s.lr_warmup_samples == 0)) return std::nullopt;
  return Finding{
      "--lr-warmup-fraction",
      "is not supported with --lr-warmup-iters or --lr-warmup-samples",
      fmt::format("{} and {}", *s.lr_warmup_fraction, std::max(s.lr_warmup_iters, s.lr_warmup_samples)),
      {{"lr_warmup_fraction", "unset"}},
      "remove one of them"};
}

Broken warmup_decay(const Run& r) {
  const auto& s = r.schedule;
  const std::int64_t warmup = is_sample_based(r) ? s.lr_warmup_samples : s.lr_warmup_iters,
                     decay = decay_length(r);
  const bool all_warmup = s.lr_warmup_fraction.value_or(0) >= 1;
  if (decay < 1 || (warmup < decay && !all_warmup)) return std::nullopt;
  if (all_warmup) {
    return Finding{"--lr-warmup-fraction",
                   "must be below 1",
                   text(*s.lr_warmup_fraction),
                   {{"lr_warmup_fraction", "0.1"}},
                   ""};
  }
  const char* key = is_sample_based(r) ? "lr_warmup_samples" : "lr_warmup_iters";
  return Finding{is_sample_based(r) ? "--lr-warmup-samples" : "--lr-warmup-iters",
                 "must be below the decay length",
                 fmt::format("{} of {}", warmup, decay),
                 {{key, text(decay / 10)}},
                 ""};
}

Broken lr_required(const Run& r) {
  if (r.training.skip_train || r.schedule.lr > 0) return std::nullopt;
  return Finding{"--lr",
                 "must be set to a value above 0",
                 text(r.schedule.lr),
                 {{"lr", "0.0003"}},
                 "write --lr 3e-4 or another number",
                 !r.given.contains("lr")};
}

Broken min_lr(const Run& r) {
  if (r.schedule.lr <= 0 || r.schedule.min_lr <= r.schedule.lr) return std::nullopt;
  return Finding{"--min-lr",
                 "must be at most --lr",
                 fmt::format("{} and {}", r.schedule.min_lr, r.schedule.lr),
                 {{"min_lr", "0"}},
                 ""};
}

Broken decoupled_min_lr(const Run& r) {
  const auto& s = r.schedule;
  const double min_lr = s.decoupled_min_lr.value_or(s.min_lr);
  if (!s.decoupled_lr || min_lr <= *s.decoupled_lr) return std::nullopt;
  return Finding{"--decoupled-min-lr",
                 "must be at most --decoupled-lr",
                 fmt::format("{} and {}", min_lr, *s.decoupled_lr),
                 {{"decoupled_min_lr", "0"}},
                 ""};
}

Broken decoupled_without_peak(const Run& r) {
  const auto& s = r.schedule;
  if (s.decoupled_lr || !s.decoupled_min_lr) return std::nullopt;
  return Finding{"--decoupled-min-lr",
                 "requires --decoupled-lr",
                 text(*s.decoupled_min_lr),
                 {{"decoupled_min_lr", "unset"}},
                 "set --decoupled-lr, or remove the flag"};
}

Broken decoupled_warmup_init(const Run& r) {
  const auto& s = r.schedule;
  if (!s.decoupled_lr || s.lr_warmup_init <= *s.decoupled_lr || s.lr_warmup_init > s.lr) return std::nullopt;
  return Finding{"--lr-warmup-init",
                 "must be at most --decoupled-lr",
                 fmt::format("{} and {}", s.lr_warmup_init, *s.decoupled_lr),
                 {{"lr_warmup_init", "0"}},
                 ""};
}

Broken mup_warmup_init(const Run& r) {
  if (r.model.width_mult() == 1 || r.schedule.lr_warmup_init <= 0) return std::nullopt;
  return Finding{"--lr-warmup-init",
                 "must be 0 with --use-mup and a width multiplier other than 1",
                 fmt::format("{} and {}", r.schedule.lr_warmup_init, r.model.width_mult()),
                 {{"lr_warmup_init", "0"}},
                 ""};
}

Broken warmup_init(const Run& r) {
  if (r.schedule.lr <= 0 || r.schedule.lr_warmup_init <= r.schedule.lr) return std::nullopt;
  return Finding{"--lr-warmup-init",
                 "must be at most --lr",
                 fmt::format("{} and {}", r.schedule.lr_warmup_init, r.schedule.lr),
                 {{"lr_warmup_init", "0"}},
                 ""};
}

Broken wsd_length(const Run& r) {
  const auto& s = r.schedule;
  const std::int64_t decay = decay_length(r);
  const std::int64_t annealing =
      (is_sample_based(r) ? s.lr_wsd_decay_samples : s.lr_wsd_decay_iters).value_or(0);
  if (s.lr_decay_style != config::LrDecayStyle::kWsd || decay < 1 || (annealing >= 1 && annealing <= decay))
    return std::nullopt;
  const char* key = is_sample_based(r) ? "lr_wsd_decay_samples" : "lr_wsd_decay_iters";
  return Finding{is_sample_based(r) ? "--lr-wsd-decay-samples" : "--lr-wsd-decay-iters",
                 "must be between 1 and the decay length with --lr-decay-style WSD",
                 fmt::format("{} of {} (0: unset)", annealing, decay),
                 {{key, text(std::max<std::int64_t>(decay / 10, 1))}},
                 ""};
}

Broken wsd_style(const Run& r) {
  const auto& s = r.schedule;
  if (s.lr_decay_style == config::LrDecayStyle::kWsd || (!s.lr_wsd_decay_iters && !s.lr_wsd_decay_samples))
    return std::nullopt;
  return Finding{"--lr-wsd-decay-iters",
                 "requires --lr-decay-style WSD",
                 text(s.lr_wsd_decay_iters.value_or(s.lr_wsd_decay_samples.value_or(0))),
                 {{"lr_wsd_decay_iters", "unset"}, {"lr_wsd_decay_samples", "unset"}},
                 "remove the flag"};
}

Broken weight_decay_ramp(const Run& r) {
  const auto& s = r.schedule;
  if (s.weight_decay_incr_style == config::WeightDecayIncrStyle::kConstant ||
      (s.start_weight_decay && s.end_weight_decay))
    return std::nullopt;
  return Finding{"--weight-decay-incr-style",
                 "linear or cosine requires --start-weight-decay and --end-weight-decay",
                 "one of them or none",
                 {{"weight_decay_incr_style", "constant"},
                  {"start_weight_decay", "unset"},
                  {"end_weight_decay", "unset"}},
                 "set both, or --weight-decay-incr-style constant"};
}

Broken weight_decay_constant(const Run& r) {
  const auto& s = r.schedule;
  if (s.weight_decay_incr_style != config::WeightDecayIncrStyle::kConstant ||
      (!s.start_weight_decay && !s.end_weight_decay))
    return std::nullopt;
  return Finding{"--start-weight-decay",
                 "and --end-weight-decay require --weight-decay-incr-style linear or cosine",
                 "constant",
                 {{"start_weight_decay", "unset"}, {"end_weight_decay", "unset"}},
                 "remove --start-weight-decay and --end-weight-decay, or set the style"};
}

Broken scheduler_source(const Run& r) {
  if (!r.schedule.override_opt_param_scheduler || !r.schedule.use_checkpoint_opt_param_scheduler)
    return std::nullopt;
  return Finding{"--override-opt-param-scheduler",
                 "is not supported with --use-checkpoint-opt-param-scheduler",
                 "both",
                 {{"use_checkpoint_opt_param_scheduler", "false"}},
                 "remove one of them"};
}

constexpr Rule kSchedule[] = {
    {"train-length", true, length_required, "train_iters=unset",
     "The learning rate schedule and the data blend depend on the training length."},
    {"train-length-zero", true, length_above_zero, "train_iters=0", ""},
    {"train-length-one-step", true, length_below_one_step, "train_iters=unset; train_samples=15",
     "A step reads a whole global batch.", "global_batch_size"},
    {"train-length-once", true, length_given_twice, "train_samples=100",
     "Two values for one length could contradict each other."},
    {"units-of-samples", true, schedule_in_samples,
     "train_iters=unset; train_samples=1000; lr_warmup_iters=3",
     "Iteration-based and sample-based settings cannot be mixed."},
    {"units-of-steps", true, schedule_in_steps, "lr_decay_samples=50",
     "Iteration-based and sample-based settings cannot be mixed."},
    {"warmup-once", true, warmup_given_twice, "lr_warmup_iters=5; lr_warmup_fraction=0.1",
     "Two values for one length could contradict each other."},
    {"warmup-decay", true, warmup_decay, "lr_warmup_iters=100",
     "The learning rate would never reach --lr, or would have no steps left to decay.",
     "lr_decay_iters lr_decay_samples train_iters train_samples"},
    {"lr", true, lr_required, "lr=0", "A learning rate of 0 trains nothing."},
    {"min-lr", true, min_lr, "min_lr=1", "The learning rate would rise during decay.", "lr"},
    {"decoupled-min-lr", true, decoupled_min_lr, "decoupled_lr=0.001; decoupled_min_lr=0.002",
     "The learning rate would rise during decay.", "min_lr"},
    {"decoupled-lr", true, decoupled_without_peak, "decoupled_min_lr=0.0001",
     "As in Megatron, --decoupled-lr selects a schedule of their own."},
    {"decoupled-warmup-init", true, decoupled_warmup_init,
     "decoupled_lr=0.0001; lr_warmup_init=0.0005; lr_warmup_iters=10",
     "The learning rate would fall during warm-up.", "lr"},
    {"mup-warmup-init", true, mup_warmup_init,
     "use_mup=true; mup_base_hidden_size=32; lr_warmup_init=0.0005; lr_warmup_iters=10",
     "muP multiplies the schedule of matrices, where Megatron would start every warm-up at the same rate.",
     "use_mup mup_base_hidden_size hidden_size"},
    {"warmup-init", true, warmup_init, "lr_warmup_init=1; lr_warmup_iters=10",
     "The learning rate would fall during warm-up.", "lr"},
    {"wsd-length", true, wsd_length, "lr_decay_style=WSD",
     "As in Megatron, the length of WSD's final decay phase has no default.",
     "lr_decay_iters lr_decay_samples train_iters train_samples"},
    {"wsd-style", true, wsd_style, "lr_wsd_decay_iters=10",
     "Other decay styles have no separate final decay phase.", "lr_decay_style"},
    {"weight-decay-ramp", true, weight_decay_ramp, "weight_decay_incr_style=linear; start_weight_decay=0.1",
     "As in Megatron, the two values of a ramp have no default."},
    {"weight-decay-constant", true, weight_decay_constant, "end_weight_decay=0.1", ""},
    {"scheduler-source", true, scheduler_source,
     "override_opt_param_scheduler=true; use_checkpoint_opt_param_scheduler=true",
     "One flag selects the schedule of the settings, the other that of the checkpoint."},
};

}  // namespace

std::span<const Rule> schedule_rules() { return kSchedule; }

}  // namespace colonnade::rules
