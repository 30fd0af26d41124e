// What a conversion reads: the source, its settings, and the items that it writes. Private to job/conversion.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "colonnade/checkpoint/load.h"
#include "colonnade/config/run.h"
#include "colonnade/job/conversion.h"
#include "colonnade/layout/param.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::job {

/// What is written as one piece: a tensor of a safetensors file, or chunks of a *.distcp file.
struct Item {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  checkpoint::Sizes shape;  ///< of the values that are read
  std::function<std::vector<checkpoint::Slice>()> read;
  [[nodiscard]] std::uint64_t bytes() const {
    return static_cast<std::uint64_t>(checkpoint::Box{{}, shape}.numel()) * c10::elementSize(dtype);
  }
};

/// The source of a conversion with the model that its tensors make up.
class ConversionSource {
 public:
  /// Opens the source. Throws DataError and ConfigError as convert().
  explicit ConversionSource(const ConversionOptions& options);

  [[nodiscard]] const checkpoint::CheckpointReader& reader() const { return reader_; }
  [[nodiscard]] const config::Run& run() const { return run_; }
  [[nodiscard]] const std::optional<models::hf::Naming>& naming() const { return naming_; }
  /// Whether optimizer states are converted.
  [[nodiscard]] bool carries_optimizer() const { return carries_optimizer_; }

  /// Throws DataError unless every tensor of the source is one of the model and the other way round; counts
  /// them.
  void require_tensors(ConversionReport& report);

  /// Tensors of a native checkpoint or a Hugging Face folder: the model's, and those of the optimizer.
  [[nodiscard]] std::vector<Item> model_items() const;
  [[nodiscard]] std::vector<Item> optimizer_items() const;
  /// Parameters and their states in Megatron's form; each expert is an item.
  [[nodiscard]] std::vector<Item> megatron_items() const;

 private:
  [[nodiscard]] std::vector<std::string> model_names() const;
  [[nodiscard]] bool is_copy(const std::string& name) const;
  [[nodiscard]] std::string original_of(const std::string& copy) const;
  [[nodiscard]] at::ScalarType target_dtype(at::ScalarType stored) const;
  [[nodiscard]] Item same(const std::string& name, bool of_model) const;
  [[nodiscard]] at::Tensor read_parameter(const layout::ParamSpec& spec, const checkpoint::Box& box,
                                          at::ScalarType dtype) const;
  void add_megatron_states(std::vector<Item>& items, const layout::ParamSpec& spec,
                           const checkpoint::Box& box) const;

  const ConversionOptions& options_;
  checkpoint::CheckpointReader reader_;
  config::Run run_;
  std::optional<models::hf::Naming> naming_;
  bool carries_optimizer_ = false;
};

}  // namespace colonnade::job
