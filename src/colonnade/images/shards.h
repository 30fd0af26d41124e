// Tar shards of a data set and the fields of its samples, from a folder prepared by Megatron-Energon, any
// folder, or patterns. docs/formats/image_shards.md describes all of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace colonnade::images {

/// Location of a value in a sample: a part's name (jpg, txt, 0.json), and for JSON the keys and indices that
/// lead to it. Energon's `json[caption]`.
struct FieldPath {
  std::string part;
  std::vector<std::string> keys;
};
/// Alternatives, of which the first present one counts. Energon's `png,jpg`.
using Field = std::vector<FieldPath>;

/// Parses a field in Energon's syntax. Throws ConfigError, starting with `what`, if it is malformed or longer
/// than 4,096 characters.
Field parse_field(const std::string& what, const std::string& text);

enum class SampleType { kCaptioning, kVqa };

/// Fields of a sample.
struct SampleFields {
  SampleType type = SampleType::kCaptioning;
  Field image;
  Field caption = {};  ///< kCaptioning only
  Field context = {};  ///< kVqa only: the question
  Field answers = {};  ///< kVqa only: a text, or a list of texts
};

struct ShardSet {
  std::filesystem::path root;             ///< folder that names are relative to
  std::vector<std::string> names = {};    ///< shards in order
  std::vector<std::int64_t> counts = {};  ///< samples per shard in the metadata; -1: unknown
  std::set<std::string> excluded = {};    ///< SHARD/KEY of excluded samples
  SampleFields fields = {};
};

/// Replacements for the metadata of a prepared folder, or for the defaults without metadata.
struct ShardOverrides {
  std::string dataset_yaml = {};  ///< file of .nv-meta with the fields; empty: dataset.yaml
  /// Non-empty fields override the metadata, and determine the sample type. If they are complete (image and
  /// caption, or image, context and answers), no metadata file is read for fields.
  SampleFields fields = {};
};

/// The shards that `words` name, in this order:
/// - one folder with .nv-meta: those of `split` in split.yaml without the excluded ones, with the counts of
/// .info.json
///   or .info.yaml and the fields of dataset.yaml (CaptioningSample and VQASample by field_map);
/// - one other folder: all *.tar below it, sorted by name; `split` must be "train";
/// - patterns with {a,b}, {000..123}, *, ? and [...], each sorted by name.
/// Without metadata a sample is an image (jpg, jpeg, png) and a caption (txt, or json[caption]).
/// Together they may expand to a million words. Throws DataError for missing files, ConfigError for
/// unsupported metadata, unknown keys and metadata sets.
ShardSet find_shards(const std::vector<std::string>& words, const std::string& split,
                     const ShardOverrides& overrides = {});

}  // namespace colonnade::images
