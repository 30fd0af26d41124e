// Which tar shards make a data set, and what the parts of a sample are: a folder as Megatron-Energon prepares
// it, any folder, or patterns. docs/formats/image_shards.md describes all of it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace colonnade::images {

/// Where a value of a sample is: a part's name (jpg, txt, 0.json), and in a JSON part the keys and numbers
/// that lead to it. Energon's `json[caption]`.
struct FieldPath {
  std::string part;
  std::vector<std::string> keys;
};
/// The first one that the sample has counts. Energon's `png,jpg`.
using Field = std::vector<FieldPath>;

/// Throws ConfigError, with `what` in front, unless `text` is as Energon writes fields, in 4,096 characters
/// at most.
Field parse_field(const std::string& what, const std::string& text);

enum class SampleType { kCaptioning, kVqa };

/// What a sample is made of.
struct SampleFields {
  SampleType type = SampleType::kCaptioning;
  Field image;
  Field caption = {};  ///< of kCaptioning
  Field context = {};  ///< of kVqa: the question
  Field answers = {};  ///< of kVqa: a text, or a list of texts
};

struct ShardSet {
  std::filesystem::path root;             ///< what names are relative to
  std::vector<std::string> names = {};    ///< in their order
  std::vector<std::int64_t> counts = {};  ///< samples that the metadata says; -1: nothing says it
  std::set<std::string> excluded = {};    ///< SHARD/KEY of samples that are left out
  SampleFields fields = {};
};

/// What stands in the place of a prepared folder's metadata, or of what is read without.
struct ShardOverrides {
  std::string dataset_yaml = {};  ///< the file of .nv-meta that says the fields; empty: dataset.yaml
  /// Those that are there count, and with them their type. When they are an image and a caption, or an image,
  /// a context and answers, no such file is read.
  SampleFields fields = {};
};

/// The shards that `words` tell, in this order:
/// - one folder with .nv-meta: those of `split` in split.yaml, less those it excludes, with the counts of
///   .info.json or .info.yaml and the fields of dataset.yaml (CaptioningSample and VQASample by field_map);
/// - one folder: all *.tar below it by name; its `split` must be "train";
/// - patterns with {a,b}, {000..123}, *, ? and [...], each by name.
/// Without metadata a sample is an image (jpg, jpeg, png) and a caption (txt, or json[caption]).
/// All words are a million at most. Throws DataError for what is not there, ConfigError for metadata that ask
/// for more than this reads, for keys that it does not know, and for metadata sets.
ShardSet find_shards(const std::vector<std::string>& words, const std::string& split,
                     const ShardOverrides& overrides = {});

}  // namespace colonnade::images
