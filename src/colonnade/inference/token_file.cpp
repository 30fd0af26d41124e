// See token_file.h.
#include "colonnade/inference/token_file.h"

#include "colonnade/base/error.h"
#include "colonnade/checkpoint/safetensors.h"
#include "colonnade/config/stacks.h"

namespace colonnade::inference {
namespace {

at::Tensor read_ids(const checkpoint::SafetensorsFile& file, const std::string& path,
                    const std::string& name) {
  const checkpoint::TensorInfo& info = file.info(name);
  if (info.dtype != at::kInt && info.dtype != at::kLong)
    throw DataError(fmt::format("{}: {} must be int32 or int64; got {}; convert it", path, name,
                                checkpoint::dtype_name(info.dtype)));
  if (info.shape.size() != 2 || info.shape[0] < 1 || info.shape[1] < 1)
    throw DataError(fmt::format("{}: {} must be [batch, sequence], both at least 1; got [{}]; reshape it",
                                path, name, fmt::join(info.shape, ", ")));
  return file.view(name).to(at::kLong, /*non_blocking=*/false, /*copy=*/true);
}

void check_ids(const at::Tensor& ids, const at::Tensor& out_of_range, const std::string& path,
               const std::string& name, std::int64_t vocab_size) {
  const at::Tensor places = out_of_range.nonzero();
  if (places.size(0) == 0) return;
  const auto row = places[0][0].item<std::int64_t>(), column = places[0][1].item<std::int64_t>();
  throw DataError(
      fmt::format("{}: {} must be 0 to {}, the vocabulary of the model; got {} at [{}, {}]; tokenize with "
                  "the model's tokenizer",
                  path, name, vocab_size - 1, ids[row][column].item<std::int64_t>(), row, column));
}

at::Tensor out_of_range(const at::Tensor& ids, std::int64_t vocab_size) {
  return ids.lt(0).logical_or(ids.ge(vocab_size));
}

/// `input_ids`, checked against vocabulary and positions.
at::Tensor read_tokens(const checkpoint::SafetensorsFile& file, const std::string& path,
                       std::int64_t vocab_size, std::int64_t longest) {
  at::Tensor tokens = read_ids(file, path, "input_ids");
  check_ids(tokens, out_of_range(tokens, vocab_size), path, "input_ids", vocab_size);
  if (tokens.size(1) > longest)
    throw DataError(
        fmt::format("{}: rows must fit the {} positions of the model; got {} tokens; shorten them", path,
                    longest, tokens.size(1)));
  return tokens;
}

void require_shape(const at::Tensor& ids, const at::Tensor& tokens, const std::string& path,
                   const std::string& name) {
  if (ids.sizes() != tokens.sizes())
    throw DataError(fmt::format("{}: {} must have the shape of input_ids, [{}]; got [{}]; make them equal",
                                path, name, fmt::join(tokens.sizes(), ", "), fmt::join(ids.sizes(), ", ")));
}

at::Tensor read_labels(const checkpoint::SafetensorsFile& file, const std::string& path,
                       std::int64_t vocab_size) {
  at::Tensor labels = read_ids(file, path, "labels");
  check_ids(labels, out_of_range(labels, vocab_size).logical_and(labels.ne(kIgnoreIndex)), path, "labels",
            vocab_size);
  return labels;
}

void require_unmasked_tokens(const at::Tensor& padding, const std::string& path) {
  const at::Tensor empty = padding.all(1).nonzero();
  if (empty.size(0) > 0)
    throw DataError(fmt::format(
        "{}: attention_mask must have a nonzero entry in every row; got none in row {}; remove the row", path,
        empty[0][0].item<std::int64_t>()));
}

/// A tensor of the shape of the tokens; undefined if the file has none.
at::Tensor read_optional(const checkpoint::SafetensorsFile& file, const std::string& path,
                         const std::string& name, const at::Tensor& tokens) {
  if (!file.has(name)) return {};
  at::Tensor ids = read_ids(file, path, name);
  require_shape(ids, tokens, path, name);
  return ids;
}

/// Labels of the file, by default the tokens.
at::Tensor labels_of(const checkpoint::SafetensorsFile& file, const std::string& path,
                     std::int64_t vocab_size, const at::Tensor& tokens) {
  if (!file.has("labels")) return tokens;
  at::Tensor labels = read_labels(file, path, vocab_size);
  require_shape(labels, tokens, path, "labels");
  return labels;
}

}  // namespace

TokenRows read_token_file(const std::filesystem::path& path, std::int64_t vocab_size, std::int64_t longest) {
  const checkpoint::SafetensorsFile file(path);
  TokenRows rows{.tokens = read_tokens(file, path.string(), vocab_size, longest), .labels = {}};
  const at::Tensor labels = labels_of(file, path.string(), vocab_size, rows.tokens);
  rows.labels = at::full_like(rows.tokens, kIgnoreIndex);
  rows.labels.narrow(1, 0, labels.size(1) - 1).copy_(labels.narrow(1, 1, labels.size(1) - 1));
  return rows;
}

TokenRows read_encoder_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                  std::int64_t longest) {
  const checkpoint::SafetensorsFile file(path);
  TokenRows rows{.tokens = {}, .labels = read_labels(file, path.string(), vocab_size)};
  rows.encoder_tokens = read_tokens(file, path.string(), vocab_size, longest);
  rows.encoder_padding = at::zeros_like(rows.encoder_tokens, at::kBool);
  if (file.has("attention_mask"))
    rows.encoder_padding = read_ids(file, path.string(), "attention_mask").eq(0);
  if (rows.encoder_padding.sizes() != rows.encoder_tokens.sizes() ||
      rows.labels.size(0) != rows.encoder_tokens.size(0))
    throw DataError(fmt::format(
        "{}: attention_mask must have the shape of input_ids, [{}], and labels as many rows; got [{}] and "
        "{}; make them equal",
        path.string(), fmt::join(rows.encoder_tokens.sizes(), ", "),
        fmt::join(rows.encoder_padding.sizes(), ", "), rows.labels.size(0)));
  if (rows.labels.size(1) > longest)
    throw DataError(fmt::format("{}: labels must fit the {} positions of the model; got {}; shorten them",
                                path.string(), longest, rows.labels.size(1)));
  require_unmasked_tokens(rows.encoder_padding, path.string());
  rows.tokens = at::zeros_like(rows.labels);
  const std::int64_t shifted = rows.labels.size(1) - 1;
  rows.tokens.narrow(1, 1, shifted).copy_(rows.labels.narrow(1, 0, shifted).clamp_min(0));
  return rows;
}

