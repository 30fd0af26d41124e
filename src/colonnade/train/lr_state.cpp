// See lr_state.h.
#include "colonnade/train/lr_state.h"

#include <fmt/ranges.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "colonnade/base/error.h"
#include "colonnade/base/reason.h"

namespace colonnade::train {
namespace {

template <typename E>
using Names = std::vector<std::pair<E, std::string_view>>;

Names<config::LrDecayStyle> style_names() {
  using E = config::LrDecayStyle;
  return {{E::kConstant, "constant"},
          {E::kLinear, "linear"},
          {E::kCosine, "cosine"},
          {E::kInverseSquareRoot, "inverse-square-root"},
          {E::kWsd, "WSD"}};
}

Names<config::WsdDecayStyle> wsd_names() {
  using E = config::WsdDecayStyle;
  return {{E::kExponential, "exponential"},
          {E::kLinear, "linear"},
          {E::kCosine, "cosine"},
          {E::kMinusSqrt, "minus_sqrt"}};
}

Names<config::WeightDecayIncrStyle> ramp_names() {
  using E = config::WeightDecayIncrStyle;
  return {{E::kConstant, "constant"}, {E::kLinear, "linear"}, {E::kCosine, "cosine"}};
}

template <typename E>
std::string_view name_of(const Names<E>& names, E value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "";
}

template <typename E>
E value_of(const Names<E>& names, const nlohmann::json& text, std::string_view key) {
  for (const auto& [known, name] : names)
    if (text.is_string() && text.get<std::string>() == name) return known;
  throw DataError(
      fmt::format("schedule state: {} must be a known style; got {}; the checkpoint is of another version",
                  key, text.dump()));
}

double number_of(const nlohmann::json& value, std::string_view key) {
  if (!value.is_number())
    throw DataError(fmt::format("schedule state: {} must be a number; got {}; the checkpoint is damaged", key,
                                value.dump()));
  return value.get<double>();
}

LrPlan plan_of(const nlohmann::json& s, const LrPlan& own) {
  LrPlan plan;
  plan.max_lr = number_of(s.at("max_lr"), "max_lr");
  plan.min_lr = number_of(s.at("min_lr"), "min_lr");
  // Older files lack the schedule of --decoupled-lr.
  plan.decoupled_max_lr =
      s.contains("decoupled_max_lr") ? number_of(s["decoupled_max_lr"], "decoupled_max_lr") : plan.max_lr;
  plan.decoupled_min_lr =
      s.contains("decoupled_min_lr") ? number_of(s["decoupled_min_lr"], "decoupled_min_lr") : plan.min_lr;
  plan.init_lr = s.contains("init_lr") ? number_of(s["init_lr"], "init_lr") : own.init_lr;
  plan.warmup_samples = number_of(s.at("lr_warmup_steps"), "lr_warmup_steps");
  plan.decay_samples = number_of(s.at("lr_decay_steps"), "lr_decay_steps");
  plan.wsd_decay_samples = s.contains("wsd_decay_steps") ? number_of(s["wsd_decay_steps"], "wsd_decay_steps")
                                                         : own.wsd_decay_samples;
  plan.style = value_of(style_names(), s.at("lr_decay_style"), "lr_decay_style");
  plan.wsd_style = s.contains("wsd_decay_style")
                       ? value_of(wsd_names(), s["wsd_decay_style"], "wsd_decay_style")
                       : own.wsd_style;
  plan.start_weight_decay = number_of(s.at("start_wd"), "start_wd");
  plan.end_weight_decay = number_of(s.at("end_wd"), "end_wd");
  plan.weight_decay_style = value_of(ramp_names(), s.at("wd_incr_style"), "wd_incr_style");
  plan.weight_decay_samples = number_of(s.at("wd_incr_steps"), "wd_incr_steps");
  return plan;
}

/// The flags that set a value, for the message about a difference.
std::string_view flags_of(std::string_view key) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 14> kFlags{{
      {"max_lr", "--lr"},
      {"min_lr", "--min-lr"},
      {"decoupled_max_lr", "--decoupled-lr or --lr"},
      {"decoupled_min_lr", "--decoupled-min-lr or --min-lr"},
      {"init_lr", "--lr-warmup-init"},
      {"lr_warmup_steps", "--lr-warmup-samples, -iters or -fraction"},
      {"lr_decay_steps", "--lr-decay-samples, --lr-decay-iters or --train-iters"},
      {"lr_decay_style", "--lr-decay-style"},
      {"wsd_decay_steps", "--lr-wsd-decay-samples or --lr-wsd-decay-iters"},
      {"wsd_decay_style", "--lr-wsd-decay-style"},
      {"start_wd", "--start-weight-decay or --weight-decay"},
      {"end_wd", "--end-weight-decay or --weight-decay"},
      {"wd_incr_style", "--weight-decay-incr-style"},
      {"wd_incr_steps", "--train-samples or --train-iters"},
  }};
  for (const auto& [name, flags] : kFlags)
    if (name == key) return flags;
  return key;
}

/// Whether the value has no effect in either schedule: a constant weight decay has no ramp length.
bool has_no_effect(const std::string& key, const nlohmann::json& own, const nlohmann::json& loaded) {
  const auto constant = name_of(ramp_names(), config::WeightDecayIncrStyle::kConstant);
  return key == "wd_incr_steps" && own.at("wd_incr_style") == constant &&
         loaded.at("wd_incr_style") == constant;
}

/// Whether the value is in samples, which Megatron's keys call steps.
bool is_length(std::string_view key) { return key.ends_with("_steps"); }

/// Common factor between the lengths of the settings and those of the checkpoint; none when they do not share
/// one.
std::optional<double> common_factor(const nlohmann::json& own, const nlohmann::json& loaded) {
  std::optional<double> factor;
  for (const auto& [key, value] : own.items()) {
    if (!is_length(key) || key == "num_steps") continue;
    const double here = value.get<double>(), there = loaded.at(key).get<double>();
    if (here == 0 && there == 0) continue;
    if (here == 0 || there == 0 || here == there || factor.value_or(here / there) != here / there)
      return std::nullopt;
    factor = here / there;
  }
  return factor;
}

void reject_differences(const nlohmann::json& own, const nlohmann::json& loaded) {
  std::vector<std::string> found;
  for (const auto& [key, value] : own.items()) {
    if (key == "num_steps" || loaded.at(key) == value || has_no_effect(key, own, loaded)) continue;
    const char* unit = is_length(key) ? " samples" : "";
    found.push_back(fmt::format("  {} ({}): {}{} in the settings, {}{} in the checkpoint", key, flags_of(key),
                                value.dump(), unit, loaded.at(key).dump(), unit));
  }
  if (found.empty()) return;
  if (const auto factor = common_factor(own, loaded))
    found.push_back(fmt::format(
        "  all lengths differ by the factor {}: they are steps x --global-batch-size; check which of the two changed",
        *factor));
  throw ConfigError(
      fmt::format("schedule: a resumed run must keep its schedule; got\n{}\n"
                  "give the checkpoint's values, or --use-checkpoint-opt-param-scheduler to use them, or "
                  "--override-opt-param-scheduler to continue with the new ones",
                  fmt::join(found, "\n")));
}

}  // namespace

