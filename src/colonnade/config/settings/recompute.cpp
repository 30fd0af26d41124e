// Settings of what the backward pass makes again.
#include "colonnade/config/access.h"

namespace colonnade::config {

namespace {

constexpr auto kRecompute = &Run::recompute;

std::string set_modules(Run& run, const Words& words) {
  for (const std::string& word : words)
    if (std::ranges::find(kRecomputeModules, word) == std::end(kRecomputeModules))
      return fmt::format("must be of {}", fmt::join(kRecomputeModules, ", "));
  if (words.empty()) return "must be at least one part of a layer";
  run.recompute.modules = words;
  return "";
}

std::optional<Words> get_modules(const Run& run) { return run.recompute.modules; }

}  // namespace

void add_recompute(Table& t) {
  t.group("recomputation");
  t.add<kRecompute, &Recompute::granularity>(
       "--recompute-granularity",
       "what the backward pass makes again and the forward pass does not keep: full: whole layers; "
       "selective: the parts of --recompute-modules; unset: nothing")
      .choices({"selective", "full"});
  t.special("--recompute-modules", "parts of layers that selective recomputation makes again")
      .how(Kind::kList, &set_modules, &get_modules);
  t.shorthand("--recompute-activations", "").shorthand("recompute_granularity", "selective");
  t.shorthand("--moe-layer-recompute",
              "--recompute-granularity selective with moe added to --recompute-modules");
  t.add<kRecompute, &Recompute::method>(
       "--recompute-method",
       "with full: uniform keeps the input of every --recompute-num-layers layers of a virtual stage; block makes "
       "the first so many layers of it again, each by itself, and keeps the others")
      .choices({"uniform", "block"});
  t.add<kRecompute, &Recompute::num_layers>("--recompute-num-layers", "layers of --recompute-method")
      .unit("layers")
      .range(1, 1'000'000);
  t.add<kRecompute, &Recompute::distribute_saved>(
      "--distribute-saved-activations",
      "with full: tensor ranks keep a part each of the inputs, and gather them");
}

}  // namespace colonnade::config
