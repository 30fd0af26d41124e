// One Hugging Face family: everything that Colonnade knows about an architecture. Private to models/hf.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "colonnade/config/model.h"
#include "colonnade/models/hf/features.h"
#include "colonnade/models/hf/keys.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/spellings.h"

namespace colonnade::models::hf {

/// One row of a family's name table. In patterns the first {} is the layer number, the second
/// StoredTensor::index; literal names take precedence. `theirs` has one name per fused piece of our
/// parameter, or one for all.
struct Row {
  std::string ours;
  std::vector<std::string> theirs;
  bool transposed = false;
  bool has_leading_one = false;  ///< theirs is [1, ...]
  bool of_layer_before =
      false;  ///< theirs is numbered by the previous layer, for the final norm by the last one
};
using Table = std::vector<Row>;

/// A model_type and its classes: with our head or without a head. The first one is written; without any, the
/// family reads and writes `architectures` itself.
struct ModelType {
  std::string_view name;
  std::vector<std::string_view> classes;
};

/// Source and destination of reading a config.json.
struct ReadContext {
  std::string_view type;  ///< model_type
  Keys& keys;
  Faults& faults;
  Settings& settings;
  const std::vector<std::string>& tensors;  ///< names in the checkpoint, if known
};

/// Replacement of a part of a tensor name.
struct Respelling {
  std::string_view from, to;
};

/// Experts fused in one tensor [experts, rows of all parts, ...] whose name ends with `stored`. `parts`: name
/// endings of one expert's tensors, {} being its number.
struct FusedExperts {
  std::string stored;
  std::vector<std::string> parts;
};

/// Variants of tensor names in published checkpoints (spellings.h).
struct Spelling {
  std::string_view prefix = "model.";  ///< of the base model in a model with a head
  std::vector<std::string_view> roots = {"embed_tokens", "layers", "norm",
                                         "rotary_emb"};  ///< first name components in the base model
  std::vector<std::string_view> heads = {"lm_head", "score", "qa_outputs", "v_head",
                                         "classifier"};  ///< first name components of heads
  std::vector<Respelling> respellings = {};
  std::vector<FusedExperts> fused = {};
};

inline constexpr std::string_view kBuffers = "buffers", kHeads = "tensors of heads for other tasks",
                                  kOfImages = "tensors that read images";

/// Tensors that do not affect the output, matched by the begin and end of their names.
struct UnusedTensor {
  std::string_view begin, end;
  std::string_view what;  ///< in the plural: "buffers"
};

/// Defaults are those of decoders with Llama's names.
struct Family {
  std::vector<ModelType> types;
  const char* model = "gpt";  ///< --model
  Features has;               ///< features of every model of the family
  Features may_have;          ///< further features that config.json and the names can express
  bool (*also)(const config::Model&) = nullptr;  ///< further conditions on a model; null: none
  Table names;                                   ///< of every parameter
  /// Reads config.json, except model_type, architectures and keys without effect (known_keys.h).
  void (*read)(const ReadContext&);
  /// Writes config.json, except model_type, torch_dtype and, if `types` has classes, architectures.
  nlohmann::json (*write)(const config::Model&);
  Spelling spelling = {};
  TiedTables tied = {"model.embed_tokens.weight", "lm_head.weight"};
  std::vector<Copy> copies = {};          ///< tensors that are always copies of others
  std::vector<UnusedTensor> unused = {};  ///< besides those of all families
  bool numbers_mtp_layers = false;        ///< tensors of MTP layers follow those of the model's layers
};

}  // namespace colonnade::models::hf
