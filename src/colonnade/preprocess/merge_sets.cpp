// See merge_sets.h.
#include "colonnade/preprocess/merge_sets.h"

#include <optional>
#include <set>

#include "colonnade/base/error.h"
#include "colonnade/base/files.h"
#include "colonnade/data/indexed/indexed_dataset.h"

namespace colonnade::preprocess {

namespace fs = std::filesystem;

std::vector<std::string> dataset_prefixes_in(const fs::path& folder) {
  std::set<std::string> prefixes;
  for (const auto& entry : sorted_entries(folder)) {
    const fs::path& path = entry.path();
    if (path.extension() == ".bin" || path.extension() == ".idx")
      prefixes.insert(fs::path(path).replace_extension().string());
  }
  for (const std::string& prefix : prefixes)
    for (const fs::path& file : {fs::path(prefix + ".bin"), fs::path(prefix + ".idx")})
      if (!fs::is_regular_file(file))
        throw DataError(fmt::format(
            "{}: a data set must be two files, PREFIX.bin and PREFIX.idx; got one without this; copy it too or move "
            "the other one away",
            file.string()));
  if (prefixes.empty())
    throw DataError(fmt::format(
        "{} must hold data sets, PREFIX.bin and PREFIX.idx; got none; check the folder", folder.string()));
  return {prefixes.begin(), prefixes.end()};
}

MergedCounts merge_sets(const std::vector<std::string>& prefixes, const std::string& output,
                        bool multimodal) {
  for (const std::string& prefix : prefixes)
    if (fs::weakly_canonical(data::bin_path(prefix)) == fs::weakly_canonical(data::bin_path(output)))
      throw ConfigError(
          fmt::format("--output-prefix must name none of the inputs; got {}; choose another prefix", output));
  std::optional<data::IndexedDatasetBuilder> builder;
  MergedCounts counts;
  for (const std::string& prefix : prefixes) {
    const data::IndexedDataset set(prefix, multimodal);
    if (set.has_modes() && !multimodal)
      throw ConfigError(fmt::format(
          "--multimodal must be given for data sets with modes; got {} without it; add the flag", prefix));
    if (!builder) builder.emplace(output, set.type(), multimodal);
    builder->add_index(set);
    counts.documents += set.num_documents();
    counts.sequences += set.num_sequences();
    counts.tokens += set.num_tokens();
  }
  COL_CHECK(builder.has_value(), "merge_sets must get data sets; got {}", prefixes.size());
  builder->finalize();
  return counts;
}

}  // namespace colonnade::preprocess
