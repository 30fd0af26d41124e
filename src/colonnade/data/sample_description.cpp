// See sample_description.h.
#include "colonnade/data/sample_description.h"

#include <fmt/format.h>

#include <algorithm>

#include "colonnade/config/stacks.h"
#include "colonnade/data/samples/t5/t5_ids.h"

namespace colonnade::data {
namespace {

using Json = nlohmann::ordered_json;

/// The ids before the first flag that is set.
template <typename Flags>
std::span<const std::int64_t> before(const std::vector<std::int64_t>& ids, const Flags& ends) {
  const auto count = static_cast<std::size_t>(
      std::ranges::find_if(ends, [](auto flag) { return flag != 0; }) - ends.begin());
  return std::span(ids).first(std::min(count, ids.size()));
}

/// The leading labels with a loss.
std::span<const std::int64_t> labels_with_loss(const std::vector<std::int64_t>& labels,
                                               const std::vector<float>& loss_mask) {
  const auto count = static_cast<std::size_t>(std::ranges::find(loss_mask, 0.0F) - loss_mask.begin());
  return std::span(labels).first(loss_mask.empty() ? labels.size() : count);
}

std::string quoted(const Json& text) { return text.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string span_text(const Json& s) {
  return fmt::format("{} tokens: {}{}", s.at("length").dump(), s.at("tokens").dump(),
                     s.contains("text") ? " " + quoted(s.at("text")) : "");
}

}  // namespace

SampleDescriber::SampleDescriber(const config::Run& run, const tokenizers::Tokenizer* tokenizer,
                                 std::int64_t shown)
    : tokenizer_(tokenizer), shown_(shown), seq_length_(run.training.seq_length) {
  if (config::has_several_stacks(run.model))
    sentinels_ = t5_ids(tokenizer, run.model.vocab_size, run.data.vocab_extra_ids).sentinels;
  else if (run.model.bidirectional)
    is_bert_ = true;
  else if (run.data.sft)
    is_chat_ = true;
  else if (run.data.fim.enabled && tokenizer != nullptr)
    fim_ = fim_rules(run.data.fim, *tokenizer);
}

/// Sentinels may have ids beyond the tokenizer's vocabulary.
std::string SampleDescriber::text_of(Ids ids) const {
  std::string text;
  std::vector<std::int32_t> known;
  const auto decode = [&] {
    if (!known.empty()) text += tokenizer_->decode_with_special(known);
    known.clear();
  };
  for (const std::int64_t id : ids) {
    const auto sentinel = std::ranges::find(sentinels_, id);
    if (sentinel == sentinels_.end() || id < tokenizer_->vocab_size()) {
      known.push_back(static_cast<std::int32_t>(id));
      continue;
    }
    decode();
    text += fmt::format("<extra_id_{}>", sentinel - sentinels_.begin());
  }
  decode();
  return text;
}

void SampleDescriber::add_span(Ids ids, Json& about) const {
  const Ids first = ids.first(std::min(ids.size(), static_cast<std::size_t>(shown_)));
  about["length"] = ids.size();
  about["tokens"] = first;
  if (tokenizer_ != nullptr) about["text"] = text_of(first);
}

Json SampleDescriber::span(Ids ids) const {
  Json about;
  add_span(ids, about);
  return about;
}

void SampleDescriber::add_bert(const HostBatch& batch, Json& about) const {
  const Ids all = before(batch.tokens, batch.padding);
  const Ids first = all.first(std::min(all.size(), before(batch.tokens, batch.token_types).size()));
  if (!batch.swapped.empty()) about["swapped"] = batch.swapped[0] != 0;
  about["first"] = span(first);
  if (!batch.swapped.empty()) about["second"] = span(all.subspan(first.size()));
  about["hidden"] = Json::array();
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (batch.loss_mask[at] == 0) continue;
    Json masked{{"at", at}, {"token", batch.labels[at]}, {"shown", all[at]}};
    if (tokenizer_ != nullptr) masked["text"] = text_of({&batch.labels[at], 1});
    about["hidden"].push_back(std::move(masked));
  }
}

void SampleDescriber::add_t5(const HostBatch& batch, Json& about) const {
  about["encoder"] = span(before(batch.encoder_tokens, batch.encoder_padding));
  const Ids labels = labels_with_loss(batch.labels, batch.loss_mask);
  about["decoder"] = span(Ids(batch.tokens).first(labels.size()));
  about["gaps"] = Json::array();
  const Ids spans = labels.first(labels.empty() ? 0 : labels.size() - 1);  // without the eos
  for (std::size_t begin = 0, i = 0; begin < spans.size(); ++i) {
    const auto next = i + 1 < sentinels_.size()
                          ? std::ranges::find(spans.subspan(begin + 1), sentinels_[i + 1]) - spans.begin()
                          : std::ssize(spans);
    const auto end = static_cast<std::size_t>(next);
    Json masked{{"sentinel", spans[begin]}};
    add_span(spans.subspan(begin + 1, end - begin - 1), masked);
    about["gaps"].push_back(std::move(masked));
    begin = end;
  }
}

void SampleDescriber::add_answers(const HostBatch& batch, Json& about) const {
  about["answers"] = Json::array();
  const auto& mask = batch.loss_mask;
  for (auto begin = std::ranges::find(mask, 1.0F); begin != mask.end();) {
    const auto end = std::find(begin, mask.end(), 0.0F);
    const auto at = begin - mask.begin();
    Json answer{{"at", at + 1}};  // label 0 is token 1
    add_span(Ids(batch.labels).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(end - begin)),
             answer);
    about["answers"].push_back(std::move(answer));
    begin = std::find(end, mask.end(), 1.0F);
  }
}

