// Writes config.json; see config.h.
#include "colonnade/models/hf/config.h"

#include "colonnade/models/hf/family.h"
#include "colonnade/models/hf/names.h"

namespace colonnade::models::hf {
namespace {

using nlohmann::json;

std::string dtype_name(config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::kBfloat16:
      return "bfloat16";
    case config::Dtype::kFloat16:
      return "float16";
    default:
      return "float32";
  }
}

}  // namespace

json config_of(const config::Model& model) {
  const Family* family = family_of(model);
  if (family == nullptr) return nullptr;
  json c = family->write(model);
  const ModelType& type = family->types.front();
  c["model_type"] = type.name;
  if (!type.classes.empty()) c["architectures"] = {type.classes.front()};
  c["torch_dtype"] = dtype_name(model.params_dtype);
  return c;
}

}  // namespace colonnade::models::hf
