// Muon: orthogonalized momentum for matrices. Sources: Jordan et al. 2024; Liu et al. 2025
// (arXiv:2502.16982); Megatron's core/optimizer/emerging_optimizers.py; torch.optim.Muon, which
// --muon-coefficient-type simple
// --muon-scale-mode shape_scaling equals.
#pragma once

#include <memory>

#include "colonnade/optim/matrix_exchange.h"
#include "colonnade/optim/update_rule.h"

namespace colonnade::optim {

/// With momentum mu, gradient g (scaled), and matrices [out, in]:
///   buffer = mu buffer + (1 - mu) g
///   u = (1 - mu) g + mu buffer      with Nesterov momentum, else buffer
///   p -= lr (factor newton_schulz(u) + weight_decay p)
/// factor: extra_scale_factor x that of MuonScale. A matrix is a whole parameter of the model, wherever its
/// shards lie, one of a stack, or the rows of q, k or v of a fused weight (Muon::split_qkv). One rank
/// of the stage orthogonalizes each matrix, so that all layouts compute the same update; with
/// MuonTpMode::kBlockwise the shards of tensor ranks are matrices of their own. The state is the buffer, in
/// shards as of any other optimizer.
/// Communication per step: two all-to-alls over the stage for about every 64 million elements of a rank,
/// which move each element of a shard once to the rank that orthogonalizes its matrix and back.
class Muon final : public UpdateRule {
 public:
  Muon(const config::Optimizer& settings, StageRanks stage);
  void prepare(const UpdateScope& scope) override;
  void update(const std::vector<const Segment*>& segments, const UpdateStep& step) const override;

 private:
  config::Muon settings_;
  StageRanks stage_;
  std::unique_ptr<MatrixExchange> exchange_;
};

/// Factor of the update of a matrix.
double muon_scale(config::MuonScale mode, std::int64_t rows, std::int64_t columns);

}  // namespace colonnade::optim
