// See sft_batches.h.
#include "colonnade/data/samples/sft/sft_batches.h"

#include <filesystem>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/open_data.h"
#include "colonnade/data/samples/sft/sft_conversations.h"
#include "colonnade/data/samples/sft/sft_dataset.h"

namespace colonnade::data {
namespace {

constexpr std::int64_t kNoId = -1;  ///< padding

/// Writes one row: tokens, labels, loss mask, and position ids and document starts if conversations are
/// `separate`.
void fill(std::span<const std::int64_t> text, bool separate, std::size_t row, HostBatch& batch) {
  const std::size_t length = text.size() - 1;
  std::size_t start = 0;
  for (std::size_t i = 0; i < length; ++i) {
    const std::int64_t token = text[i], label = text[i + 1];
    const std::size_t at = row * length + i;
    if (separate && token != kNoId && (token & kFirstToken) != 0) start = i;
    if (separate && (i == 0 || start == i)) batch.cu_seqlens.push_back(static_cast<std::int64_t>(at));
    batch.tokens[at] = token == kNoId ? 0 : id_of(token);
    batch.labels[at] = label == kNoId ? 0 : id_of(label);
    const bool counts = label != kNoId && (label & kAnswerToken) != 0 && (label & kFirstToken) == 0;
    batch.loss_mask[at] = counts ? 1.0F : 0.0F;
    if (separate) batch.position_ids[at] = static_cast<std::int64_t>(i - start);
  }
}

class Opener {
 public:
  Opener(const config::Data& data, const config::Training& training, const tokenizers::Tokenizer& tokenizer)
      : tokenizer_(tokenizer),
        template_(chat_template::read_template(
            {data.tokenizer_model, data.chat_template, data.sft_tokenizer_prompt_format})),
        packed_(data.packs_conversations()),
        length_(training.seq_length),
        seed_(numpy_seed(training.seed)) {
    require_chat_tokens(data.sft_tokenizer_prompt_format, tokenizer);
    fingerprint_ = file_fingerprint(tokenizers::tokenizer_file(data.tokenizer_model)) + "template\n" +
                   template_.source() + "\n";
    for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
      if (const auto file = std::filesystem::path(data.tokenizer_model) / name; std::filesystem::exists(file))
        fingerprint_ += file_fingerprint(file);
  }

  [[nodiscard]] OpenedDataset read(const std::string& path, const IndexCache& cache) const {
    OpenedDataset opened;
    opened.fingerprint = fingerprint_;
    for (const auto& file : chat_files(path)) opened.fingerprint += file_fingerprint(file);
    opened.cache = cache;
    opened.source = std::make_shared<Conversations>(path, tokenizer_, template_, cache, opened.fingerprint);
    return opened;
  }

  [[nodiscard]] std::shared_ptr<const SampleSource> open(const OpenedDataset& opened,
                                                         const SplitRequest& request) const {
    const SftPlan plan{.conversations = range_of(request.fraction, opened.source->num_sequences()),
                       .seq_length = length_,
                       .packed = packed_,
                       .num_samples = request.num_samples,
                       .seed = seed_};
    if (has_usable_conversation(*opened.source, plan))
      return std::make_shared<SftDataset>(opened.source, plan, opened.cache, opened.fingerprint);
    const std::string text = fmt::format(
        "{}: the {} split must hold a conversation with an answer within {} tokens; got none among {} of {}",
        opened.source->name(), request.name(), length_ + 1, plan.conversations.size(),
        opened.source->num_sequences());
    if (request.split == Split::kTrain)
      throw DataError(text + "; add data, change --split or raise --seq-length");
    log::warning("{}; {}", text, request.if_empty);
    return nullptr;
  }

 private:
  const tokenizers::Tokenizer& tokenizer_;
  chat_template::ChatTemplate template_;
  bool packed_;
  std::int64_t length_;
  std::uint32_t seed_;
  std::string fingerprint_;
};

}  // namespace

void require_chat_tokens(const std::string& format, const tokenizers::Tokenizer& tokenizer) {
  if (!format.starts_with("nemotron")) return;
  for (const char* token : {"<SPECIAL_10>", "<SPECIAL_11>"})
    if (tokenizer.id_of(token) < 0)
      throw ConfigError(fmt::format(
          "--sft-tokenizer-prompt-format: {} requires the token {}; got a tokenizer without it; set default",
          format, token));
}

SftBatches::SftBatches(std::shared_ptr<const SampleSource> samples, const Plan& plan)
    : Batches(std::move(samples), plan.cyclic_step), plan_(plan) {}

HostBatch SftBatches::make(std::span<const std::int64_t> chosen) const {
  const auto seq = static_cast<std::size_t>(plan_.seq_length);
  const std::size_t total = chosen.size() * seq;
  HostBatch batch;
  batch.seq = plan_.seq_length;
  batch.tokens.resize(total);
  batch.labels.resize(total);
  if (plan_.separate) batch.position_ids.resize(total);
  batch.loss_mask.resize(total);
  std::vector<std::int64_t> text(seq + 1);
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    samples().tokens(chosen[row], kNoId, text);
    fill(text, plan_.separate, row, batch);
    const auto row_of = [&](auto& values) { return std::span(values).subspan(row * seq, seq); };
    check_vocabulary(row_of(batch.tokens), plan_.vocab_size, chosen[row]);
    check_vocabulary(row_of(batch.labels).last(1), plan_.vocab_size, chosen[row]);
  }
  if (plan_.separate) batch.cu_seqlens.push_back(static_cast<std::int64_t>(total));
  return batch;
}

Splits open_sft_batches(const config::Data& data, const config::Training& training,
                        const tokenizers::Tokenizer& tokenizer, std::int64_t vocab_size,
                        const DataRequest& wanted) {
  const Opener opener(data, training, tokenizer);
  const SampleSourceFactory factory{
      .open = [&opener](const OpenedDataset& opened,
                        const SplitRequest& request) { return opener.open(opened, request); },
      .read = [&opener](const std::string& path,
                        const IndexCache& cache) { return opener.read(path, cache); }};
  const Sources sources = open_sources(data, sample_counts(training, wanted), factory);
  SftBatches::Plan plan{
      .seq_length = training.seq_length, .separate = data.packs_conversations(), .vocab_size = vocab_size};
  return to_batches(sources, data, training, wanted.done, [&plan](auto samples, std::int64_t cyclic_step) {
    plan.cyclic_step = cyclic_step;
    return std::make_unique<SftBatches>(std::move(samples), plan);
  });
}

}  // namespace colonnade::data
