// See truncate_events in tensorboard.h.
#include <optional>
#include <protozero/pbf_reader.hpp>

#include "colonnade/base/files.h"
#include "colonnade/record/tensorboard.h"

namespace colonnade::record {
namespace {

namespace fs = std::filesystem;
using protozero::pbf_wire_type;
using protozero::tag_and_type;

/// The event in the first frame of some bytes, and the size of the frame.
struct Record {
  std::string_view event;
  std::size_t size;
};

/// The first frame in `bytes`; nothing at the end, or after a torn write.
std::optional<Record> first_frame(std::string_view bytes) {
  constexpr std::size_t kLength = 8, kCrc = 4, kHead = kLength + kCrc;
  if (bytes.size() < kHead + kCrc) return std::nullopt;
  if (masked_crc(bytes.substr(0, kLength)) != bytes.substr(kLength, kCrc)) return std::nullopt;
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLength; ++i)
    length |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  if (length > bytes.size() - kHead - kCrc) return std::nullopt;
  const std::string_view event = bytes.substr(kHead, length);
  if (masked_crc(event) != bytes.substr(kHead + length, kCrc)) return std::nullopt;
  return Record{event, kHead + length + kCrc};
}

/// The tag of a Summary's first value; "" without one.
std::string_view tag_of(protozero::pbf_reader summary) {
  while (summary.next()) {
    if (summary.tag_and_type() != tag_and_type(1, pbf_wire_type::length_delimited)) {
      summary.skip();
      continue;
    }
    protozero::pbf_reader value = summary.get_message();
    while (value.next()) {
      if (value.tag_and_type() == tag_and_type(1, pbf_wire_type::length_delimited)) {
        const protozero::data_view tag = value.get_view();
        return {tag.data(), tag.size()};
      }
      value.skip();
    }
  }
  return {};
}

/// Whether the event is a point of a curve after `loaded`.
bool is_later(std::string_view bytes, const ResumePoint& loaded) {
  std::int64_t step = 0;
  std::string_view tag;
  protozero::pbf_reader event(bytes.data(), bytes.size());
  while (event.next()) {
    switch (event.tag_and_type()) {
      case tag_and_type(2, pbf_wire_type::varint):
        step = event.get_int64();
        break;
      case tag_and_type(5, pbf_wire_type::length_delimited):
        tag = tag_of(event.get_message());
        break;
      default:
        event.skip();
    }
  }
  return !tag.empty() && step > (tag.ends_with(kVersusSamples) ? loaded.samples : loaded.step);
}

/// `text` without later events, and without everything after a torn write, which no reader sees.
std::string without_later(std::string_view text, const ResumePoint& loaded) {
  std::string kept;
  while (const auto frame = first_frame(text)) {
    if (!is_later(frame->event, loaded)) kept += text.substr(0, frame->size);
    text.remove_prefix(frame->size);
  }
  return kept;
}

}  // namespace

void truncate_events(const fs::path& folder, const ResumePoint& loaded) {
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_regular_file() && entry.path().filename().string().starts_with("events.out.tfevents."))
      files.push_back(entry.path());
  for (const fs::path& file : files) {
    const std::string text = read_file(file);
    const std::string kept = without_later(text, loaded);
    if (kept.size() != text.size()) write_file_atomically(file, kept);
  }
}

}  // namespace colonnade::record
