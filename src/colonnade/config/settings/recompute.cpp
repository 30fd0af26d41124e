// Settings of activation recomputation.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kRecompute = &Run::recompute;

std::string set_modules(Run& run, const Words& words) {
  for (const std::string& word : words)
    if (std::ranges::find(kRecomputeModules, word) == std::end(kRecomputeModules))
      return fmt::format("must be among {}", fmt::join(kRecomputeModules, ", "));
  if (words.empty()) return "must be at least one module";
  run.recompute.modules = words;
  return "";
}

std::optional<Words> get_modules(const Run& run) { return run.recompute.modules; }

}  // namespace

void add_recompute(Table& t) {
  t.group("recomputation");
  t.add<kRecompute, &Recompute::granularity>(
       "--recompute-granularity",
       "activation recomputation: full recomputes whole layers; selective recomputes the "
       "modules in --recompute-modules; unset: none")
      .choices({"selective", "full"});
  t.special("--recompute-modules", "modules recomputed by selective recomputation")
      .accessors(Kind::kList, &set_modules, &get_modules);
  t.shorthand("--recompute-activations", "").shorthand("recompute_granularity", "selective");
  add_recompute_moe(t);
  t.add<kRecompute, &Recompute::method>(
       "--recompute-method",
       "with full: uniform saves the input of every --recompute-num-layers layers; block "
       "recomputes the first --recompute-num-layers layers of each virtual stage individually")
      .choices({"uniform", "block"});
  t.add<kRecompute, &Recompute::num_layers>("--recompute-num-layers",
                                            "number of layers for --recompute-method")
      .unit("layers")
      .range(1, 1'000'000);
  t.add<kRecompute, &Recompute::distribute_saved_activations>(
      "--distribute-saved-activations",
      "with full: shard saved layer inputs over tensor-parallel ranks and all-gather them for "
      "recomputation");
}

}  // namespace colonnade::config
