// `colonnade convert`: reads its arguments; job/conversion.h does the rest.
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/job/conversion.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

using job::CheckpointFormat;

struct ConvertFlags {
  std::string from, to, source, target, input, output, dtype, shard_size = "5GB";
  std::int64_t step = -1;
  int workers = 1, target_tp = 0, target_pp = 0;
  bool no_optimizer = false;
};

void add_flags(CLI::App& app, ConvertFlags& f) {
  app.add_option("--from", f.from, "source: hf:DIR, megatron:DIR or native:DIR");
  app.add_option("--to", f.to, "target: hf:DIR, megatron:DIR or native:DIR; DIR must be new or empty");
  app.add_option("--source", f.source, "format of --input-path: hf, megatron or native");
  app.add_option("--target", f.target, "format of --output-path: hf, megatron or native");
  app.add_option("--input-path", f.input, "folder to read, with --source");
  app.add_option("--output-path", f.output, "folder to write, with --target");
  app.add_option("--target-tp", f.target_tp, "accepted for compatibility: every layout reads the result");
  app.add_option("--target-pp", f.target_pp, "accepted for compatibility: every layout reads the result");
  app.add_option("--ckpt-step", f.step, "step or iteration of the source; without it the newest");
  app.add_option("--dtype", f.dtype,
                 "dtype of the model's tensors: fp32, bf16 or fp16; without it that of the source");
  app.add_option("--shard-size", f.shard_size, "most bytes of a file, e.g. 5GB");
  app.add_option("--workers", f.workers, "threads; each holds one tensor in memory")->check(within(1, 256));
  app.add_flag("--no-optimizer", f.no_optimizer, "leave the optimizer's states out");
}

CheckpointFormat format_of(const std::string& name, const char* flag) {
  static const std::map<std::string, CheckpointFormat> kFormats = {{"hf", CheckpointFormat::kHuggingFace},
                                                                   {"native", CheckpointFormat::kNative},
                                                                   {"megatron", CheckpointFormat::kMegatron}};
  const auto found = kFormats.find(name);
  if (found == kFormats.end())
    throw ConfigError(fmt::format(
        "{} must be hf, megatron or native; got \"{}\"; write {} hf:DIR", flag, name,
        std::string(flag).starts_with("--from") || std::string(flag) == "--source" ? "--from" : "--to"));
  return found->second;
}

struct Place {
  CheckpointFormat format = CheckpointFormat::kNative;
  std::string folder;
};

/// The place of FORMAT:DIR, or of a format and a path apart.
Place place_of(const std::string& joined, const char* joined_flag, const std::string& format,
               const char* format_flag, const std::string& path, const char* path_flag) {
  if (!joined.empty() && (!format.empty() || !path.empty()))
    throw ConfigError(fmt::format("{} must stand alone; got {} too; remove one", joined_flag,
                                  format.empty() ? path_flag : format_flag));
  if (joined.empty() && (format.empty() || path.empty()))
    throw ConfigError(fmt::format("{} must be given; got none; write {} hf:DIR, or {} hf {} DIR", joined_flag,
                                  joined_flag, format_flag, path_flag));
  if (joined.empty()) return {format_of(format, format_flag), path};
  const auto colon = joined.find(':');
  if (colon == std::string::npos || colon + 1 == joined.size())
    throw ConfigError(fmt::format("{} must be FORMAT:DIR; got \"{}\"; write {} hf:{}", joined_flag, joined,
                                  joined_flag, colon == std::string::npos ? joined : "DIR"));
  return {format_of(joined.substr(0, colon), joined_flag), joined.substr(colon + 1)};
}

/// "5GB", "200MB" or a number of bytes.
std::uint64_t bytes_of(const std::string& text) {
  constexpr std::pair<const char*, double> kUnits[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6},
                                                       {"KB", 1e3},  {"B", 1},    {"", 1}};
  std::string upper = text;
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const auto& [unit, factor] : kUnits) {
    if (!upper.ends_with(unit)) continue;
    char* end = nullptr;
    const std::string number = upper.substr(0, upper.size() - std::string(unit).size());
    const double value = std::strtod(number.c_str(), &end);
    if (!number.empty() && end == number.c_str() + number.size() && value * factor >= 1)
      return static_cast<std::uint64_t>(value * factor);
    break;
  }
  throw ConfigError(
      fmt::format("--shard-size must be a number of bytes above 0; got \"{}\"; write 5GB", text));
}