nlohmann::json lr_state(const LrPlan& plan, std::int64_t samples) {
  return {{"max_lr", plan.max_lr},
          {"min_lr", plan.min_lr},
          {"decoupled_max_lr", plan.decoupled_max_lr},
          {"decoupled_min_lr", plan.decoupled_min_lr},
          {"init_lr", plan.init_lr},
          {"lr_warmup_steps", plan.warmup_samples},
          {"lr_decay_steps", plan.decay_samples},
          {"lr_decay_style", name_of(style_names(), plan.style)},
          {"wsd_decay_steps", plan.wsd_decay_samples},
          {"wsd_decay_style", name_of(wsd_names(), plan.wsd_style)},
          {"start_wd", plan.start_weight_decay},
          {"end_wd", plan.end_weight_decay},
          {"wd_incr_style", name_of(ramp_names(), plan.weight_decay_style)},
          {"wd_incr_steps", plan.weight_decay_samples},
          {"num_steps", samples}};
}

LrResume resume_lr(const LrPlan& plan, const nlohmann::json& state, const config::Schedule& settings) {
  if (settings.override_opt_param_scheduler && settings.use_checkpoint_opt_param_scheduler)
    throw ConfigError(
        "schedule: only one of --override-opt-param-scheduler and --use-checkpoint-opt-param-scheduler is supported; "
        "got both; remove one");
  LrResume resumed{.plan = plan};
  LrPlan loaded;
  try {
    loaded = plan_of(state, plan);
    resumed.samples = state.at("num_steps").get<std::int64_t>();
  } catch (const nlohmann::json::exception& e) {
    throw DataError(fmt::format("schedule state must hold Megatron's keys; got {}; the checkpoint is damaged",
                                reason_of(e)));
  }
  if (resumed.samples < 0)
    throw DataError(
        fmt::format("schedule state: num_steps must not be negative; got {}; the checkpoint is damaged",
                    resumed.samples));
  if (settings.override_opt_param_scheduler) return resumed;
  if (settings.use_checkpoint_opt_param_scheduler)
    resumed.plan = loaded;
  else
    reject_differences(lr_state(plan, 0), lr_state(loaded, 0));
  return resumed;
}

}  // namespace colonnade::train
