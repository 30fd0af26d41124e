// Rules for encoder-decoder models (T5).
#include <algorithm>

#include "colonnade/config/schema.h"
#include "colonnade/config/stacks.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool is_t5(const Run& r) { return r.model_type == "t5"; }

/// A checkpoint or config file can set encoder layers for `pretrain gpt`.
Broken encoder_model(const Run& r) {
  if (is_t5(r) == config::has_several_stacks(r.model) || (is_t5(r) && r.model.num_layers == 0))
    return std::nullopt;
  return Finding{"--encoder-num-layers",
                 "must be 0 without a T5 model and above 0 with one",
                 fmt::format("{} with {}", r.model.encoder_num_layers, r.model_type),
                 {{"model", "t5"},
                  {"decoder_seq_length", text(std::max<std::int64_t>(r.training.seq_length / 2, 1))},
                  {"vocab_extra_ids", text(std::clamp<std::int64_t>(r.model.vocab_size / 4, 1, 100))}},
                 "write `pretrain t5`, or remove the flag"};
}

Broken decoder_length(const Run& r) {
  if (!is_t5(r) || r.training.decoder_seq_length > 0) return std::nullopt;
  return Finding{"--decoder-seq-length",
                 "must be at least 1 with t5",
                 text(r.training.decoder_seq_length),
                 {{"decoder_seq_length", text(std::max<std::int64_t>(r.training.seq_length / 2, 1))}},
                 "",
                 true};
}

Broken decoder_length_model(const Run& r) {
  if (is_t5(r) || r.training.decoder_seq_length == 0) return std::nullopt;
  return Finding{"--decoder-seq-length",
                 "requires a T5 model",
                 fmt::format("{} with {}", r.training.decoder_seq_length, r.model_type),
                 {{"decoder_seq_length", "0"}},
                 "remove the flag"};
}

Broken relative_positions(const Run& r) {
  const bool relative = r.model.position_embedding == config::PositionEmbedding::kRelative;
  if (!relative || is_t5(r)) return std::nullopt;
  return Finding{"--position-embedding-type",
                 "relative requires a T5 model",
                 fmt::format("relative with {}", r.model_type),
                 {{"position_embedding_type", "rope"}},
                 "choose rope or learned_absolute"};
}

Broken buckets(const Run& r) {
  const config::Model& m = r.model;
  if (m.position_embedding != config::PositionEmbedding::kRelative) return std::nullopt;
  const std::int64_t buckets = m.relative_attention_num_buckets;
  // The decoder has one bucket per distance in half of its buckets, the encoder in half of each direction's.
  if (buckets % 4 == 0 && m.relative_attention_max_distance > buckets / 2) return std::nullopt;
  const std::int64_t fixed = round_up(std::max<std::int64_t>(buckets, 4), 4);
  return Finding{
      "--relative-attention-num-buckets",
      "must be a multiple of 4 and less than twice --relative-attention-max-distance",
      fmt::format("{} and {}", buckets, m.relative_attention_max_distance),
      {{"relative_attention_num_buckets", text(fixed)},
       {"relative_attention_max_distance", text(std::max(m.relative_attention_max_distance, fixed / 2 + 1))}},
      ""};
}

Broken decoder_positions(const Run& r) {
  const std::int64_t longest = std::max(r.training.seq_length, r.training.decoder_seq_length);
  if (!is_t5(r) || r.model.position_embedding != config::PositionEmbedding::kLearnedAbsolute ||
      r.training.decoder_seq_length <= r.model.max_position_embeddings)
    return std::nullopt;
  return Finding{"--max-position-embeddings",
                 "must be at least --decoder-seq-length",
                 fmt::format("{} and {}", r.model.max_position_embeddings, r.training.decoder_seq_length),
                 {{"max_position_embeddings", text(longest)}},
                 ""};
}

Broken decoder_tensor(const Run& r) {
  const std::int64_t tp = r.parallel.tensor_model_parallel_size, length = r.training.decoder_seq_length;
  if (!is_t5(r) || !r.parallel.sequence_parallel || tp < 2 || length % tp == 0) return std::nullopt;
  return Finding{
      "--decoder-seq-length",
      "must be a multiple of --tensor-model-parallel-size with --sequence-parallel",
      fmt::format("{} and {}", length, tp),
      {{"decoder_seq_length", text(round_up(length, tp))},
       {"max_position_embeddings", text(std::max(round_up(length, tp), r.model.max_position_embeddings))}},
      ""};
}

Broken query_groups_of_t5(const Run& r) {
  const config::Model& m = r.model;
  if (!is_t5(r) || m.num_query_groups == m.num_attention_heads || m.num_attention_heads == 0)
    return std::nullopt;
  return Finding{"--num-query-groups",
                 "must equal --num-attention-heads with t5",
                 fmt::format("{} and {} heads", m.num_query_groups, m.num_attention_heads),
                 {{"num_query_groups", text(m.num_attention_heads)}},
                 "remove --group-query-attention"};
}

Broken unsupported_by_t5(const Run& r) {
  if (!is_t5(r)) return std::nullopt;
  Finding found = causal_only_features(r);
  const config::Parallel& p = r.parallel;
  found.add_if(r, r.model.attention_output_gate, "attention_output_gate", "false");
  found.add_if(r, p.decoder_first_pipeline_num_layers > 0, "decoder_first_pipeline_num_layers", "0");
  found.add_if(r, p.decoder_last_pipeline_num_layers > 0, "decoder_last_pipeline_num_layers", "0");
  found.fix = removal(found);
  return found.edits.empty() ? Broken{} : found;
}

