// See residual.h.
#include "colonnade/layers/residual.h"

#include "colonnade/base/philox.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::layers {

std::uint64_t dropout_stream(std::uint64_t seed, const std::string& name) {
  return (seed * 0x9E3779B97F4A7C15ULL) ^ stable_hash("dropout of " + name);
}

ops::DropoutKey dropout_key(std::uint64_t stream, const LocalRows& rows, const at::Tensor& x,
                            const tensor::Pass& pass) {
  ops::DropoutKey key;
  key.key = stream;
  key.samples = pass.batch.at(tensor::Field::kSamples);
  key.begin = pass.batch.share().begin;
  const layout::SequenceShard part = rows.sequence_part(pass.batch);
  const std::vector<layout::TokenSpan> chunks = part.chunks(part.ranks() * x.size(0));
  key.sequence_offset = chunks.front().begin;
  if (chunks.size() > 1) {
    key.second_chunk_row = chunks.front().length;
    key.second_chunk_begin = chunks.back().begin;
  }
  key.hidden_offset = 0;
  key.hidden_size = x.size(-1);
  return key;
}

at::ScalarType residual_type(const config::Model& model, at::ScalarType type) {
  return model.fp32_residual_connection ? tensor::acc_type(type) : type;
}

Residual::Residual(std::string name, double dropout, const Context& context)
    : dropout_(dropout), key_(dropout_stream(context.seed, name)), rows_(context) {}

at::Tensor Residual::forward(const at::Tensor& x, tensor::Parameter* bias, const at::Tensor& residual,
                             const tensor::Pass& pass) const {
  if (is_plain_add(bias, pass)) return x + residual;  // LibTorch promotes x within the addition
  const bool drops = pass.training && dropout_ > 0;
  return ops::bias_dropout_add(x, bias, residual, drops ? dropout_ : 0.0,
                               drops ? key(x, pass) : ops::DropoutKey{});
}

at::Tensor Residual::drop(const at::Tensor& x, const tensor::Pass& pass) const {
  if (!pass.training || dropout_ == 0) return x;
  return ops::dropout(x, dropout_, key(x, pass));
}

}  // namespace colonnade::layers
