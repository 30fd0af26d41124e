// `colonnade data inspect | audit | merge | images`: dispatch, and merging of data sets.
#include "data.h"

#include <algorithm>

#include "colonnade/base/error.h"
#include "colonnade/base/log.h"
#include "colonnade/data/indexed/indexed_dataset.h"
#include "colonnade/preprocess/merge_sets.h"
#include "data_images.h"
#include "flags.h"
#include "verbs.h"

namespace colonnade::app {
namespace {

struct Merge {
  std::vector<std::string> inputs;
  std::string output_prefix;
  bool multimodal = false;
};

void merge(const Merge& options) {
  std::vector<std::string> prefixes;
  for (const std::string& input : options.inputs) {
    const bool folder = std::filesystem::is_directory(input);
    const std::vector<std::string> found =
        folder ? preprocess::dataset_prefixes_in(input) : std::vector<std::string>{input};
    prefixes.insert(prefixes.end(), found.begin(), found.end());
  }
  const preprocess::MergedCounts counts =
      preprocess::merge_sets(prefixes, options.output_prefix, options.multimodal);
  log::info("done: {} data sets, {} documents, {} sequences, {} tokens", prefixes.size(), counts.documents,
            counts.sequences, counts.tokens);
}

void add_merge_flags(CLI::App& app, Merge& options) {
  describe(app, "Merges data sets into one, byte-identical to Megatron's tools/merge_datasets.py.",
           {"colonnade data merge --input parts/ --output-prefix all_text_document"});
  app.add_option("--input", options.inputs, "Prefixes, or a folder whose data sets are merged sorted by name")
      ->required();
  app.add_option("--output-prefix", options.output_prefix, "Prefix of the merged data set")->required();
  app.add_flag("--multimodal", options.multimodal, "The data sets store a mode per sequence");
}

int data_merge(const Arguments& arguments) {
  CLI::App app("", "data merge");
  Merge options;
  add_merge_flags(app, options);
  if (read_flags(app, arguments)) merge(options);
  return kExitDone;
}

}  // namespace

Offers data_offers() {
  CLI::App merge_app("", "data merge");
  Merge merging;
  add_merge_flags(merge_app, merging);
  Offers offers = data_inspect_offers();
  for (const Offers& more :
       {data_audit_offers(), offers_of(merge_app, "data", "merge"), data_images_offers()})
    offers.insert(offers.end(), more.begin(), more.end());
  return offers;
}

int data(const Arguments& arguments) {
  const std::string sub = arguments.empty() ? "" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (sub == "inspect") return data_inspect(rest);
  if (sub == "audit") return data_audit(rest);
  if (sub == "merge") return data_merge(rest);
  if (sub == "images") return data_images(rest);
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end()) {
    for (const auto verb : {data_audit, data_merge, data_images, data_inspect}) {
      if (verb != data_audit) fmt::print("\n");
      verb({"--help"});
    }
    return kExitDone;
  }
  throw ConfigError(fmt::format(
      "data must be followed by `inspect`, `audit`, `merge` or `images`; got '{}'; see `colonnade help data`",
      sub));
}

}  // namespace colonnade::app
