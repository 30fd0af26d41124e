// Keys of Megatron's nested YAML (--yaml-cfg) that are not settings here: its config classes have other names
// and more fields than its flags. Private to config.
// Sources: Megatron's training/yaml_arguments.py, core/transformer/transformer_config.py and
// core/model_parallel_config.py.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/given.h"

namespace colonnade::config {

/// The two maps of such a file: language_model and model_parallel.
bool is_section(std::string_view key);

/// The setting behind a field of the config classes ("num_moe_experts": "num_experts"); any other key itself.
std::string_view setting_name(const std::string& key);

/// A value's words, where Megatron's YAML reader or its types differ from the flags': data_path as one text
/// with blanks is a list, and params_dtype has PyTorch's names.
Words setting_words(const Setting& setting, const std::string& word);

/// Fields of the config classes, for suggestions.
std::vector<std::string> field_names();

/// How YAML must read the value of a field that needs translation or has no effect; nullopt for other keys.
std::optional<Kind> field_kind(const std::string& key);

/// Translates such fields of one file into settings.
class NestedKeys {
 public:
  explicit NestedKeys(GivenSet& out) : out_(out) {}

  /// For keys with a field_kind: adds a note or a fault where one is due. False when the value is one for the
  /// setting of the same name.
  bool take(const std::string& key, const Given& given);

  /// After the last key, adds the settings that depend on several fields:
  ///   activation_func with gated_linear_unit, bias_activation_fusion and add_bias_linear: the activation;
  ///   num_query_groups: --group-query-attention, which Megatron's YAML reader ignores.
  void finish(int level);

 private:
  void activation();
  void query_groups(int level);
  [[nodiscard]] bool is_on(const std::string& field) const;

  GivenSet& out_;
  std::map<std::string, Given> fields_;  ///< those of finish()
};

}  // namespace colonnade::config
