// Keys of Megatron's nested YAML (--yaml-cfg) that are not settings: its config classes have other names and
// more fields than its flags. Private to config. Sources: Megatron's training/yaml_arguments.py,
// core/transformer/transformer_config.py and core/model_parallel_config.py.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/given.h"

namespace colonnade::config {

/// Whether `key` is one of the two sections of such a file: language_model and model_parallel.
bool is_section(std::string_view key);

/// Setting of a config-class field ("beta_fast": "yarn_beta_fast"); any other key is returned unchanged.
std::string_view setting_name(const std::string& key);

/// Words of a value where Megatron's YAML differs from its flags: data_path is a space-separated list in one
/// string, and params_dtype uses PyTorch's names.
Words setting_words(const Setting& setting, const std::string& word);

/// Names of config-class fields, for suggestions.
std::vector<std::string> field_names();

/// Value kind of a field that needs translation or has no effect; nullopt for other keys.
std::optional<Kind> field_kind(const std::string& key);

/// Translates config-class fields of one file into settings.
class NestedKeys {
 public:
  explicit NestedKeys(GivenSet& out) : out_(out) {}

  /// Handles a key with a field_kind and adds a note or an error if needed. False if the value belongs to the
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
  std::map<std::string, Given> fields_;  ///< fields for finish()
};

}  // namespace colonnade::config
