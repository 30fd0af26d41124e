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
using Views = std::map<std::string, checkpoint::View>;

/// Whether config.json ties the output layer to the embeddings; false if it is invalid, which job::prepare
/// reports.
bool is_tied(const nlohmann::json& config, const Views& views) {
  std::vector<std::string> names;
  for (const auto& [name, view] : views) names.push_back(name);
  try {
    const auto settings = models::hf::settings_of(config, "config.json", names);
    const auto untied = settings.find("untie_embeddings_and_output_weights");
    return untied != settings.end() && untied->second == "false";
  } catch (const ConfigError&) {
    return false;
  }
}

/// Adds the embeddings under their own name if only a tied table is stored.
void name_embeddings(Views& views, const models::hf::TiedTables& tied, const nlohmann::json& config) {
  if (views.contains(tied.embedding)) return;
  std::vector<std::string> tables = tied.copies;
  if (views.contains(tied.output) && is_tied(config, views)) tables.push_back(tied.output);
  const auto stored = std::ranges::find_if(tables, [&](const auto& name) { return views.contains(name); });
  if (stored != tables.end()) views[tied.embedding] = checkpoint::View(views.at(*stored));
}

/// Exchanges a copy that Transformers reads and its original: a BERT may store two output biases, of which
/// the decoder's is read.
void read_copy(Views& views, const models::hf::Copy& names) {
  const auto copy = views.find(names.name);
  if (copy == views.end()) return;
  checkpoint::View read = copy->second;
  const auto original = views.find(names.original);
  if (original == views.end()) {
    views.erase(copy);
  } else {
    copy->second = original->second;
  }
  views[names.original] = std::move(read);
}

/// The part of a computed tensor that `part` names.
checkpoint::ComputedTensor part_of(const checkpoint::ComputedTensor& whole,
                                   const models::hf::SpelledTensor& part) {
  if (!part.index && !part.rows) return whole;
  checkpoint::ComputedTensor tensor = whole;
  if (part.index) tensor.shape.erase(tensor.shape.begin());
  if (part.rows) tensor.shape[0] = *part.rows;
  tensor.read = [read = whole.read, part](checkpoint::Box box) {
    box.offset[0] += part.first_row;
    if (!part.index) return read(box);
    box.offset.insert(box.offset.begin(), *part.index);
    box.shape.insert(box.shape.begin(), 1);
    return read(box).squeeze(0);
  };
  return tensor;
}

}  // namespace

CheckpointReader open_hugging_face(const std::filesystem::path& folder) {
  const CheckpointReader stored = CheckpointReader::open_hugging_face(folder);
  const std::string type = models::hf::model_type_of(stored.hf_config());
  auto quantized = quantized_weights(stored);
  models::hf::StoredShapes shapes;
  for (const std::string& name : stored.names())
    if (!is_part_of_quantized(name, quantized)) shapes[name] = stored.info(name).shape;
  for (const auto& [name, tensor] : quantized) shapes[name] = tensor.shape;
  Views views;
  std::map<std::string, checkpoint::ComputedTensor> computed;
  for (auto& [name, tensor] : models::hf::spelled_tensors(type, shapes, folder.string()))
    if (const auto weight = quantized.find(tensor.stored); weight != quantized.end())
      computed[name] = part_of(weight->second, tensor);
    else
      views[name] = {tensor.stored, tensor.index, tensor.first_row, tensor.rows};
  if (const auto tied = models::hf::tied_tables(type)) name_embeddings(views, *tied, stored.hf_config());
  for (const models::hf::Copy& copy : models::hf::copies_to_read(type)) read_copy(views, copy);
  return computed.empty() ? stored.with_views(views)
                          : stored.with_views(views).with_computed(std::move(computed));
}

CheckpointReader open_weights(const std::filesystem::path& path, std::optional<std::int64_t> step,
                              const comm::Group& world, checkpoint::Check check) {
  return checkpoint::is_hugging_face_folder(path) ? open_hugging_face(path)
                                                  : CheckpointReader::open(path, step, world, check);
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
