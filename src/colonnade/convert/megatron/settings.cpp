// See settings.h.
#include "colonnade/convert/megatron/settings.h"

#include <yaml-cpp/yaml.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/config/schema.h"

namespace colonnade::convert::megatron {
namespace {

using nlohmann::json;

/// Args under another name than our setting's.
struct OtherName {
  const char* ours;
  const char* theirs;
};
constexpr OtherName kOtherNames[] = {
    {"norm_epsilon", "layernorm_epsilon"},
    {"layernorm_zero_centered_gamma", "apply_layernorm_1p"},
    {"rotary_percent", "rotary_percentage"},
};

/// Args that describe no model and no run of ours, or that the model's sizes replace.
bool is_left_out(const config::Setting& setting) {
  constexpr const char* kLeftOut[] = {"load",
                                      "save",
                                      "pretrained_checkpoint",
                                      "ckpt_step",
                                      "config",
                                      "yaml_cfg",
                                      "use_checkpoint_args",
                                      "exit_interval",
                                      "iteration",
                                      "params_dtype",  // bf16 and fp16 say the same
                                      "data_cache_path",
                                      "tensorboard_dir",
                                      "data_args_path",
                                      "yaml_cfg"};
  return std::ranges::find(kLeftOut, setting.key) != std::end(kLeftOut);
}

std::string text_of_scalar(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

/// A value as the text of a setting: elements of a list setting separated by spaces; other lists as in
/// Python.
std::string text_of(const config::Setting& setting, const json& value) {
  if (!value.is_array() || setting.kind != config::Kind::kList) return text_of_scalar(value);
  std::vector<std::string> words;
  for (const json& element : value) words.push_back(text_of_scalar(element));
  return fmt::format("{}", fmt::join(words, " "));
}

const json* find_arg(const json& args, const std::string& key) {
  if (const auto found = args.find(key); found != args.end()) return &*found;
  for (const OtherName& other : kOtherNames)
    if (key == other.ours)
      if (const auto found = args.find(other.theirs); found != args.end()) return &*found;
  return nullptr;
}

bool equals_default(const config::Setting& setting, const std::string& text) {
  return text == setting.megatron_default || text == setting.default_text() || text == "false" ||
         text.empty();
}

/// Values that are not in the args as such.
void complete(std::map<std::string, std::string>& settings, const json& args) {
  if (!flag_arg(args, "group_query_attention", false) && args.contains("group_query_attention"))
    settings["num_query_groups"] = settings["num_attention_heads"];
}

/// A YAML node as JSON: scalars by their form.
json json_of(const YAML::Node& node, int depth = 0) {
  constexpr int kDeepest = 6;
  if (depth > kDeepest || !node.IsDefined() || node.IsNull()) return nullptr;
  if (node.IsSequence()) {
    json list = json::array();
    for (const YAML::Node& element : node) list.push_back(json_of(element, depth + 1));
    return list;
  }
  if (node.IsMap()) {
    json object = json::object();
    for (const auto& pair : node) object[pair.first.as<std::string>("")] = json_of(pair.second, depth + 1);
    return object;
  }
  if (node.Tag() == "!") return node.as<std::string>();  // quoted
  if (std::int64_t integer = 0; YAML::convert<std::int64_t>::decode(node, integer)) return integer;
  if (double real = 0; YAML::convert<double>::decode(node, real)) return real;
  if (bool truth = false; YAML::convert<bool>::decode(node, truth)) return truth;
  return node.as<std::string>("");
}

/// Fields of megatron.core's TransformerConfig and of model providers under the names of args.
json args_of_provider(json provider) {
  constexpr OtherName kFields[] = {{"num_experts", "num_moe_experts"},
                                   {"use_rope_scaling", "rope_scaling"},
                                   {"moe_router_topk_scaling_factor", "moe_router_topk_scaling_factor"}};
  for (const OtherName& field : kFields)
    if (provider.contains(field.theirs) && !provider.contains(field.ours))
      provider[field.ours] = provider[field.theirs];
  if (provider.contains("share_embeddings_and_output_weights"))
    provider["untie_embeddings_and_output_weights"] =
        !flag_arg(provider, "share_embeddings_and_output_weights", true);
  const std::string activation = provider.value("activation_func", json()).dump();
  const bool gated = flag_arg(provider, "gated_linear_unit", false);
  const bool gelu = activation.find("gelu") != std::string::npos;
  if (gated) provider[gelu ? "geglu" : "swiglu"] = true;
  if (!gated &&
      (activation.find("squared_relu") != std::string::npos || activation.find("relu2") != std::string::npos))
    provider["squared_relu"] = true;
  provider.erase("activation_func");
  return provider;
}

}  // namespace

bool describe_model(const json& args) {
  return integer_arg(args, "num_layers", 0) > 0 && integer_arg(args, "hidden_size", 0) > 0 &&
         integer_arg(args, "num_attention_heads", 0) > 0;
}

json args_of_yaml(const std::filesystem::path& file) {
  try {
    const json root = json_of(YAML::Load(read_file(file)));
    for (const char* part : {"model", "config"})
      if (root.is_object() && root.contains(part) && root.at(part).is_object())
        return args_of_provider(root.at(part));
  } catch (const YAML::Exception& error) {
    throw DataError(
        fmt::format("{} must be YAML; got {}; copy the folder again", file.string(), error.what()));
  }
  throw DataError(fmt::format("{} must describe a model; got none; copy the folder again", file.string()));
}

std::map<std::string, std::string> settings_of(const json& args, const std::string& folder) {
  std::map<std::string, std::string> settings;
  std::vector<std::string> faults;
  for (const config::Setting& setting : config::schema()) {
    const json* value = find_arg(args, setting.key);
    if (value == nullptr || value->is_null() || value->is_object() || is_left_out(setting)) continue;
    const std::string text = text_of(setting, *value);
    if (!setting.shorthand_key.empty()) {
      if (text == "true") settings[setting.shorthand_key] = setting.shorthand_word;
    } else if (setting.cls == config::Class::kImplemented && setting.get != nullptr &&
               setting.set != nullptr) {
      settings.try_emplace(setting.key, text);
    } else if (setting.cls == config::Class::kUnsupported && setting.defines_model &&
               !equals_default(setting, text)) {
      faults.push_back(
          fmt::format("{}: its args must describe a model that Colonnade supports; got {} = {} ({}); "
                      "train it with Megatron",
                      folder, setting.key, text, setting.help));
    }
  }
  if (!faults.empty()) throw ConfigError(fmt::format("{}", fmt::join(faults, "\n")));
  complete(settings, args);
  return settings;
}

}  // namespace colonnade::convert::megatron
