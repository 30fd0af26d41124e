// Features of a model by which families differ. Private to models/hf.
#pragma once

#include <array>
#include <cstddef>
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
  kNoInputNorms,  ///< sandwich norms' output norms only
  kNoNormBias,    ///< LayerNorm without biases
  kResidualAfterNorm,
  kParallelResidual,
  // Activation of the MLP
  kGelu,
  kGeluTanh,
  kSquaredRelu,
  kRelu,
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
  kLongRope,
  kLayersWithoutRope,
  kQueryScaling,
  kLocalBase,  ///< a rotary base of windowed layers
  // Attention
  kGroupedQueries,
  kQkNorm,
  kNormAcrossHeads,  ///< of queries and keys
  kNormAfterRope,    ///< of queries and keys
  kQkL2Norm,
  kClippedHeads,
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
  kEmbeddingFactor,
  kResidualFactor,
  kLogitFactor,
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
    if (is_there) has_[static_cast<std::size_t>(one)] = true;
  }
  [[nodiscard]] constexpr bool contains(const Features& others) const {
    return count(others) == others.count(others);
  }
  /// Number of features that both sets have.
  [[nodiscard]] constexpr int count(const Features& of) const {
    int common = 0;
    for (std::size_t i = 0; i < has_.size(); ++i) common += has_[i] && of.has_[i] ? 1 : 0;
    return common;
  }
  friend constexpr Features operator|(Features a, const Features& b) {
    for (std::size_t i = 0; i < a.has_.size(); ++i) a.has_[i] = a.has_[i] || b.has_[i];
    return a;
  }

 private:
  std::array<bool, static_cast<std::size_t>(Feature::kCount)> has_ = {};
};

/// At most one of these scales rotary frequencies in a config.json.
inline constexpr Features kRopeScalings = {Feature::kLinearScaling, Feature::kLlama3Scaling, Feature::kYarn};
inline constexpr Features kAllRopeScalings = kRopeScalings | Features{Feature::kLongRope};

Features features_of(const config::Model& model);

}  // namespace colonnade::models::hf