void SampleDescriber::add_fim(const SampleSource& source, std::int64_t sample, Json& about) const {
  constexpr std::int64_t kPadding = -1;  // past the end of the data
  std::vector<std::int64_t> all(static_cast<std::size_t>(seq_length_) + 1);
  source.tokens(sample, kPadding, all);
  all.erase(std::ranges::find(all, kPadding), all.end());
  const auto part_after = [this](std::int64_t id) -> const char* {
    if (id == fim_->prefix) return "prefix";
    if (id == fim_->suffix) return "suffix";
    return id == fim_->middle ? "middle" : nullptr;
  };
  const auto ends_text = [this](std::int64_t id) { return id == fim_->eod || id == fim_->split; };
  Json& written = about["written"] = Json::array();
  const char* part = "text";
  std::size_t begin = 0;
  const auto close = [&](std::size_t end, bool keep_empty) {
    if (end > begin || keep_empty) {
      written.push_back({{"part", part}});
      add_span(Ids(all).subspan(begin, end - begin), written.back());
    }
    begin = end;
  };
  for (std::size_t at = 0; at < all.size(); ++at) {
    if (const char* next = part_after(all[at]); next != nullptr) {
      close(at, part != std::string("text"));
      part = next;
      begin = at + 1;
    } else if (ends_text(all[at])) {
      close(at, part != std::string("text"));
      part = "text";
      begin = at + 1;
    } else if (all[at] == fim_->pad && part != std::string("pad")) {
      close(at, part != std::string("text"));
      part = "pad";
    }
  }
  close(all.size(), part != std::string("text"));
}

void SampleDescriber::add(const Batches& batches, std::int64_t number, Json& about) const {
  const SampleSource& source = batches.samples();
  about["pieces"] = Json::array();
  for (const SampleSpan& piece : source.spans(batches.sample_of(number))) {
    std::vector<std::int64_t> ids(static_cast<std::size_t>(piece.length));
    source.read(piece, ids);
    Json shown{{"sequence", piece.sequence}, {"offset", piece.offset}};
    add_span(ids, shown);
    about["pieces"].push_back(std::move(shown));
  }
  if (fim_) return add_fim(source, batches.sample_of(number), about);
  if (!is_bert_ && !is_chat_ && sentinels_.empty()) return;
  const HostBatch batch = batches.get(std::span(&number, 1));
  if (is_bert_)
    add_bert(batch, about);
  else if (is_chat_)
    add_answers(batch, about);
  else
    add_t5(batch, about);
}

std::string description_text(const Json& about) {
  std::string text;
  for (const Json& piece : about.at("pieces"))
    text += fmt::format("  sequence {} from {}, {}\n", piece.at("sequence").dump(), piece.at("offset").dump(),
                        span_text(piece));
  if (about.contains("swapped"))
    text += about.at("swapped") == true ? "  segments are swapped\n" : "  segments are in order\n";
  for (const char* key : {"first", "second", "encoder", "decoder"})
    if (about.contains(key)) text += fmt::format("  {}, {}\n", key, span_text(about.at(key)));
  if (about.contains("hidden"))
    for (const Json& masked : about.at("hidden"))
      text += fmt::format(
          "  masked at {}: {}{}, input {}\n", masked.at("at").dump(), masked.at("token").dump(),
          masked.contains("text") ? " " + quoted(masked.at("text")) : "", masked.at("shown").dump());
  if (about.contains("gaps"))
    for (const Json& masked : about.at("gaps"))
      text +=
          fmt::format("  masked span of sentinel {}, {}\n", masked.at("sentinel").dump(), span_text(masked));
  if (about.contains("answers"))
    for (const Json& answer : about.at("answers"))
      text += fmt::format("  answer from token {}, {}\n", answer.at("at").dump(), span_text(answer));
  if (about.contains("written"))
    for (const Json& part : about.at("written"))
      text += fmt::format("  {}, {}\n", part.at("part").get<std::string>(), span_text(part));
  return text;
}

}  // namespace colonnade::data
