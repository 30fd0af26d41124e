// Rules of settings that were given and would do nothing. Scales of a loss without fp16 are let through:
// scripts for Megatron give them with bf16 too.
#include <array>

#include "colonnade/config/parse.h"
#include "colonnade/config/schema.h"
#include "colonnade/plan/rules/table.h"

namespace colonnade::plan {

namespace {

using config::Run;
using Broken = std::optional<Finding>;

/// Settings that do something only beside another one.
struct Companions {
  std::array<const char*, 4> keys;  ///< up to four
  const char* needed;               ///< key of the other one
  const char* needs;                ///< the same as a user writes it
  bool (*present)(const Run&);
};

bool has_rope(const Run& r) { return r.model.position_embedding == config::PositionEmbedding::kRope; }

bool has_warmup(const Run& r) {
  const auto& s = r.schedule;
  return s.lr_warmup_iters > 0 || s.lr_warmup_samples > 0 || s.lr_warmup_fraction.value_or(0) > 0;
}

bool has_virtual_stages(const Run& r) {
  const auto& p = r.parallel;
  return p.num_virtual_stages_per_pipeline_rank > 1 || p.num_layers_per_virtual_pipeline_stage > 0 ||
         !p.pipeline_model_parallel_layout.empty();
}

constexpr Companions kRopeScaling{{"rope_scaling_factor", "rope_low_freq_factor", "rope_high_freq_factor",
                                   "rope_original_max_position_embeddings"},
                                  "use_rope_scaling",
                                  "--use-rope-scaling",
                                  [](const Run& r) { return r.model.use_rope_scaling; }};
constexpr Companions kRotary{
    {"rotary_base", "rotary_percent", "rotary_interleaved", "rotary_seq_len_interpolation_factor"},
    "position_embedding_type",
    "--position-embedding-type rope",
    has_rope};
constexpr Companions kQkNorm{
    {"apply_wd_to_qk_layernorm"}, "qk_layernorm", "--qk-layernorm", [](const Run& r) {
      return r.model.qk_layernorm;
    }};
constexpr Companions kAdam{
    {"adam_beta1", "adam_beta2", "adam_eps"}, "optimizer", "--optimizer adam", [](const Run& r) {
      return r.optimizer.optimizer == config::OptimizerKind::kAdam;
    }};
constexpr Companions kSgd{{"sgd_momentum"}, "optimizer", "--optimizer sgd", [](const Run& r) {
                            return r.optimizer.optimizer == config::OptimizerKind::kSgd;
                          }};
constexpr Companions kWarmup{{"lr_warmup_init"}, "lr_warmup_iters", "--lr-warmup-iters", has_warmup};
constexpr Companions kGroups{{"microbatch_group_size_per_virtual_pipeline_stage"},
                             "num_virtual_stages_per_pipeline_rank",
                             "--num-virtual-stages-per-pipeline-rank",
                             has_virtual_stages};
constexpr Companions kLoad{
    {"no_load_optim"}, "load", "--load", [](const Run& r) { return !r.checkpoint.load.empty(); }};
constexpr Companions kTokenizer{{"tokenizer_model"}, "tokenizer_type", "--tokenizer-type", [](const Run& r) {
                                  return !r.data.tokenizer_type.empty();
                                }};

/// Given, not its default, and not left behind in a file by a command line that removed the other one.
bool idle(const Run& r, const Companions& c, const config::Setting& s) {
  if (!r.given.contains(s.key) || config::text_of(r, s) == s.default_text()) return false;
  return config::typed(r, s.key) || !config::typed(r, c.needed);
}

template <const Companions& kCompanions>
Broken without_companion(const Run& r) {
  if (kCompanions.present(r) || r.at_fault.contains(kCompanions.needed)) return std::nullopt;
  Finding found{"", fmt::format("does nothing without {}", kCompanions.needs), "", {}, ""};
  for (const char* key : kCompanions.keys) {
    if (key == nullptr) break;
    const config::Setting& s = config::setting(key);
    if (!idle(r, kCompanions, s)) continue;
    const char* comma = found.edits.empty() ? "" : ", ";
    found.thing += comma + s.flag;
    found.got += comma + config::text_of(r, s);
    found.edits.push_back({s.key, s.default_text()});
  }
  if (found.edits.empty()) return std::nullopt;
  found.way_out = fmt::format("leave it out, or add {}", kCompanions.needs);
  return found;
}

constexpr Rule kEffect[] = {
    {"idle-rope-scaling", false, without_companion<kRopeScaling>},
    {"idle-rotary", false, without_companion<kRotary>},
    {"idle-qk-decay", true, without_companion<kQkNorm>},
    {"idle-adam", true, without_companion<kAdam>},
    {"idle-sgd", true, without_companion<kSgd>},
    {"idle-warmup-init", true, without_companion<kWarmup>},
    {"idle-microbatch-group", true, without_companion<kGroups>},
    {"idle-load-optim", true, without_companion<kLoad>},
    {"idle-tokenizer-model", false, without_companion<kTokenizer>},
};

}  // namespace

std::span<const Rule> effect_rules() { return kEffect; }

}  // namespace colonnade::plan
