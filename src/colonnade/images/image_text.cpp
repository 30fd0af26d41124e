// See image_text.h.
#include "colonnade/images/image_text.h"

#include <algorithm>
#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/base/philox.h"

namespace colonnade::images {
namespace {

constexpr std::string_view kImageTag = "<image>";
constexpr std::int64_t kReportedSkips = 100;
constexpr std::int64_t kMostInARow = 100;
constexpr std::int64_t kBytesPerPixel = 9;  // 3 of RGB, 6 of a progressive JPEG's coefficients

/// Index of the answer to use, out of `count`.
std::size_t draw_answer(std::uint64_t seed, std::int64_t number, std::size_t count) {
  if (count == 1) return 0;
  const auto words = Philox{seed ^ stable_hash("answer")}(static_cast<std::uint64_t>(number));
  return ((std::uint64_t{words[0]} << 32U) | words[1]) % count;
}

/// A message without its fix, which the user has already applied.
std::string without_fix(const std::string& message) { return message.substr(0, message.rfind("; ")); }

/// A message without the suggestion of --on-error skip, which the user has already set.
std::string without_skip_hint(const std::string& message) {
  return message.ends_with("--on-error skip") ? message.substr(0, message.rfind(", or ")) : message;
}

const ImageTextPlan& checked(const ImageTextPlan& plan) {
  if (plan.seq_length < 2 || plan.image_tokens < 1 || plan.image_tokens >= plan.seq_length)
    throw ConfigError(fmt::format(
        "--seq-length must be above the number of image tokens, at least 1; got {} and {}; set a longer "
        "one",
        plan.seq_length, plan.image_tokens));
  if (plan.max_pixels < 1)
    throw ConfigError(fmt::format("--max-image-pixels must be above 0; got {}; remove it", plan.max_pixels));
  check(plan.image, "image settings");
  return plan;
}

}  // namespace

std::int64_t number_of(const ImageShare& share, std::int64_t k) {
  const std::int64_t batch = k / share.micro_batch;
  return share.first + (batch * share.ranks + share.rank) * share.micro_batch + k % share.micro_batch;
}

ImageTextSamples::ImageTextSamples(std::shared_ptr<const ShardSamples> shards,
                                   std::shared_ptr<const tokenizers::Tokenizer> tokenizer,
                                   const ImageTextPlan& plan)
    : shards_(std::move(shards)),
      tokenizer_(std::move(tokenizer)),
      plan_(checked(plan)),
      order_(shards_->size(), plan.seed, plan.block, plan.window),
      read_(plan.max_read_bytes),
      decoded_(plan.max_decoded_bytes) {}

void ImageTextSamples::add_text(const RawSample& raw, std::int64_t number, ImageText& out) const {
  std::vector<std::int64_t> ids;
  const auto add = [&](std::string_view text) {
    const std::vector<std::int32_t> more = tokenizer_->encode(text);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const std::string_view prompt = raw.prompt;
  const std::size_t tag = prompt.find(kImageTag);
  const std::size_t after = tag == std::string_view::npos ? 0 : tag + kImageTag.size();
  if (prompt.find(kImageTag, after) != std::string_view::npos)
    throw DataError(
        fmt::format("{}: the context must have {} at most once; got it more often; a sample has one image",
                    raw.where, kImageTag));
  if (tag != std::string_view::npos && tag > 0) add(prompt.substr(0, tag));
  out.image_starts.push_back(static_cast<std::int64_t>(ids.size()));
  ids.insert(ids.end(), static_cast<std::size_t>(plan_.image_tokens), plan_.image_token);
  if (!prompt.empty()) add(std::string(prompt.substr(after)) + "\n");
  const std::size_t answer = ids.size(), length = static_cast<std::size_t>(plan_.seq_length);
  if (answer > length)
    throw DataError(fmt::format(
        "{}: image and prompt must leave space for an answer; got {} ids of {}; raise --seq-length, or "
        "give --on-error skip",
        raw.where, answer, length + 1));
  add(raw.answers[draw_answer(plan_.seed, number, raw.answers.size())]);
  if (tokenizer_->eod() >= 0) ids.push_back(tokenizer_->eod());
  if (ids.size() == answer)
    throw DataError(fmt::format(
        "{}: an answer must have a token; got an empty one; remove it, or give --on-error skip", raw.where));
  const std::size_t used = std::min(ids.size(), length + 1);
  out.tokens.assign(length, plan_.pad);
  out.labels.assign(length, 0);
  out.loss_mask.assign(length, 0.0F);
  std::copy_n(ids.begin(), std::min(used, length), out.tokens.begin());
  for (std::size_t i = answer; i < used; ++i) {
    out.labels[i - 1] = ids[i];
    out.loss_mask[i - 1] = 1.0F;
  }
}

void ImageTextSamples::add_pixels(const RawSample& raw, ImageText& out) const {
  try {
    const ImageSize size = image_size(raw.image());
    const std::int64_t bytes = std::min(size.width * size.height, plan_.max_pixels) * kBytesPerPixel +
                               size.height * plan_.image.width * 3;
    const ByteSemaphore::Guard inside(decoded_, bytes);
    const RgbImage image = resize_and_crop(read_image(raw.image(), plan_.max_pixels), plan_.image);
    out.pixels.resize(plan_.image.values());
    to_pixels(image, plan_.image, out.pixels);
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", raw.where, error.what()));
  }
}

ImageText ImageTextSamples::make(std::int64_t sample, std::int64_t number) const {
  const std::int64_t bytes = shards_->bytes(sample);
  const ByteSemaphore::Guard inside(read_, bytes);
  const RawSample raw = shards_->read(sample);
  ImageText out{.sample = sample};
  add_text(raw, number, out);
  add_pixels(raw, out);
  return out;
}

ImageText ImageTextSamples::get(std::int64_t number) const {
  for (std::int64_t tries = 0;; ++tries) {
    try {
      return make(order_(number + tries), number + tries);
    } catch (const DataError& error) {
      if (plan_.on_error == OnError::kStop) throw;
      if (tries + 1 == kMostInARow)
        throw DataError(fmt::format(
            "--on-error skip: samples must be readable; got {} unreadable ones in a row from number {} of the run, the "
            "last being {}; fix or remove those shards",
            kMostInARow, number, without_fix(error.what())));
      const std::int64_t before = skipped_++;
      if (before < kReportedSkips) log::warning("skipped: {}", without_skip_hint(error.what()));
      if (before == kReportedSkips - 1) log::warning("skipped: later samples are only counted");
    }
  }
}

ImageLoader::ImageLoader(std::shared_ptr<const ImageTextSamples> samples, const ImageShare& share,
                         int workers)
    : samples_(std::move(samples)),
      share_(share),
      rows_([from = samples_, share](std::int64_t k) { return from->get(number_of(share, k)); }, workers),
      batches_([this](std::int64_t /*index*/) { return assemble(); }, std::min(workers, 1)) {}

ImageBatch ImageLoader::assemble() {
  if (failed_ != nullptr) std::rethrow_exception(failed_);
  ImageBatch batch{.micro_batch = share_.micro_batch, .seq = samples_->plan().seq_length};
  const auto append = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  batch.pixels.reserve(static_cast<std::size_t>(share_.micro_batch) * samples_->plan().image.values());
  for (std::int64_t row = 0; row < share_.micro_batch; ++row, ++read_) {
    ImageText made;
    try {
      made = rows_.next();
    } catch (...) {
      failed_ = std::current_exception();
      throw;
    }
    append(batch.tokens, made.tokens);
    append(batch.labels, made.labels);
    append(batch.loss_mask, made.loss_mask);
    append(batch.pixels, made.pixels);
    batch.numbers.push_back(number_of(share_, read_));
    batch.samples.push_back(made.sample);
    batch.image_counts.push_back(static_cast<std::int64_t>(made.image_starts.size()));
    for (const std::int64_t start : made.image_starts) batch.image_starts.push_back(row * batch.seq + start);
  }
  return batch;
}

}  // namespace colonnade::images
