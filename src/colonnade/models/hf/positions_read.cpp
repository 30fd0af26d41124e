// See positions_read.h.
#include "colonnade/models/hf/positions_read.h"

#include <fmt/ranges.h>

#include <cmath>

namespace colonnade::models::hf {

using nlohmann::json;

namespace {

constexpr std::string_view kRemoveOne = "remove the wrong one";
constexpr Bounds kFactor{.least = 1, .most = 1e9};
constexpr Bounds kAny{.least = 0, .most = 1e9};

/// A block with rope_type and the file's rope_theta filled in, for comparison.
json normalized_block(json block, const json& theta) {
  if (block.contains("type")) {
    if (!block.contains("rope_type")) block["rope_type"] = block["type"];
    block.erase("type");
  }
  if (!block.contains("rope_type")) block["rope_type"] = "default";
  if (!block.contains("rope_theta") && !theta.is_null()) block["rope_theta"] = theta;
  return block;
}

/// Position block and its name in messages.
struct Block {
  json object = json::object();
  std::string name;
};

Block block_of(Keys& keys, const RopeDefaults& defaults) {
  const json scaling = keys.object("rope_scaling");
  const json parameters = keys.object("rope_parameters");
  const json theta = keys.any("rope_theta");
  if (!scaling.empty() && !parameters.empty() &&
      normalized_block(scaling, theta) != normalized_block(parameters, theta))
    keys.fault("rope_scaling", "must agree with rope_parameters, its name in Transformers 5",
               json::array({scaling, parameters}), kRemoveOne);
  if (!scaling.empty()) return {scaling, "rope_scaling"};
  if (!parameters.empty()) return {parameters, "rope_parameters"};
  if (!defaults.block.empty() && keys.has("rope_scaling"))  // null is no scaling in Transformers 4
    keys.fault("rope_scaling", "must name its rope_type: Transformers 4 and 5 read null as different models",
               json(), R"(write {"rope_type": "default"}, or the block that the model was trained with)");
  return {defaults.block, "rope_parameters"};
}

/// Rotary base: the block's, else the file's, else the family's.
double theta_of(Keys& keys, Keys& block, const RopeDefaults& defaults) {
  const double of_file = keys.real("rope_theta", defaults.theta, {.least = 1});
  const double of_block = block.real("rope_theta", of_file, {.least = 1});
  if (keys.has("rope_theta") && of_block != of_file)
    keys.fault("rope_theta", "must agree with rope_theta of the block of positions",
               json::array({of_file, of_block}), kRemoveOne);
  return of_block;
}

/// Context length before scaling, which some files store outside the block.
std::int64_t original_length(Keys& keys, Keys& block, const RopeDefaults& defaults) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const std::int64_t of_file = keys.integer(kKey, defaults.max_position_embeddings);
  if (defaults.by_kind && !block.has(kKey) && of_file != defaults.max_position_embeddings)
    keys.fault(kKey,
               "must be in the block of positions, the only place where Transformers reads it for this class",
               json(of_file), "move it into the block");
  const std::int64_t of_block = block.integer(kKey, of_file);
  if (keys.has(kKey) && of_block != of_file)
    keys.fault(kKey, "must agree with that of the block of positions", json::array({of_file, of_block}),
               kRemoveOne);
  return of_block;
}

double required(Keys& block, const char* key, Bounds bounds) {
  if (!block.has(key)) block.fault(key, "must be given: this type of scaling needs it", json());
  return block.real(key, bounds.least, bounds);
}

/// attention_factor, which overrides mscale and mscale_all_dim in Transformers; nothing if it equals their
/// result. Latent attention also scales scores by mscale_all_dim, so that no other value fits.
std::optional<double> read_attention_factor(Keys& block, double factor, double mscale,
                                            double mscale_all_dim) {
  const auto given = block.real_or_null("attention_factor", std::nullopt, kAny);
  if (!given) return std::nullopt;
  const double computed = yarn_attention_factor(factor, mscale, mscale_all_dim);
  if (std::abs(*given - computed) <= 1e-6 * computed) return std::nullopt;
  if (mscale_all_dim == 0 && factor > 1 && *given >= 1) return given;
  block.fault("attention_factor", fmt::format("must be {}, the value that the factor gives", computed),
              json(*given));
  return std::nullopt;
}

/// Without mscale and mscale_all_dim the attention factor is 1 + 0.1 ln(factor), as with mscale 1 and
/// mscale_all_dim 0.
void read_yarn(Keys& keys, Keys& block, const RopeDefaults& defaults, Settings& s) {
  const double factor = required(block, "factor", kFactor);
  const double mscale = block.real_or_null("mscale", 0, kAny).value_or(0);
  const double all_dim = block.real_or_null("mscale_all_dim", 0, kAny).value_or(0);
  const bool both = mscale != 0 && all_dim != 0;
  if (!both && all_dim != 0) block.fault("mscale", "must be above 0 if mscale_all_dim is", json(mscale));
  const auto weight = read_attention_factor(block, factor, both ? mscale : 1, both ? all_dim : 0);
  const auto unless_zero = [&](const char* key, double fallback) {
    const double value = block.real_or_null(key, fallback, kAny).value_or(fallback);
    return value == 0 ? fallback : value;
  };
  s["rotary_scaling_factor"] = text(factor);
  s["mscale"] = text(weight ? (*weight - 1) / (0.1 * std::log(factor)) : both ? mscale : 1.0);
  s["mscale_all_dim"] = text(all_dim);
  s["yarn_beta_fast"] = text(unless_zero("beta_fast", 32));
  s["yarn_beta_slow"] = text(unless_zero("beta_slow", 1));
  const bool whole = block.flag("truncate", true);
  if (defaults.by_kind && !whole && factor != 1)
    block.fault("truncate", "must be true: Transformers ignores it for this class", json(whole));
  s["yarn_correction_range_round_to_int"] = text(whole);
  s["yarn_original_max_position_embeddings"] = text(original_length(keys, block, defaults));
  block.only("finetuned", {true, false});  // bookkeeping of early YaRN models
  // A factor of 1 scales nothing: keep the defaults of the other settings.
  s["position_embedding_type"] = factor == 1 ? "rope" : "yarn";
  if (factor != 1) return;
  for (const char* key :
       {"rotary_scaling_factor", "mscale", "mscale_all_dim", "yarn_beta_fast", "yarn_beta_slow",
        "yarn_correction_range_round_to_int", "yarn_original_max_position_embeddings"})
    s.erase(key);
}

void read_llama3(Keys& keys, Keys& block, const RopeDefaults& defaults, Settings& s) {
  s["use_rope_scaling"] = "true";
  s["rope_scaling_factor"] = text(required(block, "factor", kFactor));
  s["rope_low_freq_factor"] = text(required(block, "low_freq_factor", kAny));
  s["rope_high_freq_factor"] = text(required(block, "high_freq_factor", kAny));
  s["rope_original_max_position_embeddings"] = text(original_length(keys, block, defaults));
}

/// A list of numbers as a setting.
std::string read_numbers(Keys& block, const char* key) {
  const json given = block.any(key);
  std::vector<std::string> numbers;
  for (const json& one : given.is_array() ? given : json::array())
    if (one.is_number()) numbers.push_back(text(one.get<double>()));
  if (!given.is_array() || numbers.size() != given.size() || numbers.empty())
    block.fault(key, "must be a list of numbers", given, "correct the file");
  return fmt::format("[{}]", fmt::join(numbers, ","));
}

void read_longrope(Keys& keys, Keys& block, const RopeDefaults& defaults, Settings& s) {
  s["longrope_short_factor"] = read_numbers(block, "short_factor");
  s["longrope_long_factor"] = read_numbers(block, "long_factor");
  s["longrope_original_max_position_embeddings"] = text(original_length(keys, block, defaults));
  if (const auto factor = block.real_or_null("attention_factor", std::nullopt, kAny))
    s["longrope_attention_factor"] = text(*factor);
  block.only("factor", {});
}

/// Reads the share of each head that rotates.
void read_partial(Keys& keys, Keys& block, const RopeDefaults& defaults, Settings& s) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (!defaults.partial) return block.only(kKey, {1});
  constexpr Bounds kShare{.least = 0, .most = 1};
  const double of_file = keys.real_or_null(kKey, defaults.partial, kShare).value_or(*defaults.partial);
  const double share = block.real(kKey, of_file, kShare);
  if (keys.has(kKey) && share != of_file)
    keys.fault(kKey, "must agree with that of the block of positions", json::array({of_file, share}),
               kRemoveOne);
  s["rotary_percent"] = text(share);
}

