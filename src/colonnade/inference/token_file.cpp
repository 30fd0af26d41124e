// See token_file.h.
#include "colonnade/inference/token_file.h"

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"

namespace colonnade::inference {
namespace {

at::Tensor read_ids(const checkpoint::SafetensorsFile& file, const std::string& path,
                    const std::string& name) {
  const checkpoint::TensorInfo& info = file.info(name);
  if (info.dtype != at::kInt && info.dtype != at::kLong)
    throw DataError(fmt::format("{}: {} must be int32 or int64; got {}; convert it", path, name,
                                checkpoint::dtype_name(info.dtype)));
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1)
    throw DataError(fmt::format("{}: {} must be [batch, sequence], neither of them 0; got [{}]; reshape it",
                                path, name, fmt::join(info.shape, ", ")));
  return file.view(name).to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

void check_ids(const at::Tensor& ids, const at::Tensor& outside, const std::string& path,
               const std::string& name, std::int64_t vocab_size) {
  const at::Tensor places = outside.nonzero();
  if (places.size(0) == 0) return;
  const auto row = places[0][0].item<std::int64_t>(), column = places[0][1].item<std::int64_t>();
  throw DataError(
      fmt::format("{}: {} must be 0 to {}, the vocabulary of the model; got {} at [{}, {}]; tokenize with "
                  "the model's tokenizer",
                  path, name, vocab_size - 1, ids[row][column].item<std::int64_t>(), row, column));
}

at::Tensor outside(const at::Tensor& ids, std::int64_t vocab_size) {
  return ids.lt(0).logical_or(ids.ge(vocab_size));
}

}  // namespace

TokenRows read_token_file(const std::filesystem::path& path, std::int64_t vocab_size, std::int64_t longest) {
  const checkpoint::SafetensorsFile file(path);
  TokenRows rows;
  rows.tokens = read_ids(file, path.string(), "input_ids");
  check_ids(rows.tokens, outside(rows.tokens, vocab_size), path.string(), "input_ids", vocab_size);
  if (rows.tokens.size(1) > longest)
    throw DataError(fmt::format("{}: rows must fit the {} positions of the model; got {} tokens; cut them",
                                path.string(), longest, rows.tokens.size(1)));
  at::Tensor labels = rows.tokens;
  if (file.has("labels")) {
    labels = read_ids(file, path.string(), "labels");
    if (labels.sizes() != rows.tokens.sizes())
      throw DataError(
          fmt::format("{}: labels must have the shape of input_ids, [{}]; got [{}]; make them equal",
                      path.string(), fmt::join(rows.tokens.sizes(), ", "), fmt::join(labels.sizes(), ", ")));
    check_ids(labels, outside(labels, vocab_size).logical_and(labels.ne(kIgnoredLabel)), path.string(),
              "labels", vocab_size);
  }
  rows.labels = at::full_like(rows.tokens, kIgnoredLabel);
  rows.labels.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  return rows;
}

}  // namespace colonnade::inference
