// See hugging_face.h.
#include "colonnade/convert/hugging_face.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/hugging_face.h"
#include "colonnade/models/hf/config.h"
#include "colonnade/models/hf/spellings.h"

namespace colonnade::convert {
namespace {

using checkpoint::CheckpointReader;
using Tensors = std::map<std::string, at::Tensor>;  // tensors of stored tensors

at::Tensor part_of(at::Tensor stored, const models::hf::SpelledTensor& spelled) {
  if (spelled.index) stored = stored.select(0, *spelled.index);
  return spelled.rows ? stored.narrow(0, spelled.first_row, *spelled.rows) : stored;
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
  if (stored != tables.end()) tensors[tied.embedding] = at::Tensor(tensors.at(*stored));
}

/// A BERT may store two output biases; Transformers uses the decoder's.
void name_output_bias(Tensors& tensors) {
  const auto decoder_bias = tensors.find("cls.predictions.decoder.bias");
  if (decoder_bias == tensors.end()) return;
  at::Tensor bias = decoder_bias->second;
  const auto other = tensors.find("cls.predictions.bias");
  if (other == tensors.end()) {
    tensors.erase(decoder_bias);
  } else {
    decoder_bias->second = other->second;
  }
  tensors["cls.predictions.bias"] = std::move(bias);
}

}  // namespace

CheckpointReader open_hugging_face(const std::filesystem::path& folder) {
  const CheckpointReader stored = CheckpointReader::open_hugging_face(folder);
  const std::string type = models::hf::model_type_of(stored.hf_config());
  models::hf::StoredShapes shapes;
  for (const std::string& name : stored.names()) shapes[name] = stored.info(name).shape;
  Tensors tensors;
  for (const auto& [name, spelled] : models::hf::spelled_tensors(type, shapes, folder.string()))
    tensors[name] = part_of(stored.view(spelled.stored), spelled);
  if (const auto tied = models::hf::tied_tables(type)) name_embeddings(tensors, *tied, stored.hf_config());
  if (type == "bert") name_output_bias(tensors);
  std::map<std::string, checkpoint::ComposedTensor> composed;
  for (auto& [name, tensor] : tensors) composed[name] = checkpoint::composed(std::move(tensor));
  return stored.with_tensors(std::move(composed));
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