/// Reads the scaling of `block`.
void read_scaling(Keys& keys, Keys& block, const std::string& name, const RopeDefaults& defaults,
                  Settings& s) {
  block.alias("rope_type", "type");
  const std::string type = block.word("rope_type", "default");
  read_partial(keys, block, defaults, s);
  if (defaults.longrope && (type == "longrope" || type == "su" || type == "yarn")) {
    read_longrope(keys, block, defaults, s);  // Phi's class takes both other names for it
  } else if (type == "yarn") {
    read_yarn(keys, block, defaults, s);
  } else if (type == "llama3") {
    read_llama3(keys, block, defaults, s);
  } else if (type == "linear") {
    s["rotary_seq_len_interpolation_factor"] = text(required(block, "factor", kFactor));
  } else if (type == "default") {
    block.only("factor", {1});
  } else {
    keys.fault(name,
               defaults.longrope ? "must be of rope_type default, linear, llama3 or longrope"
                                 : "must be of rope_type default, linear, llama3 or yarn",
               json(type));
    return;  // its keys would be unknown too
  }
  // A length without a factor scales nothing.
  static constexpr std::string_view kLength[] = {"original_max_position_embeddings"};
  keys.ignore(kLength);
  block.ignore(kLength);
  block.reject_unknown();
}

