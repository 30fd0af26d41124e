// See muon.h.
#include "colonnade/optim/muon.h"

#include <ATen/ops/lerp.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "colonnade/optim/newton_schulz.h"

namespace colonnade::optim {

double muon_scale(config::MuonScale mode, std::int64_t rows, std::int64_t columns) {
  const auto out = static_cast<double>(rows), in = static_cast<double>(columns);
  switch (mode) {
    case config::MuonScale::kSpectral:
      return std::sqrt(std::max(out, in));
    case config::MuonScale::kUnitRmsNorm:
      return std::sqrt(out / in);
    case config::MuonScale::kShapeScaling:
      break;
  }
  return std::sqrt(std::max(1.0, out / in));
}

Muon::Muon(const config::Optimizer& settings, StageRanks stage)
    : UpdateRule(config::OptimizerKind::kMuon, settings),
      settings_(settings.muon),
      stage_(std::move(stage)) {}

void Muon::prepare(const UpdateScope& scope) {
  const bool blockwise = settings_.tp_mode == config::MuonTpMode::kBlockwise;
  exchange_ = std::make_unique<MatrixExchange>(
      scope, MatrixSplit{settings_.split_qkv, settings_.split_gate_up, /*by_model_rank=*/blockwise}, stage_);
}

void Muon::update(const std::vector<const Segment*>& segments, const UpdateStep& step) const {
  const auto direction = [&](const Segment& s) {
    const at::Tensor grad = s.grad * step.grad_scale, &buffer = s.states[0];
    buffer.lerp_(grad, 1 - settings_.momentum);
    return settings_.nesterov ? at::lerp(grad, buffer, settings_.momentum) : buffer;
  };
  const auto orthogonalize = [&](const at::Tensor& matrix) {
    const bool in_bf16 = matrix.is_cuda() && matrix.scalar_type() == at::kFloat &&
                         settings_.matmul_precision != config::MatmulPrecision::kHigh;
    const double factor =
        settings_.extra_scale_factor * muon_scale(settings_.scale_mode, matrix.size(0), matrix.size(1));
    return newton_schulz(matrix, settings_.coefficients, settings_.num_ns_steps, in_bf16).mul_(factor);
  };
  const auto apply = [&](const Segment& s, const at::Tensor& update) {
    s.main.mul_(1 - step.learning_rate * step.weight_decay).sub_(update, step.learning_rate);
    if (s.has_main_copy()) s.model.copy_(s.main);
  };
  exchange_->run(segments, {direction, orthogonalize, apply});
}

}  // namespace colonnade::optim
