// See shard_samples.h.
#include "colonnade/images/shard_samples.h"

#include <simdjson.h>

#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/images/tar.h"

namespace colonnade::images {
namespace {

using Parts = std::map<std::string, std::string_view, std::less<>>;
using simdjson::dom::element;

constexpr std::size_t kLargestText = 4 << 20;  // JSON and tokenizers need many times the size of their text

/// Splits the bytes of a sample into its parts.
Parts parts_of(const std::string& where, std::string_view bytes, std::int64_t offset, std::string& key) {
  const auto read = [&](std::int64_t at, std::span<char> out) {
    const std::string_view from = bytes.substr(static_cast<std::size_t>(at - offset));
    return from.copy(out.data(), out.size());
  };
  TarReader tar(where, offset, offset + static_cast<std::int64_t>(bytes.size()), false, read);
  Parts parts;
  TarMember member;
  while (tar.next(member)) {
    const auto [base, part] = split_name(member.name);
    if (!member.regular || base.empty()) continue;
    if (key.empty()) key = base;
    if (key != base)
      throw DataError(fmt::format(
          "{}: its files must have one key; got '{}' and '{}'; the shard changed, delete the index or start "
          "again",
          where, key, base));
    const auto content = bytes.substr(static_cast<std::size_t>(member.content - offset),
                                      static_cast<std::size_t>(member.size));
    if (!parts.emplace(part, content).second)
      throw DataError(fmt::format(
          "{}: each part must occur once; got {} twice in '{}'; rebuild the shard, or give --on-error "
          "skip",
          where, part, key));
  }
  return parts;
}

/// Follows keys and indices into JSON; empty if the path does not exist.
std::optional<element> follow(element at, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    simdjson::dom::object object;
    simdjson::dom::array array;
    if (at.get_object().get(object) == simdjson::SUCCESS) {
      if (object[key].get(at) != simdjson::SUCCESS) return {};
    } else if (at.get_array().get(array) == simdjson::SUCCESS) {
      std::size_t index = 0;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), index);
      if (error != std::errc() || end != key.data() + key.size() ||
          array.at(index).get(at) != simdjson::SUCCESS)
        return {};
    } else {
      return {};
    }
  }
  return at;
}

/// The texts at a path in JSON: one, or a list of them; empty if there are none.
std::optional<std::vector<std::string>> texts_at(element root, const std::vector<std::string>& keys) {
  const auto found = follow(root, keys);
  if (!found) return {};
  std::string_view text;
  if (found->get_string().get(text) == simdjson::SUCCESS) return {{std::string(text)}};
  simdjson::dom::array list;
  if (found->get_array().get(list) != simdjson::SUCCESS) return {};
  std::vector<std::string> texts;
  for (const element item : list) {
    if (item.get_string().get(text) != simdjson::SUCCESS) return {};
    texts.emplace_back(text);
  }
  return texts;
}

std::string written(const Field& field) {
  std::string text;
  for (const FieldPath& path : field) {
    text += (text.empty() ? "" : ",") + path.part;
    for (const std::string& key : path.keys) text += "[" + key + "]";
  }
  return text;
}

/// The fields of one sample.
class Fields {
 public:
  Fields(const std::string& where, const Parts& parts) : where_(where), parts_(parts) {}

  [[nodiscard]] std::string_view bytes(const char* what, const Field& field) const {
    for (const FieldPath& path : field)
      if (const auto part = parts_.find(path.part); part != parts_.end()) return part->second;
    missing(what, field);
  }

  [[nodiscard]] std::vector<std::string> texts(const char* what, const Field& field) const {
    for (const FieldPath& path : field) {
      const auto part = parts_.find(path.part);
      if (part == parts_.end()) continue;
      if (part->second.size() > kLargestText)
        throw DataError(fmt::format(
            "{}: {} must have at most {} bytes; got {} in {}; shorten it, or give --on-error skip", where_,
            what, kLargestText, part->second.size(), path.part));
      if (path.part != "json" && !path.part.ends_with(".json")) {
        if (!simdjson::validate_utf8(part->second.data(), part->second.size()))
          throw DataError(
              fmt::format("{}: {} must be UTF-8; got other bytes in {}; fix it, or give --on-error skip",
                          where_, what, path.part));
        return {std::string(part->second)};
      }
      simdjson::dom::parser parser;
      element root;
      if (const auto error = parser.parse(part->second.data(), part->second.size()).get(root);
          error != simdjson::SUCCESS)
        throw DataError(fmt::format("{}: {} must be JSON; got: {}; fix it, or give --on-error skip", where_,
                                    path.part, simdjson::error_message(error)));
      if (auto found = texts_at(root, path.keys)) return std::move(*found);
    }
    missing(what, field);
  }

