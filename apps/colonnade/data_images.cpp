// `colonnade data images`: contents of tar shards of images and text, their order in a run, and loading
// speed.
#include "data_images.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/base/log.h"
#include "colonnade/config/parse.h"
#include "colonnade/images/image_text.h"
#include "colonnade/launch/process.h"
#include "flags.h"
#include "tokenizer_flags.h"

namespace colonnade::app {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr std::size_t kShownText = 60;

struct Options {
  std::vector<std::string> words;
  std::string split = "train", dataset_yaml, image, caption, context, answers;
  std::string processor, cache, json, on_error = "stop";
  std::int64_t image_size = 0;
  std::int64_t max_sample_mb = 256;
  std::int64_t consumed = 0, micro_batch = 1, batches = 0, workers = 1, show = 3;
  std::int64_t seed = 1234, rank = 0, ranks = 1;
  double step_ms = 0;
  images::ImageTextPlan plan;
  tokenizers::TokenizerOptions tokenizer;
};

/// Flags of batches, which require --batches.
constexpr const char* kBatchFlags[] = {"--seq-length",     "--micro-batch-size", "--step-ms",
                                       "--image-size",     "--image-tokens",     "--image-processor",
                                       "--image-token",    "--pad-token",        "--max-image-pixels",
                                       "--tokenizer-type", "--vocab-size"};

CLI::Validator stop_or_skip() {
  const auto check = [](const std::string& word) -> std::string {
    if (word == "stop" || word == "skip") return "";
    return fmt::format("must be stop or skip; got '{}'; write one of the two", word);
  };
  return {check, "stop|skip"};
}

void add_shard_flags(CLI::App& app, Options& options) {
  describe(
      app,
      "Reports the contents of tar shards of images and text (WebDataset, as prepared by Megatron-Energon), "
      "their order in a run, and with --batches the loading speed.",
      {"colonnade data images shards/ --show 5",
       "colonnade data images 'shard-{000..099}.tar' --seq-length 128 --tokenizer-type HuggingFaceTokenizer "
       "--tokenizer-model llama-3/ --batches 100 --micro-batch-size 8 --workers 16"});
  app.add_option("shards", options.words,
                 "A folder of tar shards (with or without .nv-meta), or glob patterns of shards")
      ->required()
      ->type_name("FOLDER|SHARD");
  app.add_option("--split", options.split, "Split in split.yaml of a folder with .nv-meta")
      ->capture_default_str();
  app.add_option("--dataset-yaml", options.dataset_yaml,
                 "File to use instead of dataset.yaml, for a folder with .nv-meta");
  app.add_option(
      "--image", options.image,
      "Fields of the image; the first one present is used (default jpg,jpeg,png, or as in the metadata)");
  app.add_option("--caption", options.caption, "Field of the caption (default txt,json[caption])");
  app.add_option("--context", options.context, "Field of a question, with --answers instead of --caption");
  app.add_option("--answers", options.answers, "Field of the answer, or of a list of answers in JSON");
  app.add_option("--on-error", options.on_error,
                 "stop at the first unreadable shard or sample, or skip and count them")
      ->capture_default_str()
      ->check(stop_or_skip());
  app.add_option("--max-sample-mb", options.max_sample_mb,
                 "Maximum size of a readable sample; memory grows with it")
      ->capture_default_str()
      ->check(within(1, 1 << 20));
  app.add_option("--max-image-pixels", options.plan.max_pixels, "Maximum pixels of a decoded image")
      ->capture_default_str()
      ->check(within(1, std::int64_t{1} << 32));
  app.add_option("--data-cache-path", options.cache,
                 "Folder of the sample index (default: colonnade_cache next to the shards)");
}

void add_flags(CLI::App& app, Options& options) {
  add_shard_flags(app, options);
  images::ImageTextPlan& plan = options.plan;
  options.workers = launch::usable_cores();
  app.add_option("--image-processor", options.processor,
                 "preprocessor_config.json of a CLIP image processor");
  app.add_option("--image-size", options.image_size,
                 "Height and width with CLIP's other settings, without --image-processor (default 224)")
      ->check(within(1, 16384));
  app.add_option("--seq-length", plan.seq_length, "Ids per row, including those of the image")
      ->check(within(2));
  app.add_option("--image-tokens", plan.image_tokens, "Placeholder ids per image in a row")
      ->capture_default_str()
      ->check(within(1));
  app.add_option("--image-token", plan.image_token, "Id of a placeholder")->capture_default_str();
  app.add_option("--pad-token", plan.pad, "Id that pads short rows")->capture_default_str();
  app.add_option("--seed", options.seed, "Seed of the sample order")->capture_default_str();
  app.add_option("--shuffle-block", plan.block, "Consecutive samples that are read together")
      ->capture_default_str()
      ->check(within(1));
  app.add_option("--shuffle-window", plan.window, "Blocks whose samples are shuffled together")
      ->capture_default_str()
      ->check(within(1));
  app.add_option("--show", options.show, "Number of samples to show, in the order of a run")
      ->capture_default_str()
      ->check(within(0, 100'000));
  app.add_option("--consumed-samples", options.consumed, "Samples that the run has already consumed")
      ->capture_default_str()
      ->check(within(0, std::int64_t{1} << 60));
  app.add_option("--data-parallel-size", options.ranks, "Number of data-parallel ranks")
      ->capture_default_str()
      ->check(within(1, 1 << 20));
  app.add_option("--data-parallel-rank", options.rank, "Data-parallel rank whose samples are shown and read")
      ->capture_default_str()
      ->check(within(0, (1 << 20) - 1));
  app.add_option("--batches", options.batches, "Number of batches to load and time")
      ->check(within(0, std::int64_t{1} << 30));
  app.add_option("--micro-batch-size", options.micro_batch, "Rows per batch")
      ->capture_default_str()
      ->check(within(1, 1 << 20));
  app.add_option("--workers", options.workers, "Threads that prefetch samples")
      ->capture_default_str()
      ->check(within(0, 4096));
  app.add_option("--step-ms", options.step_ms,
                 "Sleep after each batch in milliseconds, to simulate a training step")
      ->check(CLI::NonNegativeNumber.description("0 or more"));
  app.add_option("--json", options.json, "Also write the report as JSON to this file");
  add_tokenizer_flags(app, options.tokenizer);
}

std::vector<std::string> faults_of(const Options& options) {
  std::vector<std::string> faults;
  const auto reject_if = [&](bool wrong, const std::string& fault) {
    if (wrong) faults.push_back(fault);
  };
  reject_if(
      options.context.empty() != options.answers.empty() ||
          (!options.context.empty() && !options.caption.empty()),
      "--context requires --answers and excludes --caption; got another combination; set both, or --caption");
  reject_if(options.rank >= options.ranks,
            fmt::format("--data-parallel-rank must be below --data-parallel-size, {}; got {}; give another",
                        options.ranks, options.rank));
  reject_if(
      !options.processor.empty() && options.image_size > 0,
      fmt::format("--image-size must not be combined with --image-processor, which sets the size; got {}; "
                  "remove one",
                  options.image_size));
  reject_if(options.batches > 0 && (options.tokenizer.type.empty() || options.plan.seq_length == 0),
            fmt::format("--batches requires --seq-length and --tokenizer-type; got {} without them; set them",
                        options.batches));
  return faults;
}

images::ShardSet shards_of(const Options& options) {
  images::ShardOverrides overrides{.dataset_yaml = options.dataset_yaml};
  const auto read = [](const char* flag, const std::string& text, images::Field& field) {
    if (!text.empty()) field = images::parse_field(flag, text);
  };
  read("--image", options.image, overrides.fields.image);
  read("--caption", options.caption, overrides.fields.caption);
  read("--context", options.context, overrides.fields.context);
  read("--answers", options.answers, overrides.fields.answers);
  return images::find_shards(options.words, options.split, overrides);
}

fs::path cache_of(const Options& options, const images::ShardSet& set) {
  if (!options.cache.empty()) return options.cache;
  return (set.root.empty() ? fs::absolute(set.names[0]).parent_path() : set.root) / "colonnade_cache";
}

/// Counts, sample sizes and anomalies.
ordered_json describe(const images::ShardSamples& samples) {
  std::vector<std::int64_t> bytes;
  for (std::int64_t i = 0; i < samples.size(); ++i) bytes.push_back(samples.index().position(i).size);
  std::sort(bytes.begin(), bytes.end());
  std::int64_t empty = samples.files().count(), last = -1;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    const std::int64_t shard = samples.index().position(i).shard;
    empty -= shard == last ? 0 : 1;
    last = shard;
  }
  return {
      {"shards", samples.files().count()},
      {"samples", samples.size()},
      {"type", samples.set().fields.type == images::SampleType::kVqa ? "questions and answers" : "captions"},
      {"smallest", bytes.front()},
      {"median", bytes[bytes.size() / 2]},
      {"largest", bytes.back()},
      {"shards_without_samples", empty},
      {"shards_cut_or_damaged", samples.index().broken.rows()},
      {"files_of_no_sample", samples.index().unused[0]},
      {"links_passed_over", samples.index().unused[1]}};
}

images::ImageShare share_of(const Options& options) {
  return {.first = options.consumed,
          .micro_batch = options.micro_batch,
          .rank = options.rank,
          .ranks = options.ranks};
}

std::string shortened(std::string text) {
  if (text.size() > kShownText) text = text.substr(0, kShownText) + "...";
  return text;
}

/// Size of the image. Throws DataError that names the sample.
images::ImageSize size_of(const images::RawSample& raw) {
  try {
    return images::image_size(raw.image());
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}", raw.where, error.what()));
  }
}

/// The first samples of a rank with their contents.
ordered_json first_samples(const images::ShardSamples& samples, const images::ShardOrder& order,
                           const Options& options) {
  ordered_json shown = ordered_json::array();
  for (std::int64_t k = 0; k < options.show; ++k) {
    const std::int64_t n = number_of(share_of(options), k);
    ordered_json about{{"number", n}, {"sample", order(n)}};
    try {
      const images::RawSample raw = samples.read(order(n));
      about.update({{"shard", raw.shard}, {"key", raw.key}, {"byte", raw.offset}});
      about["text"] = shortened(raw.prompt.empty() ? raw.answers[0] : raw.prompt);
      const images::ImageSize size = size_of(raw);
      about.update({{"width", size.width}, {"height", size.height}});
    } catch (const DataError& error) {
      if (options.on_error == "stop") throw;
      about["error"] = error.what();
    }
    shown.push_back(std::move(about));
  }
  return shown;
}

/// Loads batches like a run and times them. `rows` receives number and sample of the first rows.
ordered_json measure(const std::shared_ptr<const images::ImageTextSamples>& samples, const Options& options,
                     ordered_json& rows) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  images::ImageLoader loader(samples, share_of(options), static_cast<int>(options.workers));
  double waited = 0, first = 0;
  std::int64_t labels = 0;
  auto begin = Clock::now();
  for (std::int64_t i = 0; i < options.batches; ++i) {
    const auto asked = Clock::now();
    const images::ImageBatch batch = loader.next();
    if (i == 0) {
      first = since(asked);
    } else {
      waited += since(asked);
    }
    for (std::size_t row = 0; row < batch.numbers.size() && std::ssize(rows) < options.show; ++row)
      rows.push_back({{"number", batch.numbers[row]}, {"sample", batch.samples[row]}});
    for (const float mask : batch.loss_mask) labels += mask > 0 ? 1 : 0;
    if (options.step_ms > 0)
      std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(options.step_ms));
    if (i == 0) begin = Clock::now();  // nothing was prefetched for the first batch
  }
  const double seconds = since(begin);
  const auto later = static_cast<double>((options.batches - 1) * options.micro_batch);
  return {{"batches", options.batches},
          {"images", options.batches * options.micro_batch},
          {"labels", labels},
          {"skipped", samples->skipped()},
          {"first_batch_s", first},
          {"seconds_after", seconds},
          {"images_per_s", seconds > 0 ? later / seconds : 0.0},
          {"share_waiting", seconds > 0 ? waited / seconds : 0.0}};
}