std::optional<at::ScalarType> dtype_of_flag(const std::string& name) {
  static const std::map<std::string, at::ScalarType> kTypes = {
      {"fp32", at::kFloat},        {"float32", at::kFloat}, {"bf16", at::kBFloat16},
      {"bfloat16", at::kBFloat16}, {"fp16", at::kHalf},     {"float16", at::kHalf}};
  if (name.empty()) return std::nullopt;
  const auto found = kTypes.find(name);
  if (found == kTypes.end())
    throw ConfigError(
        fmt::format("--dtype must be fp32, bf16 or fp16; got \"{}\"; write --dtype bf16", name));
  return found->second;
}

void print_progress(const job::ConversionProgress& p) {
  const double rate = static_cast<double>(p.bytes) / std::max(p.seconds, 1e-3);
  const double left = static_cast<double>(p.total_bytes - p.bytes) / std::max(rate, 1.0);
  log::info("convert: {:.2f} of {:.2f} GB, {:.0f} MB/s, {:.0f} s left", static_cast<double>(p.bytes) / 1e9,
            static_cast<double>(p.total_bytes) / 1e9, rate / 1e6, left);
}

void print_report(const job::ConversionReport& r, const std::string& folder) {
  for (const std::string& note : r.notes) fmt::print("{}\n", note);
  fmt::print("{} of {} source tensors used, each once; {} target tensors filled, each once\n", r.used_tensors,
             r.source_tensors, r.target_tensors);
  fmt::print("{}: {} files{}, {:.2f} GB in {:.1f} s ({:.0f} MB/s)\n", folder, r.files,
             r.kept_files > 0 ? fmt::format(" ({} of an interrupted conversion)", r.kept_files) : "",
             static_cast<double>(r.bytes) / 1e9, r.seconds,
             static_cast<double>(r.bytes) / 1e6 / std::max(r.seconds, 1e-3));
}

}  // namespace

Offers convert_offers() {
  CLI::App app("", "convert");
  ConvertFlags flags;
  add_flags(app, flags);
  return offers_of(app, "convert");
}

int convert(const Arguments& arguments) {
  CLI::App app("", "convert");
  ConvertFlags flags;
  add_flags(app, flags);
  describe(
      app,
      "Converts checkpoints between Hugging Face, Megatron and Colonnade, on a CPU, tensor by tensor. Every tensor "
      "of the model is used once, or nothing is written. The same command continues an interrupted conversion.",
      {"convert --from hf:llama --to megatron:ckpt", "convert --from megatron:ckpt --to hf:out --dtype bf16",
       "convert --source hf --target megatron --input-path llama --output-path ckpt --target-tp 8"});
  if (!read_flags(app, arguments)) return kExitDone;
  const Place from = place_of(flags.from, "--from", flags.source, "--source", flags.input, "--input-path");
  const Place to = place_of(flags.to, "--to", flags.target, "--target", flags.output, "--output-path");
  if (flags.target_tp > 0 || flags.target_pp > 0)
    log::info("--target-tp, --target-pp: without effect, as every layout reads the result");
  at::set_num_threads(1);  // workers are the threads
  const job::ConversionReport report =
      job::convert({.from = from.format,
                    .to = to.format,
                    .source = from.folder,
                    .target = to.folder,
                    .step = flags.step >= 0 ? std::optional(flags.step) : std::nullopt,
                    .dtype = dtype_of_flag(flags.dtype),
                    .shard_bytes = bytes_of(flags.shard_size),
                    .workers = flags.workers,
                    .with_optimizer = !flags.no_optimizer,
                    .on_progress = print_progress});
  print_report(report, to.folder);
  return kExitDone;
}

}  // namespace colonnade::app