 private:
  [[noreturn]] void missing(const char* what, const Field& field) const {
    std::string present;
    for (const auto& [name, bytes] : parts_) present += (present.empty() ? "" : ", ") + name;
    throw DataError(fmt::format(
        "{}: {} must be present as {}; got the parts {}; name another part, or give --on-error skip", where_,
        what, written(field), present.empty() ? "none" : present));
  }
  const std::string& where_;
  const Parts& parts_;
};

}  // namespace

ShardSamples::ShardSamples(ShardSet set, const ShardOptions& options)
    : set_(std::move(set)),
      options_(options),
      files_(set_.root, set_.names),
      index_(
          index_shards(set_, files_, options_.on_error, options_.threads, data::IndexCache(options_.cache))) {
  for (std::int64_t i = 0; i < index_.broken.rows(); ++i)
    log::warning("skipped: {} from byte {} on: it is truncated or damaged",
                 files_.path(index_.broken[2 * i]).string(), index_.broken[2 * i + 1]);
  if (index_.unused[1] > 0)
    log::warning(
        "skipped: {} hard or symbolic links in the shards, which have no contents; if a sample needs them, repack it with "
        "tar's --dereference --hard-dereference",
        index_.unused[1]);
}

std::string ShardSamples::where(std::int64_t sample) const {
  const ShardIndex::Position at = index_.position(sample);
  return fmt::format("{}, sample at byte {}", files_.path(at.shard).string(), at.offset);
}

RawSample ShardSamples::read(std::int64_t sample) const {
  const ShardIndex::Position at = index_.position(sample);
  RawSample raw{
      .where = where(sample), .shard = set_.names[static_cast<std::size_t>(at.shard)], .offset = at.offset};
  if (at.size > options_.max_sample_bytes)
    throw DataError(fmt::format(
        "{}: a sample must have at most {} bytes; got {}; raise --max-sample-mb, or give --on-error "
        "skip",
        raw.where, options_.max_sample_bytes, at.size));
  raw.bytes.resize(static_cast<std::size_t>(at.size));
  if (files_.read(at.shard, at.offset, raw.bytes) != raw.bytes.size())
    throw DataError(
        fmt::format("{} must not change after indexing; got a shorter file; start again", raw.where));
  const Parts parts = parts_of(raw.where, raw.bytes, at.offset, raw.key);
  raw.where = fmt::format("{}, sample {} at byte {}", files_.path(at.shard).string(), raw.key, at.offset);
  const Fields fields(raw.where, parts);
  const std::string_view image = fields.bytes("image", set_.fields.image);
  raw.image_at = static_cast<std::size_t>(image.data() - raw.bytes.data());
  raw.image_size = image.size();
  const bool caption = set_.fields.type == SampleType::kCaptioning;
  if (!caption) {
    std::vector<std::string> context = fields.texts("context", set_.fields.context);
    if (context.size() != 1)
      throw DataError(
          fmt::format("{}: context must be one text; got {}; name another field", raw.where, context.size()));
    raw.prompt = std::move(context[0]);
  }
  raw.answers =
      caption ? fields.texts("caption", set_.fields.caption) : fields.texts("answers", set_.fields.answers);
  if (raw.answers.empty() || (caption && raw.answers.size() != 1))
    throw DataError(fmt::format("{}: {} must be {}; got {}; name another field, or give --on-error skip",
                                raw.where, caption ? "caption" : "answers",
                                caption ? "one text" : "one text or more", raw.answers.size()));
  return raw;
}

}  // namespace colonnade::images