/// Transformers merges Gemma 3's rope_scaling into a block with rope_type default, so `type` has no effect.
void require_rope_type(Keys& keys, const json& scaling) {
  if (scaling.contains("rope_type") || !scaling.contains("type") || scaling["type"] == "default") return;
  keys.fault("rope_scaling.type", "must be named rope_type: Transformers ignores type for this class",
             scaling["type"], "write rope_type, or remove the block if the model was trained without it");
}

}  // namespace

double yarn_attention_factor(double factor, double mscale, double mscale_all_dim) {
  const auto weight = [&](double m) { return 1 + 0.1 * m * std::log(factor); };
  return weight(mscale) / weight(mscale_all_dim);
}

void read_positions(Keys& keys, const RopeDefaults& defaults, Faults& faults, Settings& s) {
  Block found = block_of(keys, defaults);
  Keys block(std::move(found.object), found.name + ".", faults);
  s["position_embedding_type"] = "rope";
  s["rotary_base"] = text(theta_of(keys, block, defaults));
  read_scaling(keys, block, found.name, defaults, s);
}

void read_positions_by_kind(Keys& keys, const RopeDefaults& defaults, bool windows, Faults& faults,
                            Settings& s) {
  const json both = keys.object("rope_parameters");
  Keys kinds(both, "rope_parameters.", faults);
  json full = kinds.object("full_attention");
  const json scaling = keys.object("rope_scaling");
  std::string name = "rope_parameters.full_attention";
  if (!scaling.empty()) {
    if (!full.empty() && normalized_block(scaling, json()) != normalized_block(full, json()))
      keys.fault("rope_scaling", "must agree with rope_parameters.full_attention",
                 json::array({scaling, full}), kRemoveOne);
    if (full.empty()) require_rope_type(keys, scaling);
    full = scaling;
    name = "rope_scaling";
  }
  Keys block(full, name + ".", faults);
  s["position_embedding_type"] = "rope";
  const double global_base = theta_of(keys, block, defaults);
  s["rotary_base"] = text(global_base);
  read_scaling(keys, block, name, defaults, s);

  Keys local(kinds.object("sliding_attention"), "rope_parameters.sliding_attention.", faults);
  const double of_file =
      keys.real("rope_local_base_freq", defaults.local.value_or(global_base), {.least = 1});
  const double base = local.real("rope_theta", of_file, {.least = 1});
  if (keys.has("rope_local_base_freq") && base != of_file)
    keys.fault("rope_local_base_freq", "must agree with rope_parameters.sliding_attention.rope_theta",
               json::array({of_file, base}), kRemoveOne);
  local.alias("rope_type", "type");
  local.only("rope_type", {"default"});
  local.only("partial_rotary_factor", {1});
  local.reject_unknown();
  kinds.reject_unknown();
  if (windows) s["rotary_base_local"] = text(base);
}

}  // namespace colonnade::models::hf
