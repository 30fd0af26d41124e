// See model.h.
#include "colonnade/tokenizers/model.h"

#include <algorithm>
#include <limits>

#include "colonnade/base/error.h"
#include "colonnade/tokenizers/unicode.h"
#include "colonnade/tokenizers/viterbi.h"

namespace colonnade::tokenizers {
namespace {

constexpr double kUnknownPenalty = 10;  // distance to the worst score

[[noreturn]] void reject_word(std::string_view word, const std::string& unknown) {
  throw DataError(fmt::format(
      "tokenizer must have an unknown token for words it does not cover; got '{}' and no '{}' in the "
      "vocabulary; use a tokenizer that covers the text",
      word.substr(0, 60), unknown));
}

}  // namespace

bool Model::add_bytes(std::string_view bytes, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  for (const char byte : bytes) {
    const std::int32_t id = vocabulary_.id_of(fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte)));
    if (id < 0) {
      ids.resize(before);
      return false;
    }
    ids.push_back(id);
  }
  return true;
}

BpeModel::BpeModel(Vocabulary vocabulary, Merges merges, const BpeOptions& options, const std::string& where)
    : Model(std::move(vocabulary)), merges_(std::move(merges)), options_(options) {
  if (!options_.unknown) return;
  unknown_ = vocabulary_.id_of(*options_.unknown);
  if (unknown_ < 0)
    throw DataError(fmt::format("{}.unk_token must be a token of the vocabulary; got '{}'; add it", where,
                                *options_.unknown));
}

std::vector<std::int32_t> BpeModel::characters(std::string_view word) const {
  std::vector<std::int32_t> ids;
  ids.reserve(word.size());
  bool pending = false;  // an unknown token not yet appended, because the next one may fuse with it
  std::size_t at = 0;
  std::string with_affixes;
  for_each_char(word, [&](char32_t, std::string_view bytes) {
    const bool first = at == 0, last = (at += bytes.size()) == word.size();
    std::string_view text = bytes;
    if ((!first && !options_.continuing_prefix.empty()) || (last && !options_.end_suffix.empty())) {
      with_affixes = first ? "" : options_.continuing_prefix;
      with_affixes += bytes;
      if (last) with_affixes += options_.end_suffix;
      text = with_affixes;
    }
    if (const std::int32_t id = vocabulary_.id_of(text); id >= 0) {
      if (pending) ids.push_back(unknown_);
      pending = false;
      ids.push_back(id);
      return;
    }
    if (options_.byte_fallback && add_bytes(text, ids))
      return;  // a pending unknown token follows, as in Hugging Face tokenizers
    if (unknown_ < 0) return;
    if (pending && !options_.fuse_unknown) ids.push_back(unknown_);
    pending = true;
  });
  if (pending) ids.push_back(unknown_);
  return ids;
}

void BpeModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (options_.ignore_merges) {
    if (const std::int32_t id = vocabulary_.id_of(word); id >= 0) {
      ids.push_back(id);
      return;
    }
  }
  std::vector<std::int32_t> own = characters(word);
  merges_.apply(own);
  ids.insert(ids.end(), own.begin(), own.end());
}

WordPieceModel::WordPieceModel(Vocabulary vocabulary, const WordPieceOptions& options,
                               const std::string& where)
    : Model(std::move(vocabulary)), options_(options), unknown_(vocabulary_.id_of(options.unknown)) {
  constexpr std::int64_t kMaxChars = 10'000;
  if (options.max_chars < 0 || options.max_chars > kMaxChars)
    throw DataError(fmt::format("{}.max_input_chars_per_word must be 0 to {}; got {}; fix the file", where,
                                kMaxChars, options.max_chars));
  for (std::int32_t id = 0; id < vocabulary_.end(); ++id) {
    const auto text = vocabulary_.text_of(id);
    if (!text) continue;
    initial_.add(*text, id);
    if (text->starts_with(options.continuing_prefix))
      continuing_.add(text->substr(options.continuing_prefix.size()), id);
  }
}

void WordPieceModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t before = ids.size();
  const auto unknown = [&] {
    if (unknown_ < 0) reject_word(word, options_.unknown);
    ids.resize(before);
    ids.push_back(unknown_);
  };
  if (count_chars(word) > options_.max_chars) return unknown();
  for (std::size_t begin = 0, end = 0; begin < word.size(); begin = end) {
    std::int32_t id = -1;
    (begin == 0 ? initial_ : continuing_)
        .for_each_prefix(word.substr(begin), [&](std::size_t length, std::int32_t own) {
          end = begin + length;
          id = own;
        });
    if (id < 0) return unknown();
    ids.push_back(id);
  }
}

WordLevelModel::WordLevelModel(Vocabulary vocabulary, std::string unknown)
    : Model(std::move(vocabulary)),
      unknown_text_(std::move(unknown)),
      unknown_(vocabulary_.id_of(unknown_text_)) {}

void WordLevelModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::int32_t id = vocabulary_.id_of(word);
  if (id < 0 && unknown_ < 0) reject_word(word, unknown_text_);
  ids.push_back(id < 0 ? unknown_ : id);
}

UnigramModel::UnigramModel(Vocabulary vocabulary, std::vector<double> scores, std::int32_t unknown,
                           bool byte_fallback)
    : Model(std::move(vocabulary)),
      scores_(std::move(scores)),
      unknown_(unknown),
      byte_fallback_(byte_fallback) {
  double worst = std::numeric_limits<double>::infinity();
  for (std::int32_t id = 0; id < static_cast<std::int32_t>(scores_.size()); ++id) {
    trie_.add(*vocabulary_.text_of(id), id);
    worst = std::min(worst, scores_[static_cast<std::size_t>(id)]);
  }
  unknown_score_ = worst - kUnknownPenalty;
}

void UnigramModel::add_unknown(std::string_view run, std::vector<std::int32_t>& ids) const {
  if (const std::int32_t id = vocabulary_.id_of(run); id >= 0) {
    ids.push_back(id);
  } else if (!byte_fallback_ || !add_bytes(run, ids)) {
    if (unknown_ < 0) reject_word(run, "unk_id");
    ids.push_back(unknown_);
  }
}

void UnigramModel::encode(std::string_view word, std::vector<std::int32_t>& ids) const {
  ViterbiSegmenter<double> segmenter;
  const auto extend = [&](std::size_t at, double score) {
    const auto size = static_cast<std::size_t>(decode_utf8(word.data() + at).size);
    bool covered = false;
    trie_.for_each_prefix(word.substr(at), [&](std::size_t length, std::int32_t id) {
      segmenter.offer(length, scores_[static_cast<std::size_t>(id)] + score, id);
      covered = covered || length == size;
    });
    if (covered) return size;
    if (unknown_ < 0) reject_word(word.substr(at, size), "unk_id");
    segmenter.offer(size, unknown_score_ + score, unknown_);
    return size;
  };
  std::size_t begin = 0, end = 0;  // current run of unknown characters
  const auto end_run = [&] {
    if (end > begin) add_unknown(word.substr(begin, end - begin), ids);
    begin = end = 0;
  };
  segmenter.run(word.size(), extend, [&](std::size_t at, std::size_t length, std::int32_t id) {
    if (id != unknown_) {
      end_run();
      return ids.push_back(id);
    }
    if (begin == end) begin = at;
    end = at + length;
  });
  end_run();
}

}  // namespace colonnade::tokenizers