TokenRows read_masked_token_file(const std::filesystem::path& path, std::int64_t vocab_size,
                                 std::int64_t longest, std::int64_t num_token_types) {
  const checkpoint::SafetensorsFile file(path);
  TokenRows rows{.tokens = read_tokens(file, path.string(), vocab_size, longest), .labels = {}};
  rows.labels = labels_of(file, path.string(), vocab_size, rows.tokens);
  const at::Tensor mask = read_optional(file, path.string(), "attention_mask", rows.tokens);
  rows.padding = mask.defined() ? mask.eq(0) : at::zeros_like(rows.tokens, at::kBool);
  require_unmasked_tokens(rows.padding, path.string());
  if (num_token_types == 0) return rows;
  rows.token_types = read_optional(file, path.string(), "token_type_ids", rows.tokens);
  if (!rows.token_types.defined()) rows.token_types = at::zeros_like(rows.tokens);
  const at::Tensor places = out_of_range(rows.token_types, num_token_types).nonzero();
  if (places.size(0) > 0)
    throw DataError(fmt::format("{}: token_type_ids must be 0 to {}; got {} at [{}, {}]; correct them",
                                path.string(), num_token_types - 1,
                                rows.token_types[places[0][0]][places[0][1]].item<std::int64_t>(),
                                places[0][0].item<std::int64_t>(), places[0][1].item<std::int64_t>()));
  return rows;
}

TokenRows read_token_file(const std::filesystem::path& path, const config::Model& model,
                          std::int64_t longest) {
  if (model.bidirectional)
    return read_masked_token_file(path, model.vocab_size, longest, model.num_tokentypes);
  if (config::has_several_stacks(model)) return read_encoder_token_file(path, model.vocab_size, longest);
  return read_token_file(path, model.vocab_size, longest);
}

tensor::Batch TokenRows::inputs(std::int64_t first, std::int64_t count) const {
  using tensor::Field;
  tensor::Batch batch;
  for (const auto& [field, rows] :
       {std::pair(Field::kTokens, tokens), std::pair(Field::kEncoderTokens, encoder_tokens),
        std::pair(Field::kEncoderPadding, encoder_padding), std::pair(Field::kPadding, padding),
        std::pair(Field::kTokenTypes, token_types)})
    if (rows.defined()) batch.set(field, rows.narrow(0, first, count));
  return batch;
}

}  // namespace colonnade::inference
