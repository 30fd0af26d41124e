// The rows of the table of rules, by area. Private to rules/.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "colonnade/config/schema.h"
#include "colonnade/layout/stages.h"
#include "colonnade/rules/rules.h"

namespace colonnade::rules {

/// What a broken rule has to say.
struct Finding {
  std::string thing, rule, got;
  std::vector<Edit> edits;
  std::string fix;       ///< "": made from the edits
  bool missing = false;  ///< nothing is wrong, but a run needs a setting that was not given
  bool of_data = false;  ///< with `missing`: the setting serves to read data, which a plan does not

  /// One more setting of which the rule holds, with what was given and the value that mends it. A switch that
  /// is off stands there by the flag that switches it off.
  void add(const config::Setting& s, const std::string& given, const std::string& mended) {
    const char* comma = edits.empty() ? "" : ", ";
    const bool off = s.kind == config::Kind::kSwitch && given == "false";
    thing += comma + (off ? s.off_flag() : s.flag);
    got += comma + (off ? "true" : given);
    edits.push_back({s.key, mended});
  }
  /// The same of the setting `key`, where it is `given`.
  void refuse(const config::Run& run, bool given, const char* key, const char* mended) {
    if (!given) return;
    const config::Setting& s = config::setting(key);
    add(s, config::text_of(run, s), mended);
  }
};

struct Rule {
  const char* id;
  bool training;  ///< concerns training only
  std::optional<Finding> (*broken)(const config::Run&);
  const char* example;  ///< settings that break it and no other rule, in the sound run of its area
  const char* why;      ///< what would be wrong without it; a sentence
  /// Keys that it judges besides those of its edits, separated by a space: it is silent where the words of
  /// one could not be read.
  const char* judges = "";
};

/// The rules of one file, and settings in which none is broken: "key=value; key=value".
struct Area {
  const char* title;
  std::span<const Rule> rules;
  const char* sound = "";  ///< besides those of kSoundRun
};

/// A run that breaks no rule: 2 x 2 x 2 ranks.
inline constexpr const char* kSoundRun =
    "num_layers=8; hidden_size=64; num_attention_heads=8; vocab_size=100; max_position_embeddings=32; "
    "seq_length=32; micro_batch_size=2; global_batch_size=16; train_iters=100; lr=0.001; mock_data=true; "
    "tensor_model_parallel_size=2; pipeline_model_parallel_size=2; world_size=8";

/// Whether `s`, which does nothing without the setting `other`, was given another value than its default; not
/// when it was left behind in a file by a command line that took the other one away.
bool gives_idle(const config::Run& run, const config::Setting& s, const char* other);

/// As split_stages; none where another rule refuses the split.
std::vector<layout::StageBlocks> stages_if_sound(const config::Run& run);

/// What no layer that sees both ways has here, and no sample of such layers: refused with the run's family.
Finding parts_of_one_way(const config::Run& run);

/// All of them.
std::span<const Area> areas();

std::span<const Rule> shape_rules();
std::span<const Rule> moe_rules();
std::span<const Rule> latent_rules();
std::span<const Rule> encoder_rules();
std::span<const Rule> bert_rules();
std::span<const Rule> context_rules();
std::span<const Rule> hybrid_rules();
std::span<const Rule> pipeline_rules();
std::span<const Rule> recompute_rules();
std::span<const Rule> sharding_rules();
std::span<const Rule> schedule_rules();
std::span<const Rule> data_rules();
std::span<const Rule> validation_rules();
std::span<const Rule> effect_rules();

inline std::string text(std::int64_t value) { return fmt::format("{}", value); }
inline std::string text(double value) { return fmt::format("{}", value); }
inline std::int64_t round_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace colonnade::rules
