// Rules of models with an encoder (T5).
#include <algorithm>

#include "colonnade/config/schema.h"
#include "colonnade/rules/table.h"

namespace colonnade::rules {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

bool t5(const Run& r) { return r.family == "t5"; }

/// A checkpoint or a file may bring an encoder to `pretrain gpt`.
Broken family(const Run& r) {
  if (t5(r) == r.model.has_encoder() || (t5(r) && r.model.num_layers == 0)) return std::nullopt;
  return Finding{"--encoder-num-layers",
                 "belongs to t5",
                 fmt::format("{} with {}", r.model.encoder_num_layers, r.family),
                 {{"model", "t5"},
                  {"decoder_seq_length", text(std::max<std::int64_t>(r.training.seq_length / 2, 1))},
                  {"vocab_extra_ids", text(std::clamp<std::int64_t>(r.model.vocab_size / 4, 1, 100))}},
                 "write `pretrain t5`, or leave it out"};
}

Broken decoder_length(const Run& r) {
  if (!t5(r) || r.training.decoder_seq_length > 0) return std::nullopt;
  return Finding{"--decoder-seq-length",
                 "must be at least 1 with t5",
                 text(r.training.decoder_seq_length),
                 {{"decoder_seq_length", text(std::max<std::int64_t>(r.training.seq_length / 2, 1))}},
                 "",
                 true};
}

Broken decoder_family(const Run& r) {
  if (t5(r) || r.training.decoder_seq_length == 0) return std::nullopt;
  return Finding{"--decoder-seq-length",
                 "belongs to t5",
                 fmt::format("{} with {}", r.training.decoder_seq_length, r.family),
                 {{"decoder_seq_length", "0"}},
                 "leave it out"};
}

Broken positions(const Run& r) {
  const bool relative = r.model.position_embedding == config::PositionEmbedding::kRelative;
  if (!relative || t5(r)) return std::nullopt;
  return Finding{"--position-embedding-type",
                 "relative belongs to t5",
                 fmt::format("relative with {}", r.family),
                 {{"position_embedding_type", "rope"}},
                 "choose rope or learned_absolute"};
}

Broken buckets(const Run& r) {
  const config::Model& m = r.model;
  if (m.position_embedding != config::PositionEmbedding::kRelative) return std::nullopt;
  const std::int64_t buckets = m.relative_attention_num_buckets;
  // The decoder counts half of its buckets one by one, the encoder half of each direction's.
  if (buckets % 4 == 0 && m.relative_attention_max_distance > buckets / 2) return std::nullopt;
  const std::int64_t mended = round_up(std::max<std::int64_t>(buckets, 4), 4);
  return Finding{"--relative-attention-num-buckets",
                 "must be a multiple of 4, and less than twice --relative-attention-max-distance",
                 fmt::format("{} and {}", buckets, m.relative_attention_max_distance),
                 {{"relative_attention_num_buckets", text(mended)},
                  {"relative_attention_max_distance",
                   text(std::max(m.relative_attention_max_distance, mended / 2 + 1))}},
                 ""};
}

Broken learned_positions(const Run& r) {
  const std::int64_t longest = std::max(r.training.seq_length, r.training.decoder_seq_length);
  if (!t5(r) || r.model.position_embedding != config::PositionEmbedding::kLearnedAbsolute ||
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
  if (!t5(r) || !r.parallel.sequence_parallel || tp < 2 || length % tp == 0) return std::nullopt;
  return Finding{
      "--decoder-seq-length",
      "must be a multiple of --tensor-model-parallel-size with --sequence-parallel",
      fmt::format("{} and {}", length, tp),
      {{"decoder_seq_length", text(round_up(length, tp))},
       {"max_position_embeddings", text(std::max(round_up(length, tp), r.model.max_position_embeddings))}},
      ""};
}

Broken groups(const Run& r) {
  const config::Model& m = r.model;
  if (!t5(r) || m.num_query_groups == m.num_attention_heads || m.num_attention_heads == 0)
    return std::nullopt;
  return Finding{"--num-query-groups",
                 "must be the number of heads with t5",
                 fmt::format("{} of {} heads", m.num_query_groups, m.num_attention_heads),
                 {{"num_query_groups", text(m.num_attention_heads)}},
                 "leave out --group-query-attention"};
}

Broken parts(const Run& r) {
  if (!t5(r)) return std::nullopt;
  Finding found = parts_of_one_way(r);
  const config::Parallel& p = r.parallel;
  found.refuse(r, p.decoder_first_pipeline_num_layers > 0, "decoder_first_pipeline_num_layers", "0");
  found.refuse(r, p.decoder_last_pipeline_num_layers > 0, "decoder_last_pipeline_num_layers", "0");
  return found.edits.empty() ? Broken{} : found;
}

Broken sentinels(const Run& r) {
  const bool of_file = !r.data.tokenizer_type.empty() && r.data.tokenizer_type != "NullTokenizer";
  const std::int64_t most =
      r.model.vocab_size > 0 ? std::max<std::int64_t>(r.model.vocab_size - 2, 1) : r.data.vocab_extra_ids;
  if (!t5(r) || of_file || (r.data.vocab_extra_ids > 0 && r.data.vocab_extra_ids <= most))
    return std::nullopt;
  return Finding{
      "--vocab-extra-ids",
      "must be above 0 with t5, the last ids of a --vocab-size with two others at least, unless the "
      "tokenizer's file has sentinels",
      fmt::format("{} of {}", r.data.vocab_extra_ids, r.model.vocab_size),
      {{"vocab_extra_ids", text(std::clamp<std::int64_t>(r.model.vocab_size / 4, 1, 100))}},
      "",
      r.data.vocab_extra_ids == 0};
}

/// Readers of a table lie on several stages, or are made again together: their gradients add up in another
/// order.
Broken deterministic(const Run& r) {
  if (!r.parallel.deterministic_mode || r.model.position_embedding != config::PositionEmbedding::kRelative)
    return std::nullopt;
  return Finding{"--deterministic-mode",
                 "must not meet --position-embedding-type relative",
                 "both",
                 {{"deterministic_mode", "false"}},
                 "leave one of them out"};
}

constexpr Rule kEncoder[] = {
    {"encoder-family", false, family, "model=gpt; decoder_seq_length=0; vocab_extra_ids=0",
     "A GPT has no encoder, and a T5 has one.", "num_layers"},
    {"decoder-length", true, decoder_length, "decoder_seq_length=0",
     "The decoder's sequences have a length of their own.", "model"},
    {"decoder-family", false, decoder_family, "model=gpt; encoder_num_layers=0; vocab_extra_ids=0",
     "Only a T5 has a second sequence.", "model"},
    {"relative-positions", false, positions,
     "model=gpt; encoder_num_layers=0; decoder_seq_length=0; vocab_extra_ids=0; position_embedding_type=relative",
     "Biases of distances lie beside the layers of a T5.", "model"},
    {"relative-buckets", false, buckets,
     "position_embedding_type=relative; relative_attention_num_buckets=30",
     "Near distances have half of the buckets of a direction, further ones the others by their logarithm.",
     "position_embedding_type"},
    {"decoder-positions", false, learned_positions, "decoder_seq_length=64", "Every token needs a position.",
     "model seq_length position_embedding_type"},
    {"decoder-tensor", true, decoder_tensor, "sequence_parallel=true; decoder_seq_length=15",
     "Tensor ranks share both sequences evenly.", "model tensor_model_parallel_size sequence_parallel"},
    {"encoder-groups", false, groups, "num_query_groups=4",
     "Attention to the encoder has as many heads of keys as of queries.", "model num_attention_heads"},
    {"encoder-alone", false, parts, "window_size=4,0",
     "Layers of an encoder see both ways, and those of a decoder have a second attention.", "model"},
    {"sentinels", true, sentinels, "vocab_extra_ids=0", "Every masked span is told by an id of its own.",
     "model tokenizer_type vocab_size"},
    {"encoder-deterministic", true, deterministic,
     "position_embedding_type=relative; deterministic_mode=true; use_distributed_optimizer=true",
     "All layers add to the gradient of one table of distances, in an order that stages and recomputation "
     "change.",
     "position_embedding_type"},
};

}  // namespace

Finding parts_of_one_way(const Run& r) {
  const config::Model& m = r.model;
  Finding found{"", "must be left out with " + r.family, "", {}, "leave out what is named, or train `gpt`"};
  found.refuse(r, m.moe.num_experts > 0, "num_experts", "0");
  found.refuse(r, m.latent.enabled, "multi_latent_attention", "false");
  found.refuse(r, m.mtp_num_layers > 0, "mtp_num_layers", "0");
  found.refuse(r, m.window_size > 0, "window_size", "0,0");
  found.refuse(r, m.softmax_type != config::SoftmaxType::kVanilla, "softmax_type", "vanilla");
  found.refuse(r, r.parallel.context_parallel_size > 1, "context_parallel_size", "1");
  found.refuse(r, r.parallel.hybrid_context_parallel, "hybrid_context_parallel", "false");
  found.refuse(r, r.data.reset_position_ids, "reset_position_ids", "false");
  found.refuse(r, r.data.reset_attention_mask, "reset_attention_mask", "false");
  found.refuse(r, r.data.eod_mask_loss, "eod_mask_loss", "false");
  return found;
}

std::span<const Rule> encoder_rules() { return kEncoder; }

}  // namespace colonnade::rules
