// See update_rule.h.
#include "colonnade/optim/update_rule.h"

#include <ATen/ops/zeros.h>

#include "colonnade/base/error.h"
#include "colonnade/optim/adam.h"
#include "colonnade/optim/lion.h"
#include "colonnade/optim/muon.h"
#include "colonnade/optim/sgd.h"
#include "colonnade/tensor/dtypes.h"

namespace colonnade::optim {

std::vector<at::Tensor> UpdateRule::initial_states(std::int64_t numel, const config::Dtypes& dtypes,
                                                   const at::Device& device) const {
  std::vector<at::Tensor> states;
  for (const std::string_view name : states_)
    states.push_back(at::zeros({numel}, tensor::options(dtypes.state(name), device)));
  return states;
}

std::unique_ptr<UpdateRule> make_update_rule(config::OptimizerKind kind, const config::Optimizer& settings,
                                             const StageRanks& stage) {
  switch (kind) {
    case config::OptimizerKind::kAdam:
      return std::make_unique<Adam>(settings);
    case config::OptimizerKind::kSgd:
      return std::make_unique<Sgd>(settings);
    case config::OptimizerKind::kLion:
      return std::make_unique<Lion>(settings);
    case config::OptimizerKind::kMuon:
      return std::make_unique<Muon>(settings, stage);
  }
  COL_CHECK(false, "an optimizer must have an update rule; got {}", config::traits_of(kind).name);
}

}  // namespace colonnade::optim
