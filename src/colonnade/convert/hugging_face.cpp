// See hugging_face.h.
#include "colonnade/convert/hugging_face.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/convert/quantized.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/names.h"
#include "colonnade/models/hf/spellings.h"

namespace colonnade::convert {
namespace {

using checkpoint::CheckpointReader;
using checkpoint::ComposedTensor;
using Tensors = std::map<std::string, ComposedTensor>;

/// The part of a stored tensor that `part` names: a view of the file.
ComposedTensor part_of(at::Tensor stored, const models::hf::SpelledTensor& part) {
  if (part.index) stored = stored.select(0, *part.index);
  return checkpoint::composed(part.rows ? stored.narrow(0, part.first_row, *part.rows) : stored);
}

/// The part of a computed tensor that `part` names.
ComposedTensor part_of(const ComposedTensor& whole, const models::hf::SpelledTensor& part) {
  if (!part.index && !part.rows) return whole;
  ComposedTensor tensor = whole;
  if (part.index) tensor.shape.erase(tensor.shape.begin());
  if (part.rows) tensor.shape[0] = *part.rows;
  tensor.compute = [compute = whole.compute, part](checkpoint::Box box) {
    box.offset[0] += part.first_row;
    if (!part.index) return compute(box);
    box.offset.insert(box.offset.begin(), *part.index);
    box.shape.insert(box.shape.begin(), 1);
    return compute(box).squeeze(0);
  };
  return tensor;
}

/// Whether config.json ties the output layer to the embeddings; false if it is invalid, which job::prepare
/// reports.
bool is_tied(const nlohmann::json& config, const Tensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  try {
    const auto settings = models::hf::settings_of(config, "config.json", names);
    const auto untied = settings.find("untie_embeddings_and_output_weights");
    return untied != settings.end() && untied->second == "false";
  } catch (const ConfigError&) {
    return false;
  }
}

/// Adds the embeddings under their own name if only a tied table is stored.
void name_embeddings(Tensors& tensors, const models::hf::TiedTables& tied, const nlohmann::json& config) {
  if (tensors.contains(tied.embedding)) return;
  std::vector<std::string> tables = tied.copies;
  if (tensors.contains(tied.output) && is_tied(config, tensors)) tables.push_back(tied.output);
  const auto stored = std::ranges::find_if(tables, [&](const auto& name) { return tensors.contains(name); });
  if (stored != tables.end()) tensors[tied.embedding] = ComposedTensor(tensors.at(*stored));
}

/// Exchanges a copy that Transformers reads and its original: a BERT may store two output biases, of which
/// the decoder's is read.
void read_copy(Tensors& tensors, const models::hf::Copy& names) {
  const auto copy = tensors.find(names.name);
  if (copy == tensors.end()) return;
  ComposedTensor read = copy->second;
  const auto original = tensors.find(names.original);
  if (original == tensors.end()) {
    tensors.erase(copy);
  } else {
    copy->second = original->second;
  }
  tensors[names.original] = std::move(read);
}

}  // namespace

CheckpointReader open_hugging_face(const std::filesystem::path& folder) {
  const CheckpointReader stored = CheckpointReader::open_hugging_face(folder);
  const std::string type = models::hf::model_type_of(stored.hf_config());
  const auto quantized = quantized_weights(stored);
  models::hf::StoredShapes shapes;
  for (const std::string& name : stored.names())
    if (!is_part_of_quantized(name, quantized)) shapes[name] = stored.info(name).shape;
  for (const auto& [name, tensor] : quantized) shapes[name] = tensor.shape;
  Tensors tensors;
  for (const auto& [name, part] : models::hf::spelled_tensors(type, shapes, folder.string())) {
    const auto weight = quantized.find(part.stored);
    tensors[name] =
        weight != quantized.end() ? part_of(weight->second, part) : part_of(stored.view(part.stored), part);
  }
  if (const auto tied = models::hf::tied_tables(type)) name_embeddings(tensors, *tied, stored.hf_config());
  for (const models::hf::Copy& copy : models::hf::copies_to_read(type)) read_copy(tensors, copy);
  return stored.with_tensors(std::move(tensors));
}

bool equal_tensors(const CheckpointReader& source, const std::string& a, const std::string& b) {
  const auto first = source.info(a), second = source.info(b);
  if (first.shape != second.shape) return false;
  if (first.shape.empty()) return at::equal(source.read(a).to(at::kDouble), source.read(b).to(at::kDouble));
  constexpr std::int64_t kElements = 1 << 20;
  std::int64_t row_elements = 1;
  for (std::size_t d = 1; d < first.shape.size(); ++d) row_elements *= first.shape[d];
  const std::int64_t rows = std::max<std::int64_t>(kElements / std::max<std::int64_t>(row_elements, 1), 1);
  const bool same_dtype = first.dtype == second.dtype;
  for (std::int64_t row = 0; row < first.shape[0]; row += rows) {
    std::vector<std::int64_t> shape = first.shape, offset(first.shape.size(), 0);
    shape[0] = std::min(rows, first.shape[0] - row);
    offset[0] = row;
    const auto read_rows = [&](const std::string& name, at::ScalarType type) {
      const at::Tensor data = at::empty(shape, at::TensorOptions().dtype(same_dtype ? type : at::kDouble));
      source.read_into({name, first.shape, offset, data});
      return data;
    };
    if (!at::equal(read_rows(a, first.dtype), read_rows(b, second.dtype))) return false;
  }
  return true;
}

}  // namespace colonnade::convert
