// Features of a model by which families differ. Private to models/hf.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "colonnade/config/model.h"

namespace colonnade::models::hf {

/// What config.json or the tensors of a family must express. A setting of config::Model that changes the
/// function of a model has a feature here; a family that does not list it cannot hold the model.
enum class Feature : std::uint8_t {
  // Norms
  kLayerNorm,
  kRmsNorm,
  kZeroCenteredNorm,
  kSandwichNorm,
  kResidualAfterNorm,
  kParallelResidual,
  // Activation of the MLP
  kGelu,
  kGeluTanh,
  kSquaredRelu,
  kSwiglu,
  kGeglu,
  kGegluTanh,
  kQuickGeglu,
  // Biases
  kBias,  ///< of all linear layers
  kQkvBias,
  kOutputBias,  ///< of the logits
  // Positions
  kLearnedPositions,
  kRelativePositions,
  kRotary,
  kPartialRotary,
  kInterleavedRotary,
  kLinearScaling,
  kLlama3Scaling,
  kYarn,
  kOddYarn,    ///< with one of mscale and mscale_all_dim, which Transformers ignores
  kLocalBase,  ///< a rotary base of windowed layers
  // Attention
  kGroupedQueries,
  kQkNorm,
  kQkL2Norm,
  kWindow,
  kSomeWindows,  ///< not in all layers
  kSinks,
  kOffByOneSoftmax,
  kScoreCap,
  kScoreScale,  ///< other than 1 / sqrt(head size)
  kOutputGate,
  kLatentAttention,
  // Embeddings and logits
  kScaledEmbeddings,
  kLogitCap,
  kScaledOutputs,
  kMtp,
  kMup,
  // Mixture of experts
  kExperts,
  kDenseLayers,  ///< some layers have none
  kSharedExperts,
  kSharedGate,
  kLatentExperts,
  kSinkhorn,
  kSigmoidRouter,
  kSqrtSoftplusRouter,
  kExpertBias,
  kRouterGroups,
  kRouterScale,
  kPreSoftmax,  ///< weights are a softmax over all experts
  // T5 and BERT
  kSeveralStacks,
  kBidirectional,
  kTokenTypes,
  kHeadTransform,
  kCount
};

/// A set of features.
class Features {
 public:
  constexpr Features() = default;
  constexpr Features(std::initializer_list<Feature> all) {  // NOLINT: implicit, for designated initializers
    for (const Feature one : all) add(one);
  }
  constexpr void add(Feature one, bool is_there = true) {
    if (is_there) bits_ |= std::uint64_t{1} << static_cast<unsigned>(one);
  }
  [[nodiscard]] constexpr bool contains(Features others) const { return (others.bits_ & ~bits_) == 0; }
  [[nodiscard]] constexpr int count(Features of) const { return __builtin_popcountll(bits_ & of.bits_); }
  friend constexpr Features operator|(Features a, Features b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  static_assert(static_cast<unsigned>(Feature::kCount) <= 64);
  std::uint64_t bits_ = 0;
};

/// At most one of these scales rotary frequencies in a config.json.
inline constexpr Features kRopeScalings = {Feature::kLinearScaling, Feature::kLlama3Scaling, Feature::kYarn};

Features features_of(const config::Model& model);

}  // namespace colonnade::models::hf
