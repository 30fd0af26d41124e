// Reads config.json; see config.h.
#include <fmt/ranges.h>

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/config/derive.h"
#include "colonnade/config/parse.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/families/list.h"
#include "colonnade/models/hf/known_keys.h"

namespace colonnade::models::hf {
namespace {

using nlohmann::json;

/// Throws for a model_type that no family has, naming what it needs if that is known.
[[noreturn]] void reject_type(const std::string& type, const Keys& keys, Faults& faults) {
  const bool wraps = keys.has("text_config");
  const std::string_view fix =
      wraps ? "save the text model that text_config describes as a folder of its own" : Faults::kConvert;
  if (const std::string_view needs = missing_layers(type); !needs.empty()) {
    faults.add("model_type must be one that Colonnade supports", fmt::format("{} (needs {})", type, needs),
               fix);
  } else {
    std::vector<std::string_view> names;
    for (const Family* family : all_families())
      for (const ModelType& one : family->types) names.push_back(one.name);
    faults.add(fmt::format("model_type must be one of {}", fmt::join(names, ", ")),
               type.empty() ? "none" : type, fix);
  }
  faults.require_none();
  throw Error("unreachable");
}

/// A fault if the values, each valid alone, describe a model that no family can express.
void require_family(const Settings& settings, const std::string& type, const std::string& source,
                    Faults& faults) {
  config::Run run;
  config::fill(run, settings, source);
  config::derive(run);
  if (family_of(run.model) != nullptr) return;
  faults.add("the values together must describe a model that the class of model_type supports",
             fmt::format("model_type {} with values that no supported family has", type));
  faults.require_none();
}

/// Quantized weights that convert/quantized.h reads. Activations are not quantized.
bool is_readable(const json& quantization) {
  if (!quantization.is_object()) return false;
  const json method = quantization.value("quant_method", json());
  if (method == "mxfp4") return true;
  return method == "fp8" && quantization.value("fmt", json("e4m3")) == "e4m3" &&
         quantization.contains("weight_block_size");
}

void check_quantization(Keys& keys) {
  for (const char* key : {"quantization_config", "compression_config"})
    if (const json given = keys.any(key); !given.is_null() && !is_readable(given))
      keys.fault(key, "must be absent, or of quant_method fp8 (e4m3 in blocks) or mxfp4", given,
                 "convert the weights to bf16, without the key");
}

}  // namespace

std::string model_type_of(const json& config) {
  if (!config.is_object()) return "";
  const auto type = config.find("model_type");
  return type != config.end() && type->is_string() ? type->get<std::string>() : "";
}

Settings settings_of(const json& config, const std::string& source, const std::vector<std::string>& tensors) {
  Faults faults(source);
  if (!config.is_object()) {
    faults.add("content must be a JSON object", config.type_name());
    faults.require_none();
  }
  Keys keys(config, "", faults);
  Settings settings;
  const std::string type = keys.word("model_type", "");
  const Family* family = family_of_type(type);
  if (family == nullptr) reject_type(type, keys, faults);
  family->read({type, keys, faults, settings, tensors});
  settings["model"] = family->model;
  require_architecture(keys, *std::ranges::find(family->types, type, &ModelType::name));
  check_quantization(keys);
  ignore_neutral_keys(keys);
  keys.reject_unknown();
  faults.require_none();
  require_family(settings, type, source, faults);
  return settings;
}

}  // namespace colonnade::models::hf