Broken sentinels(const Run& r) {
  const bool reads_file = !r.data.tokenizer_type.empty() && r.data.tokenizer_type != "NullTokenizer";
  const std::int64_t most =
      r.model.vocab_size > 0 ? std::max<std::int64_t>(r.model.vocab_size - 2, 1) : r.data.vocab_extra_ids;
  if (!is_t5(r) || reads_file || (r.data.vocab_extra_ids > 0 && r.data.vocab_extra_ids <= most))
    return std::nullopt;
  return Finding{"--vocab-extra-ids",
                 "must be between 1 and --vocab-size - 2 with t5, unless the tokenizer file has sentinels",
                 fmt::format("{} of {}", r.data.vocab_extra_ids, r.model.vocab_size),
                 {{"vocab_extra_ids", text(std::clamp<std::int64_t>(r.model.vocab_size / 4, 1, 100))}},
                 "",
                 r.data.vocab_extra_ids == 0};
}

/// Layers that share the bias table may be on several stages or be recomputed together, which changes the
/// order of their gradient sums.
Broken deterministic_relative_bias(const Run& r) {
  if (!r.parallel.deterministic_mode || r.model.position_embedding != config::PositionEmbedding::kRelative)
    return std::nullopt;
  return Finding{"--deterministic-mode",
                 "is not supported with --position-embedding-type relative",
                 "both",
                 {{"deterministic_mode", "false"}},
                 "remove one of them"};
}

constexpr Rule kT5[] = {
    {"encoder-layers-model", false, encoder_model, "model=gpt; decoder_seq_length=0; vocab_extra_ids=0", "",
     "num_layers"},
    {"decoder-length", true, decoder_length, "decoder_seq_length=0",
     "As in Megatron, the length of decoder sequences has no default.", "model"},
    {"decoder-length-model", false, decoder_length_model,
     "model=gpt; encoder_num_layers=0; vocab_extra_ids=0", "", "model"},
    {"relative-positions", false, relative_positions,
     "model=gpt; encoder_num_layers=0; decoder_seq_length=0; vocab_extra_ids=0; "
     "position_embedding_type=relative",
     "Relative position biases are implemented for T5 layers.", "model"},
    {"relative-buckets", false, buckets,
     "position_embedding_type=relative; relative_attention_num_buckets=30",
     "In each direction, half of the buckets hold one distance each; the rest cover logarithmically "
     "growing ranges.",
     "position_embedding_type"},
    {"decoder-positions", false, decoder_positions, "decoder_seq_length=64",
     "Every token needs a position embedding.", "model seq_length position_embedding_type"},
    {"decoder-tensor", true, decoder_tensor, "sequence_parallel=true; decoder_seq_length=15",
     "Sequence parallelism shards both sequences evenly over tensor-parallel ranks.",
     "model tensor_model_parallel_size sequence_parallel"},
    {"encoder-groups", false, query_groups_of_t5, "num_query_groups=4",
     "Cross-attention has one key/value head per query head.", "model num_attention_heads"},
    {"t5-unsupported", false, unsupported_by_t5, "window_size=4,0",
     "Models with encoder layers and cross-attention do not support these features.", "model"},
    {"sentinels", true, sentinels, "vocab_extra_ids=0",
     "Every masked span is replaced by its own sentinel id.", "model tokenizer_type vocab_size"},
    {"encoder-deterministic", true, deterministic_relative_bias,
     "position_embedding_type=relative; deterministic_mode=true; use_distributed_optimizer=true",
     "All layers add to the gradient of one bias table, in an order that stages and recomputation change.",
     "position_embedding_type"},
};

}  // namespace

Finding causal_only_features(const Run& r) {
  const config::Model& m = r.model;
  Finding found{"", "must not be set with " + r.model_type, "", {}, ""};
  found.add_if(r, m.moe.num_experts > 0, "num_experts", "0");
  found.add_if(r, m.latent.enabled, "multi_latent_attention", "false");
  found.add_if(r, m.mtp_num_layers > 0, "mtp_num_layers", "0");
  found.add_if(r, r.optimizer.qk_clip, "qk_clip", "false");
  found.add_if(r, m.use_mup, "use_mup", "false");
  found.add_if(r, m.window_size > 0, "window_size", "0,0");
  found.add_if(r, m.softmax_type != config::SoftmaxType::kVanilla, "softmax_type", "vanilla");
  found.add_if(r, r.parallel.context_parallel_size > 1, "context_parallel_size", "1");
  found.add_if(r, r.parallel.hybrid_context_parallel, "hybrid_context_parallel", "false");
  found.add_if(r, r.data.reset_position_ids, "reset_position_ids", "false");
  found.add_if(r, r.data.reset_attention_mask, "reset_attention_mask", "false");
  found.add_if(r, r.data.inter_document_masking, "dataloader_inter_document_masking", "false");
  found.add_if(r, r.data.eod_mask_loss, "eod_mask_loss", "false");
  return found;
}

std::span<const Rule> t5_rules() { return kT5; }

}  // namespace colonnade::rules
