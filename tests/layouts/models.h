// Small models for the comparison of layouts, and their results on one rank.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "colonnade/train/compare_layouts.h"
#include "job/runs.h"

namespace colonnade::test {

// Four layers: more stages need --pipeline-model-parallel-layout, and some of them are empty.
inline constexpr const char* kSmall =
    "--num-layers 4 --hidden-size 32 --ffn-hidden-size 48 --num-attention-heads 8 --vocab-size 61 --seq-length 16 "
    "--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --hidden-dropout 0.1 "
    "--attention-dropout 0 --init-method-std 0.1 --make-vocab-size-divisible-by 1 ";
/// Learned positions, biases, LayerNorm.
inline constexpr const char* kTied = "";
inline constexpr const char* kUntied =
    "--untie-embeddings-and-output-weights --position-embedding-type rope --group-query-attention "
    "--num-query-groups 4 --normalization RMSNorm --swiglu --disable-bias-linear ";
/// MoE in every second layer.
inline constexpr const char* kMoe =
    "--untie-embeddings-and-output-weights --position-embedding-type rope --disable-bias-linear --swiglu "
    "--num-experts 4 --moe-layer-freq 2 --moe-ffn-hidden-size 16 --moe-router-topk 2 "
    "--moe-shared-expert-intermediate-size 12 --moe-router-load-balancing-type aux_loss --moe-aux-loss-coeff 0.01 "
    "--moe-z-loss-coeff 0.001 ";

/// One norm for attention and MLP; learned positions, biases.
inline constexpr const char* kParallel = "--parallel-residual ";

/// One MTP depth: the head uses the embedding table twice.
inline constexpr const char* kMtp =
    "--mtp-num-layers 1 --mtp-loss-scaling-factor 0.5 --position-embedding-type rope ";

/// MLA with query LoRA, and MoE with group-limited routing and expert bias.
inline constexpr const char* kLatent =
    "--multi-latent-attention --position-embedding-type rope --q-lora-rank 16 --kv-lora-rank 12 --qk-head-dim 6 "
    "--qk-pos-emb-head-dim 4 --kv-channels 10 --v-head-dim 5 --qk-layernorm --normalization RMSNorm "
    "--untie-embeddings-and-output-weights --disable-bias-linear --swiglu --num-experts 8 --moe-layer-freq 2 "
    "--moe-ffn-hidden-size 16 --moe-router-topk 2 --moe-router-score-function sigmoid --moe-router-num-groups 2 "
    "--moe-router-group-topk 1 --moe-router-enable-expert-bias --moe-router-load-balancing-type seq_aux_loss "
    "--moe-aux-loss-coeff 0.01 --moe-shared-expert-intermediate-size 12 ";

/// Separate documents, windows in every second layer, learned sinks.
inline constexpr const char* kWindowed =
    "--untie-embeddings-and-output-weights --position-embedding-type rope --group-query-attention "
    "--num-query-groups 4 --normalization RMSNorm --swiglu --disable-bias-linear --window-size 5,0 "
    "--window-attn-skip-freq 2 --softmax-type learnable --reset-position-ids --reset-attention-mask ";

/// Encoder and decoder, each with its own relative position table.
inline constexpr const char* kEncoder =
    "t5 --encoder-num-layers 2 --decoder-seq-length 8 --vocab-extra-ids 5 --position-embedding-type relative "
    "--relative-attention-num-buckets 8 --relative-attention-max-distance 12 ";

/// Two token types, a binary head, post-LN.
inline constexpr const char* kBert = "bert --apply-residual-connection-post-layernorm ";

/// A complete run of a small model over `world` ranks; nothing when the rules reject it.
inline std::optional<config::Run> small_run(int world, const std::string& flags) {
  try {
    return settings(world, words(kSmall + flags));
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Training samples of the small models, the same for all layouts and models of a kind.
inline const data::Batches& samples(const config::Run& run) {
  static std::map<std::string, std::unique_ptr<data::Batches>> known;
  auto& of_model = known[run.model_type];
  if (!of_model) of_model = train::training_samples(run);
  return *of_model;
}

/// Results of `model` on one rank, computed once.
inline const train::TrainedLayout& single_rank(const std::string& model, int steps,
                                               train::Precision precision) {
  static std::map<std::tuple<std::string, int, train::Precision>, train::TrainedLayout> known;
  const std::tuple key{model, steps, precision};
  auto found = known.find(key);
  if (found == known.end()) {
    const config::Run run = *small_run(1, model);
    found = known.emplace(key, train::train_layout({.run = run}, samples(run), steps, precision)).first;
  }
  return found->second;
}

}  // namespace colonnade::test
