// What was typed, before it is a Run: words by key, with where they came from.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/config/use.h"

namespace colonnade::config {

struct Given {
  Words words;
  std::string where;    ///< "the command line" or "run.yaml:3"
  std::string spelled;  ///< what the messages call it: "--num-layers" or "run.yaml:3: num_layers"
  int level = 0;        ///< higher wins: YAML files in order, then the command line
};

/// The winning words of each key.
struct GivenSet {
  std::map<std::string, Given> by_key;
  std::vector<std::string> faults;
  std::set<std::string> at_fault;          ///< as Run::at_fault
  bool cut_short = false;                  ///< as Parsed::cut_short
  std::vector<std::string> always, notes;  ///< as in Run

  /// A fault in the words of a setting.
  void fault(const Setting& setting, std::string text);

  /// Keeps `given` unless a higher level said the key already.
  void put(const std::string& key, Given given);
  [[nodiscard]] const Given* find(const std::string& key) const;
};

/// --config and --yaml-cfg, whose value is a file of settings.
bool is_settings_file(const Setting& setting);

/// Adds the settings of the YAML file that `flag` names. --config: a flat map of keys (Megatron's destination
/// names or flag spellings) to scalars or lists; `<<` merges maps, what stands in the map itself wins.
/// --yaml-cfg: the same with Megatron's sections language_model and model_parallel, the field names of its
/// config classes, and ${NAME} for environment variables (docs/formats/nested_yaml.md).
void read_yaml(const Setting& flag, const std::string& path, int level, GivenSet& out);

/// "--naem: is not a setting; got ...; did you mean --name?" `own` and `use` as nearest() takes them.
std::string unknown(const std::string& thing, std::string_view name, const std::vector<std::string>& own = {},
                    Use use = Use::kTrain);

}  // namespace colonnade::config
