// Given settings before they become a Run: words by key, with their source.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

/// Words given for one setting, with their source.
struct Given {
  Words words;
  std::string where;    ///< "the command line" or "run.yaml:3"
  std::string spelled;  ///< spelling in messages: "--num-layers" or "run.yaml:3: num_layers"
  int level = 0;        ///< precedence: YAML files in order, then the command line
};

/// The winning words of each key.
struct GivenSet {
  std::map<std::string, Given> by_key;
  std::vector<std::string> faults;
  std::set<std::string> invalid_keys;           ///< as Run::invalid_keys
  bool is_incomplete = false;                   ///< as Parsed::is_incomplete
  std::vector<std::string> no_op_flags, notes;  ///< as in Run

  /// Records an error in the words of a setting.
  void fault(const Setting& setting, std::string text);

  /// Stores `given` unless the key was given at a higher level.
  void put(const std::string& key, Given given);
  [[nodiscard]] const Given* find(const std::string& key) const;
};

/// Whether the setting is --config or --yaml-cfg, whose value is a settings file.
bool is_settings_file(const Setting& setting);

/// Adds the settings of the YAML file given by `flag`. --config: a flat map of keys (Megatron's destination
/// names or flag spellings) to scalars or lists; `<<` merges maps, and a map's own keys take precedence.
/// --yaml-cfg: also Megatron's sections language_model and model_parallel, the field names of its config
/// classes, and ${NAME} for environment variables (docs/formats/nested_yaml.md).
void read_yaml(const Setting& flag, const std::string& path, int level, GivenSet& out);

/// The error "--naem must be a known setting; got ...; did you mean --name?". `own` and `use` as in
/// nearest().
std::string unknown(const std::string& thing, std::string_view name, const std::vector<std::string>& own = {},
                    Use use = Use::kTrain);

}  // namespace colonnade::config