void print(const ordered_json& about) {
  for (const auto& [key, value] : about.items())
    fmt::print("{:<24}{}\n", key,
               value.is_string()         ? value.get<std::string>()
               : value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
                                         : value.dump());
}

std::string written(const ordered_json& report, int indent) {
  return report.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

void report_on(const Options& options) {
  images::ImageTextPlan plan = options.plan;
  plan.seed = static_cast<std::uint64_t>(options.seed);
  plan.on_error = options.on_error == "skip" ? images::OnError::kSkip : images::OnError::kStop;
  if (!options.processor.empty()) plan.image = images::read_image_settings(options.processor);
  if (options.image_size > 0)
    plan.image.shortest_edge = plan.image.height = plan.image.width = options.image_size;
  images::ShardSet set = shards_of(options);
  const fs::path cache = cache_of(options, set);
  const auto shards = std::make_shared<const images::ShardSamples>(
      std::move(set),
      images::ShardOptions{.on_error = plan.on_error,
                           .threads = static_cast<int>(std::max<std::int64_t>(options.workers, 1)),
                           .max_sample_bytes = options.max_sample_mb << 20,
                           .cache = cache});
  ordered_json report{{"data", describe(*shards)}};
  print(report["data"]);
  const images::ShardOrder order(shards->size(), plan.seed, plan.block, plan.window);
  report["first_samples"] = first_samples(*shards, order, options);
  for (const auto& sample : report["first_samples"]) fmt::print("{}\n", written(sample, -1));
  if (options.batches > 0) {
    const std::shared_ptr<const tokenizers::Tokenizer> tokenizer =
        tokenizers::make_tokenizer(options.tokenizer);
    report["rows"] = ordered_json::array();
    report["speed"] =
        measure(std::make_shared<images::ImageTextSamples>(shards, tokenizer, plan), options, report["rows"]);
    print(report["speed"]);
  }
  if (!options.json.empty()) write_file_atomically(options.json, written(report, 2) + "\n");
}

}  // namespace

Offers data_images_offers() {
  CLI::App app("", "data images");
  Options options;
  add_flags(app, options);
  return offers_of(app, "data", "images");
}

int data_images(const Arguments& arguments) {
  CLI::App app("", "data images");
  Options options;
  add_flags(app, options);
  if (!read_flags(app, arguments)) return kExitDone;
  config::require_none(faults_of(options));
  if (options.batches == 0) {
    reject_given(app, kBatchFlags, "--batches");
    reject_given(app, kTokenizerFlags, "--batches");
  }
  require_writable("--json", options.json);
  report_on(options);
  return kExitDone;
}

}  // namespace colonnade::app
