// Name tables of blocks that several families share; a family's table joins some. Private to models/hf.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "colonnade/models/hf/family.h"

namespace colonnade::models::hf {

Table joined(std::initializer_list<Table> tables);

Table embedding_and_head();  ///< embedding, final norm, output layer
Table pre_norms();           ///< norms before attention and MLP, named as in Llama
Table sandwich_norms();      ///< norms before and after both, named as in Gemma
Table output_norms();        ///< norms after both only, named as in OLMo 2
Table attention();           ///< q, k, v and output projections
Table qkv_biases();
Table qk_norms();
Table latent_attention();  ///< of DeepSeek
Table gated_mlp();
Table plain_mlp(std::string_view fc1, std::string_view fc2);  ///< of modules in a layer

/// `table` with the biases of its linear layers, named like their weights.
Table with_biases(Table table);
/// `table` with the biases of its norms.
Table with_norm_biases(Table table);

/// Module names of a mixture of experts within a layer, {} being the expert.
struct ExpertNames {
  std::string_view router, experts, gate, up, down;
};
inline constexpr ExpertNames kDeepseekExperts = {"mlp.gate", "mlp.experts.{}", "gate_proj", "up_proj",
                                                 "down_proj"};
inline constexpr ExpertNames kMixtralExperts = {"block_sparse_moe.gate", "block_sparse_moe.experts.{}", "w1",
                                                "w3", "w2"};
Table experts(const ExpertNames& names);
Table router_bias(std::string_view name);  ///< bias for the choice of experts, "mlp.gate.bias"
Table shared_experts(std::string_view module);
/// Expert tensors of Transformers 5 that hold all experts.
std::vector<FusedExperts> fused_experts(const ExpertNames& names);

/// `table` with the rows of MTP layers, numbered after the model's as in DeepSeek-V3.
Table with_mtp_layers(Table table);

}  // namespace colonnade::models::hf
